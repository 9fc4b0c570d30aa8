"""The doctor on a real API server: its certificate, and the permissions of an account."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from holdfast.adapters.system_clock import SystemClock
from holdfast.entrypoints.doctor import kube
from holdfast.entrypoints.doctor.aws import ServerTime
from holdfast.entrypoints.doctor.findings import Check, Finding, FindingOutcome, run_checks
from holdfast.entrypoints.doctor.granted import ROLE_RULES
from holdfast.kernel.settings import Settings, load_settings
from tests.servers.kube_apiserver import RunningKube

pytestmark = pytest.mark.real

CLOCK = SystemClock()
Known = Callable[..., Settings]


@pytest.fixture
def known(kube_server: RunningKube, tmp_path: Path) -> Known:
    """`known(token)`: settings for the server with that token."""

    def settings(token: str, ca_pem: str = "") -> Settings:
        ca = tmp_path / "ca.pem"
        ca.write_text(ca_pem or kube_server.ca_pem)
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "k",
            "contexts": [{"name": "k", "context": {"cluster": "k", "user": "k"}}],
            "clusters": [{"name": "k", "cluster": {"server": kube_server.url, "certificate-authority": str(ca)}}],
            "users": [{"name": "k", "user": {"token": token}}],
        }
        path = tmp_path / "kubeconfig"
        path.write_text(json.dumps(config))  # JSON is YAML, too
        return load_settings({"HOLDFAST_WORLD": "aws", "KUBECONFIG": str(path)})

    return settings


def looked_at(settings: Settings, time: ServerTime | None = None) -> list[Finding]:
    checks = [
        Check(kube.REACHED, lambda: kube.reached(settings, CLOCK, time or ServerTime())),
        Check("Kubernetes permissions", lambda: kube.rights(settings, CLOCK), (kube.REACHED,)),
    ]
    return list(run_checks(checks))


def test_the_shipped_account_has_the_permissions_it_needs_and_no_more(known: Known, account_token: str) -> None:
    time = ServerTime()
    found = looked_at(known(account_token), time)
    assert [str(each.outcome) for each in found] == ["ok"] * (1 + len(ROLE_RULES))
    assert found[0].seen.startswith("v1.")
    assert [each.check for each in found[1:]] == [f"Kubernetes permissions: {rule}" for rule in ROLE_RULES]
    assert (time.who, time.theirs is not None) == ("Kubernetes", True)


def test_an_administrators_token_is_a_warning(known: Known, kube_server: RunningKube) -> None:
    found = looked_at(known(kube_server.admin_token))
    assert [str(each.outcome) for each in found] == ["ok"] * (1 + len(ROLE_RULES)) + ["warning"]
    assert found[-1].seen == "this account has full access to the cluster"


def test_missing_permissions_are_named_verb_by_verb(known: Known, kube_server: RunningKube) -> None:
    """An account that may only read."""
    role = "/apis/rbac.authorization.k8s.io/v1"
    rule = {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch"]}
    kube_server.ask("POST", f"{role}/clusterroles", {"metadata": {"name": "looker"}, "rules": [rule]})
    kube_server.ask("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "looker"}})
    subject = {"kind": "ServiceAccount", "name": "looker", "namespace": "default"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "looker"}
    binding = {"metadata": {"name": "looker"}, "roleRef": reference, "subjects": [subject]}
    kube_server.ask("POST", f"{role}/clusterrolebindings", binding)
    found = {each.check: each for each in looked_at(known(kube_server.token_of("default", "looker")))}
    nodes = found["Kubernetes permissions: nodes"]
    assert (nodes.outcome, nodes.seen) == (FindingOutcome.FAILED, "cannot patch, delete")
    assert "deploy/kubernetes/role.yaml" in nodes.fix
    assert found["Kubernetes permissions: pods"].outcome is FindingOutcome.OK
    assert found["Kubernetes permissions: pods/eviction"].seen == "cannot create"
    assert found["Kubernetes permissions: secrets in kube-system"].seen == "cannot delete"


def test_a_server_of_another_authority_is_a_failure_and_permissions_are_not_checked(
    known: Known, account_token: str
) -> None:
    stranger = trustme.CA().cert_pem.bytes().decode()
    reached, rights = looked_at(known(account_token, stranger))
    assert (reached.outcome, "SSLCertVerificationError" in reached.seen) == (FindingOutcome.FAILED, True)
    assert reached.fix.startswith("check the server's URL and its CA")
    assert rights.outcome is FindingOutcome.SKIPPED


def test_an_unknown_token_is_a_failure(known: Known) -> None:
    found = looked_at(known("nobody"))
    failures = [each for each in found if each.outcome is FindingOutcome.FAILED]
    assert failures
    assert "401" in failures[0].seen
