"""Which files of a directory Holdfast believes: those that only a trusted user can have written.

Settings decide which cluster is changed and where credentials are sent, and the data directory has the state. A trusted
user is this process's own, root, and the owner of Holdfast's code, who could change the program as well: so root in a
CI job can run the checkout of another user.
"""

import os
import stat
from pathlib import Path
from typing import Final

_OWN_CODE: Final = Path(__file__)


class UntrustedFile(Exception):
    """The file is not to be believed. The message is the end of a sentence about it; `remedy` begins a command."""

    def __init__(self, reason: str, *, is_foreign: bool) -> None:
        super().__init__(reason)
        self.remedy = 'sudo chown "$(id -u)"' if is_foreign else "chmod go-w"


def distrust_reason(found: os.stat_result) -> str:
    """Why this file or directory is not to be believed, as the end of a sentence about it; "" if it is.

    A directory with the sticky bit, such as /tmp, is fine: in it, only a file's owner can replace the file.
    """
    if found.st_uid not in _trusted_users():
        return f"is owned by another user (uid {found.st_uid})"
    if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX:
        return ""
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"is writable by other users (mode {stat.S_IMODE(found.st_mode):04o})"
    return ""


def distrusted(*paths: Path) -> str:
    """The first of these paths that is not to be believed, with the reason; "" if there is none. One may be missing."""
    for path in paths:
        try:
            found = path.stat()
        except FileNotFoundError:
            continue
        reason = distrust_reason(found)
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            reason = "is neither a file nor a directory"  # reading a pipe would wait for ever
        if reason:
            return f"{path} {reason}"
    return ""


def read_trusted(path: Path) -> str:
    """The text of a file. Raises `UntrustedFile` if it is not to be believed."""
    with path.open(encoding="utf-8") as file:
        # The open file is examined, and not its path: the path could name another file a moment later.
        found = os.fstat(file.fileno())
        if reason := distrust_reason(found):
            raise UntrustedFile(reason, is_foreign=found.st_uid not in _trusted_users())
        return file.read()


def _trusted_users() -> frozenset[int]:
    return frozenset({os.geteuid(), 0, _OWN_CODE.stat().st_uid})
