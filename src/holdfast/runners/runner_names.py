"""The name of a runner at GitHub. It leads to the batch, the index and the machine without a read.

    hf7k2m9x-3f-0-5l2vq8s0d1c3e4-1a
    │ │      │  │ │              └ fence of the process that configured the machine
    │ │      │  │ └ instance id
    │ │      │  └ index in the batch
    │ │      └ batch
    │ └ incarnation of the fleet's item
    └ ours

Numbers are in base 36. The fence makes the names of two configurers differ, so neither can take the other's. A name
comes back in webhooks, so anyone may have written it: `read_name` accepts only what `runner_name` can produce.
"""

import re
from typing import Final

from msgspec import Struct

from holdfast.kernel.errors import BadRequest
from holdfast.kernel.ids import InstanceId

DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
INCARNATION_CHARACTERS: Final = 6
_NUMBER: Final = r"(0|[1-9a-z][0-9a-z]{0,12})"
_NAME: Final = re.compile(
    rf"hf([0-9a-z]{{{INCARNATION_CHARACTERS}}})-{_NUMBER}-{_NUMBER}-([1-9a-z][0-9a-z]*)-{_NUMBER}"
)
_INSTANCE: Final = re.compile(r"i-([0-9a-f]{8}|[0-9a-f]{17})")
_NAME_MOST: Final = 64  # GitHub's limit


class RunnerName(Struct, frozen=True):
    incarnation: str
    batch: int
    index: int
    instance: InstanceId
    fence: int

    def __str__(self) -> str:
        numbers = (_base36(self.batch), _base36(self.index), _packed(self.instance), _base36(self.fence))
        return f"hf{self.incarnation}-{'-'.join(numbers)}"


def read_name(text: str) -> RunnerName | None:
    """What the name says, or None if it is not one of ours."""
    found = _NAME.fullmatch(text) if len(text) <= _NAME_MOST else None
    if found is None:
        return None
    incarnation, batch, index, packed, fence = found.groups()
    instance = _unpacked(packed)
    return (
        None if instance is None else RunnerName(incarnation, int(batch, 36), int(index, 36), instance, int(fence, 36))
    )


def _packed(instance: InstanceId) -> str:
    found = _INSTANCE.fullmatch(instance)
    if found is None:
        raise BadRequest(f"runner name: {instance!r} is not an instance id such as i-0123456789abcdef0")
    return _base36(int(f"1{found[1]}", 16))  # the 1 keeps leading zeros


def _unpacked(text: str) -> InstanceId | None:
    instance = InstanceId(f"i-{int(text, 36):x}".replace("i-1", "i-", 1))
    # Packed again it must be the same: otherwise two names would lead to one machine.
    return instance if _INSTANCE.fullmatch(instance) and _packed(instance) == text else None


def _base36(number: int) -> str:
    if number < 0:
        raise BadRequest(f"runner name: {number} is negative")
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = DIGITS[digit] + digits
        if not number:
            return digits
