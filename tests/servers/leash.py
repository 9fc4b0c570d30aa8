"""Become another program that dies when its parent does: `python leash.py PARENT_PID COMMAND …`.

A separate program, not a `preexec_fn`, which may deadlock in a process with threads. The kernel keeps the setting
across exec. On other systems than Linux, a killed test run may leave a server behind.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the parent died before its server began")
    os.execvp(command[0], command)  # noqa: S606  becoming the server is the point


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
