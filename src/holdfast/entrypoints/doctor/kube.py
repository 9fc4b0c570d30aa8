"""Kubernetes: whether the server is reachable, and whether we have the permissions of the shipped role.

TLS is always verified: an untrusted certificate is a failure here, as it is for a tick.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

from urllib3.response import BaseHTTPResponse

from holdfast.adapters.kube.calls import KubeCalls, KubeRetries
from holdfast.adapters.kube.transport import HttpTransport, Limits, Request
from holdfast.entrypoints.doctor.aws import ServerTime
from holdfast.entrypoints.doctor.findings import Finding, failed, ok, warning
from holdfast.entrypoints.doctor.granted import ROLE_RULES, RoleRule
from holdfast.entrypoints.wiring.world import kube_access
from holdfast.kernel.settings import Settings
from holdfast.ports.clock import Clock

REACHED: Final = "Kubernetes"
_LIMITS: Final = Limits(connect_seconds=3, answer_seconds=6)
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class _TimedTransport(HttpTransport):
    """Records the server's time."""

    def __init__(self, settings: Settings, clock: Clock, time: ServerTime) -> None:
        super().__init__(kube_access(settings, clock), _LIMITS, agent="holdfast-doctor")
        self._clock = clock
        self._time = time

    def _request(self, request: Request, read_seconds: float, *, preload: bool) -> BaseHTTPResponse:
        response = super()._request(request, read_seconds, preload=preload)
        if self._time.theirs is None:  # AWS's time takes precedence
            self._time.record("Kubernetes", response.headers.get("Date", ""), self._clock.now())
        return response


def _calls(settings: Settings, clock: Clock, time: ServerTime) -> KubeCalls:
    return KubeCalls(_TimedTransport(settings, clock, time), clock, KubeRetries(deadline_seconds=3))


def reached(settings: Settings, clock: Clock, time: ServerTime) -> Iterator[Finding]:
    with closing(_calls(settings, clock, time)) as calls:
        answer = calls.read(Request("get", "version", "/version"))
    version = _decoded(answer.body).get("gitVersion", "unknown version")
    yield ok(REACHED, f"{version}; its certificate is trusted")


def rights(settings: Settings, clock: Clock) -> Iterator[Finding]:
    """Uses SelfSubjectAccessReview, which every account may create, to find missing permissions."""
    with closing(_calls(settings, clock, ServerTime())) as calls:
        for rule in ROLE_RULES:
            missing = [verb for verb in rule.verbs if not _is_allowed(calls, rule, verb)]
            name = f"Kubernetes permissions: {rule}"
            if missing:
                fix = "kubectl apply -f deploy/kubernetes/role.yaml, and use its service account"
                yield failed(name, f"cannot {', '.join(missing)}", fix)
            else:
                yield ok(name, f"can {', '.join(rule.verbs)}")
        if _is_allowed(calls, RoleRule("*", ("*",), group="*"), "*"):
            fix = "use the service account in deploy/kubernetes/role.yaml, which has all that is needed"
            yield warning("Kubernetes permissions", "this account has full access to the cluster", fix)


def _is_allowed(calls: KubeCalls, rule: RoleRule, verb: str) -> bool:
    resource, _, part = rule.resource.partition("/")
    attributes: dict[str, Any] = {"group": rule.group, "resource": resource, "verb": verb}
    attributes |= {"subresource": part} if part else {}
    attributes |= {"namespace": rule.namespace} if rule.namespace else {}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
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
