"""`make test-real` on a new machine: what its servers need is fetched, built or missed before the first test."""

import re
from pathlib import Path

import pytest

from tests.servers import prometheus

ROOT = Path(__file__).parents[3]
SERVERS = ROOT / "tests" / "servers"


def test_every_server_that_must_be_prepared_is_prepared_first() -> None:
    recipe = re.search(r"^test-real:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    *before, tests = recipe[1].splitlines()
    assert "pytest" in tests.lower()
    to_prepare = {file.stem for file in SERVERS.glob("*.py") if "\ndef main() -> None:" in file.read_text()}
    assert {"dynamodb_local", "kube_apiserver", "prometheus", "tlc"} <= to_prepare
    assert {line.rpartition(".")[2] for line in before} == to_prepare


def test_a_machine_without_prometheus_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="tests: there is no prometheus on this machine; Debian's package"):
        prometheus.main()
