"""What a run came to, on records made by hand."""

import re
from pathlib import Path

import pytest
from tests.studies.conftest import evaluation

from ragen.studies.outcomes import OUTCOMES, Record, parse_outcome

STEPS = 20
SUCCESS = [0.2, 0.6, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0] + [0.0] * 12
STD = [0.4] * 4 + [0.0] * 16


def record(**evaluations):
    rows = tuple(
        {
            "step": i + 1,
            "rollout/success": SUCCESS[i],
            "rollout/return_std": STD[i],
            "rollout/entropy": float(i) if i else None,
        }
        for i in range(STEPS)
    )
    reports = {name.replace("_", "-"): report for name, report in evaluations.items()}
    return Record("bandit", rows, reports)


def value(name, of=None):
    found = record(
        before=evaluation("bandit", 1),
        after=evaluation("bandit", 2),
        step_10=evaluation("bandit", 4),
        after_other=evaluation("other", 3),
        before_other=evaluation("other", 0),
    )
    return parse_outcome(name).of(of or found)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("success", 0.5),
        ("success:bandit", 0.5),
        ("success:other", 0.75),
        ("success:nowhere", None),
        ("start", 0.25),
        ("start:other", 0.0),
        ("peak", 1.0),
        ("collapse", 11),  # the mean of five is (1+1+0+0+0)/5 < 1/2 first at step 11
        ("fall:rollout/return_std", 7),  # (.4+.4+0+0+0)/5 = .16 < .2
        ("lead:rollout/return_std", 4.0),
        ("lead:rollout/entropy", None),  # it never falls
        ("spike", None),  # no gradient norm was recorded
        ("reach:0.9", 6),  # (.6+1+1+1+1)/5 = .92
        ("first:rollout/entropy", 1.0),  # of None and 1
        ("last:rollout/entropy", 18.5),
        ("mean:rollout/entropy", 10.0),
        ("max:rollout/entropy", 19.0),
        ("mean:rollout/turns", None),
    ],
)
def test_each_outcome_by_hand(name, expected):
    assert value(name) == (None if expected is None else pytest.approx(expected))


def test_without_training_the_one_evaluation_is_before_and_after():
    untrained = Record("bandit", (), {"before": evaluation("bandit", 3)})
    assert value("success", untrained) == 0.75
    assert value("collapse", untrained) is None
    assert value("mean:rollout/entropy", untrained) is None


def test_the_success_elsewhere_says_under_whose_settings_it_is():
    """In study actions the variants' budgets do not reach sokoban-symbols: its title read as if they did."""
    for name in ("success", "start"):
        assert "its preset's settings and budgets" in parse_outcome(f"{name}:other").about
        assert "preset" not in parse_outcome(name).about


def test_every_outcome_is_told_in_the_guide():
    guide = (Path(__file__).parents[2] / "docs" / "studies.md").read_text(encoding="utf-8")
    assert [name for name in OUTCOMES if not re.search(rf"`{name}[:`]", guide)] == []
