"""What to launch next, and where: an ordered list of options for one machine.

Spot before on-demand; within a market the emptiest zone first; within a zone the types in the operator's order. A pool
that failed recently is left out until its back-off ends, so spot is used again soon after its capacity returns.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from holdfast.kernel.backoff import Backoff
from holdfast.kernel.instants import Instant
from holdfast.ports.machines import Market, Subnet

# Three minutes after the first failure, doubling up to an hour.
CAPACITY_BACKOFF: Final = Backoff(first_seconds=180, factor=2, most_seconds=3600)


class Option(Struct, frozen=True):
    """One way to get a machine."""

    instance_type: str
    zone: str
    subnet_id: str
    market: Market

    @property
    def pool(self) -> str:
        """The capacity pool: type, zone and market. Also the key of its stored failures."""
        return f"{self.instance_type}|{self.zone}|{self.market}"


class PoolFailure(Struct, frozen=True):
    """Consecutive shortages of one pool, when to try it again, and the last action that counted one."""

    failures: int
    until: Instant
    action: str = ""  # empty in items of older versions

    @classmethod
    def after(cls, earlier: "PoolFailure | None", now: Instant, action: str) -> "PoolFailure":
        """The failure after another refusal. One shortage counts once, however many slots of `action` meet it.

        A refusal while the pool is still left out is the same shortage as well: the slot was planned before the pool
        failed, perhaps by another action (a scale-up and several replacements launch side by side).
        """
        if earlier is None:
            failures = 1
        elif now < earlier.until:
            return earlier
        else:
            failures = earlier.failures + (1 if not action or earlier.action != action else 0)
        return cls(failures, now.plus(CAPACITY_BACKOFF.ceiling_seconds(failures)), action)


def launch_options(
    types: Sequence[str],
    subnets: Iterable[Subnet],
    fill: Mapping[str, int],
    failures: Mapping[str, PoolFailure],
    now: Instant,
    *,
    spot: bool = True,
) -> list[Option]:
    """All options worth trying now, the best first. `fill` counts each zone's machines, including launching ones."""
    zones = _zones_with_room(subnets)
    emptiest_first = sorted(zones, key=lambda zone: (fill.get(zone, 0), zone))
    markets = (Market.SPOT, Market.ON_DEMAND) if spot else (Market.ON_DEMAND,)
    options = [
        Option(instance_type, zone, zones[zone].id, market)
        for market in markets
        for zone in emptiest_first
        for instance_type in types
    ]
    return [option for option in options if not _is_failing(option, failures, now)]


def _zones_with_room(subnets: Iterable[Subnet]) -> dict[str, Subnet]:
    """For each zone the subnet with the most free addresses; zones without any are left out."""
    best: dict[str, Subnet] = {}
    for subnet in sorted(subnets, key=lambda subnet: (-subnet.free_addresses, subnet.id)):
        if subnet.free_addresses > 0:
            best.setdefault(subnet.zone, subnet)
    return best


def _is_failing(option: Option, failures: Mapping[str, PoolFailure], now: Instant) -> bool:
    failure = failures.get(option.pool)
    return failure is not None and now < failure.until
