"""Warn, stop, return: what a run does when the Echo-Trap detector speaks, and that it stays resumable bit for bit."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import ragen
from ragen.config import load_config
from ragen.errors import CheckpointError, TrainingError
from ragen.loops import train as loop
from ragen.loops.guard import announced
from ragen.loops.result import TrainResult
from ragen.loops.session import Session
from ragen.metrics.echo_trap import NOTHING, Signals
from ragen.runs import summary
from ragen.runs.checkpoints import Checkpoints
from ragen.runs.console import end_lines
from ragen.runs.directory import RunDirectory
from ragen.runs.listener import Silent
from ragen.runs.summary import ECHO_TRAP

SOURCE = {"preset": "bandit-starpo-grpo"}
SMALL = {
    "model.name": "tiny",
    "model.dtype": "float32",
    "warmup.data": "format",
    "warmup.demonstrations": 512,
    "warmup.batch": 32,
    "warmup.epochs": 2,
    "warmup.learning_rate": 2e-3,
    "rollout.groups": 3,
    "rollout.members": 4,
    "rollout.max_new_tokens": 40,
    "optim.learning_rate": 1e-4,
    "filter.max_flat_steps": 50,
    "eval.episodes": 0,
    "filter.strategy": "top_fraction",
    "filter.value": 1.0,
    "steps": 9,
}
BACK = {
    "echo_trap.action": "rollback",
    "echo_trap.window": 3,
    "echo_trap.filter_value": 0.5,
    "echo_trap.max_rollbacks": 1,
    "run.checkpoint_every": 1,
    "run.keep": 6,
}
Detect = Callable[[Sequence[Mapping[str, Any]], Any], Signals]


def settings(root: Path, name: str, more: Mapping[str, Any]) -> dict[str, Any]:
    return SMALL | {"run.root": str(root), "run.name": name} | more


def recorded(run: Path, *parts: str) -> list[Mapping[str, Any]]:
    """Everything logged that is not a clock or a memory figure (nor one of ``parts``)."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith(("time/", "memory/", *parts))} for row in rows]


def weights(run: Path) -> dict[str, Any]:
    last = RunDirectory.open(run).checkpoints.latest()
    return {f"{file.name}:{k}": v for file in sorted(last.glob("*.safetensors")) for k, v in load_file(file).items()}


def assert_same_run(a: Path, b: Path) -> None:
    assert recorded(a) == recorded(b)
    left, right = weights(a), weights(b)
    assert left.keys() == right.keys()
    assert all(left[key].equal(right[key]) for key in left)
    for file in sorted((a / "trajectories").iterdir()):
        assert file.read_text() == (b / "trajectories" / file.name).read_text()
    assert json.loads((a / "rollbacks" / "rollback-1.json").read_text()) == json.loads(
        (b / "rollbacks" / "rollback-1.json").read_text()
    )


