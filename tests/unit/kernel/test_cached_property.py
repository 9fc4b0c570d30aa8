"""A cached property is computed once for each object."""

from holdfast.kernel.cached_property import cached_property


class Counted:
    def __init__(self, number: int) -> None:
        self.number = number
        self.asked = 0

    @cached_property
    def double(self) -> int:
        """Twice the number."""
        self.asked += 1
        return 2 * self.number


def test_it_is_computed_at_the_first_access_and_not_again() -> None:
    counted = Counted(3)
    assert counted.asked == 0
    assert [counted.double, counted.double] == [6, 6]
    assert counted.asked == 1


def test_each_object_has_its_own_value() -> None:
    assert [Counted(3).double, Counted(4).double] == [6, 8]
