"""Check and create the declared tables, on any backend."""

from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.kernel.errors import StoreRefused
from holdfast.ports.store.admin import (
    AddIndex,
    FoundTable,
    RebuildIndex,
    Step,
    TableAdmin,
    TableDifference,
    differences,
)
from holdfast.ports.store.schema import Billing, Table


@dataclass(frozen=True, slots=True)
class TableCheck:
    """A declared table compared with the existing one."""

    table: Table
    found: FoundTable | None
    differences: tuple[TableDifference, ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps that fix differences automatically."""
        return tuple(difference.step for difference in self.differences if difference.step)


class MissingStore:
    """A backend that does not exist yet: every table is absent. Implements `holdfast.ports.store.admin.TableAdmin`."""

    def find(self, table: Table) -> FoundTable | None:  # noqa: ARG002  the port's signature
        return None

    def carry_out(self, step: Step) -> None:
        raise StoreRefused(f"cannot {step}: there is no store yet, and it was opened for reading only")


@dataclass(frozen=True, slots=True)
class Tables:
    """The declared tables, under their configured names, and their backend."""

    admin: TableAdmin
    declared: tuple[Table, ...]
    billing: Billing

    def check(self) -> list[TableCheck]:
        return [self._check(table) for table in self.declared]

    def planned(self) -> list[Step]:
        """The first steps of `create`."""
        return [step for check in self.check() for step in check.steps]

    def create(self) -> Iterator[Step]:
        """Create whatever is missing, yielding each step when it is done.

        Checks again after each round: a newly created table may still lack something.
        """
        done: set[Step] = set()
        for table in self.declared:
            while steps := [step for step in self._check(table).steps if step not in done]:
                for step in steps:
                    self.admin.carry_out(step)
                    # A step that still looks undone is not repeated forever; the next check reports it.
                    done.add(step)
                    yield step

    def to_rebuild(self, index: str) -> RebuildIndex | AddIndex | None:
        """The step that makes the index as declared; None if it is. A missing one may be a half-done rebuild."""
        for difference in [difference for check in self.check() for difference in check.differences]:
            step = difference.rebuild or difference.step
            if isinstance(step, RebuildIndex | AddIndex) and step.index.name == index:
                return step
        return None

    def _check(self, table: Table) -> TableCheck:
        found = self.admin.find(table)
        return TableCheck(table, found, tuple(differences(table, found, self.billing)))
