"""Carry out steps under the lease: side effects, and no choices.

Each is repeatable, and each promise is stored before its effect. Which hand carries out a step is a matter of its
kind: a `LaunchSlot` is done by whichever has a `launch_slot`.
"""

from collections.abc import Callable
from typing import Any

from holdfast.cluster.hands import Hands
from holdfast.cluster.holder import Holder
from holdfast.cluster.lease import Lease
from holdfast.cluster.ledger import Ledger
from holdfast.cluster.replacement_act import ReplacementHand
from holdfast.cluster.scale_down_act import ScaleDownHand
from holdfast.cluster.scale_up_act import ScaleUpHand
from holdfast.cluster.seen import Seen
from holdfast.cluster.steps import Step
from holdfast.cluster.sweep_act import SweepHand
from holdfast.kernel.ids import ActionId
from holdfast.ports.notify import Notice


class Actor:
    """Carries out the steps of one holder of the lease."""

    def __init__(self, hands: Hands, ledger: Ledger, lease: Lease, seen: Seen, action: ActionId) -> None:
        self._holder = holder = Holder(hands, ledger, lease, seen, action)
        self._doers = (ScaleUpHand(holder), ScaleDownHand(holder), ReplacementHand(holder), SweepHand(holder))

    @property
    def seen(self) -> Seen:
        """The world, as far as it follows from what was done."""
        return self._holder.seen

    @property
    def lease(self) -> Lease:
        return self._holder.lease

    @property
    def told(self) -> list[str]:
        """What became of the steps, where there is something to tell."""
        return self._holder.told

    @property
    def alarms(self) -> list[Notice]:
        return self._holder.alarms

    def look_anew(self, seen: Seen) -> None:
        self._holder.seen = seen

    def carry_out(self, step: Step) -> bool:
        """Do it. False: nothing more can be done before another look; NotDone: not this one, before the next tick."""
        self._holder.hold_on()
        doer = next(hand for hand in self._doers if hasattr(hand, step.kind))
        doing: Callable[[Any], bool | None] = getattr(doer, step.kind)
        return doing(step) is not False
