"""The pause switch."""

from holdfast.kernel.ids import InstanceId
from holdfast.ports.store import Item
from holdfast.simulator import marks
from holdfast.simulator.checkers.base import Checker
from holdfast.simulator.process import Process


class PauseKept(Checker):
    name = "PauseKept"
    says = "who looked after a pause began starts no action and no replacement while it lasts"

    def wrote(self, by: Process, old: Item, new: Item) -> None:
        action = marks.action_of(new)
        if action and action != marks.action_of(old):
            self._judge(by, f"{action} was begun")

    def noted(self, by: Process, instance: InstanceId, old: Item, new: Item) -> None:
        if not old and new.get("kind") == "not-ready":
            self._judge(by, f"{instance} was given up")
        if "plan" not in old and "plan" in new:
            self._judge(by, f"a replacement for {instance} was planned")

    def _judge(self, by: Process, what: str) -> None:
        paused = self.facts.paused
        if paused is not None and paused < by.looked:
            self.fail(by, f"{what}, and it is paused since {paused.iso()}")


CHECKERS: tuple[type[Checker], ...] = (PauseKept,)
