"""What an interruption leaves out is made up: nothing is lost, nothing is done twice, and the result says what was made."""

import json
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.loops.conftest import OneWord
from tests.studies.conftest import evaluation

import ragen
from ragen.config import load_config
from ragen.envs import Observation
from ragen.errors import CheckpointError, TrainingError
from ragen.loops import plan as planning
from ragen.loops import train as loop
from ragen.loops.carried import Carried
from ragen.loops.plan import plan_session
from ragen.loops.result import stored_report
from ragen.runs.directory import RunDirectory, stored_config
from ragen.runs.events import plain
from ragen.runs.listener import Silent
from ragen.runs.resume import ResumePoint

SMALL: dict[str, Any] = {
    "model.name": "tiny",
    "model.dtype": "float32",
    "warmup.data": "none",
    "filter.strategy": "none",
    "rollout.groups": 1,
    "rollout.members": 2,
    "rollout.max_new_tokens": 4,
    "eval.episodes": 2,
    "eval.every": 1,
    "eval.also": ["bandit-rev"],
    "run.name": "one",
    "steps": 2,
}
EVALUATIONS = {f"{when}{which}" for when in ("before", "step-1", "after") for which in ("", "-bandit-rev")}


class Presses(Silent):
    """Presses Ctrl-C ``times`` when the phase ``at`` begins (before the first step ends, for "train")."""

    def __init__(self, at: str, times: int) -> None:
        self.at, self.times = at, times
        self.phases: list[str] = []

    def on_phase(self, name: str, total: int) -> None:
        self.phases.append(name)
        if name == self.at:
            for _ in range(self.times):
                signal.raise_signal(signal.SIGINT)


def train(root: Path, listener: Silent | None = None, **more: Any) -> Any:
    return ragen.train("bandit-starpo-grpo", SMALL | {"run.root": str(root)} | more, listener=listener)


def go_on(run: Path, *words: str, listener: Silent | None = None) -> Any:
    return loop.train(stored_config(run, words), resume=run, listener=listener)


def told(result: Any) -> Any:
    """Both reports as JSON holds them."""
    return plain([result.before.to_dict(), result.after.to_dict()])


def untimed(run: Path) -> Any:
    """The stored evaluations without the seconds they took."""
    stored = RunDirectory.open(run).evaluations()
    return {name: {key: value for key, value in report.items() if key != "seconds"} for name, report in stored.items()}


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAGEN_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield train(tmp_path_factory.mktemp("straight"))


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("phase", ["train", *(f"evaluate {name}" for name in sorted(EVALUATIONS))])
def test_b8_an_interrupted_run_goes_on_to_what_an_unbroken_one_has(
    tmp_path: Path, straight: Any, phase: str, times: int
) -> None:
    stopped = train(tmp_path, Presses(phase, times))
    whole = phase.startswith("evaluate after") and times == 1  # what was going on is finished, and nothing is left
    assert stopped.stopped == RunDirectory.open(stopped.run).end() == ("all steps done" if whole else "interrupted")
    if phase != "evaluate after-bandit-rev":
        assert (stopped.after is None) == (phase != "evaluate after" or times == 2)  # N4: never the one from before
    resumed = go_on(stopped.run)
    assert (resumed.stopped, resumed.steps, RunDirectory.open(resumed.run).end()) == ("all steps done", 2, "all steps done")
    assert told(resumed) == told(straight)
    assert untimed(resumed.run) == untimed(straight.run)
    assert set(RunDirectory.open(resumed.run).evaluations()) == EVALUATIONS
    assert len(stopped.history) + len(resumed.history) == 2
    assert not list(resumed.run.rglob(".*"))


