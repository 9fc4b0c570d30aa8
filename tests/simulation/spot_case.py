"""A machine with spot notices, and processes that handle them, each with its own observation."""

from typing import Any

from holdfast.cluster.memory import spots_key
from holdfast.cluster.spot.notice import SpotKind, SpotNotice, SpotPhase, notice_key, read_notice, store_notice
from holdfast.cluster.spot.notice_handler import NoticeHandler
from holdfast.cluster.steps import SpotStep
from holdfast.kernel.ids import InstanceId
from holdfast.ports.kube import Node
from holdfast.ports.store import set_all
from holdfast.ports.store.tables import STATE
from tests.call_gate import CallGate
from tests.simulation.harness import Stage


class SpotCase:
    """Three workers; one of them gets the notices."""

    def __init__(self) -> None:
        self.stage = Stage(workers=3)
        self.stage.tick()
        self.victim: InstanceId = self.stage.alive[0].id

    def receive_notice(self, kind: SpotKind, after_seconds: float = 0) -> bool:
        return store_notice(
            self.stage.store, self.stage.name, self.victim, kind, self.stage.clock.now().plus(after_seconds)
        )

    def overwrite(self, **values: Any) -> None:
        """Overwrite attributes of the stored notice, as another process would."""
        self.stage.store.update(STATE, notice_key(self.victim), set_all(values))

    def handler(self, gate: CallGate | None = None) -> NoticeHandler:
        """A process that has just observed the cluster."""
        return NoticeHandler(self.stage.cluster(gate).writes, self.stage.cluster().look()[0])

    def carry_out(self, step: type[SpotStep], handler: NoticeHandler | None = None, **values: Any) -> None:
        of_it = step(instance=self.victim, because="test", **values)
        (handler or self.handler()).carry_out(of_it)

    @property
    def notice(self) -> SpotNotice:
        item = self.stage.store.get(STATE, notice_key(self.victim))
        assert item is not None
        return read_notice(item)

    @property
    def phase(self) -> SpotPhase:
        return self.notice.phase

    @property
    def node(self) -> Node:
        found = self.stage.world.k3s.node(self.victim)
        assert found is not None
        return found

    @property
    def is_listed(self) -> bool:
        item = self.stage.store.get(STATE, spots_key(self.stage.name)) or {}
        return self.victim in item.get("open", ())
