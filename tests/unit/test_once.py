"""A property that is worked out once, for each object."""

from holdfast.kernel.once import once


class Counted:
    def __init__(self, number: int) -> None:
        self.number = number
        self.asked = 0

    @once
    def double(self) -> int:
        """Twice the number."""
        self.asked += 1
        return 2 * self.number


def test_it_is_worked_out_when_it_is_first_asked_for_and_not_again() -> None:
    counted = Counted(3)
    assert counted.asked == 0
    assert [counted.double, counted.double] == [6, 6]
    assert counted.asked == 1


def test_each_object_has_its_own() -> None:
    assert [Counted(3).double, Counted(4).double] == [6, 8]
