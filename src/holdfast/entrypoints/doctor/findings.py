"""Findings, and how checks are run. Each check runs in a thread with a time limit.

A check that hangs is abandoned when its time is up; its findings so far are kept. A failed check does not stop the
others, except those that need it: they are skipped and say so.
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


class FindingOutcome(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "not asked"  # the value is part of the JSON output


@dataclass(frozen=True, slots=True)
class Finding:
    """What was checked, what was found, and how to fix it."""

    check: str
    outcome: FindingOutcome
    seen: str
    fix: str = ""

    def shown(self) -> dict[str, Any]:
        return {**asdict(self), "outcome": str(self.outcome)}


def ok(check: str, seen: str) -> Finding:
    return Finding(check, FindingOutcome.OK, seen)


def warning(check: str, seen: str, fix: str) -> Finding:
    return Finding(check, FindingOutcome.WARNING, seen, fix)


def failed(check: str, seen: str, fix: str) -> Finding:
    return Finding(check, FindingOutcome.FAILED, seen, fix)


def skipped(check: str, why: str) -> Finding:
    return Finding(check, FindingOutcome.SKIPPED, why)


def failed_by_error(check: str, error: HoldfastError) -> Finding:
    """Our own errors name the problem and then, after the last semicolon, the remedy."""
    seen, _, fix = str(error).rpartition("; ")
    if fix == "retried later" or fix.startswith("gave up after "):  # what the program did, and no remedy
        fix = "check the address and the network; if both are fine, try again in a minute"
    return failed(check, seen or fix, fix if seen else "look up the message in docs/RUNBOOK.md")


@dataclass(frozen=True, slots=True)
class Check:
    """`needs` names the checks that must pass first; `why_not` is set if this check does not apply."""

    name: str
    run: Callable[[], Iterable[Finding]]
    needs: Sequence[str] = ()
    why_not: str = ""


def run_checks(checks: Iterable[Check], limit_seconds: float = LIMIT_SECONDS) -> Iterator[Finding]:
    """Run the checks in order and yield their findings."""
    broken: set[str] = set()
    for check in checks:
        missing = [name for name in check.needs if name in broken]
        if check.why_not:
            yield skipped(check.name, check.why_not)
        elif missing:
            broken.add(check.name)
            yield skipped(check.name, f"fix {', '.join(missing)} first")
        else:
            for finding in _within(check, limit_seconds):
                if finding.outcome is FindingOutcome.FAILED:
                    broken.add(check.name)
                yield _safe(finding)


def _within(check: Check, limit_seconds: float) -> list[Finding]:
    found: list[Finding] = []
    ended = threading.Event()

    def run() -> None:
        try:
            for finding in check.run():
                found.append(finding)  # noqa: PERF402  one by one: findings before a hang are kept
        except HoldfastError as error:
            found.append(failed_by_error(check.name, error))
        except Exception as error:
            found.append(
                failed(check.name, f"{type(error).__name__}: {error}", "this is a bug in Holdfast: please report it")
            )
        ended.set()

    threading.Thread(target=run, name=f"doctor {check.name}", daemon=True).start()
    if ended.wait(limit_seconds):
        return found
    late = failed(check.name, f"no answer within {limit_seconds:g} s", "check for a firewall or a proxy in between")
    return [*found, late]


def _safe(finding: Finding) -> Finding:
    return Finding(
        one_line(finding.check), finding.outcome, cut(finding.seen, _TEXT_MOST), cut(finding.fix, _TEXT_MOST)
    )
