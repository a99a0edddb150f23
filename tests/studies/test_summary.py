"""The numbers of a report, against numbers worked out by hand."""

import math

import pytest
from tests.studies.conftest import TEXT

from ragen.metrics.intervals import mean_interval, wilson
from ragen.studies.grid import plan_study
from ragen.studies.schema import parse_study
from ragen.studies.summary import NOTHING, summarise

UP, DOWN = [0.5] * 20, [1.0] * 8 + [0.0] * 12


@pytest.fixture
def tables(plan, place, make_done):
    """Two seeds of each variant: all groups 1/4 and 3/4, half of them 4/4 and 4/4."""
    (first, second), (third, fourth) = (variant.runs for variant in plan.variants)
    make_done(first, 1, 1, DOWN)
    make_done(second, 1, 3, UP)
    make_done(third, 2, 4, UP)
    make_done(fourth, 1, 4, UP)
    return summarise(plan, {name: place.record(run) for name, run in plan.runs().items()})


def test_tables_come_in_the_order_of_the_file(tables, plan):
    assert list(tables) == ["success", "start", "collapse", "last:rollout/entropy"]
    assert [row.variant for row in tables["success"]] == list(plan.variants)


def test_a_rate_has_students_interval_over_seeds_held_in_0_and_1(tables):
    row, _ = tables["success"]
    assert (row.seeds, row.instances, row.mean, row.method) == (2, 4, 0.5, "t over seeds")
    assert row.values == {0: 0.25, 1: 0.75}
    half = 12.706204736 * (0.25 * math.sqrt(2)) / math.sqrt(2)  # t for one degree of freedom · s / √2
    assert half > 0.5
    assert row.interval == (0.0, 1.0)


def test_a_number_has_students_interval_without_bounds(tables, plan, place, make_done):
    first, second = plan.variants[0].runs
    make_done(first, 1, 1, UP, **{"rollout/entropy": [1.0] * 20})
    make_done(second, 1, 3, UP, **{"rollout/entropy": [2.0] * 20})
    row, _ = summarise(plan, {name: place.record(run) for name, run in plan.runs().items()})["last:rollout/entropy"]
    assert (row.mean, row.method) == (1.5, "t over seeds")
    half = 12.706204736 * math.sqrt(0.5) / math.sqrt(2)
    assert row.interval == pytest.approx((1.5 - half, 1.5 + half))


def test_a_number_on_which_all_seeds_agree_has_no_interval(tables):
    row, _ = tables["last:rollout/entropy"]
    assert (row.seeds, row.mean, row.interval, row.method) == (2, 1.0, NOTHING, "–")


def test_seeds_that_agree_have_the_interval_of_one_runs_instances(tables):
    _, row = tables["success"]
    assert row.mean == 1.0
    assert row.interval == pytest.approx(wilson(4, 4))
    assert row.method == "Wilson over instances of one run"


def test_a_difference_is_paired_by_seed(tables):
    base, row = tables["success"]
    assert base.difference is None
    assert row.difference == pytest.approx(((1 - 0.25) + (1 - 0.75)) / 2)
    assert mean_interval([0.75, 0.25])[1] > 1
    assert row.difference_interval == (-1.0, 1.0)  # held in what a difference of rates can be


def test_an_event_tells_in_how_many_seeds_and_when(tables):
    first, second = tables["collapse"]
    assert (first.seeds, first.values, first.mean) == (2, {0: 11}, 0.5)
    assert first.interval == pytest.approx(wilson(1, 2))
    assert (second.values, second.mean, second.difference) == ({}, 0.0, None)


def test_the_papers_numbers_go_to_the_variants_they_name(tables):
    assert [row.paper for row in tables["collapse"]] == ["100", ""]
    assert [row.paper for row in tables["success"]] == ["", "0.5"]


def test_one_seed_has_the_interval_of_its_instances_and_no_interval_for_a_number(study, place, make_done):
    plan = plan_study(study, "s", "tiny", seeds=[0])
    (run,), (other,) = (variant.runs for variant in plan.variants)
    make_done(run, 1, 3, UP)
    make_done(other, 1, 2, UP)
    tables = summarise(plan, {each.name: place.record(each) for each in (run, other)})
    assert tables["success"][0].interval == pytest.approx(wilson(3, 4))
    assert tables["last:rollout/entropy"][0].interval == NOTHING
    assert tables["success"][1].difference == pytest.approx(-0.25)
    assert tables["success"][1].difference_interval == NOTHING


def test_only_seeds_that_both_have_are_compared(plan, place, make_done):
    (first, _), (third, fourth) = (variant.runs for variant in plan.variants)
    make_done(first, 1, 1, UP)
    make_done(third, 1, 2, UP)
    make_done(fourth, 1, 4, UP)
    tables = summarise(plan, {run.name: place.record(run) for run in (first, third, fourth)})
    assert tables["success"][1].difference == pytest.approx(0.25)
    assert tables["success"][1].mean == 0.75
    assert tables["success"][1].seeds == 2


def test_seeds_that_agree_on_a_difference_give_it_no_interval(plan, place, make_done):
    runs = [run for variant in plan.variants for run in variant.runs]
    for run, solved in zip(runs, (1, 2, 2, 3), strict=True):
        make_done(run, 1, solved, UP)
    row = summarise(plan, {run.name: place.record(run) for run in runs})["success"][1]
    assert row.difference == pytest.approx(0.25)
    assert row.difference_interval == NOTHING


def test_each_environment_is_compared_with_its_own_baseline(place, make_done):
    text = TEXT.replace("axes: {environment: [bandit]}", "axes: {environment: [bandit, bandit-rev]}")
    plan = plan_study(parse_study(text, "t"), "t", "tiny", seeds=[0])
    wins = [0, 1, 2, 4]
    for variant, after in zip(plan.variants, wins, strict=True):
        make_done(variant.runs[0], 0, after, UP)
    rows = summarise(plan, {name: place.record(run) for name, run in plan.runs().items()})["success"]
    assert [row.difference for row in rows] == [None, 0.25, None, 0.5]


def test_without_runs_there_are_no_rows(plan):
    assert all(not rows for rows in summarise(plan, {}).values())
