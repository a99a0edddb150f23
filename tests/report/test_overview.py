"""What a page says of a run: how it stands, what was measured, what happened and where the time went."""

import json
import os

import pytest
from tests.kept_evaluation import kept, spoken_episode
from tests.report.conftest import evaluation

from ragen.config import load_config
from ragen.errors import CheckpointError
from ragen.metrics.definitions import METRICS
from ragen.metrics.units import unit
from ragen.report.curves import GROUPS, columns, described
from ragen.report.evaluation import evaluation_overview
from ragen.report.overview import Event, overview, times
from ragen.runs.directory import RunDirectory
from ragen.runs.lock import locked
from ragen.runs.summary import state


def test_a_finished_run(maker):
    run = maker.run(steps=5)
    run.write_eval("before", 0, evaluation(success=0.1) | {"seconds": 4.0})
    run.write_eval("after", 5, evaluation(success=0.5, notes=("the observation helps: hint = offset",)) | {"seconds": 6.0})
    run.write_eval("after-bandit", 5, evaluation("bandit"))
    run.write_end("all steps done")
    told = overview(run)
    assert (told.name, told.status, told.running, told.done, told.planned) == ("one", "all steps done", False, 5, 5)
    assert [(e.name, e.step, e.own, e.scores[0].success) for e in told.evaluations] == [
        ("before", 0, True, 0.1),
        ("after", 5, True, 0.5),
        ("after-bandit", 5, False, 0.25),
    ]
    assert told.evaluations[0].about == "n = 8, T = 0.5"
    assert told.notes == ("the observation helps: hint = offset",)
    assert dict(told.times) == {"sampling": 10.0, "update": 5.0, "evaluation": 10.0}
    facts = dict(told.facts)
    assert facts["task"] == "frozen_lake-offset (max_turns 2)"
    assert facts["computed on"] == "cpu, float32, 1 thread"
    assert "torch" in facts["versions"]
    assert [step for step, _ in told.steps] == [1, 2, 3, 4, 5]
    assert told.drawing["kind"] == "grid"


def test_a_run_without_anything_yet(tmp_path):
    run = RunDirectory.create(load_config("bandit-starpo-s-grpo-tiny", ["--run.root", str(tmp_path), "--run.name", "new"]))
    told = overview(run)
    assert (told.done, told.curves, told.steps, told.evaluations, told.times) == (0, {}, (), (), ())
    assert told.status == "killed after step 0 of 50, before its first checkpoint: start it again"


def test_a_running_one_is_told_by_its_lock_and_a_killed_one_is_not_running(run):
    with locked(run.path):
        told = overview(run)
        assert told.running
        assert told.status == f"running (after step 3 of 5, process {os.getpid()})"
    (run.path / ".lock").write_text("999999999\n")  # what a kill leaves
    assert overview(run).status.startswith("killed after step 3 of 5: `ragen train --resume")


def test_a_half_written_last_line_is_left_out(run):
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"step":4,"rollout/succ')
    assert overview(run).curve_steps == (1, 2, 3)


@pytest.mark.parametrize("damaged", ["eval/after.json", "provenance.json", "ended.json", "rollbacks/rollback-1.json"])
def test_damaged_files_are_named(run, damaged):
    file = run.path / damaged
    file.parent.mkdir(exist_ok=True)
    file.write_text("{")
    with pytest.raises(CheckpointError, match=file.name):
        overview(run)


def test_an_evaluation_out_of_its_range_is_named_with_the_field(run):
    run.write_eval("after", 3, evaluation(success=-7))
    with pytest.raises(CheckpointError, match=r"eval/after\.json of .*'success' is -7: it must be between 0 and 1"):
        overview(run)


@pytest.mark.parametrize(
    ("reason", "status", "word"),
    [
        ("all steps done", "all steps done", "done"),
        ("interrupted", "interrupted after step 3 of 5: `ragen train --resume ", "interrupted"),
        ("stopped: Echo Trap at step 3", "stopped: Echo Trap at step 3 (after step 3 of 5)", "stopped"),
        ("failed: training step 4: no memory", "failed: training step 4: no memory (after step 3 of 5)", "failed"),
    ],
)
def test_why_a_run_ended_is_told_as_it_was_stored(run, reason, status, word):
    run.write_end(reason)
    assert overview(run).status.startswith(status)
    assert state(run) == word
    with locked(run.path):
        assert state(run) == "running"
    run.cut_after(3)  # as going on does
    assert run.end() is None
    assert state(run) == "killed"


