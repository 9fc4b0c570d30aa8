"""`holdfast prices`: newer prices are read from AWS or from a saved list, and used from then on."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.main import cli
from holdfast.jobs.cost.prices import Prices, shipped_prices
from tests.servers.scripted_http import Asked, Reply, serving
from tests.support.job_world import in_the_afternoon
from tests.support.price_lists import REGION, listed, product

AWS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": REGION}
OURS = Path(".holdfast/prices.json")


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    in_the_afternoon(tmp_path, monkeypatch)
    return tmp_path


def holdfast(*arguments: object, **environment: str) -> Result:
    return CliRunner().invoke(cli, [str(one) for one in arguments], env=environment, prog_name="holdfast")


def holdfast_json(*arguments: object, **environment: str) -> Any:
    result = holdfast(*arguments, "--json", **environment)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return json.loads(result.stdout)


def saved(*products: dict[str, Any]) -> Path:
    path = Path("list.json")
    path.write_text(listed(*products))
    return path


def test_the_shipped_prices_are_used_until_there_are_newer_ones() -> None:
    assert holdfast_json("prices", "show")["file"] is None
    assert holdfast_json("prices", "show")["as_of"] == shipped_prices().as_of
    holdfast_json("prices", "refresh", saved(product(), product("m7i.large", "0.2")))
    shown = holdfast_json("prices", "show")
    assert (shown["as_of"], shown["region"], shown["file"]) == ("2026-09-11", REGION, str(OURS))
    assert shown["items"] == [
        {"family": "m5", "large_usd_per_hour": 0.107},
        {"family": "m7i", "large_usd_per_hour": 0.2},
    ]
    assert "EC2 prices as of 2026-09-11 for eu-west-1: AWS's price list" in holdfast("prices", "show").stdout


def test_a_dry_run_says_what_would_change_and_writes_nothing(directory: Path) -> None:
    holdfast_json("prices", "refresh", saved(product()))
    before = OURS.read_text()
    found = holdfast_json("prices", "refresh", saved(product(usd="0.2")), "--dry-run")
    assert (found["done"], found["changed"]) == (False, [{"family": "m5", "from": 0.107, "to": 0.2}])
    assert OURS.read_text() == before
    words = holdfast("prices", "refresh", "list.json", "--dry-run").stdout.splitlines()
    assert words == [
        f"1 prices of 2026-09-11 for eu-west-1 would be written to {OURS}",
        "m5.large: 0.10700 → 0.20000",
    ]


def test_prices_of_another_region_are_not_compared() -> None:
    found = holdfast_json("prices", "refresh", saved(product("m7i.large", "9")))
    assert (found["before"]["region"], found["changed"], found["done"]) == ("us-east-1", [], True)


def test_the_price_file_of_the_setting_is_written() -> None:
    holdfast_json("prices", "refresh", saved(product()), PRICES_FILE="own.json")
    assert Prices.from_json(Path("own.json").read_text()).as_of == "2026-09-11"
    assert not OURS.exists()
    assert holdfast_json("prices", "show", PRICES_FILE="own.json")["region"] == REGION


@pytest.mark.parametrize("text", ["", "{}", "\x00", '{"as_of": "x"}'])
def test_a_broken_file_is_reported_and_fixed_by_a_refresh(text: str) -> None:
    OURS.parent.mkdir()
    OURS.write_text(text)
    result = holdfast("prices", "show")
    assert result.exit_code == 1
    assert "prices.json cannot be used as prices" in result.stderr
    assert "holdfast prices refresh" in result.stderr
    assert holdfast_json("prices", "refresh", saved(product()))["before"] is None
    assert holdfast_json("prices", "show")["region"] == REGION


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("[" * 100_000, id="deep"),
        pytest.param('{"products": {}}', id="half"),
        pytest.param('"PriceList"', id="a text"),
        pytest.param("\x00\x1b[2J", id="control characters"),
    ],
)
def test_an_invalid_price_list_changes_nothing(text: str) -> None:
    Path("list.json").write_text(text)
    result = holdfast("prices", "refresh", "list.json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert len(result.stderr.splitlines()) == 1
    assert "\x1b" not in result.stderr
    assert not OURS.exists()


def test_a_list_of_several_regions_needs_a_region() -> None:
    path = saved(product(), product(regionCode="us-east-1", usd="0.096"))
    assert "choose one of eu-west-1, us-east-1" in holdfast("prices", "refresh", path).stderr
    assert holdfast_json("prices", "refresh", path, "--region", "us-east-1")["region"] == "us-east-1"


def test_a_missing_file_is_one_line() -> None:
    result = holdfast("prices", "refresh", "nothing.json")
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)


def test_aws_is_queried_page_by_page_for_the_configured_region() -> None:
    pages = [json.loads(listed(product())) | {"NextToken": "2"}, json.loads(listed(product("c7g.large", "0.07")))]

    def answer(asked: Asked) -> Reply:
        number = 1 if "NextToken" in json.loads(asked.body) else 0
        return Reply(json.dumps(pages[number]).encode(), headers={"Content-Type": "application/x-amz-json-1.1"})

    with serving(answer) as aws:
        found = holdfast_json("prices", "refresh", AWS_ENDPOINT_URL=aws.url, **AWS)
    assert (found["families"], found["region"], found["done"]) == (2, REGION, True)
    filters = {each["Field"]: each["Value"] for each in json.loads(aws.asked[0].body)["Filters"]}
    assert filters["regionCode"] == REGION
    assert len(aws.asked) == 2


def test_a_refusal_by_aws_is_one_line_and_changes_nothing() -> None:
    body = b'{"__type": "AccessDeniedException", "message": "not you"}'
    with serving(lambda _: Reply(body, 400, {"Content-Type": "application/x-amz-json-1.1"})) as aws:
        result = holdfast("prices", "refresh", AWS_ENDPOINT_URL=aws.url, **AWS)
    assert result.exit_code == 1
    assert result.stderr.startswith("holdfast: AWS price list for eu-west-1: AccessDeniedException: not you")
    assert not OURS.exists()


def test_without_a_region_the_error_says_how_to_set_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    result = holdfast("prices", "refresh", AWS_CONFIG_FILE="/nowhere")
    assert result.exit_code == 1
    assert "--region" in result.stderr
