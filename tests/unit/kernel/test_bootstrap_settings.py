"""Settings for new workers: valid values, invalid values, and combinations."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.fleet.user_data import user_data
from holdfast.kernel.errors import BadSetting
from holdfast.kernel.settings import load_settings
from holdfast.kernel.settings.bootstrap import BootstrapSettings
from holdfast.kernel.settings.loading import load
from tests.support.worker_sandbox import FETCHED, K3S_SUM, hostile_text

GOOD = {
    "K3S_URL": ("https://10.0.0.10:6443", "https://k3s.example.com", "https://[fd00::10]:6443", ""),
    "K3S_TOKEN_PARAMETER": ("k3s-token", "/holdfast/k3s-token", "/a/b/c/d.e_f"),
    "K3S_BINARY_URL": ("https://k3s.example/k3s", "https://h:8443/%7Ex/{version}/{arch}/k3s{suffix}"),
    "K3S_VERSION": ("v1.33.5+k3s1", "v1.34.0-rc1+k3s2"),
    "K3S_SHA256_AMD64": (K3S_SUM,),
    "NODE_LABELS": ("team=web", "a=1, b=2", "example.com/x=", "node.kubernetes.io/pool=a", ""),
}
BAD = {
    "K3S_URL": (
        "http://10.0.0.10:6443",
        "https://10.0.0.10:6443/",
        "https://u:p@h",
        "https://-x",
        "https://h:6443 --token-file=x",
        "https://h$(id)",
        "https://[::1",
    ),
    "K3S_TOKEN_PARAMETER": ("a/b", "/a/", "/a//b", "/a b", "/$(id)", "/" + "x" * 512, "arn:aws:ssm:x"),
    "K3S_BINARY_URL": (
        "http://h/k3s",
        "https://h",
        "https://h/",
        "https://h/k3s?X-Amz-Signature=x",
        "https://u@h/k3s",
        "https://h/{other}",
        "https://h/%zz",
        "https://h/k3s'",
        "file:///k3s",
    ),
    "K3S_VERSION": ("latest", "v1.33", "1.33.5+k3s1", "v1.33.5+k3s1/../x"),
    "K3S_SHA256_AMD64": (K3S_SUM[1:], K3S_SUM.upper(), f"{K3S_SUM} "),
    "NODE_LABELS": (
        "team",
        "=web",
        "-a=b",
        "a=-b",
        "a=b,a=c",
        "a=b,,c=d",
        "a=b c",
        "a=$(id)",
        "a=" + "x" * 64,
        f"{'x.' * 130}com/a=b",
        "Upper.com/a=b",
        "holdfast.dev/instance-id=i-1",
        "topology.kubernetes.io/zone=x",
        "node-role.kubernetes.io/worker=true",
        "k8s.io/a=b",
    ),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in GOOD.items() for value in values])
def test_valid_settings_are_accepted(name: str, value: str) -> None:
    load(BootstrapSettings, {name: value})


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_invalid_or_harmful_settings_are_refused(name: str, value: str) -> None:
    """At startup, in one line, instead of on a machine that never joins."""
    with pytest.raises(BadSetting, match=rf"^{name}="):
        load(BootstrapSettings, {name: value})


@settings(max_examples=1000)
@given(st.sampled_from(sorted(GOOD)), hostile_text, st.data())
def test_no_setting_accepts_a_shell_metacharacter(name: str, text: str, data: st.DataObject) -> None:
    """Wherever in a valid value it is inserted."""
    start = data.draw(st.sampled_from(GOOD[name]))
    place = data.draw(st.integers(0, len(start)))
    try:
        loaded = load(BootstrapSettings, {name: start[:place] + text + start[place:]})
    except BadSetting:
        return
    value = getattr(loaded, name.lower())
    for part in value if isinstance(value, tuple) else (value or "",):
        assert re.fullmatch(r"[A-Za-z0-9._~+=,:/%{}\[\]-]*", part)


def test_empty_settings_count_as_unset() -> None:
    """Templates pass empty variables."""
    assert load(BootstrapSettings, dict.fromkeys(GOOD, "")) == BootstrapSettings()


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"k3s_url": None}, "K3S_URL is not set"),
        ({"k3s_token_parameter": None}, "K3S_TOKEN_PARAMETER is not set"),
        ({"k3s_sha256_amd64": None}, "K3S_BINARY_URL is set, but neither K3S_SHA256_AMD64 nor K3S_SHA256_ARM64"),
        ({"k3s_version": None}, "K3S_BINARY_URL has {version}, but K3S_VERSION is not set"),
        ({"k3s_binary_url": None}, "K3S_VERSION=v1.33.5+k3s1 has no effect"),
        (
            {"k3s_binary_url": "https://h/{version}", "k3s_sha256_arm64": K3S_SUM},
            "K3S_BINARY_URL is the same for amd64 and arm64",
        ),
    ],
)
def test_conflicting_settings_are_reported(changes: dict[str, str | None], line: str) -> None:
    with pytest.raises(BadSetting, match=f"^{re.escape(line)}"):
        user_data(replace(FETCHED, **changes))  # type: ignore[arg-type]


def test_all_missing_settings_are_reported_at_once() -> None:
    with pytest.raises(BadSetting) as caught:
        user_data(load_settings({}))
    assert [line.split(" ")[0] for line in str(caught.value).split("\n")] == ["K3S_URL", "K3S_TOKEN_PARAMETER"]
