"""A property that is worked out once."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class once(Generic[T]):  # noqa: N801 -- read as a decorator, like `property`
    """Worked out when it is first asked for, and then an attribute like any other.

    For values that never change: two threads may both work it out, and find the same. `functools.cached_property` takes
    a lock for that in Python 3.11, which takes longer than most of what is worked out.
    """

    def __init__(self, work: Callable[[Any], T]) -> None:
        self._work = work
        self.__doc__ = work.__doc__

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, _owner: type | None = None) -> T:
        found = instance.__dict__[self._name] = self._work(instance)
        return found
