"""Updates of many attributes, put together once: each event pays for this."""

from collections.abc import Iterable, Mapping

from holdfast.ports.store import Update, Value, attr
from holdfast.ports.store.updates import SetIfAbsent, SetTo
from holdfast.ports.store.values import canonical


def if_absent(values: Mapping[str, Value]) -> Update:
    """Set those of these attributes that are not there."""
    return Update(tuple(SetIfAbsent(attr(name).path, canonical(value, name)) for name, value in values.items()))


def set_values(values: Mapping[str, Value]) -> Update:
    """Set these attributes, whatever is there."""
    return Update(tuple(SetTo(attr(name).path, canonical(value, name)) for name, value in values.items()))


def together(parts: Iterable[Update]) -> Update:
    """All of the updates as one."""
    return Update(tuple(change for part in parts for change in part.changes))