@pytest.fixture
def trapped_at(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``trapped_at(step, kept)``: a detector that warns at ``step`` if at least ``kept`` groups trained in it."""

    def choose(step: int, kept: int = 0) -> None:
        def detect(rows: Sequence[Mapping[str, Any]], _: Any) -> Signals:
            caught = len(rows) >= step and rows[step - 1]["filter/kept_groups"] >= kept
            return Signals(warning=step, fired=("entropy", "repetition")) if caught else NOTHING

        monkeypatch.setattr(summary, "detect", detect)

    return choose


def test_a_rollback_returns_with_other_settings_and_keeps_what_it_gives_up(tmp_path: Path, trapped_at: Any) -> None:
    trapped_at(8, 3)
    done = ragen.train(SOURCE, settings(tmp_path, "one", BACK))
    assert (done.steps, done.stopped) == (9, loop.DONE)
    rows = recorded(done.run)
    assert [row["step"] for row in rows] == list(range(1, 10))
    assert [row["trap/rollbacks"] for row in rows] == [0.0] * 2 + [1.0] * 7  # 8 − 2 · 3 = 2
    assert {row["update/learning_rate"] for row in rows[:2]} == {1e-4}
    assert {row["update/learning_rate"] for row in rows[2:] if "update/learning_rate" in row} == {0.5e-4}
    assert [row["filter/kept_groups"] for row in rows[:2]] == [3.0] * 2
    assert all(row["filter/kept_groups"] <= 2 for row in rows[2:])
    assert len(done.history) == 9
    assert done.rollbacks == RunDirectory.open(done.run).rollbacks() == ((8, 2),)
    assert f"1 rollback, from step 8 to 2 ({done.run}/rollbacks)" in end_lines(done)
    assert finished_again(done.run).rollbacks == ((8, 2),)
    given_up = [json.loads(line) for line in (done.run / "rollbacks" / "rollback-1.jsonl").read_text().splitlines()]
    assert [row["step"] for row in given_up] == [3, 4, 5, 6, 7, 8]
    assert {row["update/learning_rate"] for row in given_up} == {1e-4}
    assert given_up[-1]["trap/warning"] == 1.0
    assert json.loads((done.run / "rollbacks" / "rollback-1.json").read_text()) == {
        "rollback": 1,
        "at_step": 8,
        "to_step": 2,
        "fired": ["entropy", "repetition"],
        "learning_rate": 0.5e-4,
        "filter_value": 0.5,
    }
    stored = RunDirectory.open(done.run).config
    assert (stored.optim.learning_rate, stored.filter.value) == (1e-4, 1.0)  # the run's settings are what was asked for


def finished_again(run: Path) -> TrainResult:
    """The result of going on with a run that is done."""
    return ragen.train(SOURCE, settings(run.parent, run.name, BACK), resume=run)


@pytest.mark.parametrize(
    ("changed", "kept", "start", "words"),
    [
        (
            {},
            [0],
            0,
            "at least 10 steps before the warning, one is made every 50 steps: a warning before step 60 returns to step 0; "
            "run.checkpoint_every 9 would keep closer ones",
        ),
        ({"steps": 59}, [0], 0, "every warning returns to step 0; run.checkpoint_every 9"),
        ({"steps": 60}, [0], 0, "a warning before step 60 returns to step 0; run"),
        ({"run.checkpoint_every": 9}, [0], 0, "one is made every 9 steps: a warning before step 19 returns to step 0"),
        ({"run.checkpoint_every": 5, "run.keep": 3}, [0], 0, "a warning before step 15 returns to step 0"),
        ({}, [50, 100], 130, "a warning before step 110 returns to step 50; run"),
        ({}, [100], 130, "a warning before step 160 returns to step 100; run"),
        ({}, [], 130, "a warning before step 160 stops the run; run"),  # begun without rollbacks: no checkpoint was due
        ({"steps": 11}, [0], 0, "no warning can come before step 12 (2 · echo_trap.window + 2), where this run has ended"),
    ],
)
def test_a_run_with_rollbacks_begins_by_saying_where_they_go(
    changed: Mapping[str, Any], kept: list[int], start: int, words: str
) -> None:
    every = {"echo_trap.action": "rollback", "run.checkpoint_every": 50}
    config = load_config("bandit-starpo-s-grpo", every | changed)
    (said,) = announced(config, kept, start)
    assert said.startswith("Echo Trap: ")
    assert words in said
    assert said.endswith("would keep closer ones") is ("; run" in words)


def test_what_is_announced_is_what_the_guard_does(tmp_path: Path, trapped_at: Any) -> None:
    """With the default checkpoints of a short run; without rollbacks nothing is said, but that a stop cannot come."""

    class Listener(Silent):
        def on_message(self, text: str) -> None:
            said.append(text)

    said: list[str] = []
    trapped_at(8)
    asked = settings(tmp_path, "one", BACK | {"run.checkpoint_every": 50, "run.keep": 2, "echo_trap.filter_value": None})
    done = ragen.train(SOURCE, asked, listener=Listener())
    assert sum("every warning returns to step 0" in text for text in said) == 1
    assert done.rollbacks == ((8, 0),)
    warn, stop = (load_config(SOURCE, {"echo_trap.action": action, "steps": 20}) for action in ("warn", "stop"))
    assert not [*announced(warn, [0], 0), *announced(stop, [0], 0)]


def test_a_rollback_for_a_collapse_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And names no filter where the settings change none."""

    class Listener(Silent):
        def on_message(self, text: str) -> None:
            said.append(text)

    said: list[str] = []
    monkeypatch.setattr(summary, "detect", lambda rows, _: Signals(collapsed=8) if len(rows) == 8 else NOTHING)
    asked = settings(tmp_path, "one", BACK | {"echo_trap.filter_value": None})
    done = ragen.train(SOURCE, asked, listener=Listener())
    assert json.loads((done.run / "rollbacks" / "rollback-1.json").read_text())["fired"] == ["collapse"]
    assert [text for text in said if "rollback 1" in text] == ["rollback 1: back to step 2, learning rate 5e-05"]


@pytest.mark.parametrize("stop_at", [1, 7, 9])
def test_a_run_with_a_rollback_resumes_bit_for_bit(tmp_path: Path, trapped_at: Any, stop_at: int) -> None:
    """Stopped before the rollback (its step 7 is made twice), and after it."""
    trapped_at(8, 3)
    straight = ragen.train(SOURCE, settings(tmp_path, "straight", BACK) | {"steps": 10})
    first = ragen.train(SOURCE, settings(tmp_path, "stopped", BACK) | {"steps": stop_at})
    resumed = ragen.train(SOURCE, settings(tmp_path, "stopped", BACK) | {"steps": 10}, resume=first.run)
    assert resumed.steps == 10
    assert_same_run(straight.run, resumed.run)


@pytest.mark.parametrize("stop_at", [5, 9])
def test_a_checkpoint_where_a_run_was_stopped_is_none_to_return_to(tmp_path: Path, trapped_at: Any, stop_at: int) -> None:
    """Checkpoints are due at 4 and 8; of the warning at step 11 only those up to 5 are from before."""
    trapped_at(11)
    sparse = BACK | {"run.checkpoint_every": 4, "run.keep": 3, "echo_trap.filter_value": None}
    straight = ragen.train(SOURCE, settings(tmp_path, "straight", sparse) | {"steps": 12})
    assert json.loads((straight.run / "rollbacks" / "rollback-1.json").read_text())["to_step"] == 4
    first = ragen.train(SOURCE, settings(tmp_path, "stopped", sparse) | {"steps": stop_at})
    resumed = ragen.train(SOURCE, settings(tmp_path, "stopped", sparse) | {"steps": 12}, resume=first.run)
    assert_same_run(straight.run, resumed.run)


@pytest.mark.parametrize("moment", ["before the checkpoint", "after later ones are gone", "before the cut"])
def test_a_kill_inside_a_rollback_changes_nothing(
    tmp_path: Path, trapped_at: Any, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    trapped_at(8, 3)
    straight = ragen.train(SOURCE, settings(tmp_path, "straight", BACK))
    place, name = {
        "before the checkpoint": (Session, "returned_to"),
        "after later ones are gone": (Checkpoints, "save"),
        "before the cut": (RunDirectory, "cut_after"),
    }[moment]
    plain = getattr(place, name)

    def killed(self: Any, step: int, *rest: Any) -> Any:
        if (tmp_path / "killed" / "rollbacks" / "rollback-1.json").exists():
            raise KeyboardInterrupt
        return plain(self, step, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(place, name, killed)
        with pytest.raises(KeyboardInterrupt):
            ragen.train(SOURCE, settings(tmp_path, "killed", BACK))
    resumed = ragen.train(SOURCE, settings(tmp_path, "killed", BACK), resume=tmp_path / "killed")
    assert resumed.steps == 9
    assert_same_run(straight.run, resumed.run)


def test_after_the_last_rollback_the_next_warning_stops(tmp_path: Path, trapped_at: Any) -> None:
    trapped_at(8)
    done = ragen.train(SOURCE, settings(tmp_path, "one", BACK))
    assert (done.steps, done.stopped) == (8, f"{ECHO_TRAP} at step 8, after 1 rollback")
    assert done.signals.warning == 8


def test_a_run_without_any_spread_of_returns_says_so_once_and_at_the_end(tmp_path: Path) -> None:
    """From the first step on: no level has fallen, so the detector has nothing to say."""
    said: list[str] = []

    class Listener(Silent):
        def on_message(self, text: str) -> None:
            said.append(text)

    hopeless = {"warmup.data": "none", "rollout.max_new_tokens": 4, "steps": 7, "filter.strategy": "none"}
    result = ragen.train(SOURCE, settings(tmp_path, "flat", hopeless), listener=Listener())
    told = [text for text in said if "returns of any group differ" in text]
    assert told == [
        "in none of the last 5 steps did the returns of any group differ (success 0.000, valid format 0.000): there is "
        "hardly anything to learn from; docs/collapse.md"
    ]
    assert "in none of the last 7 steps did the returns of any group differ: they taught hardly anything" in end_lines(
        result
    )


def test_a_warning_stops_the_run_with_a_checkpoint_and_going_on_is_possible(tmp_path: Path, trapped_at: Any) -> None:
    trapped_at(2)
    asked = settings(tmp_path, "one", {"echo_trap.action": "stop", "steps": 3})
    done = ragen.train(SOURCE, asked)
    assert (done.steps, done.stopped) == (2, f"{ECHO_TRAP} at step 2")
    assert RunDirectory.open(done.run).checkpoints.latest().name == "step-000002"
    assert [row["trap/warning"] for row in recorded(done.run)] == [0.0, 1.0]
    longer = ragen.train(SOURCE, asked, resume=done.run)
    assert (longer.steps, longer.stopped) == (3, loop.DONE)
    other = ragen.train(SOURCE, asked | {"echo_trap.action": "off", "steps": 4}, resume=done.run)
    assert other.steps == 4
    with pytest.raises(CheckpointError, match=r"echo_trap\.window"):
        ragen.train(SOURCE, asked | {"echo_trap.window": 4, "steps": 5}, resume=done.run)


def test_warning_changes_nothing_but_what_is_said(tmp_path: Path, trapped_at: Any) -> None:
    trapped_at(2)
    said: list[str] = []

    class Listener(loop.Silent):
        def on_message(self, text: str) -> None:
            said.append(text)

    loud = ragen.train(SOURCE, settings(tmp_path, "loud", {"steps": 3}), listener=Listener())
    off = ragen.train(SOURCE, settings(tmp_path, "off", {"steps": 3, "echo_trap.action": "off"}))
    assert recorded(loud.run, "trap/") == recorded(off.run)
    assert [text for text in said if "Echo Trap, early warning at step 2 from entropy, repetition" in text]
    assert sum("Echo Trap" in text for text in said) == 1


def test_diagnostics_come_on_their_schedule_and_change_nothing(tmp_path: Path) -> None:
    """With a critic and a filter; the parameters after three steps are those of a run without diagnostics."""
    more = {"steps": 3, "advantage.name": "gae", "rollout.groups": 6, "rollout.members": 2}
    plain = ragen.train(SOURCE, settings(tmp_path, "plain", more))
    seen = ragen.train(SOURCE, settings(tmp_path, "seen", more | {"diagnostics.every": 2, "diagnostics.prompts": 2}))
    assert recorded(seen.run, "diagnostics/") == recorded(plain.run)
    left, right = weights(plain.run), weights(seen.run)
    assert all(left[key].equal(right[key]) for key in left)
    rows = [{k: v for k, v in row.items() if k.startswith(("diagnostics/", "time/"))} for row in seen.history]
    assert [("time/diagnostics_s" in row) for row in rows] == [True, False, True]
    told = [row for row in rows if "diagnostics/retrieval_chance" in row]  # not where the thoughts are all of one prompt
    assert told
    for row in told:
        assert row["diagnostics/retrieval_chance"] == 0.5
        assert 0 <= row["diagnostics/retrieval_accuracy"] <= 1
        assert row["diagnostics/mutual_information"] < 0.6931472
    for row in (rows[0], rows[2]):
        stds = [row[f"diagnostics/return_std_q{n}"] for n in (1, 2, 3, 4)]
        assert stds == sorted(stds)
        assert all(row[f"diagnostics/grad_norm_q{n}"] > 0 for n in (1, 2, 3, 4))  # gae: flat groups have advantages, too
        parts = ("time/rollout_s", "time/update_s", "time/diagnostics_s")
        assert sum(row[part] for part in parts) == pytest.approx(row["time/step_s"])


@pytest.mark.parametrize("every", [0, 1])
def test_a_numeric_fault_names_the_step_and_the_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    plain = loop.train_step

    def broken(session: Any, step: int, *rest: Any) -> Any:
        if step == 2:
            raise TrainingError("optimiser step 3: loss is not finite, 3 times in a row")
        return plain(session, step, *rest)

    monkeypatch.setattr(loop, "train_step", broken)
    with pytest.raises(TrainingError) as caught:
        ragen.train(SOURCE, settings(tmp_path, "one", {"run.checkpoint_every": every}))
    assert str(caught.value).startswith("training step 3: optimiser step 3: loss is not finite, 3 times in a row. ")
    path = tmp_path / "one" / "checkpoints" / "step-000002"
    assert ("No checkpoint has been written yet" in str(caught.value)) is (every == 0)
    assert (f"of step 2, with --model.name {path} --warmup.data none" in str(caught.value)) is (every == 1)