def test_signals_and_rollbacks_are_events(maker):
    run = maker.run(steps=0)
    for step in range(1, 41):
        success = 0.5 if step < 20 else 0.02
        numbers = {"rollout/success": success, "rollout/return_mean": success, "rollout/return_max": 1.0}
        run.append_metrics(step, numbers | {"rollout/return_std": success, "update/grad_norm": 1.0 + 99.0 * (step == 30)})
    event = {"rollback": 1, "at_step": 17, "to_step": 7, "fired": ["reward std"], "learning_rate": 1e-6}
    run.write_rollback(1, event, [{"step": 17}])
    found = overview(run).events
    # the mean of 5 steps is below half of .5 from step 22 on (.212), three times in a row at step 24
    assert [(e.kind, e.step) for e in found] == [("rollback", 7), ("warning", 24), ("collapse", 24), ("spike", 30)]
    assert found[0] == Event(7, "rollback", "rollback 1, from step 17 to step 7")


def test_curves_have_one_value_a_step_and_none_where_there_is_none():
    rows = [{"step": 1, "a": 1.0}, {"step": 2, "b": None}, {"step": 3, "a": 3, "b": 2.0}]
    assert columns(rows) == {"a": [1.0, None, 3.0], "b": [None, None, 2.0]}


def test_every_metric_has_one_chart_but_signals_and_edges_of_bands():
    told = described([*METRICS, "mine/own"])
    hidden = METRICS.keys() - told.keys()
    assert hidden == {"trap/warning", "trap/spike", "trap/collapsed", "rollout/return_std_min", "rollout/return_std_max"}
    groups = [one["group"] for one in told.values()]
    assert groups == sorted(groups, key=GROUPS.index)
    assert told["rollout/return_std"]["band"] == ["rollout/return_std_min", "rollout/return_std_max"]
    assert described(["rollout/return_std"])["rollout/return_std"]["band"] is None
    assert next(iter(told)) == "rollout/success"
    assert told["mine/own"] == {"group": "collection", "unit": "", "about": "", "band": None}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("rollout/entropy", "nats"),
        ("update/kl", "nats a token"),
        ("update/mismatch_max", "nats"),
        ("time/tokens_per_s", "tokens/s"),
        ("time/update_s", "s"),
        ("memory/rss_gb", "GB"),
        ("filter/kept_fraction", "share"),
        ("rollout/think_words", "words"),
        ("rollout/response_tokens", "tokens"),
        ("collect/groups", "count"),
        ("update/grad_norm", ""),
        ("nosuch", ""),
    ],
)
def test_units_are_those_of_the_definitions(name, said):
    assert unit(name) == said


def test_no_definition_that_names_nats_seconds_or_a_share_lacks_the_unit():
    for name, meaning in METRICS.items():
        if "nats" in meaning:
            assert unit(name).startswith("nats"), name
        if meaning.startswith("share "):
            assert unit(name) == "share", name
        if meaning.startswith("seconds "):
            assert unit(name) == "s", name


def test_times_without_data_are_left_out():
    assert list(times([{"time/rollout_s": None}, {}], {"before": {}})) == []


def test_evaluations_in_between_stand_by_their_step(run):
    run.write_eval("step-2", 2, json.loads(json.dumps(evaluation())))
    run.write_eval("before", 0, evaluation())
    assert [e.name for e in overview(run).evaluations] == ["before", "step-2"]


def test_an_evaluation_is_one_step_in_which_nothing_trains(tmp_path):
    made = kept(tmp_path, [spoken_episode(1, "I won"), spoken_episode(2, "no")])
    told = evaluation_overview(made)
    assert told.status == "not finished (2 of 2 episodes): repeat its command to go on"
    assert (told.evaluations, told.trains, told.tokens, told.running) == ((), False, False, False)
    endpoint = {"requests": 9, "failures": 0, "cost": 1.5, "replies": {"cut": 1}}
    made.write_report(evaluation(success=0.5, temperature=float("nan"), endpoint=endpoint, notes=("a note",)))
    with locked(made.path):
        assert evaluation_overview(made).status == "running (2 of 2 episodes so far)"
    told = evaluation_overview(made)
    assert told.status == "2 of 2 episodes played"
    assert (told.name, told.label) == ("wise", "frozen_lake · evaluation of wise at http://here/v1")
    assert [(e.name, e.step, e.own, e.scores[0].success) for e in told.evaluations] == [("evaluation", 0, True, 0.5)]
    assert ([step for step, _ in told.steps], told.curves, told.notes) == ([0], {}, ("a note",))
    facts = dict(told.facts)
    assert facts["task"] == "frozen_lake"
    assert facts["sampling"] == "T not told, at most 256 tokens a turn"
    assert (facts["requests"], facts["cost"]) == ("9", "1.5")
    assert not facts.keys() & {"failures", "replies", "weights"}
    assert told.drawing["kind"] == "grid"
    weights = {"model": {"name": "mine", "weights": "/a/b", "changed": 1.0, "dtype": "float32"}}
    local = evaluation_overview(kept(tmp_path, [spoken_episode(1, "no")], name="local", player=weights))
    assert (local.tokens, dict(local.facts)["weights"]) == (True, "/a/b (float32)")
