"""`python -m bench NAME [--json] [--quick]`, `python -m bench all`, `python -m bench list`."""

import sys

from bench.harness.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
