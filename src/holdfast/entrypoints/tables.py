"""Checking and creating the declared tables, on any backend."""

from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.kernel.errors import StoreRefused
from holdfast.ports.store.admin import Difference, FoundTable, Step, TableAdmin, differences
from holdfast.ports.store.schema import Billing, Table


@dataclass(frozen=True, slots=True)
class TableCheck:
    """A declared table beside the one that exists."""

    table: Table
    found: FoundTable | None
    differences: tuple[Difference, ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        """What can be mended without a person."""
        return tuple(difference.step for difference in self.differences if difference.step)


class NothingYet:
    """A backend that is not there: every table is absent. Implements `holdfast.ports.store.admin.TableAdmin`."""

    def find(self, table: Table) -> FoundTable | None:  # noqa: ARG002  the port's signature
        return None

    def carry_out(self, step: Step) -> None:
        raise StoreRefused(f"cannot {step}: there is no store yet, and it was opened for reading only")


@dataclass(frozen=True, slots=True)
class Tables:
    """The declared tables, under the names that settings give them, and the backend that holds them."""

    admin: TableAdmin
    declared: tuple[Table, ...]
    billing: Billing

    def check(self) -> list[TableCheck]:
        return [self._check(table) for table in self.declared]

    def planned(self) -> list[Step]:
        """What `create` would begin with."""
        return [step for check in self.check() for step in check.steps]

    def create(self) -> Iterator[Step]:
        """Carry out whatever is missing, and tell each step once it is done.

        Looks again after each round: a table that was absent may, once it is there, still lack something.
        """
        done: set[Step] = set()
        for table in self.declared:
            while steps := [step for step in self._check(table).steps if step not in done]:
                for step in steps:
                    self.admin.carry_out(step)
                    # A step that still looks undone is not repeated for ever: the next check tells.
                    done.add(step)
                    yield step

    def _check(self, table: Table) -> TableCheck:
        found = self.admin.find(table)
        return TableCheck(table, found, tuple(differences(table, found, self.billing)))
