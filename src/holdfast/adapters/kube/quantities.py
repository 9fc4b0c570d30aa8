"""Kubernetes quantities (``500m``, ``1.5``, ``2e3``, ``128Gi``) and what a pod requests in total.

Text from a pod is hostile: what cannot be read is unknown, and never zero.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Final

import msgspec

from holdfast.kernel import typed_json
from holdfast.ports.kube import Resources

_QUANTITY: Final = re.compile(
    r"\+?([0-9]{0,18})(?:\.([0-9]{0,18}))?(?:(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)|[eE]([+-]?[0-9]{1,2}))?"
)
_TEXT_MOST: Final = 64
_MOST: Final = 2**63 - 1  # as in Kubernetes
_SCALES: Final = {
    **{unit: Fraction(1, 1000**power) for power, unit in enumerate("mun", start=1)},
    **{unit: Fraction(1000**power) for power, unit in enumerate("kMGTPE", start=1)},
    **{f"{unit}i": Fraction(1024**power) for power, unit in enumerate("KMGTPE", start=1)},
}

Quantity = str | int | float
Amounts = Mapping[str, Quantity]


@lru_cache(maxsize=4096)
def _read(text: str) -> Fraction | None:
    found = _QUANTITY.fullmatch(text) if len(text) <= _TEXT_MOST else None
    if found is None:
        return None
    whole, part, unit, exponent = found[1], found[2] or "", found[3], found[4]
    if not whole and not part:
        return None
    scale = _SCALES[unit] if unit else Fraction(10) ** int(exponent or 0)
    return Fraction(int(whole + part), 10 ** len(part)) * scale


def cpu_millis(quantity: Quantity) -> int | None:
    """Thousandths of a CPU, rounded up as the scheduler does; None if it cannot be read."""
    value = _read(str(quantity))
    return None if value is None else min(ceil(value * 1000), _MOST)


def memory_bytes(quantity: Quantity) -> int | None:
    value = _read(str(quantity))
    return None if value is None else min(ceil(value), _MOST)


_READ: Final[Mapping[str, Callable[[Quantity], int | None]]] = {"cpu": cpu_millis, "memory": memory_bytes}


def resources_of(amounts: Amounts) -> Resources:
    """CPU and memory of a list of resources. One that is not in it is zero, as for the scheduler."""
    return Resources(cpu_millis(amounts.get("cpu", 0)), memory_bytes(amounts.get("memory", 0)))


# What a pod requests


class _Requests(msgspec.Struct):
    requests: dict[str, Quantity] | None = None


class _Container(msgspec.Struct, rename="camel"):
    resources: _Requests | None = None
    restart_policy: str | None = None

    def amount(self, resource: str) -> int | None:
        amounts = (self.resources.requests if self.resources else None) or {}
        return _READ[resource](amounts.get(resource, 0))

    @property
    def is_sidecar(self) -> bool:
        """Of init containers: it keeps running beside those that follow."""
        return self.restart_policy == "Always"


_CONTAINERS: Final = typed_json.decoder(list[_Container])
_AMOUNTS: Final = typed_json.decoder(dict[str, Quantity])
_REQUESTS: Final = typed_json.decoder(_Requests)


def pod_requests(
    containers: msgspec.Raw, init_containers: msgspec.Raw, overhead: msgspec.Raw, pod_level: msgspec.Raw
) -> Resources | None:
    """What the scheduler must find on one node; None if the pod's fields cannot be read. From raw JSON: only pods
    without a node need it, and one bad container does not make the pod unreadable.
    """
    try:
        running = _CONTAINERS.decode(containers) if _is_there(containers) else []
        starting = _CONTAINERS.decode(init_containers) if _is_there(init_containers) else []
        extra = _AMOUNTS.decode(overhead) if _is_there(overhead) else {}
        declared = (_REQUESTS.decode(pod_level).requests or {}) if _is_there(pod_level) else {}
    except msgspec.MsgspecError:
        return None

    def needed(resource: str) -> int | None:
        base = _READ[resource](declared[resource]) if resource in declared else _needed(running, starting, resource)
        return _sum((base, _READ[resource](extra.get(resource, 0))))

    return Resources(needed("cpu"), needed("memory"))


def _is_there(raw: msgspec.Raw) -> bool:
    return bytes(raw) not in (b"", b"null")


def _needed(running: Iterable[_Container], starting: Iterable[_Container], resource: str) -> int | None:
    """All containers and sidecars together, or one init container with the sidecars before it, if that is more."""
    sidecars: int | None = 0
    peaks: list[int | None] = []
    for container in starting:
        amount = _sum((sidecars, container.amount(resource)))
        peaks.append(amount)
        if container.is_sidecar:
            sidecars = amount
    peaks.append(_sum((sidecars, *(container.amount(resource) for container in running))))
    known = [peak for peak in peaks if peak is not None]
    return max(known) if len(known) == len(peaks) else None


def _sum(amounts: Iterable[int | None]) -> int | None:
    total = 0
    for amount in amounts:
        if amount is None:
            return None
        total += amount
    return total
