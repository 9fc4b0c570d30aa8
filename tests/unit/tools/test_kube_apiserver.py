"""The API server for tests: it is built from one version of Kubernetes, and names what is missing."""

import re
from pathlib import Path

import pytest

from tests.servers import kube_apiserver

MODULE = Path(kube_apiserver.__file__).with_name("kubernetes")


def test_all_libraries_have_the_version_that_is_built() -> None:
    """Kubernetes v1.N.p needs k8s.io/… v0.N.p; another version may compile and behave differently."""
    text = (MODULE / "go.mod").read_text()
    version = re.search(r"k8s\.io/kubernetes v1\.(\S+)", text)
    assert version is not None
    replaced = re.findall(r"^\tk8s\.io/\S+ => k8s\.io/\S+ (\S+)$", text, re.MULTILINE)
    assert set(replaced) == {f"v0.{version[1]}"}
    assert len(replaced) > 25


def test_the_checksums_of_the_sources_are_pinned() -> None:
    assert re.search(r"^k8s\.io/kubernetes v1\.\S+ h1:", (MODULE / "go.sum").read_text(), re.MULTILINE)


def test_a_test_never_builds_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(
        kube_apiserver.Unavailable, match=r"not built yet; build it once with: python -m tests\.servers"
    ):
        kube_apiserver.start(tmp_path)


def test_without_go_the_build_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(kube_apiserver.Unavailable, match="built with Go, and there is no go on this machine"):
        kube_apiserver.build()


@pytest.mark.parametrize(("set_to", "used"), [(None, "auto"), ("local", "local")])
def test_an_older_go_may_fetch_the_one_that_the_module_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_to: str | None, used: str
) -> None:
    """Distributions forbid that by default, in a file of Go's own; who sets the variable means it."""
    go = tmp_path / "go"
    go.write_text('#!/bin/sh\necho "$GOTOOLCHAIN" >&2\nexit 1\n')
    go.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("GOTOOLCHAIN", raising=False)
    if set_to:
        monkeypatch.setenv("GOTOOLCHAIN", set_to)
    with pytest.raises(kube_apiserver.Unavailable, match=f"could not be built: {used}$"):
        kube_apiserver.build()


def test_a_failed_build_leaves_nothing_and_shows_gos_last_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho 'unknown block type: tool' >&2\nexit 1\n")
    go.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(kube_apiserver.Unavailable, match="could not be built: unknown block type: tool"):
        kube_apiserver.build()
    assert [path.suffix for path in (tmp_path / "cache" / "holdfast").iterdir()] == [".lock"]
