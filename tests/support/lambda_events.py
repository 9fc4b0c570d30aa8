"""Calls as AWS Lambda makes them."""

from dataclasses import dataclass


@dataclass
class Call:
    """The context object of a call."""

    aws_request_id: str = "7a3c-1"
    seconds_left: float = 300

    def get_remaining_time_in_millis(self) -> int:
        return int(self.seconds_left * 1000)
