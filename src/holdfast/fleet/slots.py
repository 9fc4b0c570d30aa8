"""Slots: each is a place for one machine, stored before the machine is launched.

open ──RunInstances──► recorded (`instance`)
  │ definitive refusal: the next attempt, in another pool and with another token
  └─ nothing left to try ──► exhausted
"""

import hashlib
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from holdfast.control.stored_attributes import AttributeReader
from holdfast.fleet.options import Option
from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.machines import Market
from holdfast.ports.store import Item


class Slot(Struct, frozen=True):
    """Where and what to launch, which attempt it is, and its result."""

    subnet_id: str
    zone: str
    market: Market
    instance_type: str
    attempt: int = 0
    instance: InstanceId | None = None
    exhausted: str | None = None  # the last error, once nothing is left to try
    doubted: Instant | None = None  # since when EC2 has answered this attempt with an unknown code

    @classmethod
    def of(cls, option: Option, attempt: int = 0) -> "Slot":
        return cls(option.subnet_id, option.zone, option.market, option.instance_type, attempt)

    @property
    def is_open(self) -> bool:
        return self.instance is None and self.exhausted is None

    @property
    def pool(self) -> str:
        return Option(self.instance_type, self.zone, self.subnet_id, self.market).pool

    def stored(self) -> Item:
        item: Item = {
            "s": self.subnet_id,
            "z": self.zone,
            "m": "od" if self.market is Market.ON_DEMAND else "spot",
            "t": self.instance_type,
            "k": self.attempt,
        }
        if self.instance is not None:
            item["i"] = self.instance
        if self.exhausted is not None:
            item["x"] = self.exhausted
        if self.doubted is not None:
            item["u"] = self.doubted.epoch_seconds
        return item


def read_slot(stored: Mapping[str, Any], where: str) -> Slot:
    """A slot as stored, or StateDamaged."""
    slot = AttributeReader(dict(stored), where)
    market = slot.text("m")
    if market not in ("spot", "od"):
        raise slot.damaged("m", "expected spot or od")
    return Slot(
        subnet_id=slot.text("s"),
        zone=slot.text("z"),
        market=Market.SPOT if market == "spot" else Market.ON_DEMAND,
        instance_type=slot.text("t"),
        attempt=slot.number("k"),
        instance=InstanceId(slot.text("i")) if "i" in stored else None,
        exhausted=slot.text("x") if "x" in stored else None,
        doubted=slot.maybe_instant("u"),
    )


def launch_token(scope: str, action: str, number: int, attempt: int) -> str:
    """One token for each attempt at each slot: EC2 launches at most one machine for it."""
    return hashlib.sha256(f"{scope}\0{action}\0{number}\0{attempt}".encode()).hexdigest()[:48]
