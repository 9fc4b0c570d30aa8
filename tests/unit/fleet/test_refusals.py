"""The consequence when EC2 does not launch a slot's machine: the module's table, row by row."""

import pytest
from msgspec.structs import replace

from holdfast.fleet.options import Option
from holdfast.fleet.refusals import (
    ATTEMPTS_MOST,
    DOUBT_MOST_SECONDS,
    UNLISTED_SECONDS,
    Doubt,
    Refused,
    Repeat,
    judge_refusal,
    next_option,
)
from holdfast.fleet.slots import Slot, launch_token, read_slot
from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.machines import MachineError, Market

NOW = Instant.from_iso("2026-01-15T10:00:00Z")
SLOT = Slot("subnet-a", "eu-west-1a", Market.SPOT, "t3.medium", attempt=2)
OPTION = Option("t3.large", "eu-west-1b", "subnet-b", Market.ON_DEMAND)


def judged(code: str, slot: Slot = SLOT, *, planned: Instant = NOW, is_token_ours: bool = True) -> object:
    return judge_refusal(
        MachineError(code, "says EC2"), slot, asked=NOW, now=NOW, planned=planned, is_token_ours=is_token_ours
    )


@pytest.mark.parametrize("code", ["RequestLimitExceeded", "InternalError", "RequestTimeout"])
def test_an_unreachable_ec2_is_retried_and_other_calls_wait(code: str) -> None:
    answer = judged(code)
    assert isinstance(answer, Repeat)
    assert answer.stops


def test_no_capacity_is_a_refusal_and_the_pool_is_remembered() -> None:
    assert judged("InsufficientInstanceCapacity") == Refused("t3.medium|eu-west-1a|spot", is_final=False)


def test_an_error_for_an_operator_is_final() -> None:
    assert judged("UnauthorizedOperation") == Refused(None, is_final=True)


@pytest.mark.parametrize("code", ["IdempotentParameterMismatch", "IdempotentInstanceTerminated"])
def test_a_used_token_leads_to_another_attempt(code: str) -> None:
    assert judged(code) == Refused(None, is_final=False)


def test_an_unknown_code_is_ambiguous_then_retried_then_a_refusal() -> None:
    assert judged("Odd") == Doubt(NOW)
    since = replace(SLOT, doubted=NOW.plus(-UNLISTED_SECONDS + 1))
    assert judged("Odd", since) == Repeat("Odd: says EC2", stops=False)
    long_since = replace(SLOT, doubted=NOW.plus(-UNLISTED_SECONDS))
    assert judged("Odd", long_since) == Refused(SLOT.pool, is_final=False)
    assert judged("Odd", long_since, planned=NOW.plus(-DOUBT_MOST_SECONDS)) == Refused(SLOT.pool, is_final=True)


def test_a_code_that_makes_no_sense_for_a_launch_is_ambiguous_too() -> None:
    assert judged("InvalidInstanceID.NotFound") == Doubt(NOW)


def test_after_a_takeover_no_refusal_leads_to_another_token() -> None:
    answer = judged("InsufficientInstanceCapacity", is_token_ours=False)
    assert answer == Repeat("the previous lease holder may still launch it", stops=False)


def test_attempts_are_counted_from_the_first_of_this_launch() -> None:
    last = replace(SLOT, attempt=ATTEMPTS_MOST - 1)
    assert next_option(last, [OPTION]) is None
    assert next_option(last, [OPTION], first_attempt=1) == OPTION
    assert next_option(SLOT, []) is None


def test_every_attempt_at_every_slot_has_its_own_token() -> None:
    tokens = {launch_token(scope, a, n, k) for scope in "xy" for a in ("1", "2") for n in (0, 1) for k in (0, 1)}
    assert len(tokens) == 16
    assert all(len(token) <= 64 and token.isascii() for token in tokens)


@pytest.mark.parametrize(
    "slot",
    [SLOT, replace(SLOT, instance=InstanceId("i-1")), replace(SLOT, exhausted="no"), replace(SLOT, doubted=NOW)],
)
def test_a_slot_is_read_as_it_was_stored(slot: Slot) -> None:
    assert read_slot(slot.stored(), "test: ") == slot
