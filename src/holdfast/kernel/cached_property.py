"""A `cached_property` without a lock."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class cached_property(Generic[T]):  # noqa: N801 -- read as a decorator, like `property`
    """Computed on first access, then a plain attribute.

    For immutable values only: two threads may both compute it, with equal results. `functools.cached_property` takes a
    lock in Python 3.11, which costs more than most of these computations.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, _owner: type | None = None) -> T:
        value = instance.__dict__[self._name] = self._compute(instance)
        return value
