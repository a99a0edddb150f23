"""Runs are started, skipped, gone on with and stopped: with processes that only pretend."""

import itertools
import json
import os
import shutil
import signal
import threading

import pytest
from tests.studies.conftest import TEXT

from ragen.algos.advantages import advantages
from ragen.config import load_config
from ragen.errors import CheckpointError, ConfigError
from ragen.runs.directory import RunDirectory
from ragen.runs.lock import locked
from ragen.runs.resume import write_settings
from ragen.studies import runner
from ragen.studies.grid import plan_study
from ragen.studies.runner import run_study
from ragen.studies.schema import parse_study


class Listener:
    """Remembers what it is told."""

    def __init__(self):
        self.states, self.ends, self.progress, self.said = {}, {}, [], []

    def on_begin(self, states, workers, threads):
        self.states = dict(states)

    def on_progress(self, progress):
        self.progress.append(progress)

    def on_end(self, run, what):
        self.ends[run.name] = what

    def on_message(self, text):
        self.said.append(text)


class Fake:
    """Stands for a started ``ragen train``: after ``polls`` looks it has ended with ``status``."""

    def __init__(self, world, words, polls, status):
        self.world, self.words, self.polls, self.status = world, words, polls, status
        self.signals, self.killed = [], False
        self.at_work = 0

    def poll(self):
        self.polls -= 1
        if self.polls >= 0:
            return None
        self.world.at_work -= 1
        if self.status == 0:
            self.world.train(self.words)
        return self.status

    def send_signal(self, number):
        self.signals.append(number)
        self.polls, self.status = 0, 130

    def kill(self):
        self.killed = True


class World:
    """Starts fakes; ``outcomes[run name]`` is (polls, status), (1, 0) where it says nothing."""

    def __init__(self, place):
        self.place, self.outcomes = place, {}
        self.started, self.processes, self.at_work, self.most = [], [], 0, 0

    def __call__(self, words, log):
        name = log.name.removesuffix(".log")
        self.started.append((name, list(words)))
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("something\nerror: out of luck\nlast line\n")
        self.at_work += 1
        self.most = max(self.most, self.at_work)
        self.processes.append(Fake(self, words, *self.outcomes.get(name, (1, 0))))
        return self.processes[-1]

    def train(self, words):
        """What a run that ends well leaves."""
        if words[0] == "--resume":
            run = RunDirectory.open(words[1])
        else:
            config = load_config(words[0])
            run = RunDirectory.create(config, self.place.runs / config.run.name)
        checkpoint(run, run.config.steps)
        for step in range(run.config.steps):
            run.append_metrics(step + 1, {"rollout/success": 0.5})


def checkpoint(run, step):
    run.checkpoints.save(step, lambda folder: write_settings(folder, run.config))


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    monkeypatch.setattr(runner, "POLL_S", 0.0)


@pytest.fixture
def world(place):
    return World(place)


def go(plan, place, world, workers=2):
    listener = Listener()
    return run_study(plan, place, listener, workers=workers, threads=3, start=world), listener


def test_every_run_is_started_once_side_by_side_and_what_is_done_is_skipped(plan, place, world):
    result, listener = go(plan, place, world, workers=3)
    names = list(plan.runs())
    assert [name for name, _ in world.started] == names
    assert world.most == 3
    assert (sorted(result.done), result.failed, result.busy, result.interrupted) == (sorted(names), (), (), False)
    assert listener.ends == dict.fromkeys(names, "done")
    assert listener.progress[-1].done == listener.progress[-1].total == 4 * 20
    assert all(place.state(run) == "done" for run in plan.runs().values())
    world.started.clear()
    result, listener = go(plan, place, world)
    assert world.started == []
    assert sorted(result.done) == sorted(names)
    assert set(listener.states.values()) == {"done"}


def test_the_settings_that_a_run_is_started_with_say_where_and_how_it_is_kept(plan, place, world):
    go(plan, place, world)
    name, (file,) = world.started[0]
    config = load_config(file)
    assert config == plan.runs()[name].config.model_copy(update={"run": config.run})
    assert (config.run.root, config.run.name, config.run.keep) == (str(place.runs), name, 1)
    assert (config.run.checkpoint_every, config.run.trajectories_every) == (5, 5)
    assert config.run.threads == 1  # the preset's own number goes before the runner's


@pytest.mark.parametrize(
    ("settings", "kept"),  # keep, checkpoint_every, trajectories_every
    [
        ("run.keep: 3", (3, 5, 5)),
        ("run: {checkpoint_every: 2, trajectories_every: 1}", (1, 2, 1)),
        ("echo_trap: {action: rollback, window: 4}", (2, 10, 5)),
        ("echo_trap: {action: rollback, window: 4}, run: {keep: 4, checkpoint_every: 3}", (4, 3, 5)),
    ],
)
def test_what_a_study_or_a_rollback_needs_of_the_checkpoints_stands(place, settings, kept):
    plan = plan_study(parse_study(TEXT.replace("{steps: 20}", f"{{steps: 20, {settings}}}"), "t"), "t")
    (file,) = place.prepare(next(iter(plan.runs().values())), threads=1)
    run = load_config(file).run  # validated as `ragen train` does it
    assert (run.keep, run.checkpoint_every, run.trajectories_every) == kept


