"""Trackers are told each point once, whatever happens to the run, and nothing that happens to them reaches it (E12)."""

import json
import logging
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ragen.config import Config, load_config
from ragen.errors import ConfigError
from ragen.loops.plan import plan_session
from ragen.runs.directory import RunDirectory
from ragen.runs.trackers import TrackedRun, Tracker, require_trackers, trackers
from ragen.runs.trackers.base import not_installed

REPORT = {"success": 0.25, "success_interval": (0.125, 0.5), "task_return": 1.0, "errors": 0, "seed": 1000, "notes": ()}
EVALUATED = {"success": 0.25, "success_low": 0.125, "success_high": 0.5, "task_return": 1.0, "errors": 0.0}


class Fake(Tracker):
    """Remembers what it is told, for all runs of the test; ``broken`` names the methods that raise."""

    opened: ClassVar[list[TrackedRun]] = []
    told: ClassVar[list[tuple[str, int, dict[str, float]]]] = []
    closed: ClassVar[list[str]] = []
    broken: ClassVar[set[str]] = set()

    def open(self, run: TrackedRun) -> None:
        self.opened.append(run)
        self.fail("open")
        self.id = run.id

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.fail("log")
        self.told.append((self.id, step, dict(metrics)))

    def close(self) -> None:
        self.closed.append("close")
        self.fail("close")

    def fail(self, method: str) -> None:
        if method in self.broken:
            raise RuntimeError(f"no {method} today")


class Forgetting(Fake):
    """A fake that can take points away."""

    forgets: ClassVar[bool] = True


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(trackers, "_items", {**trackers._items, "fake": Fake, "forgetting": Forgetting})
    yield
    for kept in (Fake.opened, Fake.told, Fake.closed, Fake.broken):
        kept.clear()


def config(tmp_path: Path, *names: str) -> Config:
    words = ["--run.root", str(tmp_path / "runs"), "--run.name", "one", "--run.trackers", f"[{', '.join(names)}]"]
    return load_config("bandit-starpo-s-grpo-tiny", words)


def steps(run: RunDirectory, first: int, last: int, scale: float = 1.0) -> None:
    for step in range(first, last + 1):
        run.append_metrics(step, {"x": step * scale, "nothing": math.nan})


def told() -> list[tuple[int, float]]:
    return [(step, metrics["x"]) for _, step, metrics in Fake.told if "x" in metrics]


def test_a_tracker_is_told_settings_metrics_and_evaluations(tmp_path: Path) -> None:
    run = RunDirectory.create(config(tmp_path, "fake"))
    run.write_eval("before", 0, REPORT)
    run.write_eval("before-frozen_lake", 0, REPORT)
    steps(run, 1, 2)
    run.write_eval("after", 2, REPORT)
    run.close()
    (opened,) = Fake.opened
    assert (opened.name, opened.resumed, opened.first_step, opened.folder) == ("one", False, 1, run.path / "fake")
    assert opened.settings["rollout.members"] == run.config.rollout.members
    assert opened.settings["env.name"] == "bandit"
    assert [(step, metrics) for _, step, metrics in Fake.told] == [
        (0, {f"eval/{key}": value for key, value in EVALUATED.items()}),
        (0, {f"eval/frozen_lake/{key}": value for key, value in EVALUATED.items()}),
        (1, {"x": 1.0}),  # NaN is no point
        (2, {"x": 2.0}),
        (2, {f"eval/{key}": value for key, value in EVALUATED.items()}),
    ]
    assert Fake.closed == ["close"]


def test_a_resumed_run_goes_on_in_the_same_tracker_run_and_doubles_no_point(tmp_path: Path) -> None:
    run = RunDirectory.create(config(tmp_path, "fake"))
    run.write_eval("before", 0, REPORT)
    steps(run, 1, 5)  # killed here: nothing is closed
    again = RunDirectory.open(run.path)
    again.cut_after(3)
    steps(again, 4, 7)
    again.write_eval("after", 7, REPORT)
    again.close()
    assert told() == [(step, float(step)) for step in range(1, 8)]
    assert [opened.resumed for opened in Fake.opened] == [False, True]
    assert len({number for number, _, _ in Fake.told}) == 1
    assert len([metrics for _, _, metrics in Fake.told if "eval/success" in metrics]) == 2
    assert Fake.opened[1].first_step == 6


