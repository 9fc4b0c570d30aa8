"""A Lambda function's process: `python -m tests.support.lambda_process tick|event`.

`tick` is invoked again and again, as by a schedule without pauses. `event` takes one event as JSON from
the variable EVENT, and ends.
"""

import json
import os
import sys
from typing import Any

from holdfast.entrypoints import lambda_handlers
from tests.support.lambda_events import Call


def main(handler: str) -> None:
    if handler == "event":
        _log(lambda_handlers.ec2_event(json.loads(os.environ["EVENT"]), Call("event-1")))
        return
    number = 0
    while True:
        number += 1
        try:
            answer = lambda_handlers.scheduled_tick({}, Call(f"request-{number}", seconds_left=60))
        except Exception as error:
            answer = {"failed": str(error)}  # as Lambda does: logged, and invoked again
        _log(answer)


def _log(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
