"""Settings of new machines: what they take, what they refuse, and what must go together."""

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
from tests.unit.worker_sandbox import FETCHED, K3S_SUM, hostile_text

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
def test_settings_take_what_can_work(name: str, value: str) -> None:
    load(BootstrapSettings, {name: value})


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_settings_refuse_what_cannot_work_or_could_harm(name: str, value: str) -> None:
    """At start, in one line; not on a machine that never joins."""
    with pytest.raises(BadSetting, match=rf"^{name}="):
        load(BootstrapSettings, {name: value})


@settings(max_examples=1000)
@given(st.sampled_from(sorted(GOOD)), hostile_text, st.data())
def test_no_setting_takes_a_character_that_a_shell_would_act_on(name: str, text: str, data: st.DataObject) -> None:
    """Wherever in a good value the hostile one is put."""
    start = data.draw(st.sampled_from(GOOD[name]))
    place = data.draw(st.integers(0, len(start)))
    try:
        loaded = load(BootstrapSettings, {name: start[:place] + text + start[place:]})
    except BadSetting:
        return
    value = getattr(loaded, name.lower())
    for part in value if isinstance(value, tuple) else (value or "",):
        assert re.fullmatch(r"[A-Za-z0-9._~+=,:/%{}\[\]-]*", part)


def test_empty_settings_are_the_same_as_none() -> None:
    """Templates pass on variables that nobody has set."""
    assert load(BootstrapSettings, dict.fromkeys(GOOD, "")) == BootstrapSettings()


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"k3s_url": None}, "K3S_URL is not set"),
        ({"k3s_token_parameter": None}, "K3S_TOKEN_PARAMETER is not set"),
        ({"k3s_sha256_amd64": None}, "K3S_BINARY_URL is set and neither K3S_SHA256_AMD64 nor K3S_SHA256_ARM64 is"),
        ({"k3s_version": None}, "K3S_BINARY_URL has {version}, and K3S_VERSION is not set"),
        ({"k3s_binary_url": None}, "K3S_VERSION=v1.33.5+k3s1 has no effect"),
        (
            {"k3s_binary_url": "https://h/{version}", "k3s_sha256_arm64": K3S_SUM},
            "K3S_BINARY_URL is one file for amd64 and arm64",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_told(changes: dict[str, str | None], line: str) -> None:
    with pytest.raises(BadSetting, match=f"^{re.escape(line)}"):
        user_data(replace(FETCHED, **changes))  # type: ignore[arg-type]


def test_all_that_is_missing_is_told_at_once() -> None:
    with pytest.raises(BadSetting) as caught:
        user_data(load_settings({}))
    assert [line.split(" ")[0] for line in str(caught.value).split("\n")] == ["K3S_URL", "K3S_TOKEN_PARAMETER"]
