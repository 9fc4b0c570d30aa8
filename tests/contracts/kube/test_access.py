"""Access to a real API server: its certificate, our tokens, and the shipped role."""

import base64
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from holdfast.adapters.kube import config
from holdfast.adapters.kube.calls import KubeCalls
from holdfast.adapters.kube.client import KubeApi
from holdfast.adapters.kube.config import ApiServerAddress, KubeAccess
from holdfast.adapters.kube.tokens import FileToken, FixedToken
from holdfast.adapters.kube.transport import HttpTransport
from holdfast.ports.kube import Eviction, KubeRefused, KubeUnavailable, NodeChange
from tests.clocks import StillClock
from tests.servers.kube_apiserver import RunningKube
from tests.servers.processes import free_port
from tests.support.kube_worlds import RealWorld, until

pytestmark = pytest.mark.real


def client(access: KubeAccess) -> KubeApi:
    return KubeApi(KubeCalls(HttpTransport(access), StillClock()))


def access_to(kube: RunningKube, **changes: Any) -> KubeAccess:
    known = KubeAccess(ApiServerAddress.parsed(kube.url, "test"), kube.ca_pem, FixedToken(kube.admin_token))
    return replace(known, **changes)


def refusal(access: KubeAccess) -> str:
    api = client(access)
    with pytest.raises(KubeRefused) as refused:
        api.nodes()
    api.close()
    return str(refused.value)


# The server's certificate


def test_a_server_with_a_certificate_of_another_ca_is_refused(kube_server: RunningKube) -> None:
    refused = refusal(access_to(kube_server, ca_pem=trustme.CA().cert_pem.bytes().decode()))
    assert "list nodes: TLS failed: SSLCertVerificationError" in refused
    assert "check the server's URL and its CA" in refused


def test_a_server_that_the_system_store_does_not_trust_is_refused(kube_server: RunningKube) -> None:
    assert "SSLCertVerificationError" in refusal(access_to(kube_server, ca_pem=None))


def test_a_server_of_another_name_is_refused(kube_server: RunningKube) -> None:
    refused = refusal(access_to(kube_server, server_name="kubernetes.example"))
    assert "Hostname mismatch" in refused


def test_a_server_is_verified_by_the_configured_name(kube_server: RunningKube) -> None:
    api = client(access_to(kube_server, server_name="localhost"))
    api.nodes()
    api.close()


def test_a_server_that_does_not_respond_is_unavailable_after_a_few_attempts(kube_server: RunningKube) -> None:
    api = client(access_to(kube_server, server=ApiServerAddress("127.0.0.1", free_port(), "")))
    with pytest.raises(KubeUnavailable, match=r"list nodes: .*[Cc]onnection refused.*gave up after 8 s of retries"):
        api.nodes()
    api.close()


# Our credentials


def test_an_unknown_token_is_refused_and_not_shown(kube_server: RunningKube) -> None:
    refused = refusal(access_to(kube_server, token=FixedToken("canary-of-a-token")))
    assert "401" in refused
    assert "replace it" in refused
    assert "canary" not in refused


def test_an_anonymous_request_is_refused(kube_server: RunningKube) -> None:
    assert "403" in refusal(access_to(kube_server, token=None))


