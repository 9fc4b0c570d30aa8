"""Simulate seeds that were never simulated before, for as long as one likes, and add them up in proof/COUNT.json.

The README quotes the sum, and is updated with it.

`python -m tools.prove [--minutes 10] [--jobs 2] [--anew REASON]`. Needs Holdfast itself, so it runs in .venv. The exit
code is 1 when a seed broke an invariant; its command is printed.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from itertools import count as counting
from itertools import takewhile
from pathlib import Path
from typing import Any

from holdfast.entrypoints.simulation.program import RunRequest
from holdfast.entrypoints.simulation.search import Tally, search

ROOT = Path(__file__).resolve().parent.parent
COUNT = ROOT / "proof" / "COUNT.json"
README = ROOT / "README.md"
_QUOTE = re.compile(r"(?<=<!-- the sum of proof/COUNT.json -->\n).*?(?=\n<!-- its end -->)", re.DOTALL)
FIRST_SEED = 10_000  # lower ones belong to the tests
_SUMMED = ("seeds", "virtual_days", "port_calls", "faults", "violations")


def read_count(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {"next_seed": FIRST_SEED, "total": dict.fromkeys(_SUMMED, 0), "runs": []}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def begun_anew(before: dict[str, Any], reason: str) -> dict[str, Any]:
    """A count from zero, for a simulator that has changed: what earlier seeds showed was another world.

    Seeds are never used twice. The earlier counts are kept, each with the reason why it ended.
    """
    earlier = {"because": reason, "total": before["total"], "runs": before["runs"]}
    return {
        "next_seed": before["next_seed"],
        "total": dict.fromkeys(_SUMMED, 0),
        "runs": [],
        "earlier": [*before.get("earlier", []), earlier],
    }


def added(before: dict[str, Any], commit: str, tally: Tally) -> dict[str, Any]:
    """The count with one more run in it. Runs of the same commit are one line."""
    shown = {name: tally.shown()[name] for name in _SUMMED}
    total = {name: round(before["total"][name] + shown[name], 4) for name in _SUMMED}
    runs = list(before["runs"])
    if runs and runs[-1]["commit"] == commit:
        last = runs.pop()
        shown = {name: round(last[name] + shown[name], 4) for name in _SUMMED}
    return before | {
        "next_seed": before["next_seed"] + tally.seeds,
        "total": total,
        "runs": [*runs, {"commit": commit, **shown}],
    }


def quoted(count: dict[str, Any]) -> str:
    """The sum, in the words of the README."""
    total = count["total"]
    violations = f"{total['violations']} violations" if total["violations"] != 1 else "1 violation"
    since = sum(run["seeds"] for run in takewhile(lambda run: not run["violations"], reversed(count["runs"])))
    if total["violations"]:
        violations += f", none in the last {since:,} seeds"
    anew = f" (counted anew since {count['earlier'][-1]['because']})" if count.get("earlier") else ""
    return (
        f"**{total['seeds']:,} seeds, {total['virtual_days']:,.0f} virtual days, {total['port_calls']:,} calls through "
        f"ports, {total['faults']:,} faults: {violations}**{anew}"
    )


def with_quote(readme: str, count: dict[str, Any]) -> str:
    return _QUOTE.sub(lambda _: quoted(count), readme)


def commit_of(root: Path) -> str:
    """The commit, with a mark when the tree is not as committed."""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.prove", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--anew", metavar="REASON", help="begin the count anew, since REASON")
    asked = parser.parse_args(arguments)
    before, end = read_count(COUNT), time.monotonic() + asked.minutes * 60
    if asked.anew:
        before = begun_anew(before, asked.anew)

    def report_tally(tally: Tally) -> bool:
        days = before["total"]["virtual_days"] + tally.virtual_days
        found = f"{len(tally.found)} violations"
        print(f"\r{tally.seeds} seeds now, {days:,.0f} virtual days in all, {found} ", end="", file=sys.stderr)
        return time.monotonic() < end and not tally.found

    tally = search(RunRequest(), counting(before["next_seed"]), asked.jobs, report_tally)
    print(file=sys.stderr)
    after = added(before, commit_of(ROOT), tally)
    COUNT.parent.mkdir(exist_ok=True)
    COUNT.write_text(json.dumps(after, indent=2) + "\n", encoding="utf-8")
    README.write_text(with_quote(README.read_text(encoding="utf-8"), after), encoding="utf-8")
    for seed, invariant in sorted(tally.found.items()):
        print(f"{invariant} does not hold; to see it: {RunRequest(seed).command()}", file=sys.stderr)
    print(json.dumps(after["total"]))
    return 1 if tally.found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
