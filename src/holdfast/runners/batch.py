"""A batch: up to twenty machines of one class, bought by one RunInstances call. `MOVES` has its phases.

    PLANNED     stored before the call; counts as `number` machines, whether or not EC2 has answered
    GRANTED     EC2 has launched `instances`; each is configured, starts a job, and is out in the end
    CLOSED      EC2 refused, or every machine is out

What was planned never changes, so the order is a function of the stored item, and repeating the call with the same
token gives the same machines. A batch has no attempts: after a refusal another batch is begun.

Machines are known by their index. An index is in `started` if GitHub gave its runner a job, and in `out` if it can
never take one again. Whatever is in neither may still take a job, and counts as supply.
"""

import hashlib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct, field

from holdfast.control.stored_attributes import AttributeReader
from holdfast.control.workflows import Move
from holdfast.fleet.options import Option
from holdfast.kernel.ids import InstallationId, InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.machines import Market
from holdfast.ports.store import Item

MACHINES_MOST: Final = 20
CLOSED_KEPT_SECONDS: Final = 4 * 86_400  # late webhooks may still name its machines


class BatchPhase(StrEnum):
    PLANNED = "PLANNED"
    GRANTED = "GRANTED"
    CLOSED = "CLOSED"


MOVES: Final = (
    Move(None, BatchPhase.PLANNED, "stored under the fence, before RunInstances"),
    Move(BatchPhase.PLANNED, BatchPhase.GRANTED, "EC2 launched at least one machine"),
    Move(BatchPhase.PLANNED, BatchPhase.CLOSED, "EC2 refused for good"),
    Move(BatchPhase.GRANTED, BatchPhase.CLOSED, "every machine is out"),
)


class Purchase(Struct, frozen=True):
    """What is bought, for whom and where: fixed when the batch begins."""

    installation_id: InstallationId
    class_hash: str
    number: int
    option: Option
    template: str
    usd_per_hour: str | None  # None: the price is unknown
    planned: Instant
    pool: str | None = None

    def stored(self) -> Item:
        item: Item = {
            "inst": self.installation_id,
            "cls": self.class_hash,
            "n": self.number,
            "t": self.option.instance_type,
            "z": self.option.zone,
            "s": self.option.subnet_id,
            "m": "od" if self.option.market is Market.ON_DEMAND else "spot",
            "lt": self.template,
            "at": self.planned.epoch_ms,
        }
        if self.usd_per_hour is not None:
            item["usd"] = self.usd_per_hour
        if self.pool is not None:
            item["pool"] = self.pool
        return item


class Batch(Struct, frozen=True):
    """A batch as stored. `runners` are GitHub's ids, `started` the jobs, both by index."""

    number: int
    phase: BatchPhase
    purchase: Purchase
    fence: int = 0  # of the process that began it
    instances: tuple[InstanceId, ...] = ()
    runners: Mapping[int, int] = field(default_factory=dict)
    started: Mapping[int, str] = field(default_factory=dict)
    out: frozenset[int] = frozenset()
    interrupted: frozenset[int] = frozenset()
    refused: str | None = None

    @property
    def supply(self) -> int:
        """How many of its machines may still take a job."""
        match self.phase:
            case BatchPhase.PLANNED:
                return self.purchase.number
            case BatchPhase.GRANTED:
                return len(self.free)
            case BatchPhase.CLOSED:
                return 0

    @property
    def free(self) -> tuple[int, ...]:
        """The indexes of launched machines that have neither started a job nor are out."""
        return tuple(i for i in range(len(self.instances)) if i not in self.started and i not in self.out)

    @property
    def unconfigured(self) -> tuple[int, ...]:
        """The free indexes whose runner is not recorded."""
        return tuple(i for i in self.free if i not in self.runners)

    @property
    def is_all_out(self) -> bool:
        return self.phase is BatchPhase.GRANTED and len(self.out) == len(self.instances)

    @property
    def is_running_only(self) -> bool:
        """Whether it has no supply, although machines of it may still run: only the sweep needs to read it."""
        return self.phase is BatchPhase.GRANTED and not self.free

    def index_of(self, instance: InstanceId) -> int | None:
        return self.instances.index(instance) if instance in self.instances else None


