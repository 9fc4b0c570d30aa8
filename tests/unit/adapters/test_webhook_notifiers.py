"""Notifications to webhooks: what is sent, what is not, and that the address stays secret."""

import json
import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast.adapters.http_calls import HttpLimits
from holdfast.adapters.webhook_notifiers import TEXT_MOST, SlackNotifier, WebhookNotifier, slack_escaped
from holdfast.kernel.errors import BadSetting, Retryable
from holdfast.ports.notify import Notification
from tests.clocks import StillClock
from tests.servers.certificates import Authority, new_authority
from tests.servers.scripted_http import Asked, Reply, Reset, Script, ScriptedServer, Silence, serving

SECRET = "canary-77ab"
NOTICE = Notification("launch-failed", "cluster/main", "No spot capacity", "t3.medium in eu-west-1a\ntrying on-demand")

Kind = type[WebhookNotifier]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return new_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def notifier(authority: Authority) -> Callable[..., Any]:
    """`notifier(kind, script)` as a context: the notifier and the server it talks to."""
    tls = authority.server_context("127.0.0.1")

    @contextmanager
    def opened(
        kind: Kind, script: Script, whole_seconds: float = 5.0
    ) -> Iterator[tuple[WebhookNotifier, ScriptedServer]]:
        with serving(script, tls) as server:
            limits = HttpLimits(whole_seconds=whole_seconds, body_bytes=1000)
            address = f"{server.url}/services/{SECRET}?key={SECRET}"
            yield kind(address, StillClock(), setting="WEBHOOK", ca_file=authority.file, limits=limits), server

    return opened


def taken(_: Asked) -> Reply:
    return Reply(b"ok")


def answering(reply: Reply | type[Exception]) -> Script:
    def answer(_: Asked) -> Reply:
        if isinstance(reply, Reply):
            return reply
        raise reply

    return answer


def body(server: ScriptedServer) -> Any:
    return json.loads(server.asked[0].body)


def test_a_plain_webhook_gets_the_notification_as_json(notifier: Callable[..., Any]) -> None:
    with notifier(WebhookNotifier, taken) as (webhook, server):
        webhook.notify(NOTICE)
    assert server.asked[0].path == f"/services/{SECRET}?key={SECRET}"
    assert server.asked[0].headers["content-type"] == "application/json"
    assert body(server) == {
        "source": "holdfast",
        "kind": "launch-failed",
        "key": "cluster/main",
        "title": "No spot capacity",
        "text": "t3.medium in eu-west-1a\ntrying on-demand",
        "is_urgent": False,
    }


def test_slack_gets_a_message(notifier: Callable[..., Any]) -> None:
    with notifier(SlackNotifier, taken) as (slack, server):
        slack.notify(NOTICE)
        slack.notify(Notification("k", "k", "All is lost", "", is_urgent=True))
    assert body(server)["text"] == "*No spot capacity*\nt3.medium in eu-west-1a\ntrying on-demand"
    assert body(server)["unfurl_links"] is False
    assert json.loads(server.asked[1].body)["text"] == "*Urgent: All is lost*\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "<!channel> a & b <https://evil.example|click>",
            "&lt;!channel&gt; a &amp; b &lt;https://evil.example|click&gt;",
        ),
        ("&lt;already&gt;", "&amp;lt;already&amp;gt;"),
        ("@channel @Here, @all @everyone", "@\u200bchannel @\u200bHere, @\u200ball @\u200beveryone"),
        ("ops@allied.example @herewith", "ops@allied.example @herewith"),
    ],
)
def test_foreign_text_mentions_no_user_and_contains_no_link(text: str, shown: str) -> None:
    assert slack_escaped(text) == shown


@pytest.mark.parametrize("kind", [WebhookNotifier, SlackNotifier])
def test_control_characters_are_removed_and_long_text_is_cut(notifier: Callable[..., Any], kind: Kind) -> None:
    odd = Notification("k", "k\ud800", "a\x00\x1b[31m\u202eb", "\ud800" + "x" * 10_000)
    with notifier(kind, taken) as (webhook, server):
        webhook.notify(odd)
    sent = body(server)
    assert "a[31mb" in sent.get("title", sent["text"])
    assert "\x1b" not in sent["text"]
    assert len(sent["text"]) < TEXT_MOST + 100


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (Reply(b"no_service", status=404), "HTTP status 404"),
        (Reply(b"", status=500), "HTTP status 500"),
        (Reply(b"", status=429), "HTTP status 429"),
        (Reply(b"", status=307, headers={"Location": "https://evil.example/"}), "HTTP status 307"),
        (Reply(b"x" * 2000), "larger than 1000 bytes"),
        (Reset, "connection lost"),
    ],
)
@pytest.mark.parametrize("kind", [WebhookNotifier, SlackNotifier])
def test_a_failure_is_retryable_and_the_address_stays_secret(
    notifier: Callable[..., Any], caplog: pytest.LogCaptureFixture, kind: Kind, reply: Any, says: str
) -> None:
    with (
        caplog.at_level(logging.DEBUG),
        notifier(kind, answering(reply)) as (webhook, server),
        pytest.raises(Retryable, match=says) as raised,
    ):
        webhook.notify(NOTICE)
    assert str(raised.value).startswith(f"webhook at {server.url}: ")
    everything = "".join(traceback.format_exception(raised.value)) + caplog.text + repr(webhook) + repr(vars(webhook))
    assert SECRET not in everything
    assert len(server.asked) == 1


def test_a_webhook_that_does_not_respond_times_out(notifier: Callable[..., Any]) -> None:
    with (
        notifier(SlackNotifier, answering(Silence), whole_seconds=0.1) as (slack, _),
        pytest.raises(Retryable, match="timed out"),
    ):
        slack.notify(NOTICE)


def test_an_untrusted_certificate_is_refused(authority: Authority) -> None:
    with serving(taken, authority.server_context("127.0.0.1")) as server:
        with pytest.raises(Retryable, match="certificate verification failed"):
            SlackNotifier(f"{server.url}/{SECRET}", StillClock(), setting="WEBHOOK").notify(NOTICE)
        assert server.asked == []


@pytest.mark.parametrize("address", [f"http://127.0.0.1/{SECRET}", f"https://u:{SECRET}@h/", SECRET, "https:///x", ""])
@pytest.mark.parametrize("kind", [WebhookNotifier, SlackNotifier])
def test_only_https_is_accepted_and_a_wrong_address_is_not_shown(kind: Kind, address: str) -> None:
    with pytest.raises(BadSetting, match=r"^SLACK_WEBHOOK_URL is not a URL that begins with https://") as raised:
        kind(address, StillClock(), setting="SLACK_WEBHOOK_URL")
    assert SECRET not in "".join(traceback.format_exception(raised.value))
