"""Items as they were before their last write: what an eventually consistent read may still return."""

from typing import Any, Final

from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item, Key, Page, Query, Table

LAG_SECONDS: Final = 20.0


class OverwrittenItems:
    """The last version but one of each item that was updated."""

    def __init__(self) -> None:
        self._before: dict[tuple[str, Key], tuple[Instant, Item | None]] = {}

    def add(self, table: Table, key: Key, old: Item | None, now: Instant) -> None:
        self._before[table.name, key] = (now, old)

    def as_read_before(self, args: tuple[Any, ...], answer: Any, now: Instant) -> Any:
        """The answer to a read with these arguments, as it was before writes of the last seconds."""
        match args, answer:
            case (Query() as query,), Page(items=items, cursor=cursor):
                return Page([old for item in items if (old := self._in_index(query, item, now))], cursor)
            case (Table() as table, Key() as key), item:
                return self._version(table, key, item, now)
            case (Table() as table, keys), items:
                return [self._version(table, key, item, now) for key, item in zip(keys, items, strict=True)]
        return answer

    def _version(self, table: Table, key: Key, item: Item | None, now: Instant) -> Item | None:
        written = self._before.get((table.name, key))
        return item if written is None or now.seconds_since(written[0]) > LAG_SECONDS else written[1]

    def _in_index(self, query: Query, item: Item, now: Instant) -> Item | None:
        """The entry as it was; None if it was in another partition, or did not exist. Only what is projected."""
        old = self._version(query.table, query.table.key_of(item), item, now)
        names = [name for name, value in item.items() if value == query.partition]
        if old is None or not any(old.get(name) == query.partition for name in names):
            return None
        return {name: old[name] for name in item if name in old}
