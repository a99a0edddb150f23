"""The interval of a success rate: never narrower than what the number of instances allows."""

import json
import math

import pytest

from ragen.episode import Completion, EndReason, Group, StopReason, Trajectory, Turn
from ragen.metrics.evaluation import EvalReport, PlayerScore, evaluation_report, rate_interval
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


WHOLE = {
    **report_of(Group(0, (played(70, 0, True, (1.0, 0.0, 1)), played(70, 1, False, (0.0, 0.0, 1)))), samples=2).to_dict(),
    "players": {"random": {"success": 0.5, "interval": [0.25, 0.75], "task_return": 1.0, "lost": 0}},
    "ceiling": 1.0,
    "endpoint": {"failures": 0},
}
RATES = ("success", "valid_format", "pass_at_k", "ceiling", "players.random.success")
AMOUNTS = ("temperature", "turns", "tokens")
RETURNS = ("total_return", "task_return", "players.random.task_return")
COUNTS = ("episodes", "samples", "errors", "players.random.lost", "endpoint.failures")
INTERVALS = ("success_interval", "return_interval", "players.random.interval")
ROWS = ("notes", "instances", "outcomes", "returns")
NO_NUMBER = ("x", [], {}, True, 10**400, math.inf)
WRONG = {
    **dict.fromkeys(("env", "model", "method"), (None, 3, [], {}, True, math.nan)),
    **dict.fromkeys(("settings", "players", "players.random", "endpoint"), (None, 3, [], "x", True, math.nan)),
    **dict.fromkeys(RATES, (*NO_NUMBER, -7, 1.5, 1e308)),
    **dict.fromkeys(AMOUNTS, (*NO_NUMBER, -1, 1e308)),
    **dict.fromkeys(RETURNS, (*NO_NUMBER, 1e308)),
    **dict.fromkeys(COUNTS, (*NO_NUMBER, None, -1, 1.5, math.nan, 10**12 + 1)),
    "seed": (None, "x", [], {}, True, 1.5, math.nan),
    **dict.fromkeys(INTERVALS, (None, "ab", 3, {}, [], [0.1], [0.2, 0.1], ["a", "b"], [0, math.nan], [math.inf, None])),
    **dict.fromkeys(ROWS, (None, "x", 3, {}, [None], [[]], [{}])),
}


def with_value(path: str, value: object) -> dict:
    changed = json.loads(json.dumps(WHOLE))
    *folders, name = path.split(".")
    inside = changed
    for folder in folders:
        inside = inside[folder]
    inside[name] = value
    return changed


@pytest.mark.parametrize("path", WRONG)
def test_a_report_with_a_wrong_type_or_range_names_the_field(path):
    """`ragen compare` ended in tracebacks on such files, or told a success of −7."""
    assert EvalReport.from_dict(json.loads(json.dumps(WHOLE))).players["random"].interval == (0.25, 0.75)
    for value in WRONG[path]:
        with pytest.raises(ValueError, match=f"'{path}' (is|must|tells)") as caught:
            EvalReport.from_dict(with_value(path, value))
        assert len(str(caught.value)) < 200


def test_every_field_of_a_report_is_read_with_a_check():
    assert {path.partition(".")[0] for path in WRONG} == set(EvalReport.__annotations__)
    assert {path.rpartition(".")[2] for path in WRONG if path.count(".") == 2} == set(PlayerScore.__annotations__)


@pytest.mark.parametrize("name", sorted(set(EvalReport.__annotations__) - {"returns", "endpoint"}))
def test_a_field_that_is_missing_is_named(name):
    with pytest.raises(ValueError, match=f"'{name}' is missing"):
        EvalReport.from_dict({key: value for key, value in WHOLE.items() if key != name})


@pytest.mark.parametrize("report", [None, [], "x", 3])
def test_what_is_no_object_is_no_report(report):
    with pytest.raises(ValueError, match="'report' is"):
        EvalReport.from_dict(report)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("instances", [1, 2], "'outcomes' tells of 1 instances, 'instances' of 2"),
        ("returns", [[1.0]], "'returns' must hold a number for each of 'outcomes'"),
        ("returns", [[1.0, 0.0], [1.0, 0.0]], "'returns' must hold"),
        ("outcomes", [[True, 1]], "'outcomes' is 1: it must be true or false"),
        ("returns", [[1.0, None]], "'returns' is None"),
    ],
)
def test_what_is_told_by_instance_belongs_together(name, value, said):
    with pytest.raises(ValueError, match=said):
        EvalReport.from_dict(with_value(name, value))
