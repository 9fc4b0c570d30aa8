"""The few numbers that explain what a tick saw: as JSON, and as stored in the log.

An unknown value is None, never zero, and `unknown` has the reason.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from holdfast.cluster.seen import Seen
from holdfast.control.decision_log import DecisionLog, Summary
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.text import cut
from holdfast.ports.readings import Reading, Unknown
from holdfast.ports.store import Store

_CPU_DIGITS: Final = 4
_WHY_MOST: Final = 300
# Older log entries have words instead of numbers.
_OLD_UNKNOWN: Final = "unknown: "
_OLD_PENDING: Final = re.compile(r"(\d{1,9}) pods, the oldest for (\d{1,12}) s", re.ASCII)
_OLD_ELSEWHERE: Final = re.compile(r"(.*); Prometheus sees (\d{1,9}) Ready, (\d{1,9}) of them our workers", re.ASCII)


def summary_of(seen: Seen) -> Summary:
    """The summary as JSON values."""
    state = seen.state
    under_way = state.up or state.down
    readings: dict[str, Reading[Any]] = {"cpu": seen.cpu, "pending": seen.pending, "nodes": seen.kube}
    return {
        "workers": len(seen.staying),
        "expected": seen.expected,
        "cpu": None if isinstance(seen.cpu, Unknown) else round(seen.cpu.value, _CPU_DIGITS),
        "pending": None
        if isinstance(seen.pending, Unknown)
        else {"pods": seen.pending.value.count, "oldest_seconds": max(0, round(seen.pending.value.oldest_seconds))},
        "nodes": None if isinstance(seen.kube, Unknown) else len(seen.kube.value.nodes),
        "ready_elsewhere": _ready_elsewhere(seen),
        "unknown": {
            name: cut(reading.why, _WHY_MOST) for name, reading in readings.items() if isinstance(reading, Unknown)
        },
        "action": None if under_way is None else str(under_way.action),
        "phase": None if under_way is None else str(under_way.phase),
        "notices": len(seen.notices),
        "paused": seen.is_paused,
        "fence": state.fence,
    }


def _ready_elsewhere(seen: Seen) -> dict[str, int] | None:
    """Prometheus' count of Ready nodes while Kubernetes does not respond."""
    reading = seen.ready_elsewhere
    if reading is None or isinstance(reading, Unknown):
        return None
    ours = {worker.machine.private_ip for worker in seen.workers} & reading.value
    return {"nodes": len(reading.value), "workers": len(ours)}


# In the log


def cluster_log(store: Store, cluster: ClusterId) -> DecisionLog:
    """The decision log of a cluster."""
    return DecisionLog(store, cluster, read)


def read(item: Mapping[str, Any] | None) -> Summary | None:
    """A stored summary, in numbers or in the words of older versions; None if the tick saw nothing."""
    if not item:
        return None
    if isinstance(item.get("workers"), str):
        return _read_words({name: str(value) for name, value in item.items()})
    cpu = item.get("cpu")
    return {**_read_words({}), **item, "cpu": None if cpu is None else float(cpu)}


def _read_words(item: Mapping[str, str]) -> Summary:
    nodes, elsewhere = item.get("nodes", ""), None
    if found := _OLD_ELSEWHERE.fullmatch(nodes):
        nodes, elsewhere = found[1], {"nodes": int(found[2]), "workers": int(found[3])}
    texts = {"cpu": item.get("cpu", ""), "pending": item.get("pending", ""), "nodes": nodes}
    waiting = _OLD_PENDING.fullmatch(texts["pending"])
    return {
        "workers": _whole(item.get("workers")),
        "expected": _whole(item.get("expected")),
        "cpu": _number(texts["cpu"]),
        "pending": {"pods": int(waiting[1]), "oldest_seconds": int(waiting[2])} if waiting else None,
        "nodes": _whole(nodes),
        "ready_elsewhere": elsewhere,
        "unknown": {
            name: text.removeprefix(_OLD_UNKNOWN) for name, text in texts.items() if text.startswith(_OLD_UNKNOWN)
        },
        "action": _unless_none(item.get("action")),
        "phase": _unless_none(item.get("phase")),
        "notices": _whole(item.get("notices")),
        "paused": item.get("paused") == "yes",
        "fence": _whole(item.get("fence")),
    }


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 16 else None


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d{1,4}\.\d{1,6}", text, re.ASCII) else None


def _unless_none(text: str | None) -> str | None:
    return None if text in (None, "none") else text
