"""Where the way over stands, and whether the next step may be taken: each reason against it in one sentence."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from holdfast.jobs.migration.compare import Compared, last_compare
from holdfast.jobs.migration.counts import Counted, counted
from holdfast.jobs.migration.differences import Kind
from holdfast.jobs.migration.layout import UNSTORED
from holdfast.jobs.migration.phases import ORDER, SETTLED_SECONDS, Phase, StoredPhase, stored_phase
from holdfast.jobs.migration.place import Backfilled, last_backfill
from holdfast.kernel.instants import Instant
from holdfast.ports.objects import Objects
from holdfast.ports.store import Store

UNSTORED_COUNTED_MOST: Final = 1000
_BACKFILL: Final = "run: holdfast migrate backfill"


@dataclass(frozen=True, slots=True)
class Standing:
    """`unstored` counts webhooks that S3 has and the tables could not take; at most 1,000 are counted."""

    now: Instant
    stored: StoredPhase
    wanted: Phase
    figures: Counted
    backfilled: Backfilled | None
    compared: Compared | None
    unstored: int

    @property
    def next(self) -> Phase | None:
        number = self.stored.phase.number + 1
        return ORDER[number] if number < len(ORDER) else None

    def against_next(self) -> list[str]:
        """Why not to go on now; nothing: go on."""
        if self.next is None:
            return []
        found = list(_AGAINST[self.next](self)) if self.next in _AGAINST else []
        if not self.stored.is_settled(self.now):
            found.insert(0, f"the last move was less than {SETTLED_SECONDS:g} s ago: not every instance has followed")
        return found

    def against_back(self, wanted: Phase) -> list[str]:
        """Why not to go back to this phase now."""
        if wanted is not Phase.OFF or not self.unstored:
            return []  # in every other phase, S3 is read where the tables lack something
        return [f"{_at_least(self.unstored)} webhooks are in S3 alone, and would not be seen; {_BACKFILL}"]

    def shown(self) -> dict[str, Any]:
        against = self.against_next()
        latencies = {
            f"{side}_{call}": self.figures.mean_ms(call, side) for side in ("store", "s3") for call in ("read", "write")
        }
        return {
            "phase": str(self.stored.phase),
            "since": self.stored.since.iso() if self.stored.since else None,
            "setting": str(self.wanted),
            "next": str(self.next) if self.next else None,
            "is_ready": self.next is not None and not against,
            "against": against,
            "hit_rate": self.figures.hit_rate,
            "error_rate": self.figures.error_rate,
            "mean_ms": latencies,
            "counts": dict(sorted(self.figures.counts.items())),
            "unstored": self.unstored,
            "backfill": self.backfilled.shown() if self.backfilled else None,
            "compare": self.compared.shown() if self.compared else None,
            "moves": [dict(move) for move in self.stored.moves],
        }


def standing(store: Store, objects: Objects, wanted: Phase, now: Instant) -> Standing:
    stored = stored_phase(store)
    return Standing(
        now,
        stored,
        wanted,
        counted(store, now, stored.seq),
        last_backfill(store),
        last_compare(store),
        len(objects.page(UNSTORED, most=UNSTORED_COUNTED_MOST).entries),
    )


def _against_dual_read(it: Standing) -> Iterator[str]:
    """Read the tables first: they must hold what S3 holds."""
    both_since, backfilled = it.stored.both_since, it.backfilled
    if it.unstored:
        yield f"{_at_least(it.unstored)} webhooks are in S3 and not in the tables; {_BACKFILL}"
    if backfilled is None or (both_since is not None and backfilled.started and backfilled.started < both_since):
        yield f"nothing was filled in since both are written; {_BACKFILL}"
        return
    if backfilled.finished is None:
        yield f"the backfill is not done: {backfilled.objects} of {backfilled.total}; {_BACKFILL}"
        return
    yield from _against_compare(it, backfilled.finished)


def _against_compare(it: Standing, since: Instant) -> Iterator[str]:
    compared = it.compared
    if compared is None or compared.started < since:
        yield "nothing was compared since the backfill; run: holdfast migrate compare"
    elif compared.share < 1:
        yield f"only a share of {compared.share:g} was compared; run: holdfast migrate compare"
    elif compared.lacking:
        yield f"{compared.lacking} differences were found ({_kinds(compared)}); {_remedy(compared)}"


def _kinds(compared: Compared) -> str:
    lacking = {kind: number for kind, number in compared.kinds.items() if kind != Kind.ONLY_IN_TABLE}
    return ", ".join(f"{number} {kind}" for kind, number in sorted(lacking.items()))


def _remedy(compared: Compared) -> str:
    """A backfill fills in what is missing. It does not overwrite what is there, nor understand what is no webhook."""
    if any(compared.kinds[kind] for kind in (Kind.FIELD, Kind.UNUSABLE)):
        return "holdfast migrate compare lists them; the docs tell what to do about each kind"
    return f"{_BACKFILL}, and compare again"


def _against_dynamodb_only(it: Standing) -> Iterator[str]:
    """Write no objects any more: nobody may need them."""
    yield from _against_dual_read(it)
    if fallbacks := it.figures.fallbacks:
        yield (
            f"{fallbacks} reads since yesterday found a job in S3, not in the tables; run: holdfast migrate compare, "
            "mend what it finds, and see tomorrow whether there are more"
        )


_AGAINST: Final = {Phase.DUAL_READ: _against_dual_read, Phase.DYNAMODB_ONLY: _against_dynamodb_only}


def _at_least(number: int) -> str:
    return f"{number} or more" if number >= UNSTORED_COUNTED_MOST else str(number)