def test_checkpoints_of_done_runs_go_unless_the_study_keeps_them(plan, place, world):
    go(plan, place, world)
    run = next(iter(plan.runs().values()))
    assert not (place.path(run) / "checkpoints").exists()
    assert (place.path(run) / "metrics.jsonl").is_file()
    shutil.rmtree(place.root)
    keeping = type(plan)(
        plan.name, plan.size, plan.study.model_copy(update={"keep_checkpoints": True}), plan.seeds, plan.variants
    )
    go(keeping, place, world)
    assert (place.path(run) / "checkpoints" / "latest").is_file()


def test_a_run_that_fails_stops_no_other_and_its_last_error_is_told(plan, place, world):
    bad = list(plan.runs())[1]
    world.outcomes[bad] = (0, 2)
    result, listener = go(plan, place, world, workers=1)
    assert result.failed == ((bad, "out of luck"),)
    assert len(result.done) == 3
    assert listener.ends[bad] == "out of luck"
    assert place.state(plan.runs()[bad]) == "new"
    world.outcomes.clear()
    assert len(go(plan, place, world)[0].done) == 4


def begun(plan, place, step):
    """A run that was stopped: with a checkpoint after ``step`` steps, without one where that is None."""
    run = next(iter(plan.runs().values()))
    opened = RunDirectory(place.path(run), run.config)
    opened.write_config()
    opened.append_metrics(1, {"rollout/success": 0.5})
    if step is not None:
        checkpoint(opened, step)
    return run


def test_a_run_with_a_checkpoint_goes_on(plan, place, world):
    run = begun(plan, place, 1)
    result, listener = go(plan, place, world)
    assert dict(world.started)[run.name] == ["--resume", str(place.path(run))]
    assert listener.states[run.name] == "begun"
    assert run.name in result.done


def test_a_run_without_a_checkpoint_begins_anew(plan, place, world):
    run = begun(plan, place, None)
    go(plan, place, world)
    assert dict(world.started)[run.name][0].endswith(f"{run.name}.yaml")
    assert place.steps_done(run) == 20  # the step of the stopped run went


def test_a_run_in_another_process_is_left_alone(plan, place, world):
    run = begun(plan, place, 1)
    with locked(place.path(run)):
        result, listener = go(plan, place, world)
    assert listener.states[run.name] == "busy"
    assert result.busy == (run.name,)
    assert run.name not in dict(world.started)


def test_what_another_process_did_or_took_since_the_beginning_is_left_as_it_is(plan, place, world, make_done):
    first, second, third, _ = plan.runs().values()
    other = type(place)(place.root)

    class Meanwhile(Listener):
        def on_begin(self, states, workers, threads):
            super().on_begin(states, workers, threads)
            make_done(second, 1, 1, [0.5] * 20)
            assert other.claim(third)

    listener = Meanwhile()
    result = run_study(plan, place, listener, workers=1, threads=1, start=world)
    assert listener.states[second.name] == listener.states[third.name] == "new"
    assert {second.name, third.name}.isdisjoint(dict(world.started))
    assert (second.name in result.done, result.busy, result.failed) == (True, (third.name,), ())
    assert listener.ends[second.name] == "done by another process"
    assert listener.ends[third.name] == "left to another process"
    assert (place.path(second) / "eval" / "after.json").is_file()
    assert listener.progress[-1].done == listener.progress[-1].total
    other.release(third)
    assert [place.state(run) for run in (first, second, third)] == ["done", "done", "new"]
    assert list(place.logs.glob("*.lock")) == []


def test_a_run_is_claimed_until_it_has_ended(plan, place, world):
    other, seen = type(place)(place.root), []

    class Watching(Listener):
        def on_progress(self, progress):
            seen.append([other.state(run) for run, _ in progress.running])

    world.outcomes = dict.fromkeys(plan.runs(), (2, 2))
    run_study(plan, place, Watching(), workers=2, threads=1, start=world)
    assert ["busy", "busy"] in seen
    assert {state for states in seen for state in states} == {"busy"}
    assert {other.state(run) for run in plan.runs().values()} == {"new"}