def supply_by_class(batches: Iterable[Batch]) -> dict[tuple[InstallationId, str], int]:
    """The machines of each class that may still take a job."""
    supply: dict[tuple[InstallationId, str], int] = {}
    for batch in batches:
        key = (batch.purchase.installation_id, batch.purchase.class_hash)
        supply[key] = supply.get(key, 0) + batch.supply
    return supply


def batch_token(incarnation: str, number: int) -> str:
    """The batch's client token: EC2 launches its machines at most once."""
    return hashlib.sha256(f"runners\0{incarnation}\0{number}".encode()).hexdigest()[:48]


def read_batch(item: Item, number: int) -> Batch:
    """The batch as stored, or StateDamaged."""
    reader = AttributeReader(item, of=f"runner batch {number}")
    if "phase" not in item:
        raise reader.damaged("phase", "it is missing")
    phase = reader.choice("phase", BatchPhase, BatchPhase.PLANNED)
    instances = tuple(map(InstanceId, reader.texts("ids")))
    if len(set(instances)) != len(instances):
        raise reader.damaged("ids", "a machine is listed twice")
    if phase is BatchPhase.GRANTED and not instances:
        raise reader.damaged("ids", "the batch is granted, but names no machine")
    batch = Batch(
        number=number,
        phase=phase,
        purchase=_read_purchase(reader),
        fence=reader.number("f"),
        instances=instances,
        runners=_by_index(reader, "r", int, len(instances)),
        started=_by_index(reader, "j", str, len(instances)),
        out=_indexes(reader, "x", len(instances)),
        interrupted=_indexes(reader, "int", len(instances)),
        refused=reader.text("why") or None,
    )
    if not 1 <= batch.purchase.number <= MACHINES_MOST:
        raise reader.damaged("n", f"expected a number from 1 to {MACHINES_MOST}")
    if len(instances) > batch.purchase.number:
        raise reader.damaged("ids", f"more machines than the {batch.purchase.number} that were ordered")
    return batch


def _read_purchase(reader: AttributeReader) -> Purchase:
    market = reader.text("m")
    if market not in ("spot", "od"):
        raise reader.damaged("m", "expected spot or od")
    for name in ("cls", "t", "z", "s", "lt"):
        if not reader.text(name):
            raise reader.damaged(name, "it is missing")
    return Purchase(
        installation_id=InstallationId(reader.number("inst")),
        class_hash=reader.text("cls"),
        number=reader.number("n"),
        option=Option(
            reader.text("t"),
            reader.text("z"),
            reader.text("s"),
            Market.SPOT if market == "spot" else Market.ON_DEMAND,
        ),
        template=reader.text("lt"),
        usd_per_hour=reader.text("usd") or None,
        planned=Instant(reader.number("at")),
        pool=reader.text("pool") or None,
    )


def _indexes(reader: AttributeReader, name: str, machines: int) -> frozenset[int]:
    found = reader.item.get(name, frozenset())
    if not isinstance(found, frozenset) or not all(_is_index(value, machines) for value in found):
        raise reader.damaged(name, "expected a set of indexes of its machines")
    return found


def _by_index(reader: AttributeReader, name: str, kind: type, machines: int) -> dict[int, Any]:
    found = reader.item.get(name, {})
    if not isinstance(found, dict):
        raise reader.damaged(name, "expected a map by index")
    values: dict[int, Any] = {}
    for text, value in found.items():
        is_number = text.isascii() and text.isdigit() and str(int(text)) == text
        if not is_number or not _is_index(int(text), machines) or type(value) is not kind:
            raise reader.damaged(name, "expected a map by index of its machines")
        values[int(text)] = value
    return values


def _is_index(value: object, machines: int) -> bool:
    return type(value) is int and 0 <= value < machines
