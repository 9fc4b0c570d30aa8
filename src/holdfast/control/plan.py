"""A plan: the rules' verdicts and the steps that follow from one look at the world."""

from typing import Generic, TypeVar

from msgspec import Struct

from holdfast.control.rules import Rule
from holdfast.control.steps import Step

StepT = TypeVar("StepT", bound=Step, covariant=True)


class Plan(Struct, Generic[StepT], frozen=True):
    """What to do, with every rule's verdict, even if there is nothing to do."""

    rules: tuple[Rule, ...]
    steps: tuple[StepT, ...]
