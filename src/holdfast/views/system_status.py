"""What the system page shows, and `/api/status` as JSON."""

from dataclasses import asdict, dataclass

from holdfast.kernel.instants import Instant
from holdfast.kernel.settings import StoreAddress
from holdfast.ports.store.admin import TableDifference


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A declared table, and how it differs from its declaration."""

    name: str
    purpose: str
    differences: tuple[TableDifference, ...] = ()


@dataclass(frozen=True, slots=True)
class TablesSeen:
    """The tables at one moment, or why they could not be read."""

    at: Instant
    tables: tuple[TableStatus, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class TicksProblem:
    """Ticks fail. `text` is public; `why` may name accounts and machines, and is only for signed-in readers."""

    text: str
    why: str | None = None

    def __str__(self) -> str:
        return f"{self.text}: {self.why}" if self.why else self.text


@dataclass(frozen=True, slots=True)
class SystemStatus:
    version: str
    now: Instant
    started: Instant
    store: StoreAddress
    problem: str | None
    seen: TablesSeen

    @property
    def uptime_seconds(self) -> int:
        # The wall clock may jump back, and an age is never negative.
        return max(0, int(self.now.seconds_since(self.started)))

    def as_json(self) -> dict[str, object]:
        return {
            "version": self.version,
            "now": self.now.iso(),
            "started_at": self.started.iso(),
            "uptime_seconds": self.uptime_seconds,
            "ready": self.problem is None,
            "problem": self.problem,
            "store": {"kind": self.store.backend, "path": str(self.store.path) if self.store.path else None},
            "tables": {
                "checked_at": self.seen.at.iso(),
                "problem": self.seen.problem,
                "items": [_table_json(table) for table in self.seen.tables],
            },
        }


def _table_json(table: TableStatus) -> dict[str, object]:
    differences = [{k: v for k, v in asdict(d).items() if k not in ("table", "step")} for d in table.differences]
    return {"name": table.name, "purpose": table.purpose, "ok": not differences, "differences": differences}
