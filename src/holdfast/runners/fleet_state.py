"""The fleet's one item: lease, fence, the sequence of batches, and which of them a tick must read.

`open` has every batch that may have supply, `running` those whose machines all have started a job or are out. A batch
never gains supply, so it moves from `open` to `running` once, and thousands of running jobs cost a tick nothing.

The incarnation is random and made with the item. Tokens, tags and runner names contain it, so a fleet whose table was
made anew, and two fleets of one organization, never touch each other's machines.
"""

import random
import re
import secrets
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from holdfast.control.ledger import Ledger, Transition
from holdfast.control.stored_attributes import AttributeReader
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item, Key, Store, Update, attr
from holdfast.runners.batch import Batch, BatchPhase
from holdfast.runners.runner_names import DIGITS, INCARNATION_CHARACTERS

FLEET_KEY: Final = Key("runners")
_INCARNATION: Final = re.compile(rf"[0-9a-z]{{{INCARNATION_CHARACTERS}}}")


class FleetState(Struct, frozen=True):
    """The item `runners`."""

    fence: int = 0
    lock_owner: str = ""
    lock_until: Instant = Instant(0)
    incarnation: str = ""  # empty before the first tick that acts
    batch_seq: int = 0
    open: frozenset[int] = frozenset()
    running: frozenset[int] = frozenset()


def fleet_ledger(store: Store) -> Ledger[FleetState]:
    return Ledger(store, FLEET_KEY, read_fleet)


def read_fleet(item: Item | None) -> FleetState:
    """The item as stored, or StateDamaged."""
    if item is None:
        return FleetState()
    reader = AttributeReader(item, of="runner fleet")
    incarnation = reader.text("incarnation")
    if incarnation and not _INCARNATION.fullmatch(incarnation):
        raise reader.damaged("incarnation", f"expected {INCARNATION_CHARACTERS} of 0-9 a-z")
    sequence = reader.number("batchSeq")
    opened, running = _numbers(reader, "open", sequence), _numbers(reader, "running", sequence)
    if opened & running:
        raise reader.damaged("running", "a batch is listed both as open and as running")
    return FleetState(
        fence=reader.number("fence"),
        lock_owner=reader.text("lockOwner"),
        lock_until=reader.instant("lockUntilEpoch"),
        incarnation=incarnation,
        batch_seq=sequence,
        open=opened,
        running=running,
    )


def new_incarnation(source: random.Random | None = None) -> str:
    """Six random characters; seeded under the simulator."""
    pick = source.choice if source else secrets.choice
    return "".join(pick(DIGITS) for _ in range(INCARNATION_CHARACTERS))


def found_fleet(incarnation: str) -> Transition:
    """Name the fleet, once: an incarnation never changes."""
    return Transition(
        "name the fleet",
        attr("incarnation").set_to(incarnation),
        attr("incarnation").is_absent() | attr("incarnation").equals(incarnation),
    )


def refiled(state: FleetState, batches: Iterable[Batch]) -> Update | None:
    """Take closed batches off the lists, and batches without supply from `open` to `running`; None: nothing to do."""
    known = {batch.number: batch for batch in batches}
    closed = {number for number, batch in known.items() if batch.phase is BatchPhase.CLOSED}
    moved = {number for number, batch in known.items() if batch.is_running_only and number in state.open}
    updates = []
    if leaving := state.open & (closed | moved):
        updates.append(attr("open").drop_elements(sorted(leaving)))
    if leaving := state.running & closed:
        if moved:  # one attribute changes once in an update; the closed ones leave with the next
            leaving = frozenset()
        else:
            updates.append(attr("running").drop_elements(sorted(leaving)))
    if moved:
        updates.append(attr("running").add_elements(sorted(moved)))
    if not updates:
        return None
    first, *rest = updates
    return sum(rest, start=first)


def _numbers(reader: AttributeReader, name: str, most: int) -> frozenset[int]:
    found = reader.item.get(name, frozenset())
    if not isinstance(found, frozenset) or not all(type(value) is int and 1 <= value <= most for value in found):
        raise reader.damaged(name, f"expected a set of batch numbers from 1 to {most}")
    return found
