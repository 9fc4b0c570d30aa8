"""Make or refresh .venv: `python3 tools/setup.py run` (what Holdfast needs) or `dev` (also tests and linters).

Only the door: it must be readable to any Python, so that an old one gets a sentence and not a traceback.
"""

import os.path
import sys

if sys.version_info < (3, 11):  # noqa: UP036  ruff trusts the target version; this line is for the machine that lacks it
    sys.exit("set-up: Holdfast needs Python 3.11 or newer, not " + sys.version.split()[0] + "; try PYTHON=python3.11")

# By path, not by `-m`: the command then works from any directory.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120  no pathlib before 3.4

from tools.environment import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