def test_a_token_that_was_replaced_in_its_file_is_used(kube_server: RunningKube, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("expired\n")
    api = client(access_to(kube_server, token=FileToken(file)))
    with pytest.raises(KubeRefused, match="401"):
        api.nodes()
    file.write_text(f"{kube_server.admin_token}\n")
    api.nodes()
    api.close()


def test_a_token_that_the_server_no_longer_accepts_is_fetched_again_at_once(kube_server: RunningKube) -> None:
    """Also before it expires: a rotated token must cost neither five minutes nor a change."""
    tokens = iter(["expired", kube_server.admin_token])
    api = client(config.access_from_settings(kube_server.url, lambda: next(tokens), StillClock(), kube_server.ca_pem))
    api.delete_secret("kube-system", "absent")
    api.close()


@pytest.mark.parametrize("style", ["data", "files"])
def test_a_kubeconfig_as_k3s_writes_it_works(kube_server: RunningKube, tmp_path: Path, style: str) -> None:
    chain, key = kube_server.client_certificate("admin", "system:masters")
    parts = {"certificate-authority": kube_server.ca_pem, "client-certificate": chain, "client-key": key}
    held = {}
    for name, text in parts.items():
        if style == "data":
            held[f"{name}-data"] = base64.b64encode(text.encode()).decode()
        else:
            (tmp_path / f"{name}.pem").write_text(text)
            held[name] = f"{name}.pem"
    cluster = {key: value for key, value in held.items() if "authority" in key}
    user = {key: value for key, value in held.items() if "client" in key}
    kubeconfig = {
        "current-context": "default",
        "contexts": [{"name": "default", "context": {"cluster": "default", "user": "default"}}],
        "clusters": [{"name": "default", "cluster": {"server": kube_server.url, **cluster}}],
        "users": [{"name": "default", "user": user}],
    }
    path = tmp_path / "k3s.yaml"
    path.write_text(yaml.safe_dump(kubeconfig))
    api = client(config.from_kubeconfig(path))
    api.nodes()
    api.close()


def test_a_pod_finds_the_server_and_its_own_token(kube_server: RunningKube, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text(kube_server.ca_pem)
    (tmp_path / "token").write_text(kube_server.admin_token)
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(kube_server.port)}
    api = client(config.in_cluster(environment, tmp_path))
    api.nodes()
    api.close()


# What the shipped role allows


def test_every_call_of_the_port_works_with_the_shipped_role(real_world: RealWorld, account_token: str) -> None:
    api = real_world.client(token=account_token)
    real_world.make_node("one", annotations={"fence": "1"})
    real_world.make_pod("web", node="one")
    real_world.make_secret("kube-system", "one.node-password.k3s")
    (node,) = api.nodes()
    assert api.node("one") == node
    (pod,) = api.pods()
    assert api.pods_on("one") == [pod]
    node = api.change_node(node, NodeChange(unschedulable=True, annotations={"fence": "2"}, expected={"fence": "1"}))
    assert api.evict(pod).outcome is Eviction.ACCEPTED
    real_world.remove_pod("web")
    real_world.make_pod("web", node="one")
    assert api.evict(pod).outcome is Eviction.GONE  # this also reads the pod that replaced it
    for stream in (api.watch(api.all_nodes, "0", seconds=1), api.watch(api.all_pods, "0", seconds=1)):
        assert stream.status == 200
        stream.close()
    api.delete_node(node)
    api.delete_secret("kube-system", "one.node-password.k3s")
    assert real_world.kube.nodes() == []
    assert not real_world.has_secret("kube-system", "one.node-password.k3s")


def test_a_forbidden_call_is_refused_with_verb_resource_and_remedy(real_world: RealWorld, account_token: str) -> None:
    api = real_world.client(token=account_token)
    real_world.make_secret("default", "private")
    with pytest.raises(KubeRefused, match=r"delete secrets default/private: 403: .*; grant it with deploy/.*role.yaml"):
        api.delete_secret("default", "private")
    assert real_world.has_secret("default", "private")


# What the shipped admission policy forbids


def secrets_path(name: str) -> str:
    return f"/api/v1/namespaces/kube-system/secrets/{name}"


@pytest.fixture
def limited_token(real_world: RealWorld, account_token: str) -> str:
    """The account's token, once the server applies the policies: it reads them some time after they were created."""
    real_world.make_secret("kube-system", "probe")
    real_world.make_node("probe", labels={"node-role.kubernetes.io/etcd": "true"})
    for path in (secrets_path("probe"), "/api/v1/nodes/probe"):
        until(lambda path=path: real_world.server.ask("DELETE", f"{path}?dryRun=All", token=account_token)[0] == 403)  # type: ignore[misc]
    return account_token


@pytest.mark.parametrize("name", ["bootstrap-token-abc", "k3s-serving", "node-password.k3s", "a.node-password.k3s.x"])
def test_no_secret_but_a_node_password_can_be_deleted(real_world: RealWorld, limited_token: str, name: str) -> None:
    real_world.make_secret("kube-system", name)
    with pytest.raises(KubeRefused, match=r"403: .*deletes only the secrets of node passwords"):
        real_world.client(token=limited_token).delete_secret("kube-system", name)
    assert real_world.has_secret("kube-system", name)
    real_world.server.call("DELETE", secrets_path(name))  # others are not affected


def test_all_secrets_at_once_cannot_be_deleted(real_world: RealWorld, limited_token: str) -> None:
    real_world.make_secret("kube-system", "kept")
    status, _ = real_world.server.ask("DELETE", "/api/v1/namespaces/kube-system/secrets", token=limited_token)
    assert status == 403
    assert real_world.has_secret("kube-system", "kept")


@pytest.mark.parametrize("role", ["control-plane", "master", "etcd"])
def test_no_server_can_be_changed_or_deleted(real_world: RealWorld, limited_token: str, role: str) -> None:
    api = real_world.client(token=limited_token)
    real_world.make_node("server", labels={f"node-role.kubernetes.io/{role}": "true"})
    server = api.node("server")
    assert server
    with pytest.raises(KubeRefused, match=r"403: .*no node of the control plane"):
        api.change_node(server, NodeChange(unschedulable=True))
    with pytest.raises(KubeRefused, match=r"403: .*no node of the control plane"):
        api.delete_node(server)
    without = {"metadata": {"labels": {f"node-role.kubernetes.io/{role}": None}}}
    assert real_world.server.ask("PATCH", "/api/v1/nodes/server", without, token=limited_token)[0] == 403
    assert real_world.kube.node("server") == server


def test_a_worker_can_be_changed_and_deleted_under_the_policy(real_world: RealWorld, limited_token: str) -> None:
    api = real_world.client(token=limited_token)
    for labels in ({}, {"node-role.kubernetes.io/worker": "true"}):
        real_world.make_node("worker", labels=labels)
        worker = api.node("worker")
        assert worker
        api.delete_node(api.change_node(worker, NodeChange(unschedulable=True)))
    assert api.node("worker") is None


EVERYWHERE = {
    *((verb, "nodes") for verb in ("get", "list", "watch", "patch", "delete")),
    *((verb, "pods") for verb in ("get", "list", "watch")),
    ("create", "pods/eviction"),
    ("list", "poddisruptionbudgets.policy"),
}
# What every account may query about itself.
ABOUT_ITSELF = {
    ("create", "selfsubjectaccessreviews.authorization.k8s.io"),
    ("create", "selfsubjectrulesreviews.authorization.k8s.io"),
    ("create", "selfsubjectreviews.authentication.k8s.io"),
}
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "impersonate", "bind", "*")


