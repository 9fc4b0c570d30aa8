"""`holdfast doctor`: everything that Holdfast needs, looked at in turn; what is wrong, and how to mend it.

Nothing is changed by it. In the simulated world there is no AWS, no Kubernetes, no Prometheus and no GitHub to ask, and
each says so.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from holdfast.entrypoints.doctor import aws, github, kube, signals, store
from holdfast.entrypoints.doctor.findings import (
    LIMIT_SECONDS,
    Check,
    Finding,
    Outcome,
    examined,
    failed,
    not_asked,
    of_error,
    ok,
    warning,
)
from holdfast.fleet.user_data import user_data
from holdfast.kernel.errors import BadSetting
from holdfast.kernel.settings import SETTINGS, Settings
from holdfast.ports.clock import Clock

__all__ = ["Finding", "Outcome", "diagnosed", "summary"]

_SIMULATED: Final = "simulated; with HOLDFAST_WORLD=aws the real one is asked"
_SKEW_SECONDS: Final = 5
_SKEW_SECONDS_MOST: Final = 60  # GitHub refuses an App whose clock is further ahead
_SIMILAR: Final = 0.87


def diagnosed(
    settings: Settings | BadSetting,
    environment: Mapping[str, str],
    clock: Clock,
    limit_seconds: float = LIMIT_SECONDS,
) -> Iterator[Finding]:
    """Each finding as soon as it is known."""
    if isinstance(settings, BadSetting):
        for line in str(settings).split("\n"):
            seen, _, fix = line.rpartition("; ")
            yield failed("settings", seen or fix, fix if seen else "'holdfast settings' lists all there are")
        yield not_asked("everything else", "mend the settings first")
        return
    yield from examined(_checks(settings, environment, clock), limit_seconds)


def summary(findings: Sequence[Finding]) -> dict[str, int]:
    return {str(outcome): sum(finding.outcome is outcome for finding in findings) for outcome in Outcome}


def _checks(settings: Settings, environment: Mapping[str, str], clock: Clock) -> Iterator[Check]:
    s, time = settings, aws.ServerTime()
    is_sim, is_sqlite = s.holdfast_world == "sim", s.holdfast_store.path is not None
    yield Check("settings", partial(_settings, s, environment))
    if not (is_sim and is_sqlite):
        yield Check(aws.IDENTITY, partial(aws.identity, clock, time))
    first = () if is_sqlite else (aws.IDENTITY,)
    yield Check(store.REACHED, partial(store.reached, s, clock), first)
    yield Check("tables", partial(store.tables, s, clock), first)
    if not is_sqlite:
        yield Check("table permissions", partial(store.permissions, s, clock), (store.REACHED, "tables"))
    if is_sim:
        for name in ("EC2, SSM and SQS", "Kubernetes", "Prometheus", "GitHub"):
            yield Check(name, list[Finding], why_not=_SIMULATED)
    else:
        yield from _of_the_world(s, clock, time)
    yield Check("clock", partial(_clock, time), why_not="a simulated world has its own" if is_sim and is_sqlite else "")


def _of_the_world(s: Settings, clock: Clock, time: aws.ServerTime) -> Iterator[Check]:
    for name, look in (
        (aws.INSTANCES, partial(aws.instances, s)),
        ("SSM parameters", partial(aws.parameters, s, clock)),
        ("events queue", partial(aws.queue, s)),
        ("notices", partial(aws.topic, s)),
        ("migration bucket", partial(aws.bucket, s)),
    ):
        yield Check(name, look, (aws.IDENTITY,))
    missing = "SUBNETS is not set" if not s.subnets else ""
    yield Check(aws.SUBNETS, partial(aws.subnets, s), (aws.IDENTITY,), why_not=missing)
    missing = "settings that it needs are not set" if any(unset(s)) else ""
    yield Check("launch template", partial(aws.launches, s), (aws.IDENTITY,), why_not=missing)
    yield Check(kube.REACHED, partial(kube.reached, s, clock, time))
    yield Check("Kubernetes rights", partial(kube.rights, s, clock), (kube.REACHED,))
    missing = "" if s.prometheus_url else "PROMETHEUS_URL is not set"
    yield Check("Prometheus", partial(signals.read, s, clock), why_not=missing)
    asked = github.why_not(s)
    yield Check("GitHub webhook secret", partial(github.secret, s))
    yield Check(github.SIGNED_IN, partial(github.signed_in, s, clock), why_not=asked)
    yield Check("GitHub webhooks", partial(github.webhooks, s, clock), (github.SIGNED_IN,), why_not=asked)


def _settings(settings: Settings, environment: Mapping[str, str]) -> Iterator[Finding]:
    given = [name for name, source in settings.sources.items() if source != "default"]
    world = "the simulated world" if settings.holdfast_world == "sim" else "AWS"
    words = f"{len(given)} of {len(SETTINGS)} are set; this is {world}, with {settings.holdfast_store}"
    yield ok("settings", words)
    for name, close in mistyped(environment):
        yield warning("settings", f"{name} is in the environment and is no setting", f"did you mean {close}?")
    for line in unset(settings) if settings.holdfast_world == "aws" else ():
        yield of_error("settings", BadSetting(line))


def unset(settings: Settings) -> Iterator[str]:
    """What AWS needs, and nobody said."""
    examples = {
        "LAUNCH_TEMPLATE": "lt-0123456789abcdef0:3",
        "SUBNETS": "subnet-0aaa1111,subnet-0bbb2222",
        "PROMETHEUS_URL": "https://prometheus.example.com",
    }
    for name, example in examples.items():
        if not getattr(settings, name.lower()):
            yield f"{name} is not set, and HOLDFAST_WORLD=aws needs it; for example {name}={example}"
    try:
        user_data(settings)
    except BadSetting as error:
        yield from str(error).split("\n")


def mistyped(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Variables that look much like a setting of ours. Others have variables, too, so this is a guess, and no error."""
    known = [row.name for row in SETTINGS]
    for name in sorted(environment):
        if name in known or name.startswith(("HOLDFAST_", "AWS_")):  # judged already; boto3's
            continue
        close = difflib.get_close_matches(name, known, n=1, cutoff=_SIMILAR)
        if close:
            yield name, close[0]


def _clock(time: aws.ServerTime) -> Iterator[Finding]:
    if time.theirs is None or time.ours is None:
        yield not_asked("clock", "nobody told what time it is")
        return
    # The header has whole seconds, and it is of a moment ago.
    ahead = time.ours.seconds_since(time.theirs)
    words = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} {time.who}"
    fix = "let chrony or systemd-timesyncd set this machine's clock"
    if abs(ahead) > _SKEW_SECONDS_MOST:
        yield failed("clock", words, fix)
    elif abs(ahead) > _SKEW_SECONDS:
        yield warning("clock", words, fix)
    else:
        yield ok("clock", f"within {_SKEW_SECONDS} s of {time.who}'s")


def shown(settings: Settings | BadSetting, findings: Sequence[Finding]) -> dict[str, Any]:
    """As --json prints it."""
    world = None if isinstance(settings, BadSetting) else settings.holdfast_world
    items = [finding.shown() for finding in findings]
    return {"items": items, "cursor": None, "counts": summary(findings), "world": world}
