"""Objects in memory, with what S3 does to its callers: refusals, answers that are lost, another writer in between."""

import hashlib
from bisect import bisect_right, insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from threading import RLock

from holdfast.kernel.errors import Retryable
from holdfast.ports.clock import Clock
from holdfast.ports.objects import Archived, ObjectEntry, ObjectPage, Rule, StoredObject

# Asked before and after each call, with the call's name and "before" or "after": True makes it fail there.
Fault = Callable[[str, str], bool]


def never(_call: str, _when: str) -> bool:
    return False


class SimulatedObjects:
    """Implements `holdfast.ports.objects.Objects`. `fault` may be changed at any time."""

    def __init__(self, clock: Clock, fault: Fault = never) -> None:
        self._clock = clock
        self.fault = fault
        self._objects: dict[str, StoredObject] = {}
        self._keys: list[str] = []
        self._rules: list[Rule] = []
        self.archived: set[str] = set()
        self._lock = RLock()

    def close(self) -> None:
        """Nothing to give back."""

    def page(self, prefix: str, after: str = "", most: int = 1000) -> ObjectPage:
        self._meet("page", "before")
        with self._lock:
            # From the prefix itself, or from after the key, whichever is later.
            start = bisect_right(self._keys, after) if after >= prefix else self._first_from(prefix)
            found = []
            for key in self._keys[start : start + most + 1]:
                if not key.startswith(prefix):
                    break
                found.append(self._objects[key])
        entries = [ObjectEntry(one.key, one.modified, len(one.body)) for one in found[:most]]
        self._meet("page", "after")
        return ObjectPage(entries, is_last=len(found) <= most)

    def get(self, key: str, most_bytes: int | None = None) -> StoredObject | None:
        self._meet("get", "before")
        with self._lock:
            found = self._objects.get(key)
        if key in self.archived:
            raise Archived(f"simulated S3: {key} is archived")
        self._meet("get", "after")
        if found is None or most_bytes is None:
            return found
        return replace(found, body=found.body[: most_bytes + 1])

    def put(
        self,
        key: str,
        body: bytes,
        metadata: Mapping[str, str] | None = None,
        *,
        if_absent: bool = False,
        if_etag: str | None = None,
    ) -> bool:
        self._meet("put", "before")
        with self._lock:
            there = self._objects.get(key)
            if (if_absent and there is not None) or (if_etag is not None and (there is None or there.etag != if_etag)):
                return False
            if there is None:
                insort(self._keys, key)
            etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            self._objects[key] = StoredObject(key, body, dict(metadata or {}), etag, self._clock.now())
        self._meet("put", "after")
        return True

    def delete(self, key: str) -> None:
        self._meet("delete", "before")
        with self._lock:
            if self._objects.pop(key, None) is not None:
                self._keys.remove(key)
        self._meet("delete", "after")

    def lifecycle(self) -> list[Rule]:
        self._meet("lifecycle", "before")
        return list(self._rules)

    def set_lifecycle(self, rules: Sequence[Rule]) -> None:
        self._meet("set_lifecycle", "before")
        self._rules = [dict(rule) for rule in rules]
        self._meet("set_lifecycle", "after")

    def _first_from(self, prefix: str) -> int:
        position = bisect_right(self._keys, prefix)
        return position - 1 if position and self._keys[position - 1] == prefix else position

    def _meet(self, call: str, when: str) -> None:
        if self.fault(call, when):
            what = "failed" if when == "before" else "took place, and its answer was lost"
            raise Retryable(f"simulated S3: {call} {what}")
