"""A disk that records what SQLite wrote and synced, and what a power cut would leave.

    write, write, sync, write, ack, write   ✂   left: what came before the sync, and any of the writes after it

A write after the last sync of its file may be there, completely or some of its sectors, or not; writes may reach the
disk in any order. Only what was synced is certain.
"""

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import apsw

_SECTOR_BYTES: Final = 512
_NUMBERS: Final = count(1)


@dataclass(frozen=True)
class Write:
    file: str
    offset: int
    data: bytes


@dataclass(frozen=True)
class Truncate:
    file: str
    size: int


@dataclass(frozen=True)
class Sync:
    file: str


@dataclass(frozen=True)
class Acknowledged:
    """Not an event of the disk, but of the writer: a write was acknowledged."""

    who: str
    count: int


Event = Write | Truncate | Sync | Acknowledged


class RecordingDisk(apsw.VFS):
    """The machine's own files, with a record of what reaches them."""

    def __init__(self) -> None:
        self.name = f"recording-{next(_NUMBERS)}"
        self.events: list[Event] = []
        super().__init__(self.name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> "_RecordingFile":  # noqa: N802 -- apsw's
        return _RecordingFile(self.events, name, flags)


class _RecordingFile(apsw.VFSFile):
    def __init__(self, events: list[Event], name: Any, flags: list[int]) -> None:
        super().__init__("", name, flags)
        text = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._file = Path(text or "").name
        self._events = events

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802 -- apsw's
        self._events.append(Write(self._file, offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 -- apsw's
        self._events.append(Truncate(self._file, newsize))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802 -- apsw's
        super().xSync(flags)
        self._events.append(Sync(self._file))


@dataclass
class State:
    """What is certain at some moment, what is not, and what had been acknowledged."""

    safe: dict[str, bytearray]
    unsafe: dict[str, list[Write | Truncate]] = field(default_factory=lambda: defaultdict(list))
    acknowledged: dict[str, int] = field(default_factory=dict)

    def happen(self, event: Event) -> None:
        match event:
            case Acknowledged(who, number):
                self.acknowledged[who] = number
            case Sync(file):
                for change in self.unsafe.pop(file, ()):
                    _apply(self.safe.setdefault(file, bytearray()), change)
            case Write(file) | Truncate(file):
                self.unsafe[file].append(event)

    def after_a_power_cut(self, source: random.Random) -> dict[str, bytes]:
        """The files in one of the many states in which they may be found."""
        left = {file: bytearray(data) for file, data in self.safe.items()}
        share = source.choice([0.0, 0.5, 0.9, 1.0])
        for file, changes in self.unsafe.items():
            survivors = [piece for change in changes for piece in _pieces(change, source) if source.random() < share]
            if share == 0.5:
                source.shuffle(survivors)
            for piece in survivors:
                _apply(left.setdefault(file, bytearray()), piece)
        return {file: bytes(data) for file, data in left.items()}


def moments(events: list[Event], files: dict[str, bytes]) -> Iterator[State]:
    """The state of the disk after each event."""
    state = State({file: bytearray(data) for file, data in files.items()})
    for event in events:
        state.happen(event)
        yield state


def _pieces(change: Write | Truncate, source: random.Random) -> list[Write | Truncate]:
    """A whole write, or sometimes its sectors one by one."""
    if isinstance(change, Truncate) or source.random() < 0.7:
        return [change]
    pieces: list[Write | Truncate] = []
    start = 0
    while start < len(change.data):
        end = start + _SECTOR_BYTES - (change.offset + start) % _SECTOR_BYTES
        pieces.append(Write(change.file, change.offset + start, change.data[start:end]))
        start = end
    return pieces


def _apply(data: bytearray, change: Write | Truncate) -> None:
    if isinstance(change, Truncate):
        del data[change.size :]
        return
    data.extend(bytes(max(0, change.offset - len(data))))
    data[change.offset : change.offset + len(change.data)] = change.data