def test_a_tracker_that_can_forget_is_told_again_what_is_made_again(tmp_path: Path) -> None:
    run = RunDirectory.create(config(tmp_path, "forgetting"))
    steps(run, 1, 5)
    again = RunDirectory.open(run.path)
    again.cut_after(3)
    steps(again, 4, 5, scale=10.0)
    assert told() == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0), (5, 5.0), (4, 40.0), (5, 50.0)]
    assert Fake.opened[1].first_step == 4  # from here on the earlier points go


def test_after_a_rollback_the_curve_goes_to_a_run_of_its_own_from_the_first_step_on(tmp_path: Path) -> None:
    run = RunDirectory.create(config(tmp_path, "fake"))
    steps(run, 1, 4)
    run.write_rollback(1, {"rollback": 1, "at_step": 4, "to_step": 2}, [])
    run.cut_after(2)
    steps(run, 3, 4, scale=10.0)
    first, second = Fake.opened
    assert (second.name, second.resumed) == ("one (rollback 1)", False)
    assert [(step, m["x"]) for number, step, m in Fake.told if number == first.id] == [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert [(step, m["x"]) for number, step, m in Fake.told if number == second.id] == [(1, 1), (2, 2), (3, 30), (4, 40)]
    again = RunDirectory.open(run.path)  # and going on after that goes on there
    again.cut_after(4)
    steps(again, 5, 5)
    assert (Fake.opened[2].id, Fake.opened[2].resumed) == (second.id, True)
    assert Fake.told[-1] == (second.id, 5, {"x": 5.0})


def test_a_tracker_added_to_a_run_that_goes_on_is_told_all_of_it(tmp_path: Path) -> None:
    run = RunDirectory.create(config(tmp_path))
    run.write_eval("before", 0, REPORT)
    steps(run, 1, 3)
    again = RunDirectory(run.path, config(tmp_path, "fake"))
    again.cut_after(3)
    steps(again, 4, 4)
    assert told() == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]
    assert Fake.told[0][1] == 0
    assert "eval/success" in Fake.told[0][2]


@pytest.mark.parametrize("method", ["open", "log", "close"])
def test_a_failing_tracker_is_warned_about_once_and_changes_nothing(
    tmp_path: Path, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    Fake.broken.add(method)
    run = RunDirectory.create(config(tmp_path, "fake", "forgetting"))
    with caplog.at_level(logging.WARNING, "ragen"):
        steps(run, 1, 3)
        run.cut_after(2)
        steps(run, 3, 3)
        run.write_eval("after", 3, REPORT)
        run.close()
        run.close()
    assert [row["step"] for row in run.metrics()] == [1, 2, 3]
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 2, warnings  # one a tracker
    assert f"'fake' failed (RuntimeError: no {method} today)" in warnings[0]
    assert len(Fake.opened) == 2  # and is never tried again


def test_what_a_tracker_could_not_take_is_told_when_the_run_goes_on(tmp_path: Path) -> None:
    run = RunDirectory.create(config(tmp_path, "fake"))
    steps(run, 1, 2)
    Fake.broken.add("log")
    steps(run, 3, 4)
    Fake.broken.clear()
    steps(run, 5, 5)  # by this process nothing more is told
    assert told() == [(1, 1.0), (2, 2.0)]
    again = RunDirectory.open(run.path)
    again.cut_after(5)
    steps(again, 6, 6)
    assert told() == [(step, float(step)) for step in range(1, 7)]


def test_one_trackers_failure_is_none_of_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Fake):
        def log(self, step: int, metrics: Mapping[str, float]) -> None:
            raise OSError("no network")

    monkeypatch.setitem(trackers._items, "broken", Broken)
    steps(RunDirectory.create(config(tmp_path, "broken", "fake")), 1, 3)
    assert told() == [(1, 1.0), (2, 2.0), (3, 3.0)]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"fake": 3}', '{"fake": {"id": "x"}}', '{"fake": {"ids": 1}}'])
def test_a_damaged_record_of_what_was_told_stops_nothing(tmp_path: Path, content: str) -> None:
    run = RunDirectory.create(config(tmp_path, "fake"))
    (run.path / "trackers.json").write_text(content)
    steps(run, 1, 2)
    assert told() == [(1, 1.0), (2, 2.0)]


