"""Secrets and settings that live outside: SSM's Parameter Store."""

from typing import Protocol


class Parameters(Protocol):
    def secret(self, name: str) -> str:
        """The decrypted value. Kept in memory for minutes at the most, never stored or logged."""
        ...
