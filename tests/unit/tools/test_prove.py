"""The count of simulated seeds: added up run by run, never the same seed twice."""

from collections import Counter
from pathlib import Path

from holdfast.entrypoints.simulation.search import Tally
from tools.prove import COUNT, FIRST_SEED, README, added, begun_anew, quoted, read_count, with_quote


def tally(seeds: int = 2) -> Tally:
    return Tally(seeds, seeds / 4, 100, Counter({"lost": 5}), {})


def test_the_first_count_starts_above_the_seeds_of_the_tests(tmp_path: Path) -> None:
    count = added(read_count(tmp_path / "none.json"), "abc", tally())
    assert count["next_seed"] == FIRST_SEED + 2
    assert count["total"] == {"seeds": 2, "virtual_days": 0.5, "port_calls": 100, "faults": 5, "violations": 0}


def test_runs_of_one_commit_are_one_line_and_the_total_grows(tmp_path: Path) -> None:
    count = read_count(tmp_path / "none.json")
    for commit in ("abc", "abc", "def"):
        count = added(count, commit, tally())
    assert [(run["commit"], run["seeds"]) for run in count["runs"]] == [("abc", 4), ("def", 2)]
    assert count["total"]["seeds"] == 6


def test_after_a_violation_the_count_of_clean_seeds_restarts(tmp_path: Path) -> None:
    count = added(read_count(tmp_path / "none.json"), "abc", tally())
    assert quoted(count).endswith(": 0 violations**")
    count = added(count, "def", Tally(3, 0.75, 100, Counter(), {17: "TokenOnce"}))
    assert quoted(count).endswith(": 1 violation, none in the last 0 seeds**")
    for commit in ("def2", "def3"):
        count = added(count, commit, tally())
    assert quoted(count).endswith(": 1 violation, none in the last 4 seeds**")


def test_a_count_that_begins_anew_keeps_the_earlier_one_and_uses_no_seed_twice(tmp_path: Path) -> None:
    first = added(read_count(tmp_path / "none.json"), "abc", tally(5))
    count = added(begun_anew(first, "the faults changed"), "def", tally())
    assert (count["total"]["seeds"], count["next_seed"]) == (2, FIRST_SEED + 7)
    assert count["earlier"] == [{"because": "the faults changed", "total": first["total"], "runs": first["runs"]}]
    assert quoted(count).endswith(": 0 violations** (counted anew since the faults changed)")


def test_the_readme_quotes_the_sum() -> None:
    count = read_count(COUNT)
    assert count["total"]["seeds"] == sum(run["seeds"] for run in count["runs"]) > 0
    assert f"\n{quoted(count)}\n" in README.read_text()


def test_a_new_sum_replaces_the_old_one_in_the_readme() -> None:
    count = added(read_count(COUNT), "abc", tally())
    readme = with_quote(README.read_text(), count)
    assert f"\n{quoted(count)}\n" in readme
    assert quoted(read_count(COUNT)) not in readme