def test_ctrl_c_goes_through_a_tracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Fake, step: int, metrics: Mapping[str, float]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Fake, "log", interrupted)
    with pytest.raises(KeyboardInterrupt):
        steps(RunDirectory.create(config(tmp_path, "fake")), 1, 1)


@pytest.mark.parametrize(
    ("name", "module", "library"),
    [
        ("tensorboard", "torch.utils.tensorboard", "TensorBoard"),
        ("wandb", "wandb", "wandb"),
        ("mlflow", "mlflow", "MLflow"),
        ("trackio", "trackio", "trackio"),
    ],
)
def test_e12_a_missing_library_is_told_before_a_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, module: str, library: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=rf"'{name}', but {library} is not installed: .*pip install .*\[{name}\]"):
        plan_session(config(tmp_path, name), env=None)
    assert not (tmp_path / "runs").exists()


def test_an_unknown_tracker_and_one_named_twice_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown tracker 'wandbb': did you mean 'wandb'\?.*entry point"):
        require_trackers(["wandbb"])
    with pytest.raises(ConfigError, match=r"run\.trackers.*named once"):
        config(tmp_path, "fake", "fake")
    assert load_config({}, ["--run.trackers", "wandb"]).run.trackers == ("wandb",)


def test_the_setting_of_earlier_versions_says_what_it_is_now() -> None:
    for source, words in (({"run": {"tensorboard": True}}, []), ({}, ["--run.tensorboard", "true"])):
        with pytest.raises(ConfigError, match=r"'run\.tensorboard': it is run\.trackers now: \[tensorboard\]"):
            load_config(source, words)


def test_a_tracker_of_ones_own_is_found_through_its_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(
        "from ragen.runs.trackers import Tracker\n"
        "class Mine(Tracker):\n"
        "    def open(self, run): self.file = open(run.folder.parent / 'mine.txt', 'a')\n"
        "    def log(self, step, metrics): self.file.write(f'{step} {metrics}\\n')\n"
        "    def close(self): self.file.close()\n"
    )
    info = tmp_path / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ragen.trackers]\nmine = mine:Mine\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(trackers, "_entry_points_loaded", False)
    require_trackers(["mine"])
    run = RunDirectory.create(config(tmp_path, "mine"))
    steps(run, 1, 2)
    run.close()
    assert (run.path / "mine.txt").read_text() == "1 {'x': 1.0}\n2 {'x': 2.0}\n"


def test_a_tracker_of_ones_own_is_found_in_a_plugin(tmp_path: Path) -> None:
    (tmp_path / "lines.py").write_text(
        "from ragen.runs.trackers import trackers\n"
        "from ragen.runs.trackers.tensorboard import TensorBoard\n"
        "@trackers.register('lines')\n"
        "class Lines(TensorBoard):\n"
        "    pass\n"
    )
    words = ["--plugins", f"[{tmp_path / 'lines.py'}]", "--run.trackers", "lines", "--eval.episodes", "0"]
    assert plan_session(load_config("bandit-starpo-s-grpo-tiny", words), env=None).config.run.trackers == ("lines",)


def test_without_trackers_nothing_is_written_for_them(tmp_path: Path) -> None:
    run = RunDirectory.create(config(tmp_path))
    steps(run, 1, 1)
    assert not (run.path / "trackers.json").exists()


def test_what_is_kept_of_the_trackers_is_plain(tmp_path: Path) -> None:
    run = RunDirectory.create(config(tmp_path, "fake"))
    steps(run, 1, 2)
    stored: dict[str, Any] = json.loads((run.path / "trackers.json").read_text())
    assert stored == {"fake": {"id": Fake.opened[0].id, "rollbacks": 0, "steps": {"train": 2}}}
    assert str(not_installed("wandb", "wandb")).endswith("(metrics.jsonl holds the same numbers)")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_shows_each_step_once_and_as_it_was_made_last(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = RunDirectory.create(config(tmp_path, "tensorboard"))
    run.write_eval("before", 0, REPORT)
    steps(run, 1, 5)
    again = RunDirectory.open(run.path)
    again.cut_after(3)
    steps(again, 4, 6, scale=10.0)
    again.close()
    events = EventAccumulator(str(run.path / "tensorboard"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("x")] == [(1, 1), (2, 2), (3, 3), (4, 40), (5, 50), (6, 60)]
    assert [(e.step, e.value) for e in events.Scalars("eval/success")] == [(0, 0.25)]
