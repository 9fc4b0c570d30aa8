"""Secrets in an external store: the SSM Parameter Store."""

from typing import Protocol


class Parameters(Protocol):
    def secret(self, name: str) -> str:
        """The decrypted value. Kept in memory for a few minutes at most, never stored or logged."""
        ...
