"""The alerts and the dashboards in deploy/: the metrics they name exist, and alerts fire when they should."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from holdfast.control.steps import Step
from holdfast.kernel.errors import HoldfastError
from tests.support.real_servers import skip_or_fail
from tests.support.runbook import RUNBOOK, anchors, needs_operator
from tests.support.server_process import running

DEPLOY: Final = Path(__file__).parents[3] / "deploy"
RULES: Final = DEPLOY / "prometheus" / "holdfast-alerts.yaml"
RULES_TEST: Final = RULES.with_name("holdfast-alerts.test.yaml")
DASHBOARDS: Final = sorted((DEPLOY / "grafana").glob("*.json"))
_METRIC: Final = re.compile(r"\b(?:holdfast|process)_[a-z_0-9]+\b")
_LABEL: Final = re.compile(r'\b(kind|outcome)=~?"([^"]+)"')

each_dashboard = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda path: path.name)


def alerts() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def panels(dashboard: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(dashboard.read_text())["panels"]
    return found


def queries(dashboard: Path) -> Iterator[str]:
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield target["expr"].replace("$instance", ".*")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The metrics of a running Holdfast."""
    with running(tmp_path_factory.mktemp("served")) as served:
        status, page = served.get("/metrics")
    assert status == 200
    return str(page)


@pytest.fixture(scope="module")
def exposed(page: str) -> set[str]:
    """The names of its metrics."""
    names = set()
    for family in text_string_to_metric_families(page):
        ends = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"], "info": ["_info"]}
        # The text format knows no info: a family of one gauge that ends in it.
        names |= {family.name + end for end in ends.get(family.type, [""])}
    return names


def test_every_metric_of_an_alert_is_exposed(exposed: set[str]) -> None:
    for alert in alerts():
        named = set(_METRIC.findall(alert["expr"]))
        assert named, alert["alert"]
        assert named - exposed == set(), alert["alert"]


@each_dashboard
def test_every_metric_of_a_dashboard_is_exposed(exposed: set[str], dashboard: Path) -> None:
    for query in queries(dashboard):
        named = set(_METRIC.findall(query))
        assert named, query
        assert named - exposed == set(), query


def test_the_steps_and_outcomes_in_alerts_exist() -> None:
    """A counter's labels appear with the first count: a wrong one would never be noticed."""
    needs_operator()  # every module is imported, whichever tests ran before
    kinds = {object.__new__(step).kind for step in _all(Step)}
    outcomes = {error.__name__ for error in _all(HoldfastError)}
    asked = [found for alert in alerts() for found in _LABEL.findall(alert["expr"])]
    assert asked
    for label, values in asked:
        assert set(values.split("|")) <= (kinds if label == "kind" else outcomes), values


def _all(kind: type[Any]) -> Iterator[type[Any]]:
    for below in kind.__subclasses__():
        yield below
        yield from _all(below)


def test_errors_that_need_an_operator_are_an_alert() -> None:
    """Those of a tick; errors that no tick can raise are left out."""
    (alert,) = (alert for alert in alerts() if alert["alert"] == "HoldfastNeedsAnOperator")
    asked = {name for _, values in _LABEL.findall(alert["expr"]) for name in values.split("|")}
    assert asked == {kind.__name__ for kind in needs_operator()}


def test_every_alert_has_a_runbook_entry_and_a_severity() -> None:
    names = [alert["alert"] for alert in alerts()]
    assert len(names) == len(set(names))
    for alert in alerts():
        anchor = alert["alert"].lower()
        assert alert["annotations"]["runbook"] == f"docs/RUNBOOK.md#{anchor}"
        assert anchor in anchors(RUNBOOK)
        assert alert["annotations"]["summary"]
        assert alert["labels"]["severity"] in ("page", "ticket")


def test_the_runbook_has_no_entry_for_a_removed_alert() -> None:
    section = RUNBOOK.read_text(encoding="utf-8").partition("\n## Alerts\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"^### (\w+)$", section, re.MULTILINE)) == {alert["alert"] for alert in alerts()}


def test_every_alert_has_a_test_that_fires_and_one_that_does_not() -> None:
    """In the tests that promtool runs."""
    tests = [each for part in yaml.safe_load(RULES_TEST.read_text())["tests"] for each in part["alert_rule_test"]]
    names = {alert["alert"] for alert in alerts()}
    assert {each["alertname"] for each in tests if each.get("exp_alerts")} == names
    assert {each["alertname"] for each in tests if not each.get("exp_alerts")} == names


# promtool


def promtool(*arguments: str, cwd: Path, given: str | None = None) -> None:
    program = shutil.which("promtool")
    if program is None:
        skip_or_fail("there is no promtool on this machine; Debian's package prometheus has it")
    done = subprocess.run(
        [program, *arguments], cwd=cwd, input=given, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.real
def test_promtool_accepts_the_rules() -> None:
    promtool("check", "rules", RULES.name, cwd=RULES.parent)


@pytest.mark.real
def test_promtool_accepts_the_metrics(page: str, tmp_path: Path) -> None:
    promtool("check", "metrics", cwd=tmp_path, given=page)


@pytest.mark.real
def test_the_alerts_fire_when_they_should() -> None:
    promtool("test", "rules", RULES_TEST.name, cwd=RULES.parent)


@pytest.mark.real
@each_dashboard
def test_promtool_accepts_the_queries_of_the_dashboards(tmp_path: Path, dashboard: Path) -> None:
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(queries(dashboard))]
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", "panels.yaml", cwd=tmp_path)


# Grafana


@each_dashboard
def test_a_dashboard_is_complete(dashboard: Path) -> None:
    """A unique name, a selectable data source, panels with descriptions that do not overlap."""
    found = json.loads(dashboard.read_text())
    assert found["uid"] == dashboard.stem
    assert {variable["name"] for variable in found["templating"]["list"]} == {"datasource", "instance"}
    assert len({panel["id"] for panel in found["panels"]}) == len(found["panels"])
    for panel in found["panels"]:
        assert panel["title"]
        assert panel["description"]
        assert panel["datasource"]["uid"] == "${datasource}"
        assert all("$instance" in target["expr"] for target in panel["targets"])
    for one, other in combinations(found["panels"], 2):
        assert not _overlap(one["gridPos"], other["gridPos"]), (one["title"], other["title"])


def _overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
    above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    return not (beside or above)
