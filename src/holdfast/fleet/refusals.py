"""What follows when EC2 does not launch the machine of a slot, for every kind of launch. Pure.

EC2's answer                              what follows
throttled, or no answer                   `Repeat`: the same token and the same order, at the next tick
a code that is not in our table           `Doubt`, then `Repeat`; after five minutes a refusal, because a launched
                                          machine would be listed by then
a definitive refusal                      `NextAttempt` in another pool, with another token
… and nothing left to try, or only an     `GiveUp`
  operator can help
… but the lease was just taken over       `Repeat`: the previous holder may still launch with this token
"""

from typing import Final

from msgspec import Struct

from holdfast.fleet.ec2_errors import CODES, FAMILIES, Ec2Verdict, ruling_on
from holdfast.fleet.options import Option
from holdfast.fleet.slots import Slot
from holdfast.kernel.instants import Instant
from holdfast.ports.machines import MachineError

UNLISTED_SECONDS: Final = 300  # EC2 lists a launched machine by then
ATTEMPTS_MOST: Final = 12  # per slot and action
DOUBT_MOST_SECONDS: Final = 900  # how long a launch tries other pools while EC2 answers with unknown codes


class Repeat(Struct, frozen=True):
    """Retry at the next tick. `stops`: EC2 throttles or does not answer, so other calls would fail as well."""

    why: str
    stops: bool = False


class Doubt(Struct, frozen=True):
    """The first answer with an unknown code: store the time, and retry at the next tick."""

    since: Instant


class Refused(Struct, frozen=True):
    """Nothing was launched, certainly. `failed_pool` has no capacity; `is_final`: no other pool is worth trying."""

    failed_pool: str | None
    is_final: bool


class NextAttempt(Struct, frozen=True):
    """Try this option next, under another token."""

    option: Option


class GiveUp(Struct, frozen=True):
    """Nothing is left to try."""


def judge_refusal(
    error: MachineError, slot: Slot, *, asked: Instant, now: Instant, planned: Instant, is_token_ours: bool
) -> Repeat | Doubt | Refused:
    """What to do after EC2 did not launch a slot's machine.

    `asked`: when EC2 was called. `planned`: when the launch was first planned. `is_token_ours`: no other process may
    still use this attempt's token.
    """
    verdict, is_final = ruling_on(error.code).verdict, False
    if is_unreachable(error):
        return Repeat(str(error), stops=True)
    if not verdict.is_definitive:
        if slot.doubted is None:
            return Doubt(asked)
        if now.seconds_since(slot.doubted) < UNLISTED_SECONDS:
            return Repeat(str(error))
        verdict, is_final = Ec2Verdict.NOT_HERE, now.seconds_since(planned) >= DOUBT_MOST_SECONDS
    if not is_token_ours:
        return Repeat("the previous lease holder may still launch it")
    failed_pool = slot.pool if verdict is Ec2Verdict.NOT_HERE else None
    return Refused(failed_pool, is_final or verdict is Ec2Verdict.OPERATOR)


def next_option(slot: Slot, options: list[Option], first_attempt: int = 0) -> Option | None:
    """Where to try next; None when no pool is left, or after too many attempts."""
    if not options or slot.attempt + 1 >= first_attempt + ATTEMPTS_MOST:
        return None
    return options[0]


def is_unreachable(error: MachineError) -> bool:
    """Whether EC2 throttles or does not answer, so that another call would fail as well."""
    verdict = ruling_on(error.code).verdict
    return is_known_code(error.code) and verdict in (Ec2Verdict.AGAIN, Ec2Verdict.NO_ANSWER)


def is_known_code(code: str) -> bool:
    """Whether the error table has this code. A launch with an unknown code is repeated only for a limited time."""
    plain = code.removeprefix("Client.").removeprefix("Server.")
    return plain in CODES or plain.startswith(tuple(FAMILIES))