def test_an_error_is_kept_as_why_the_run_ended_and_a_full_disk_does_not_hide_it(
    tmp_path: Path, straight: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    del straight  # its cache is used

    def broken(*_: Any) -> None:
        raise TrainingError("the loss is not finite")

    monkeypatch.setattr(loop, "train_step", broken)
    with pytest.raises(TrainingError, match="not finite"):
        train(tmp_path / "a")
    end = RunDirectory.open(tmp_path / "a" / "one").end()
    assert end is not None
    assert end.startswith("failed: training step 1: the loss is not finite")

    def full(*_: Any) -> None:
        raise CheckpointError("the disk is full")

    monkeypatch.setattr(RunDirectory, "write_end", full)
    with pytest.raises(TrainingError, match="not finite"):
        train(tmp_path / "b")


def test_nothing_left_to_do_loads_nothing_and_gives_the_result_again(
    tmp_path: Path, straight: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "open_session", lambda *_: pytest.fail("a model must not be loaded"))
    before = {path: path.read_bytes() for path in straight.run.rglob("*") if path.is_file()}
    again = go_on(straight.run)
    assert (told(again), again.steps, again.history) == (told(straight), 2, ())
    assert {path: path.read_bytes() for path in straight.run.rglob("*") if path.is_file()} == before


def test_n3_going_further_keeps_the_evaluation_under_its_step_and_other_sizes_evaluate_anew(tmp_path: Path) -> None:
    first = train(tmp_path, **{"steps": 1, "eval.every": 0})
    longer = go_on(first.run, "--steps", "2")
    stored = RunDirectory.open(first.run).evaluations()
    assert {name: report["step"] for name, report in stored.items()} == {
        "before": 0,
        "before-bandit-rev": 0,
        "step-1": 1,
        "step-1-bandit-rev": 1,
        "after": 2,
        "after-bandit-rev": 2,
    }
    assert plain(longer.before.to_dict()) == plain(first.before.to_dict())
    seen = Presses("", 0)
    more = go_on(first.run, "--eval.episodes", "3", listener=seen)
    assert seen.phases == ["evaluate after", "evaluate after-bandit-rev"]
    assert (more.after.episodes, more.before) == (3, None)  # two instances before cannot be compared with three after


class Few(OneWord):
    """Three different instances in all; every other episode fails where ``fails`` is set."""

    fails = False
    made = 0

    def reset(self, *, instance_seed: int, dynamics_seed: int) -> Observation:
        self.kind = str(instance_seed % 3)
        Few.made += 1
        if Few.fails and Few.made % 2:
            raise ValueError("no such\nroom \ud800")
        return Observation(f"Kind {self.kind}.")

    def content(self) -> str | None:
        return None if Few.fails else self.kind


def test_a_run_on_a_class_of_ones_own_goes_on_with_that_class_only(tmp_path: Path) -> None:
    class Another(Few):
        pass

    chosen = SMALL | {"run.root": str(tmp_path), "eval.episodes": 0, "eval.also": []}
    first = ragen.train("bandit-starpo-grpo", chosen | {"steps": 1}, env=Few)
    with pytest.raises(CheckpointError, match=r"env\.name = tests\.loops\.test_interrupted:Few, not .*Another"):
        ragen.train("bandit-starpo-grpo", chosen, env=Another, resume=first.run)
    assert ragen.train("bandit-starpo-grpo", chosen, env=Few, resume=first.run).steps == 2


@pytest.mark.parametrize("change", [{"eval.episodes": 9}, {"eval.seed": 7, "eval.episodes": 9}, {"eval.episodes": 5}])
def test_b9_an_evaluation_set_may_not_take_in_what_was_trained(tmp_path: Path, change: dict[str, Any]) -> None:
    trained = load_config({"preset": "bandit-starpo-grpo", "eval": {"episodes": 1}, "steps": 9})
    words = [f"--{key}={value}" for key, value in change.items()]
    changed = load_config({"preset": "bandit-starpo-grpo", "eval": {"episodes": 1}, "steps": 9}, words)
    state = {"extra": {"step": 4, "carried": Carried(drawn=4 * trained.rollout.groups).record()}}
    (tmp_path / "state.json").write_text(json.dumps(state))
    for config, refused in ((changed, True), (trained, False)):
        point = ResumePoint(RunDirectory(tmp_path, config), tmp_path, 4, trained)
        plan = plan_session(config, env=Few)
        listener = Stops()
        with pytest.raises(CheckpointError if refused else Stopped, match="trained on" if refused else None):
            loop.open_session(plan, tmp_path, listener, point)


@pytest.mark.parametrize("carried", [Carried(), Carried(drawn=40, cursor=8), Carried(drawn=40, cursor=8, advanced=(8,))])
def test_b9_instances_of_a_pool_count_once_they_were_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, carried: Carried
) -> None:
    asked: list[list[int]] = []
    honest = planning.training_specs

    def spy(*args: Any, **named: Any) -> Any:
        asked.append(list(named["instances"]))
        return honest(*args, **named)

    monkeypatch.setattr(planning, "training_specs", spy)
    sections = {"rollout": {"instances": 8}, "eval": {"episodes": 1}, "steps": 9}
    trained, changed = (
        load_config({"preset": "bandit-starpo-grpo", **sections}, words) for words in ((), ("--eval.episodes=9",))
    )
    (tmp_path / "state.json").write_text(json.dumps({"extra": {"step": 1, "carried": carried.record()}}))
    point = ResumePoint(RunDirectory(tmp_path, changed), tmp_path, 1, trained)
    with pytest.raises(CheckpointError if carried.drawn else Stopped):
        loop.open_session(plan_session(changed, env=Few), tmp_path, Stops(), point)
    assert asked == [list(range(8)) if carried.drawn else []]  # of the 40 groups, whose instances came back


