"""Exit codes, all of them. docs/terminal.md has the same table, and a test compares the two."""

from enum import IntEnum


class ExitCode(IntEnum):
    DONE = 0
    FAILED = 1
    USAGE = 2
    INTERRUPTED = 130  # 128 + SIGINT, as shells count