@pytest.mark.parametrize(
    ("namespace", "allowed"),
    [
        ("", EVERYWHERE),
        ("default", EVERYWHERE),
        ("kube-system", EVERYWHERE | {("delete", "secrets")}),
    ],
)
def test_the_shipped_role_allows_that_and_nothing_more(
    kube_server: RunningKube, account_token: str, namespace: str, allowed: set[tuple[str, str]]
) -> None:
    """Every verb on every resource of the server, checked as the account itself."""
    resources = _resources(kube_server)
    assert {resource for _, resource in allowed} <= resources
    may = {
        (verb, resource)
        for verb, resource in itertools.product(VERBS, sorted(resources | {"*"}))
        if _may(kube_server, account_token, verb, resource, namespace)
    }
    assert may - ABOUT_ITSELF == allowed


def _resources(server: RunningKube) -> set[str]:
    groups = server.call("GET", "/apis")["groups"]
    found = {resource["name"] for resource in server.call("GET", "/api/v1")["resources"]}
    for group in groups:
        listed = server.call("GET", f"/apis/{group['preferredVersion']['groupVersion']}")["resources"]
        for name, _, subresource in (resource["name"].partition("/") for resource in listed):
            found.add(f"{name}.{group['name']}" + (f"/{subresource}" if subresource else ""))
    return found


def _may(server: RunningKube, token: str, verb: str, resource: str, namespace: str) -> bool:
    whole, _, subresource = resource.partition("/")
    name, _, group = whole.partition(".")
    asked = {"verb": verb, "resource": name, "group": group, "subresource": subresource, "namespace": namespace}
    review = {"spec": {"resourceAttributes": asked}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    return bool(server.call("POST", path, review, token=token)["status"]["allowed"])


def test_no_error_of_ours_shows_a_token(kube_server: RunningKube, caplog: pytest.LogCaptureFixture) -> None:
    canary = "canary-4f1d"
    access = access_to(kube_server, token=FixedToken(canary))
    with caplog.at_level("DEBUG"):
        refused = refusal(access)
    assert canary not in json.dumps([refused, repr(access), caplog.text])
    assert caplog.text
