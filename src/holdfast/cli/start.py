"""Where the `holdfast` script begins. Ctrl-C prints no traceback, even while modules are imported or threads end."""

import signal
import sys
from typing import Final

_INTERRUPTED: Final = 130  # as ExitCode.INTERRUPTED, which may not be imported yet


def main() -> None:
    try:
        from holdfast.cli.main import main as run_command

        run_command()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    finally:
        # The process ends, and waits for its threads. Another Ctrl-C would interrupt that with a traceback.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    main()
