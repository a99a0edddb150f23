"""The interval of a success rate: never narrower than what the number of instances allows."""

import json
import math

import pytest

from ragen.episode import Completion, EndReason, Group, StopReason, Trajectory, Turn
from ragen.metrics.evaluation import EvalReport, evaluation_report, rate_interval
from ragen.metrics.intervals import wilson
from ragen.runs.events import plain


@pytest.mark.parametrize("samples", [2, 4, 8])
@pytest.mark.parametrize("n", [1, 2, 10, 128])
@pytest.mark.parametrize("wins", ["none", "half", "all"])
def test_instances_that_do_not_differ_have_the_interval_of_as_many_single_trials(samples, n, wins):
    won = {"none": 0, "half": samples // 2, "all": samples}[wins]
    interval, method = rate_interval([(True,) * won + (False,) * (samples - won)] * n)
    assert interval == pytest.approx(wilson(won / samples * n, n))
    assert interval[1] - interval[0] > 0
    assert "Wilson" in method


def test_one_sample_each_is_wilson_and_several_that_differ_are_a_bootstrap():
    outcomes = [(i % 3 == 0,) for i in range(30)]
    assert rate_interval(outcomes) == (wilson(10, 30), "Wilson over instances")
    interval, method = rate_interval([(i % 3 == 0, i % 2 == 0) for i in range(30)])
    assert all(math.isfinite(end) for end in interval)
    assert interval[0] < interval[1]
    assert "bootstrap" in method


def test_no_instance_says_nothing():
    assert rate_interval([])[0] == (0.0, 1.0)


def played(instance, member, success, *turns):
    """An episode of turns (reward, penalty, sampled tokens)."""
    made = []
    for reward, penalty, length in turns:
        zeros = (0.0,) * length
        completion = Completion((5,) * length, zeros, zeros, "", StopReason.END)
        made.append(Turn((1,), False, completion, "", (), valid=penalty == 0, reward=reward, penalty=penalty))
    return Trajectory("env", instance, member, tuple(made), EndReason.TERMINATED, success=success)


def test_a_report_by_hand():
    solved = played(70, 0, True, (1.0, 0.0, 2))
    slow = played(70, 1, False, (0.0, -0.1, 1), (0.5, 0.0, 3))
    weak, wordless = played(71, 0, False, (0.25, 0.0, 1)), played(71, 1, False, (0.0, -0.1, 1))
    report = evaluation_report(
        [Group(0, (solved, slow)), Group(1, (weak, wordless))],
        env="e",
        settings={"size": 3},
        model="m",
        samples=2,
        temperature=0.5,
        seed=9,
        errors=1,
    )
    assert report.success == 0.25
    assert report.outcomes == ((True, False), (False, False))
    assert report.total_return == pytest.approx((1.0 + 0.4 + 0.25 - 0.1) / 4)
    assert report.task_return == pytest.approx((1.0 + 0.5 + 0.25 + 0.0) / 4)  # without what the format cost
    # two instances, drawn with replacement: a quarter of the draws is the first twice, a quarter the second
    assert report.success_interval == pytest.approx((0.0, 0.5))
    assert report.return_interval == pytest.approx((0.075, 0.7))
    assert report.valid_format == pytest.approx(3 / 5)
    assert (report.turns, report.tokens, report.pass_at_k) == (5 / 4, 8 / 4, 0.5)
    assert (report.episodes, report.samples, report.errors, report.instances) == (2, 2, 1, (70, 71))
    assert (report.env, report.settings, report.model, report.temperature, report.seed) == ("e", {"size": 3}, "m", 0.5, 9)


def report_of(*groups, samples):
    """The report of these groups."""
    about = {"env": "e", "settings": {}, "model": "m", "temperature": 0.5, "seed": 9, "errors": 0}
    return evaluation_report(list(groups), samples=samples, **about)


def test_pass_at_k_is_over_instances_that_have_all_their_samples():
    """An instance with a lost sample counted with pass@(k − 1), so that losses lowered the rate: here to 0.5."""
    whole = Group(0, (played(70, 0, False, (0.0, 0.0, 1)), played(70, 1, True, (1.0, 0.0, 1))))
    short = Group(1, (played(71, 0, False, (0.0, 0.0, 1)),))
    assert report_of(whole, short, samples=2).pass_at_k == 1.0
    assert report_of(short, samples=2).pass_at_k is None


def test_the_interval_that_one_instance_leaves_open_comes_back_from_json():
    """It came back as (None, None), which the summary of a comparison could not print."""
    report = report_of(Group(0, (played(70, 0, True, (1.0, 0.0, 1)),)), samples=1)
    assert report.return_interval == (-math.inf, math.inf)
    back = EvalReport.from_dict(json.loads(json.dumps(plain(report.to_dict()), allow_nan=False)))
    assert back == report
