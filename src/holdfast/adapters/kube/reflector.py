"""A cache of the cluster, kept fresh by watches: nodes and pods are read without a request.

For a daemon. Two threads, started and stopped by their owner, follow nodes and pods; reads that must be current still
go to the server.
"""

import logging
import random
import threading
from collections.abc import Callable
from typing import Final, Self

from holdfast.adapters.kube.client import KubeApi
from holdfast.adapters.kube.follower import Follower, FollowPace
from holdfast.adapters.kube.objects import WireNode, WirePod
from holdfast.adapters.kube.views import ResourceView
from holdfast.ports.clock import Clock
from holdfast.ports.kube import ForwardingKube, Node, Pod

_log = logging.getLogger(__name__)

# After an unexpected error, which is a bug: continue, slowly.
_AFTER_A_BUG_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 5.0


class Reflector(ForwardingKube):
    """Implements `holdfast.ports.kube.Kube`.

    `changed` is called from one of the threads when a node or a pod has changed; it should return quickly.
    """

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        changed: Callable[[], None],
        pace: FollowPace | None = None,
        chance: random.Random | None = None,
    ) -> None:
        pace = pace or FollowPace()
        chance = chance or random.Random()  # noqa: S311 -- spreads retries; nothing secret
        super().__init__(api)
        self._nodes: ResourceView[Node] = ResourceView("nodes", clock, pace.stale_after_seconds)
        self._pods: ResourceView[Pod] = ResourceView("pods", clock, pace.stale_after_seconds)
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
        """End the watches. Does not wait long for a thread that is reading a list: it ends with the process."""
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
        """The age of the older of both views; None before the first lists."""
        ages = (self._nodes.age_seconds(), self._pods.age_seconds())
        return None if None in ages else max(age for age in ages if age is not None)

    def nodes(self) -> list[Node]:
        return self._nodes.items()

    def pods(self) -> list[Pod]:
        return self._pods.items()

    def _follow(self, follower: Follower[WireNode, Node] | Follower[WirePod, Pod]) -> None:
        while not self._stopping.is_set():
            try:
                wait_seconds = follower.round()
            except Exception:
                # The view becomes stale, and says so; if the thread ended, it would stay stale forever.
                _log.exception("the watch failed with an unexpected error")
                wait_seconds = _AFTER_A_BUG_SECONDS
            self._stopping.wait(wait_seconds)