def test_a_kill_while_a_run_is_finished_does_not_lose_it(plan, place, world, monkeypatch):
    from ragen.studies import place as module

    def killed(path, ignore_errors=False):
        raise KeyboardInterrupt

    run = begun(plan, place, 20)
    monkeypatch.setattr(module.shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        place.finish(run, 1.0, keep_checkpoints=False)
    assert place.state(run) == "done"


def test_the_hours_of_a_run_are_those_of_all_its_starts(plan, place, world, monkeypatch):
    """A run that was gone on with told the seconds of its last start alone, and the report the sum of those."""
    clock = itertools.count(0.0, 10.0)
    monkeypatch.setattr(runner.time, "monotonic", lambda: next(clock))
    one = next(iter(plan.runs().values()))
    world.outcomes = dict.fromkeys(plan.runs(), (2, 2))
    go(plan, place, world, workers=1)
    go(plan, place, world, workers=1)
    spent = json.loads((place.logs / f"{one.name}.spent").read_text())["seconds"]
    world.outcomes = {}
    go(plan, place, world, workers=1)
    assert place.origin(one)["seconds"] >= spent + 10.0  # the clock ticks at least once between a start and its end
    assert not list(place.logs.glob("*.spent"))


def test_the_log_holds_the_last_start_only(tmp_path):
    log = tmp_path / "logs" / "run.log"
    log.parent.mkdir()
    log.write_text("error: of an earlier start\n")
    process = runner.start_process(["nothing-like-it"], log)
    assert process.wait() == 2
    assert "unknown preset 'nothing-like-it'" in runner._last_words(log, 2)
    assert "earlier" not in log.read_text()


@pytest.mark.parametrize("done", [True, False])
def test_a_directory_with_other_settings_is_refused_with_what_to_do(plan, place, world, done, make_done):
    run = next(iter(plan.runs().values()))
    make_done(run, 1, 1, [0.5] * 20)
    if not done:
        (place.path(run) / "done.json").unlink()
    file = place.path(run) / "config.yaml"
    file.write_text(file.read_text().replace("clip_low: 0.2", "clip_low: 0.1"))
    with pytest.raises(CheckpointError, match=r"loss.clip_low = 0.1, not 0.2.*Move the directory away"):
        go(plan, place, world)
    assert world.started == []


def test_where_a_run_is_kept_may_differ(plan, place, world, make_done):
    run = next(iter(plan.runs().values()))
    make_done(run, 1, 1, [0.5] * 20)
    file = place.path(run) / "config.yaml"
    file.write_text(file.read_text().replace("root: runs", "root: elsewhere"))
    assert place.state(run) == "done"


class Pressing(Listener):
    """Presses Ctrl-C at these calls of ``on_progress``."""

    def __init__(self, *calls):
        super().__init__()
        self.calls = calls

    def on_progress(self, progress):
        super().on_progress(progress)
        if len(self.progress) in self.calls:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals reach the main thread only")
def test_ctrl_c_tells_the_running_ones_and_starts_no_other(plan, place, world):
    world.outcomes = dict.fromkeys(plan.runs(), (10_000, 0))
    listener = Pressing(3)
    result = run_study(plan, place, listener, workers=2, threads=1, start=world)
    assert len(world.started) == 2
    assert [process.signals for process in world.processes] == [[signal.SIGINT]] * 2
    assert result.interrupted
    assert set(listener.ends.values()) == {"interrupted"}
    assert result.failed == ()


def test_a_second_ctrl_c_is_passed_on_and_a_third_ends_at_once(plan, place, world, monkeypatch):
    world.outcomes = dict.fromkeys(plan.runs(), (10_000, 0))
    monkeypatch.setattr(Fake, "send_signal", lambda self, number: self.signals.append(number))  # deaf ones
    with pytest.raises(KeyboardInterrupt):
        run_study(plan, place, Pressing(2, 4, 6), workers=1, threads=1, start=world)
    (process,) = world.processes
    assert process.signals == [signal.SIGINT] * 2
    assert process.killed


def test_a_run_that_cannot_start_is_a_failure(plan, place):
    def broken(words, log):
        raise OSError("no more processes")

    result, _ = go(plan, place, broken)
    assert {why for _, why in result.failed} == {"no more processes"}
    assert len(result.failed) == 4


def test_a_variant_that_every_run_would_refuse_is_told_before_the_first_one_starts(plan, place, world):
    bad = plan_study(
        parse_study(TEXT.replace("{filter.strategy: none}", "{filter.strategy: none, reward.coef: 0.5}"), "s"), "s"
    )
    with pytest.raises(ConfigError, match=r"^size tiny, bandit, 100: reward\.coef is 0\.5, but it counts only with"):
        go(bad, place, world)
    assert world.started == []


def test_a_variant_with_a_rule_of_ones_own_is_taken(tmp_path, place, world, monkeypatch):
    monkeypatch.setattr(advantages, "_items", dict(advantages._items))
    file = tmp_path / "mine.py"
    file.write_text(
        "from ragen.algos.advantages.base import register_advantage\n"
        "@register_advantage('mine')\n"
        "def mine(rewards, mask):\n"
        "    'Not called here.'\n"
    )
    text = TEXT.replace("{eval.episodes: 4}", f"{{eval.episodes: 4, advantage: mine, plugins: ['{file}']}}")
    result, _ = go(plan_study(parse_study(text, "s"), "s"), place, world)
    assert len(result.done) == 4
