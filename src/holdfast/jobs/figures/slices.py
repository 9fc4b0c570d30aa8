"""Stored figures: slices of an hour or a day, and the calendar. All are in one partition of an installation.

    hour#2026-11-18T10           the jobs that were created in that hour
    day#2026-11-18               those of the day, merged from its hours
    repo#<hash>#2026-11-18       those of one repository
    <slice>#<tag>#<part>         the rest of a slice that is too large for one item
    calendar                     what the last pass knew

A slice is replaced only if its version is still the one that was read before its jobs were: whatever writers do, none
replaces a newer count by an older one. Parts are written before the slice that names their tag, and deleted after
another one has replaced it, so a reader finds all parts, or reads again.
"""

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.jobs.figures.totals import Figures, GroupKey, Totals
from holdfast.kernel.errors import BadRequest, Retryable
from holdfast.kernel.ids import InstallationId, joined_key
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Condition, Item, Key, Query, SortRange, Store, attr, every_item
from holdfast.ports.store.tables import LOGS

PART_BYTES: Final = 200_000
FORMAT: Final = 1
_READS_MOST: Final = 3
_LAST: Final = "~"  # after every character of a tag


@dataclass(frozen=True, slots=True)
class Body:
    """What a slice holds. `sources`: of an hour, the job from which each repository's team was read, and the team; of a
    day, the tags of its hours."""

    figures: Figures = field(default_factory=Figures)
    sources: Mapping[str, Any] = field(default_factory=dict)

    def plain(self) -> bytes:
        """The same for the same content, whatever order it was made in."""
        groups = [[list(group), totals.encoded()] for group, totals in self.figures.items()]
        plain = {"format": FORMAT, "sources": dict(sorted(self.sources.items())), "groups": groups}
        return json.dumps(plain, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Slice:
    """A stored slice, of so many items; version 0: not stored. The tag names its version and content."""

    name: str
    version: int = 0
    tag: str = ""
    parts: int = 1
    body: Body = field(default_factory=Body)

    @property
    def figures(self) -> Figures:
        return self.body.figures


def hour_slice(hour_text: str) -> str:
    return f"hour#{hour_text}"


def day_slice(day: str) -> str:
    return f"day#{day}"


def repository_slice(repository: str, day: str) -> str:
    return f"repo#{hashlib.sha256(repository.encode()).hexdigest()[:24]}#{day}"


def partition_of(installation: InstallationId) -> str:
    return joined_key("figures", installation)


class Slices:
    """The slices of one installation."""

    def __init__(self, store: Store, installation: InstallationId) -> None:
        self._store = store
        self._partition = partition_of(installation)

    def read(self, name: str) -> Slice:
        return self.read_all([name])[name]

    def read_all(self, names: Iterable[str]) -> dict[str, Slice]:
        """Slices by name, with consistent reads."""
        wanted = list(dict.fromkeys(names))
        for _ in range(_READS_MOST):
            items = self._store.batch_get(LOGS, [Key(self._partition, name) for name in wanted], consistent=True)
            heads = [item for item in items if item is not None]
            missing = [key for head in heads for key in self._part_keys(head["sk"], head["tag"], head["parts"])]
            parts = self._store.batch_get(LOGS, missing, consistent=True) if missing else []
            found = _assembled([*heads, *(part for part in parts if part is not None)])
            if found is not None:
                return {name: found.get(name) or Slice(name) for name in wanted}
        raise _restless(wanted[0])

    def between(self, first: str, last: str, *, consistent: bool = False) -> dict[str, Slice]:
        """The stored slices from one name to another, both inclusive, in order."""
        query = Query(LOGS, self._partition, sort=SortRange.between(first, last + _LAST), consistent=consistent)
        for _ in range(_READS_MOST):
            found = _assembled(every_item(self._store, query))
            if found is not None:
                return found
        raise _restless(first)

    def put(self, known: Slice, body: Body, now: Instant, kept_until: Instant) -> Slice:
        """Replace the slice that was read; WriteConflict if it was replaced meanwhile. The same content is not written.

        Nothing is incremented: a write whose answer is lost, or that is repeated, leaves the same figures.
        """
        plain = body.plain()
        digest = hashlib.sha256(plain).hexdigest()[:12]
        if known.version and known.tag.partition("-")[2] == digest:
            return known
        data = zlib.compress(plain, 6)
        version = known.version + 1
        tag, parts = f"{version}-{digest}", [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]
        common = {"pk": self._partition, "ttl": kept_until.epoch_seconds}
        for key, part in zip(self._part_keys(known.name, tag, len(parts)), parts[1:], strict=True):
            self._store.put(LOGS, {**common, "sk": key.sort, "data": part})
        head = {"sk": known.name, "v": version, "tag": tag, "parts": len(parts), "data": parts[0]}
        self._store.put(LOGS, {**common, **head}, is_version(known.version, now))
        # No later version uses the tag of the replaced one again. Those of a process that died here expire.
        for key in self._part_keys(known.name, known.tag, known.parts):
            self._store.delete(LOGS, key)
        return Slice(known.name, version, tag, len(parts), body)

    def _part_keys(self, name: str, tag: str, parts: int) -> list[Key]:
        return [Key(self._partition, f"{name}#{tag}#{number:04d}") for number in range(1, int(parts))]


def is_version(version: int, now: Instant) -> Condition:
    """The item has the version that was read; 0: there was none."""
    if version:
        return attr("v").equals(version)
    # An expired item stays until the store removes it; nobody reads it any more.
    return attr("v").is_absent() | attr("ttl").at_most(now.epoch_seconds)


def _assembled(items: Iterable[Item]) -> dict[str, Slice] | None:
    """Slices from their items; None if parts are missing, because the slice has been replaced meanwhile."""
    heads: list[Item] = []
    parts: dict[str, bytes] = {}
    for item in items:
        if "tag" in item:
            heads.append(item)
        else:
            parts[item["sk"]] = item["data"]
    found: dict[str, Slice] = {}
    for head in heads:
        names = [f"{head['sk']}#{head['tag']}#{number:04d}" for number in range(1, int(head["parts"]))]
        if not all(name in parts for name in names):
            return None
        data = b"".join((head["data"], *(parts[name] for name in names)))
        found[head["sk"]] = Slice(head["sk"], int(head["v"]), head["tag"], len(names) + 1, _decoded(data))
    return found


def _decoded(data: bytes) -> Body:
    plain = json.loads(zlib.decompress(data))
    if plain["format"] != FORMAT:
        raise BadRequest(f"figures of format {plain['format']}; this version reads {FORMAT}: run holdfast jobs recount")
    groups = {GroupKey(*group): Totals.decoded(totals) for group, totals in plain["groups"]}
    return Body(Figures(groups), plain["sources"])


def _restless(name: str) -> Retryable:
    return Retryable(f"figures {name}: replaced during each of {_READS_MOST} reads; the next pass or request retries")
