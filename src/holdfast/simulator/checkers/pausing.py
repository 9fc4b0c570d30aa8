"""The pause switch."""

from holdfast.kernel.ids import InstanceId
from holdfast.ports.store import Item
from holdfast.simulator.checkers.base import Checker
from holdfast.simulator.proof.processes import Process
from holdfast.simulator.world import tag_names


class PauseKept(Checker):
    name = "PauseKept"
    says = "a process that read the state after a pause began starts no action and no replacement during it"

    def cluster_written(self, by: Process, old: Item, new: Item) -> None:
        action = tag_names.action_of(new)
        if action and action != tag_names.action_of(old):
            self._judge(by, f"{action} began")

    def notice_written(self, by: Process, instance: InstanceId, old: Item, new: Item) -> None:
        if not old and new.get("kind") == "not-ready":
            self._judge(by, f"{instance} was declared lost")
        if "plan" not in old and "plan" in new:
            self._judge(by, f"a replacement for {instance} was planned")

    def _judge(self, by: Process, what: str) -> None:
        paused = self.facts.paused
        if paused is not None and paused < by.looked:
            self.fail(by, f"{what} while paused since {paused.iso()}")


CHECKERS: tuple[type[Checker], ...] = (PauseKept,)
