"""From settings to the world: missing settings are reported before anything is touched."""

from pathlib import Path

import pytest

from holdfast.adapters.aws.sns import SnsNotifier
from holdfast.adapters.kube.reflector import Reflector
from holdfast.adapters.system_clock import SystemClock
from holdfast.adapters.webhook_notifiers import SlackNotifier, WebhookNotifier
from holdfast.entrypoints.wiring.world import (
    events_queue,
    kube_access,
    machine_tags,
    notifiers,
    open_world,
    prometheus_signals,
    world_clock,
)
from holdfast.kernel.errors import BadSetting
from holdfast.kernel.settings import Settings, load_settings
from tests.servers.certificates import new_authority

AWS = {
    "HOLDFAST_WORLD": "aws",
    "LAUNCH_TEMPLATE": "lt-0abc:3",
    "SUBNETS": "subnet-a,subnet-b",
    "PROMETHEUS_URL": "https://prometheus.example.com",
    "KUBE_SERVER": "https://10.0.0.10:6443",
    "KUBE_TOKEN_PARAMETER": "/holdfast/kube-token",
    "K3S_URL": "https://10.0.0.10:6443",
    "K3S_TOKEN_PARAMETER": "/holdfast/k3s-token",
}


@pytest.fixture(autouse=True)
def region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")


def settings(tmp_path: Path, without: str = "", **given: str) -> Settings:
    chosen = {**AWS, "HOLDFAST_DATA": str(tmp_path / "data"), **given}
    chosen.pop(without, None)
    return load_settings(chosen)


@pytest.mark.parametrize(
    "name", ["LAUNCH_TEMPLATE", "SUBNETS", "PROMETHEUS_URL", "KUBE_TOKEN_PARAMETER", "K3S_URL", "K3S_TOKEN_PARAMETER"]
)
def test_a_missing_setting_for_aws_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadSetting, match=rf"\b{name}\b.*for example {name}="):
        open_world(settings(tmp_path, without=name))
    assert not (tmp_path / "data").exists()


def test_all_missing_settings_are_reported_at_once(tmp_path: Path) -> None:
    chosen = load_settings({"HOLDFAST_WORLD": "aws", "HOLDFAST_DATA": str(tmp_path)})
    with pytest.raises(BadSetting) as caught:
        open_world(chosen)
    named = [line.split(" ")[0] for line in str(caught.value).splitlines()]
    assert named == ["LAUNCH_TEMPLATE", "SUBNETS", "PROMETHEUS_URL", "K3S_URL", "K3S_TOKEN_PARAMETER"]


def test_opening_the_real_world_makes_no_calls(tmp_path: Path) -> None:
    """No call before the first tick: a process may start while AWS is unavailable."""
    with open_world(settings(tmp_path)) as world:
        assert (world.template, list(world.subnets)) == ("lt-0abc:3", ["subnet-a", "subnet-b"])
        assert world.real_seconds(60) == 60
        assert world.user_data.startswith("#!")


def test_a_daemon_watches_kubernetes_and_lambda_lists(tmp_path: Path) -> None:
    server = {"KUBE_SERVER": "https://127.0.0.1:1"}
    with open_world(settings(tmp_path, **server), changed=lambda: None) as watching:
        assert isinstance(watching.kube, Reflector)
    with open_world(settings(tmp_path, **server)) as asking:
        assert not isinstance(asking.kube, Reflector)


def test_a_kubeconfig_is_read(tmp_path: Path) -> None:
    chosen = load_settings({"HOLDFAST_WORLD": "aws", "KUBECONFIG": str(tmp_path / "nowhere")})
    with pytest.raises(BadSetting, match=r"KUBECONFIG: cannot read .*nowhere"):
        kube_access(chosen, SystemClock())


def test_without_kubeconfig_and_address_the_pods_own_account_is_used() -> None:
    with pytest.raises(BadSetting, match="this process is not running in a pod"):
        kube_access(load_settings({"HOLDFAST_WORLD": "aws"}), SystemClock())


