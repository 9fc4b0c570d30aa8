"""Runs of the simulator in a process of their own: `python -m holdfast.entrypoints.simulation_process ORDER`.

The order is a JSON object. How far it is, it tells on stdout, a JSON object a line. It ends when its input does: then
whoever started it has ended, however that was.
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

from holdfast.entrypoints.simulation import Question, answer
from holdfast.simulator.checkers import EVERY
from holdfast.simulator.run import Outcome
from holdfast.simulator.swarm import Faultiness

_NICENESS: Final = 10  # a tenth of the time of whoever else is busy


def main(order: Mapping[str, Any]) -> None:
    os.nice(_NICENESS)
    logging.disable(logging.CRITICAL)  # the program complains of every fault
    threading.Thread(target=_end_with_input, daemon=True).start()
    question = Question(order["seed"], Faultiness(order["faults"]), scenario=order["scenario"])
    tell_runs(question, order["seeds"], _say)


def tell_runs(question: Question, seeds: int, say: Callable[[dict[str, Any]], None]) -> None:
    """First who watches, then what came of each seed."""
    say({"checkers": [{"name": checker.name, "says": checker.says} for checker in EVERY]})
    for seed in range(question.seed, question.seed + seeds):
        asked = replace(question, seed=seed)
        say(_told(asked, answer(asked)))


def _told(question: Question, outcome: Outcome) -> dict[str, Any]:
    return {
        "virtual_days": outcome.virtual_days,
        "port_calls": outcome.port_calls,
        "faults": outcome.faults.total(),
        "violations": [
            {
                "seed": question.seed,
                "invariant": violation.invariant,
                "found": violation.found,
                "story": outcome.story.until(position),
                "command": question.command(),
            }
            for violation, position in outcome.violations
        ],
    }


def _say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)  # noqa: T201  this is what its stdout is for


def _end_with_input() -> None:
    with suppress(OSError):
        while os.read(0, 4096):
            pass
    os._exit(0)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
