"""What the status page shows. Page and JSON are made of the same values."""

from dataclasses import asdict, dataclass

from holdfast.kernel.instants import Instant
from holdfast.kernel.settings import StoreAddress
from holdfast.ports.store.admin import Difference


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A declared table, and in what it differs from its declaration."""

    name: str
    purpose: str
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True)
class TablesSeen:
    """The tables at one moment, or why they could not be looked at."""

    at: Instant
    tables: tuple[TableStatus, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class TicksProblem:
    """Ticks come to nothing. `text` is for anybody; `why` may name accounts and machines, and is for who may look."""

    text: str
    why: str | None = None

    def __str__(self) -> str:
        return f"{self.text}: {self.why}" if self.why else self.text


@dataclass(frozen=True, slots=True)
class Status:
    version: str
    now: Instant
    started: Instant
    store: StoreAddress
    problem: str | None
    seen: TablesSeen

    @property
    def uptime_seconds(self) -> int:
        # The wall clock may jump back; a negative age helps nobody.
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
