"""Kubernetes: is it the server that we mean, and may we do there what the shipped role allows?

TLS is always verified: a certificate that is not trusted is a failure here, as it is for a tick.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

from urllib3.response import BaseHTTPResponse

from holdfast.adapters.kube.calls import KubeCalls, Retries
from holdfast.adapters.kube.transport import HttpTransport, Limits, Request
from holdfast.entrypoints.doctor.aws import ServerTime
from holdfast.entrypoints.doctor.findings import Finding, failed, ok, warning
from holdfast.entrypoints.doctor.granted import ROLE_RULES, RoleRule
from holdfast.entrypoints.world import kube_access
from holdfast.kernel.settings import Settings
from holdfast.ports.clock import Clock

REACHED: Final = "Kubernetes"
_LIMITS: Final = Limits(connect_seconds=3, answer_seconds=6)
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class _TimedTransport(HttpTransport):
    """Hears what time the server has."""

    def __init__(self, settings: Settings, clock: Clock, time: ServerTime) -> None:
        super().__init__(kube_access(settings, clock), _LIMITS, agent="holdfast-doctor")
        self._clock = clock
        self._time = time

    def _request(self, request: Request, read_seconds: float, *, preload: bool) -> BaseHTTPResponse:
        response = super()._request(request, read_seconds, preload=preload)
        if self._time.theirs is None:  # AWS' word comes first
            self._time.heard("Kubernetes", response.headers.get("Date", ""), self._clock.now())
        return response


def _calls(settings: Settings, clock: Clock, time: ServerTime) -> KubeCalls:
    return KubeCalls(_TimedTransport(settings, clock, time), clock, Retries(deadline_seconds=3))


def reached(settings: Settings, clock: Clock, time: ServerTime) -> Iterator[Finding]:
    with closing(_calls(settings, clock, time)) as calls:
        answer = calls.read(Request("get", "version", "/version"))
    version = _decoded(answer.body).get("gitVersion", "a version that it does not tell")
    yield ok(REACHED, f"{version}; its certificate is the one that was expected")


def rights(settings: Settings, clock: Clock) -> Iterator[Finding]:
    """Asked by SelfSubjectAccessReview, which every account may: what of the shipped role is missing."""
    with closing(_calls(settings, clock, ServerTime())) as calls:
        for rule in ROLE_RULES:
            missing = [verb for verb in rule.verbs if not _may(calls, rule, verb)]
            name = f"Kubernetes rights: {rule}"
            if missing:
                fix = "kubectl apply -f deploy/kubernetes/role.yaml, and use its service account"
                yield failed(name, f"may not {', '.join(missing)}", fix)
            else:
                yield ok(name, f"may {', '.join(rule.verbs)}")
        if _may(calls, RoleRule("*", ("*",), group="*"), "*"):
            fix = "use the service account of deploy/kubernetes/role.yaml: it is enough"
            yield warning("Kubernetes rights", "this account may do everything in the cluster", fix)


def _may(calls: KubeCalls, rule: RoleRule, verb: str) -> bool:
    resource, _, part = rule.resource.partition("/")
    asked: dict[str, Any] = {"group": rule.group, "resource": resource, "verb": verb}
    asked |= {"subresource": part} if part else {}
    asked |= {"namespace": rule.namespace} if rule.namespace else {}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    body = json.dumps(review).encode()
    answer = calls.change(Request("create", "selfsubjectaccessreviews", _REVIEWS, body=body))
    return bool(_decoded(answer.body).get("status", {}).get("allowed"))


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
