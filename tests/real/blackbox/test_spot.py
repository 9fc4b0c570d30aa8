"""Spot interruptions, by each way in which EC2's events arrive."""

import json
from typing import Any

import pytest

from holdfast.ports.machines import Market
from tests.support.black_box import Stage, StageMaker
from tests.support.ec2_front import ZONES

pytestmark = [pytest.mark.real, pytest.mark.slow]


def by_http(stage: Stage, event: dict[str, Any]) -> None:
    """To a web instance without ticks, beside the daemon."""
    assert stage.send_event(stage.run("serve"), event) < 300


def by_sqs(stage: Stage, event: dict[str, Any]) -> None:
    stage.queue_event(event)


def by_lambda(stage: Stage, event: dict[str, Any]) -> None:
    stage.lambda_function("event", EVENT=json.dumps(event))


@pytest.mark.parametrize("sent", [by_http, by_sqs, by_lambda])
def test_an_interrupted_machine_is_drained_and_replaced_once(stage_with: StageMaker, sent: Any) -> None:
    """Its pods are elsewhere before EC2 takes it; the notice arrives twice. In the end the process stops cleanly."""
    # Long enough that the replacement takes the evicted pods: they are no reason for another machine.
    stage = stage_with(MIN_WORKERS="2", PENDING_UP_SEC="60")
    run = stage.run()
    stage.until_settled(2)
    assert {machine.market for machine in stage.front.machines()} == {Market.SPOT}
    assert {machine.zone for machine in stage.front.machines()} == set(ZONES)
    stage.deploy("web", 3)
    stage.until(lambda: len(stage.pods("Running")) == 3, "every pod runs")
    taken = stage.pods()[0]["spec"]["nodeName"]
    event = stage.interrupt(taken)
    sent(stage, event)
    stage.queue_event(event)

    def has_moved() -> bool:
        running = [p for p in stage.pods("Running") if "deletionTimestamp" not in p["metadata"]]
        return len(running) == 3 and taken not in {pod["spec"]["nodeName"] for pod in stage.pods()}

    stage.until(has_moved, "its pods run elsewhere")
    stage.reclaim(taken)
    stage.until_settled(2)
    assert taken not in {machine.id for machine in stage.front.machines()}
    assert stage.front.launches() == 3
    assert stage.stop(run) == 0
