"""The cluster in memory, kept fresh by watches: nodes and pods are then read without asking the server.

For a daemon. Two threads, started and stopped by their owner, follow nodes and pods; whatever must be true now, not a
moment ago, still goes to the server.
"""

import logging
import random
import threading
from collections.abc import Callable
from typing import Final, Self

from holdfast.adapters.kube.client import KubeApi
from holdfast.adapters.kube.follower import Follower, Pace
from holdfast.adapters.kube.objects import WireNode, WirePod
from holdfast.adapters.kube.views import View
from holdfast.ports.clock import Clock
from holdfast.ports.kube import Evicted, Node, NodeChange, Pod

_log = logging.getLogger(__name__)

# After an unforeseen error, which is a bug of ours: go on, slowly.
_AFTER_A_BUG_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 5.0


class Reflector:
    """Implements `holdfast.ports.kube.Kube`.

    `changed` is called, from one of the threads, when something that the port tells of a node or a pod is not as it
    was; it should only leave word and return.
    """

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        changed: Callable[[], None],
        pace: Pace | None = None,
        chance: random.Random | None = None,
    ) -> None:
        pace = pace or Pace()
        chance = chance or random.Random()  # noqa: S311 -- spreads retries; nothing secret
        self._api = api
        self._nodes: View[Node] = View("nodes", clock, pace.stale_after_seconds)
        self._pods: View[Pod] = View("pods", clock, pace.stale_after_seconds)
        self._stopping = threading.Event()
        followers: tuple[Follower[WireNode, Node] | Follower[WirePod, Pod], ...] = (
            Follower(api, api.all_nodes, self._nodes, clock, pace, changed, chance),
            Follower(api, api.all_pods, self._pods, clock, pace, changed, chance),
        )
        self._followers = followers
        self._threads = [
            threading.Thread(target=self._follow, args=(follower,), name=f"watch-{name}", daemon=True)
            for name, follower in zip(("nodes", "pods"), followers, strict=True)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the watches. A thread in the middle of a list is not waited for long: it ends with the process."""
        self._stopping.set()
        for follower in self._followers:
            follower.interrupt()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(_STOP_SECONDS)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def age_seconds(self) -> float | None:
        """How long ago the server was last heard of, on the older of both views; None before the first lists."""
        ages = (self._nodes.age_seconds(), self._pods.age_seconds())
        return None if None in ages else max(age for age in ages if age is not None)

    def nodes(self) -> list[Node]:
        return self._nodes.items()

    def pods(self) -> list[Pod]:
        return self._pods.items()

    def node(self, name: str) -> Node | None:
        return self._api.node(name)

    def pods_on(self, node: str) -> list[Pod]:
        return self._api.pods_on(node)

    def change_node(self, node: Node, change: NodeChange) -> Node:
        return self._api.change_node(node, change)

    def evict(self, pod: Pod) -> Evicted:
        return self._api.evict(pod)

    def delete_node(self, node: Node) -> None:
        self._api.delete_node(node)

    def delete_secret(self, namespace: str, name: str) -> None:
        self._api.delete_secret(namespace, name)

    def _follow(self, follower: Follower[WireNode, Node] | Follower[WirePod, Pod]) -> None:
        while not self._stopping.is_set():
            try:
                wait_seconds = follower.round()
            except Exception:
                # The view grows stale, and says so; a thread that ended would leave it so for ever.
                _log.exception("the watch failed in a way that was not foreseen")
                wait_seconds = _AFTER_A_BUG_SECONDS
            self._stopping.wait(wait_seconds)