def test_the_ca_of_a_server_is_read(tmp_path: Path) -> None:
    ca = new_authority(tmp_path).file
    access = kube_access(settings(tmp_path, KUBE_CA_FILE=str(ca)), SystemClock())
    assert access.ca_pem == ca.read_text()
    with pytest.raises(BadSetting, match=r"KUBE_CA_FILE=.* cannot be read"):
        kube_access(settings(tmp_path, KUBE_CA_FILE=str(tmp_path / "none")), SystemClock())


def test_queries_can_be_replaced_one_by_one(tmp_path: Path) -> None:
    signals = prometheus_signals(settings(tmp_path, PROMETHEUS_CPU_QUERY="avg(my_cpu)"), SystemClock())
    plain = prometheus_signals(settings(tmp_path), SystemClock())
    assert signals._queries.cpu == "avg(my_cpu)"
    assert signals._queries.pending == plain._queries.pending


def test_a_token_is_never_sent_unencrypted(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    chosen = settings(tmp_path, PROMETHEUS_URL="http://prometheus", PROMETHEUS_TOKEN_FILE=str(tmp_path / "token"))
    with pytest.raises(BadSetting, match="unencrypted"):
        prometheus_signals(chosen, SystemClock())


def test_every_configured_notifier_is_used(tmp_path: Path) -> None:
    assert notifiers(settings(tmp_path), SystemClock()) == []
    chosen = settings(
        tmp_path,
        SLACK_WEBHOOK_URL="https://hooks.slack.com/services/T0/B0/x",
        NOTIFY_WEBHOOK_URL="https://example.com/hook",
        SNS_TOPIC_ARN="arn:aws:sns:eu-west-1:123456789012:holdfast",
    )
    found = notifiers(chosen, SystemClock())
    assert [type(one) for one in found] == [SlackNotifier, WebhookNotifier, SnsNotifier]
    assert "T0/B0" not in repr(chosen)


def test_a_configured_queue_is_read(tmp_path: Path) -> None:
    assert events_queue(settings(tmp_path)) is None
    queue = events_queue(settings(tmp_path, EVENTS_QUEUE_URL="https://sqs.eu-west-1.amazonaws.com/1/q"))
    assert queue is not None
    queue.close()


def test_two_clusters_in_one_account_do_not_share_machines(tmp_path: Path) -> None:
    tags = [machine_tags(settings(tmp_path, CLUSTER_ID=name)) for name in ("blue", "green")]
    assert tags == [{"holdfast.dev/cluster": "blue"}, {"holdfast.dev/cluster": "green"}]
    assert machine_tags(settings(tmp_path, MACHINE_TAGS="Cluster=k3s, Role=a=b")) == {"Cluster": "k3s", "Role": "a=b"}


@pytest.mark.parametrize("tags", ["", "Cluster", "=x", "a=1,a=2", "aws:x=1", "holdfast.dev/action=1", "a=" + "x" * 257])
def test_invalid_or_reserved_tags_are_refused(tmp_path: Path, tags: str) -> None:
    with pytest.raises(BadSetting, match="MACHINE_TAGS"):
        settings(tmp_path, MACHINE_TAGS=tags)


def test_a_new_simulated_world_begins_in_the_morning_whatever_the_hour_is(tmp_path: Path) -> None:
    """At night little happens in it, and a user who starts it then would see nothing."""
    with open_world(settings(tmp_path, HOLDFAST_WORLD="sim")) as world:
        assert world.clock.now().iso()[11:13] == "09"


def test_the_clock_is_the_worlds(tmp_path: Path) -> None:
    """That of a simulated world may be days ahead; before there is one, it is the system's."""
    chosen = settings(tmp_path, HOLDFAST_WORLD="sim")
    assert isinstance(world_clock(chosen), SystemClock)
    with open_world(chosen) as world:
        assert world.simulated is not None
        world.simulated.pass_time(2 * 86_400)
    assert world_clock(chosen).now().seconds_since(SystemClock().now()) > 80_000