@pytest.mark.parametrize(("in_stage", "refused"), [(40, False), (0, True)])
def test_b9_instances_of_a_stage_are_compared_under_its_own_settings(tmp_path: Path, in_stage: int, refused: bool) -> None:
    env = {"size": 2, "frozen": 0.5}  # a handful of maps, which a stage on larger ones never meets
    stages = {"stages": [{"env": {"size": 4}, "until": 5}]}
    sections = {"preset": "frozen_lake-starpo-grpo", "env": env, "curriculum": stages, "eval": {"episodes": 1}, "steps": 9}
    trained, changed = (load_config(sections, words) for words in ((), ("--eval.episodes=6",)))
    carried = Carried(drawn=40, advanced=(in_stage,))
    (tmp_path / "state.json").write_text(json.dumps({"extra": {"step": 5, "carried": carried.record()}}))
    point = ResumePoint(RunDirectory(tmp_path, changed), tmp_path, 5, trained)
    with pytest.raises(CheckpointError if refused else Stopped):
        loop.open_session(plan_session(changed, env=None), tmp_path, Stops(), point)


@pytest.mark.parametrize(("data", "refused"), [("oracle", True), ("format", True), ("none", False)])
def test_an_evaluation_set_may_not_take_in_what_the_warm_up_showed(tmp_path: Path, data: str, refused: bool) -> None:
    """Only the groups of the steps were looked at: a run could go on and be judged on maps whose best play it was shown."""
    env = {"size": 2, "frozen": 0.5}  # a handful of maps
    shown = {"data": data, "demonstrations": 40}
    sections = {"preset": "frozen_lake-starpo-grpo", "env": env, "warmup": shown, "eval": {"episodes": 1}, "steps": 9}
    trained, changed = (load_config(sections, words) for words in ((), ("--eval.episodes=6",)))
    (tmp_path / "state.json").write_text(json.dumps({"extra": {"step": 0, "carried": Carried().record()}}))
    point = ResumePoint(RunDirectory(tmp_path, changed), tmp_path, 0, trained)
    with pytest.raises(CheckpointError if refused else Stopped, match="trained on" if refused else None):
        loop.open_session(plan_session(changed, env=None), tmp_path, Stops(), point)


def test_an_evaluation_that_lost_episodes_stands_for_no_other_number_of_them(tmp_path: Path) -> None:
    """One with a lost episode was taken for the evaluation of any number of instances."""
    words = {"run.root": str(tmp_path), "run.name": "one", "eval.samples": 2}
    run = RunDirectory.create(load_config("bandit-starpo-grpo", {**words, "eval.episodes": 4}))
    played = replace(evaluation("bandit", 1, 3), samples=2, outcomes=((True, True), (True,), (False, False)), errors=3)
    run.write_eval("after", 2, played.to_dict())
    assert stored_report(run, "after", 2) == played
    for episodes in (3, 5, 9):
        asked = RunDirectory(run.path, load_config("bandit-starpo-grpo", {**words, "eval.episodes": episodes}))
        assert stored_report(asked, "after", 2) is None


class Stopped(Exception):
    """The check was passed."""


class Stops(Silent):
    def on_start(self, config: Any, run_dir: Path | None) -> None:
        raise Stopped


class Hears(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def on_message(self, text: str) -> None:
        self.said.append(text)


def test_b16_episodes_lost_in_training_are_told_with_the_first_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Few, "fails", True)
    listener = Hears()
    settings = SMALL | {"run.root": str(tmp_path), "rollout.members": 4, "eval.episodes": 0, "steps": 1, "eval.also": []}
    result = ragen.train("bandit-starpo-grpo", settings, env=Few, listener=listener)
    lost = int(result.history[0]["rollout/errors"])
    assert any(
        f"{lost} of 4 episodes lost to errors; the first said: " in said and "no such room" in said for said in listener.said
    )
    assert any(said.startswith("device cpu · float32 · ") for said in listener.said)
    assert json.loads((result.run / "trajectories" / "step-000001.jsonl").read_text().splitlines()[-1])["error"]


def test_n21_a_step_without_an_update_says_so(tmp_path: Path) -> None:
    listener = Hears()
    settings = {
        "filter.strategy": "top_fraction",
        "eval.episodes": 0,
        "eval.also": [],
        "filter.max_flat_steps": 2,
        "steps": 5,
    }
    result = train(tmp_path, listener, **settings)
    assert [said for said in listener.said if "no update" in said] == ["no update: every group flat; valid format 0.000"] * 2
    assert (result.steps, result.planned) == (2, 5)
