"""Access to the API server: what a kubeconfig may contain, what is refused, and that no secret is shown."""

import base64
import os
import ssl
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from holdfast.adapters.kube import config
from holdfast.adapters.kube.config import ApiServerAddress, KubeAccess
from holdfast.adapters.kube.tokens import FetchedToken, FileToken, FixedToken
from holdfast.kernel.errors import BadSetting, MissingExtra
from holdfast.ports.kube import KubeRefused
from tests.clocks import StillClock

CA = trustme.CA()
CA_PEM = CA.cert_pem.bytes().decode()


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def written(path: Path, cluster: Any = None, user: Any = None, **more: Any) -> Path:
    """A valid kubeconfig, except for the given changes."""
    kubeconfig = {
        "current-context": "here",
        "contexts": [
            {"name": "here", "context": {"cluster": "c", "user": "u"}},
            {"name": "there", "context": {"cluster": "other", "user": "u"}},
        ],
        "clusters": [
            {"name": "c", "cluster": {"server": "https://10.0.0.1:6443", **(cluster or {})}},
            {"name": "other", "cluster": {"server": "https://other.example/k8s/clusters/c-1/"}},
        ],
        "users": [{"name": "u", "user": {"token": "t0ken"} if user is None else user}],
        **more,
    }
    file = path / "config"
    file.write_text(yaml.safe_dump(kubeconfig))
    return file


def test_a_kubeconfig_with_a_token_and_a_ca(tmp_path: Path) -> None:
    access = config.from_kubeconfig(written(tmp_path, {"certificate-authority-data": in_base64(CA_PEM)}))
    assert (access.server, access.ca_pem, access.server_name) == (ApiServerAddress("10.0.0.1", 6443, ""), CA_PEM, None)
    assert access.token is not None
    assert access.token.value() == "t0ken"


def test_another_context_is_chosen_by_name(tmp_path: Path) -> None:
    access = config.from_kubeconfig(written(tmp_path), "there")
    assert (access.server, access.ca_pem) == (ApiServerAddress("other.example", 443, "/k8s/clusters/c-1"), None)


def test_relative_files_are_found_next_to_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(CA_PEM)
    (tmp_path / "token").write_text("from-file\n")
    path = written(tmp_path, {"certificate-authority": "ca.pem"}, {"tokenFile": "token", "token": "other"})
    access = config.from_kubeconfig(path)
    assert access.ca_pem == CA_PEM
    assert access.token is not None
    assert access.token.value() == "from-file"


def test_the_name_in_the_certificate_can_be_set(tmp_path: Path) -> None:
    assert config.from_kubeconfig(written(tmp_path, {"tls-server-name": "k3s"})).server_name == "k3s"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"cluster": {"insecure-skip-tls-verify": True}}, "insecure-skip-tls-verify is not supported"),
        ({"cluster": {"proxy-url": "http://p"}}, "connect to the API server directly"),
        ({"cluster": {"server": "http://10.0.0.1:6443"}}, "must be an https URL"),
        ({"cluster": {"server": "https://me:secret@10.0.0.1"}}, "must be an https URL without a user"),
        ({"cluster": {"server": "https://10.0.0.1:99999999"}}, "not a URL"),
        ({"cluster": {"server": None}}, "must be an https URL"),
        ({"cluster": {"certificate-authority-data": "%%%"}}, "certificate-authority-data is not PEM in base64"),
        ({"cluster": {"certificate-authority": "absent.pem"}}, "cannot read .*absent.pem: No such file"),
        ({"user": {"exec": {"command": "aws"}}}, "plugins are not run; use a service account's token"),
        ({"user": {"auth-provider": {"name": "gcp"}}}, "plugins are not run"),
        ({"user": {"username": "a", "password": "secret"}}, "no longer accept passwords"),
        ({"user": {"token": "t", "as": "admin"}}, "impersonation is not supported"),
        ({"user": {}}, "neither a token nor a client certificate"),
        ({"user": {"token": 5}}, "token is not text"),
        ({"user": {"client-certificate-data": in_base64("x")}}, "needs both"),
        ({"current-context": ""}, "no current-context"),
        ({"current-context": "nowhere"}, "no context named 'nowhere'"),
        ({"clusters": None}, "no cluster named 'c'"),
        ({"users": [5, {"name": "u"}]}, "no user named 'u'"),
    ],
    ids=str,
)
def test_an_unsupported_kubeconfig_is_refused(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(BadSetting, match=says) as refused:
        config.from_kubeconfig(written(tmp_path, **changes))
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "5", "[]", "a: b: c", "token: !!python/object:os.system x", "\x00"])
def test_a_file_that_is_not_a_kubeconfig_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config"
    file.write_text(text)
    with pytest.raises(BadSetting, match="kubeconfig"):
        config.from_kubeconfig(file)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"cannot read .*absent: No such file"):
        config.from_kubeconfig(tmp_path / "absent")


def test_the_error_of_a_broken_kubeconfig_names_the_line_and_does_not_quote_it(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text("users:\n- token: canary\n  - x: {\n")
    with pytest.raises(BadSetting, match=r"not a YAML file \(line 3\)") as refused:
        config.from_kubeconfig(file)
    assert "canary" not in str(refused.value)


def test_without_pyyaml_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingExtra, match=r"needs PyYAML, .*: pip install '\.\[kube\]'"):
        config.from_kubeconfig(tmp_path / "config")


