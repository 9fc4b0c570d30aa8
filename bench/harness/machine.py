"""The machine that the figures were measured on, without names and paths: they may be published."""

import importlib.metadata
import os
import platform
import re
import sqlite3
from pathlib import Path
from typing import Final

_CPU_INFO: Final = Path("/proc/cpuinfo")
_MOUNTS: Final = Path("/proc/self/mountinfo")
_CPU_TIMES: Final = Path("/proc/stat")


def description(data: Path) -> dict[str, str]:
    return {
        "CPU": f"{cpu_model()}, {os.cpu_count()} cores",
        "memory": memory(),
        "kernel": f"{platform.system()} {platform.release()}",
        "filesystem of the data": filesystem_of(data),
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "SQLite": sqlite_versions(),
        "boto3": importlib.metadata.version("boto3"),
    }


class Neighbours:
    """How much of the machine other processes use, since construction."""

    def __init__(self) -> None:
        self._started = self._counted()

    def cpu_share(self) -> float | None:
        """Their share of the time of all cores, from 0 to 1; None if unknown.

        A server that this process started counts as another process until it has ended.
        """
        if self._started is None or (now := self._counted()) is None:
            return None
        all_seconds, busy_seconds, own_seconds = (
            after - before for before, after in zip(self._started, now, strict=True)
        )
        return max(0.0, busy_seconds - own_seconds) / all_seconds if all_seconds else 0.0

    def _counted(self) -> tuple[float, float, float] | None:
        if not _CPU_TIMES.exists():
            return None
        # cpu  user nice system idle iowait irq softirq steal; what a guest uses is in user already
        ticks = [int(field) for field in _CPU_TIMES.read_text().splitlines()[0].split()[1:9]]
        per_second = os.sysconf("SC_CLK_TCK")
        idle = ticks[3] + ticks[4]
        return sum(ticks) / per_second, (sum(ticks) - idle) / per_second, sum(os.times()[:4])


def cpu_model() -> str:
    if _CPU_INFO.exists():
        model = re.search(r"^model name\s*: (.+)$", _CPU_INFO.read_text(), re.MULTILINE)
        if model:
            return model[1].strip()
    return platform.processor() or platform.machine()


def memory() -> str:
    return f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB"


def sqlite_versions() -> str:
    versions = f"{sqlite3.sqlite_version} in Python's sqlite3"
    try:
        import apsw
    except ImportError:
        return f"{versions}; apsw is not installed"
    return f"{apsw.sqlite_lib_version()} in apsw, {versions}"


def filesystem_of(path: Path) -> str:
    """The kind of filesystem that the path is on."""
    if not _MOUNTS.exists():
        return "unknown"
    found, longest = "unknown", -1
    resolved = path.resolve()
    for line in _MOUNTS.read_text().splitlines():
        # id parent device root MOUNT-POINT options … - KIND source options; spaces in names are \040
        fields, _, rest = line.partition(" - ")
        point = Path(re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), fields.split()[4]))
        # Of two at one place, the later one is on top.
        if resolved.is_relative_to(point) and len(point.parts) >= longest:
            found, longest = rest.split()[0], len(point.parts)
    return found
