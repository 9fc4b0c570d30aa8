"""Figures as values: histograms within their error, merging in any order, names that are too many."""

import zlib
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.jobs.cost.prices import cost_of, shipped_prices
from holdfast.jobs.figures.contribution import contribution, figures_of
from holdfast.jobs.figures.histogram import ERROR_MOST, Histogram, bucket_of, middle_of
from holdfast.jobs.figures.slices import Body, _decoded
from holdfast.jobs.figures.totals import OTHER, Figures, GroupKey, Totals, merged, within
from holdfast.jobs.model.durations import moments_of
from holdfast.ports.store import Item

_NAMES = st.sampled_from(["a", "b", "c"])
_MS = st.integers(0, 10**10)


@st.composite
def _jobs(draw: st.DrawFn) -> Item:
    begin = 1_768_471_200_000
    attached = begin + draw(st.integers(0, 10**7))
    job: Item = {
        "GSI1-PK": "1#completed",
        "GSI2-PK": f"1#acme/{draw(_NAMES)}",
        "created_at": "2026-01-15T10:00:00Z",
        "started_at": "2026-01-15T10:10:00Z",
        "completed_at": draw(st.sampled_from(["2026-01-15T10:10:00Z", "2026-01-15T12:00:07Z"])),
        "conclusion": draw(st.sampled_from(["success", "failure"])),
        "job_name": draw(_NAMES),
        "scheduled_at": "2026-01-15T10:01:00Z",
        "instance_type": draw(st.sampled_from(["m7i.large", "c7i.xlarge", "nobody.knows"])),
        "instance_lifecycle": draw(st.sampled_from(["spot", "on-demand"])),
        "region": draw(st.sampled_from(["us-east-1", "eu-west-1"])),
        "attached_ms": attached,
        "terminated_ms": attached + draw(st.integers(0, 10**7)),
        "scheduling_attempt": 1,
    }
    if draw(st.booleans()):
        job["spot_price_usd_per_hour"] = Decimal("0.0417")
    if draw(st.booleans()):
        earlier = {"instance_type": "c7i.large", "attached_ms": begin, "interrupted_ms": begin + draw(_MS)}
        job |= {"scheduling_attempt": 2, "attempts": {"1": earlier}, "was_interrupted": True}
    return job


_FIGURES = st.lists(_jobs(), max_size=6).map(figures_of)


@given(st.integers(0, 10**15))
def test_a_bucket_stands_for_each_of_its_values_within_the_error(value: int) -> None:
    assert abs(middle_of(bucket_of(value)) - value) <= value * ERROR_MOST
    assert value >= 64 or middle_of(bucket_of(value)) == value
    assert bucket_of(middle_of(bucket_of(value))) == bucket_of(value)
    assert bucket_of(value + 1) in (bucket_of(value), bucket_of(value) + 1)


@given(st.lists(_MS, min_size=1), st.sampled_from([50, 95, 99]))
def test_percentiles_are_within_the_error(values: list[int], percent: int) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    exact = sorted(values)[max(0, -(-percent * len(values) // 100) - 1)]
    found = histogram.percentile(percent)
    assert found is not None
    assert abs(found - exact) <= exact * ERROR_MOST
    assert Histogram.decoded(histogram.encoded()) == histogram


def test_an_empty_histogram_has_no_percentile_and_a_single_value_is_exact() -> None:
    histogram = Histogram()
    assert histogram.percentile(50) is None
    histogram.add(178_200)
    assert histogram.percentile(99) == 178_200


@given(_FIGURES, _FIGURES, _FIGURES)
def test_merging_is_associative_and_commutative(a: Figures, b: Figures, c: Figures) -> None:
    assert merged([merged([a, b]), c]) == merged([a, merged([b, c])]) == merged([c, b, a])


@given(_FIGURES)
def test_what_is_stored_is_read_back(figures: Figures) -> None:
    assert _decoded(zlib.compress(Body(figures).plain())).figures == figures


@given(st.lists(_jobs(), max_size=8))
def test_figures_equal_what_the_views_of_the_jobs_say(jobs: list[Item]) -> None:
    """The view of a job rounds its cost to a millionth of a dollar for each machine; the figures do not."""
    prices, total = shipped_prices(), figures_of(jobs).total()
    costs = [cost_of(job, prices) for job in jobs]
    known = [cost for cost in costs if cost is not None]
    found = total.cost(prices)
    assert abs(found.usd - sum((cost.usd for cost in known), Decimal(0))) <= len(jobs) * Decimal("0.000002")
    assert (found.unpriced, found.is_estimate) == (costs.count(None), any(cost.is_estimate for cost in known))
    assert total.machine_ms == sum(moments_of(job).machine_ms() or 0 for job in jobs)
    assert (total.jobs, total.run_seconds.total) == (len(jobs), len(jobs))


def test_a_job_without_a_machine_costs_nothing_and_is_not_unpriced() -> None:
    job = {"GSI1-PK": "1#completed", "started_at": "2026-01-15T10:10:00Z", "completed_at": "2026-01-15T10:20:00Z"}
    found = contribution(job).cost(shipped_prices())
    assert (found.usd, found.unpriced) == (Decimal(0), 0)


@pytest.mark.parametrize("most", [5, 20, 50])
def test_names_that_are_too_many_become_one_and_no_sum_changes(most: int) -> None:
    figures = Figures()
    for number in range(60):
        key = GroupKey("acme/a", f"w{number % 7}", f"build {number}", "none", "p", "", "", "", "success")
        figures.add(key, Totals(jobs=number + 1, busy_ms=number))
    found = within(figures, most)
    assert len(found) <= most
    assert (found.total().jobs, found.total().busy_ms) == (figures.total().jobs, figures.total().busy_ms)
    assert found.repositories == {"acme/a"}
    names = {key.job_name for key, _ in found.items()}
    assert OTHER in names
    assert most < 10 or "build 59" in names, "the most frequent names stay"
    assert within(figures, 60) == figures