# In a cluster


def service_account(path: Path) -> Path:
    (path / "ca.crt").write_text(CA_PEM)
    (path / "token").write_text("first")
    return path


@pytest.mark.parametrize(
    ("environment", "address"),
    [
        (
            {"KUBERNETES_SERVICE_HOST": "10.43.0.1", "KUBERNETES_SERVICE_PORT": "6443"},
            ApiServerAddress("10.43.0.1", 6443, ""),
        ),
        ({"KUBERNETES_SERVICE_HOST": "fd00::1"}, ApiServerAddress("fd00::1", 443, "")),
    ],
)
def test_in_a_pod_the_server_is_found(tmp_path: Path, environment: dict[str, str], address: ApiServerAddress) -> None:
    access = config.in_cluster(environment, service_account(tmp_path))
    assert (access.server, access.ca_pem) == (address, CA_PEM)


def test_outside_of_a_pod_the_remedy_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="set KUBECONFIG to a file"):
        config.in_cluster({}, tmp_path)
    with pytest.raises(BadSetting, match=r"cannot read .*ca.crt"):
        config.in_cluster({"KUBERNETES_SERVICE_HOST": "10.43.0.1"}, tmp_path)


# Tokens


def test_a_token_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    token = FileToken(file)
    assert token.value() == "first"
    fresh = tmp_path / "fresh"
    fresh.write_text("second\n")
    os.utime(fresh, ns=(0, file.stat().st_mtime_ns))
    fresh.replace(file)  # as the kubelet does it
    assert token.value() == "second"
    os.truncate(file, 0)
    with pytest.raises(KubeRefused, match="is empty"):
        token.value()
    file.unlink()
    with pytest.raises(KubeRefused, match="No such file"):
        token.value()


def test_a_fetched_token_is_cached_for_minutes_and_dropped_on_demand() -> None:
    clock, tokens = StillClock(), iter("abc")
    token = FetchedToken(lambda: next(tokens), clock)
    assert [token.value(), token.value()] == ["a", "a"]
    clock.advance(300)
    assert token.value() == "b"
    token.forget()
    assert token.value() == "c"


@pytest.mark.parametrize("bad", ["", "  \n", "two words", "line\nbreak", "ünicode", "nul\0"])
def test_a_token_that_is_invalid_in_a_header_is_refused_and_not_quoted(bad: str) -> None:
    text = f"canary{bad}" if bad.strip() else bad
    with pytest.raises(
        BadSetting, match="the token from the kubeconfig is empty or contains invalid characters"
    ) as refused:
        FixedToken(text)
    assert "canary" not in str(refused.value)
    with pytest.raises(KubeRefused, match="the token from the parameter store is empty or contains invalid characters"):
        FetchedToken(lambda: text, StillClock()).value()


# Secrets and certificates


def test_nothing_secret_is_in_a_repr(tmp_path: Path) -> None:
    issued = CA.issue_cert("me.test")
    chain, key = issued.cert_chain_pems[0].bytes().decode(), issued.private_key_pem.bytes().decode()
    user = {
        "token": "canary",
        "client-certificate-data": in_base64(chain),
        "client-key-data": in_base64(key),
    }
    access = config.from_kubeconfig(written(tmp_path, user=user))
    shown = f"{access!r} {access} {access.token!r} {access.certificate!r}"
    assert "canary" not in shown
    assert "PRIVATE KEY" not in shown
    assert "PRIVATE KEY" in (access.certificate.key if access.certificate else "")


def test_certificate_and_host_name_are_always_verified_with_tls_1_2_or_newer() -> None:
    for ca_pem in (CA_PEM, None):
        context = KubeAccess(ApiServerAddress("h", 443, ""), ca_pem).ssl_context()
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.check_hostname
        assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


def key_pair(mangled: Callable[[str], str]) -> KubeAccess:
    one, other = CA.issue_cert("one.test"), CA.issue_cert("other.test")
    key = mangled(other.private_key_pem.bytes().decode())
    chain = one.cert_chain_pems[0].bytes().decode()
    return KubeAccess(ApiServerAddress("h", 443, ""), CA_PEM, certificate=config.ClientCertificate(chain, key))


@pytest.mark.parametrize("mangled", [str, lambda _: "no key", lambda _: ""], ids=["not a pair", "not PEM", "empty"])
def test_a_client_certificate_that_does_not_match_its_key_is_refused(mangled: Callable[[str], str]) -> None:
    with pytest.raises(BadSetting, match="not PEM, or they do not match"):
        key_pair(mangled).ssl_context()


def test_an_invalid_ca_is_refused() -> None:
    with pytest.raises(BadSetting, match="CA is not a PEM certificate"):
        KubeAccess(ApiServerAddress("h", 443, ""), "no certificate").ssl_context()


def test_the_temporary_files_for_a_client_certificate_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    issued = CA.issue_cert("me.test")
    certificate = config.ClientCertificate(
        issued.cert_chain_pems[0].bytes().decode(), issued.private_key_pem.bytes().decode()
    )
    KubeAccess(ApiServerAddress("h", 443, ""), CA_PEM, certificate=certificate).ssl_context()
    assert list(tmp_path.iterdir()) == []
