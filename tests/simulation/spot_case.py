"""A machine that notices are of, and processes that handle them, each with what it sees."""

from holdfast.cluster.memory import spots_key
from holdfast.cluster.spot import Notice, SpotKind, SpotPhase, read_notice
from holdfast.cluster.spot_act import SpotHand, note, notice_key
from holdfast.cluster.steps import Step
from holdfast.kernel.ids import InstanceId
from holdfast.ports.kube import Node
from holdfast.ports.store import set_all
from holdfast.ports.store.tables import STATE
from holdfast.simulator.gate import Gate
from tests.simulation.harness import Stage


class SpotCase:
    """Three workers, and one of them that notices are of."""

    def __init__(self) -> None:
        self.stage = Stage(workers=3)
        self.stage.tick()
        self.victim: InstanceId = self.stage.alive[0].id

    def told(self, kind: SpotKind, after_seconds: float = 0) -> bool:
        return note(self.stage.store, self.stage.name, self.victim, kind, self.stage.clock.now().plus(after_seconds))

    def stored(self, **values: object) -> None:
        """What others have done, by hand."""
        self.stage.store.update(STATE, notice_key(self.victim), set_all(values))

    def hand(self, gate: Gate | None = None) -> SpotHand:
        """A process, with what it sees now."""
        return SpotHand(self.stage.cluster(gate).hands, self.stage.cluster().look()[0])

    def does(self, step: type[Step], hand: SpotHand | None = None, **values: object) -> None:
        of_it = step(instance=self.victim, because="test", **values)  # type: ignore[call-arg]
        (hand or self.hand()).carry_out(of_it)

    @property
    def notice(self) -> Notice:
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
