"""Simulator runs in their own process: `python -m holdfast.entrypoints.simulation.process ORDER`.

The order is a JSON object. Progress goes to stdout, one JSON object per line. The process exits when its standard input
is closed: then its parent has ended, for whatever reason.
"""

import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from holdfast.entrypoints.simulation.program import RunRequest, outcome_of
from holdfast.simulator.checkers import EVERY
from holdfast.simulator.proof.run import Outcome
from holdfast.simulator.proof.swarm import Faultiness

_NICENESS: Final = 10  # a tenth of the CPU time of a busy process with normal priority


def main(order: Mapping[str, Any]) -> None:
    os.nice(_NICENESS)
    logging.disable(logging.CRITICAL)  # the program logs every fault
    threading.Thread(target=_end_with_input, daemon=True).start()
    request = RunRequest(order["seed"], Faultiness(order["faults"]), scenario=order["scenario"])
    report_runs(request, order["seeds"], _say)


def report_runs(request: RunRequest, seeds: int, say: Callable[[dict[str, Any]], None]) -> None:
    """First the checkers, then the result of each seed."""
    say({"checkers": [{"name": checker.name, "says": checker.says} for checker in EVERY]})
    for seed in range(request.seed, request.seed + seeds):
        one = replace(request, seed=seed)
        say(_report(one, outcome_of(one)))


def _report(request: RunRequest, outcome: Outcome) -> dict[str, Any]:
    return {
        "virtual_days": outcome.virtual_days,
        "port_calls": outcome.port_calls,
        "faults": outcome.faults.total(),
        "violations": [
            {
                "seed": request.seed,
                "invariant": violation.invariant,
                "found": violation.found,
                "story": outcome.story.until(position),
                "command": request.command(),
            }
            for violation, position in outcome.violations
        ],
    }


def _say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)  # noqa: T201 -- its stdout is for this


def _end_with_input() -> None:
    with suppress(OSError):
        while os.read(0, 4096):
            pass
    os._exit(0)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
