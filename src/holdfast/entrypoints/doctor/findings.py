"""What a check finds, and how checks are run. Pure but for the threads: each check has a time limit.

A check that hangs is left behind when its time is over, and what it found until then counts. One that fails hides no
other; only what cannot be asked without it is not asked, and says so.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from holdfast.kernel.errors import HoldfastError
from holdfast.kernel.text import cut, one_line

LIMIT_SECONDS: Final = 20.0
_TEXT_MOST: Final = 600


class Outcome(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    NOT_ASKED = "not asked"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, what was seen, and what to do about it."""

    check: str
    outcome: Outcome
    seen: str
    fix: str = ""

    def shown(self) -> dict[str, Any]:
        return {**asdict(self), "outcome": str(self.outcome)}


def ok(check: str, seen: str) -> Finding:
    return Finding(check, Outcome.OK, seen)


def warning(check: str, seen: str, fix: str) -> Finding:
    return Finding(check, Outcome.WARNING, seen, fix)


def failed(check: str, seen: str, fix: str) -> Finding:
    return Finding(check, Outcome.FAILED, seen, fix)


def not_asked(check: str, why: str) -> Finding:
    return Finding(check, Outcome.NOT_ASKED, why)


def of_error(check: str, error: HoldfastError) -> Finding:
    """An error of ours names what was found and then, after its last semicolon, the remedy."""
    seen, _, fix = str(error).rpartition("; ")
    if fix == "tried again later":  # by a daemon; whoever asks here wants to know what it needs
        fix = "is its address right, and can it be reached from here? If so, ask again in a minute"
    return failed(check, seen or fix, fix if seen else "docs/RUNBOOK.md has the message")


@dataclass(frozen=True, slots=True)
class Check:
    """`needs` are the names of checks without which this one cannot be asked; `why_not` is set if it is not to be."""

    name: str
    look: Callable[[], Iterable[Finding]]
    needs: Sequence[str] = ()
    why_not: str = ""


def examined(checks: Iterable[Check], limit_seconds: float = LIMIT_SECONDS) -> Iterator[Finding]:
    """The findings of each in turn, as they come."""
    broken: set[str] = set()
    for check in checks:
        missing = [name for name in check.needs if name in broken]
        if check.why_not:
            yield not_asked(check.name, check.why_not)
        elif missing:
            broken.add(check.name)
            yield not_asked(check.name, f"mend {', '.join(missing)} first")
        else:
            for finding in _within(check, limit_seconds):
                if finding.outcome is Outcome.FAILED:
                    broken.add(check.name)
                yield _safe(finding)


def _within(check: Check, limit_seconds: float) -> list[Finding]:
    found: list[Finding] = []
    ended = threading.Event()

    def look() -> None:
        try:
            for finding in check.look():
                found.append(finding)  # noqa: PERF402  one by one: what came before a hang is kept
        except HoldfastError as error:
            found.append(of_error(check.name, error))
        except Exception as error:
            found.append(failed(check.name, f"{type(error).__name__}: {error}", "a mistake in the program: report it"))
        ended.set()

    threading.Thread(target=look, name=f"doctor {check.name}", daemon=True).start()
    if ended.wait(limit_seconds):
        return found
    late = failed(check.name, f"no answer within {limit_seconds:g} s", "is there a firewall or a proxy on the way?")
    return [*found, late]


def _safe(finding: Finding) -> Finding:
    return Finding(
        one_line(finding.check), finding.outcome, cut(finding.seen, _TEXT_MOST), cut(finding.fix, _TEXT_MOST)
    )
