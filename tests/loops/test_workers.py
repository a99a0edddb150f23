"""Runs with environments in workers: the same steps as without, and settings that contradict one another are refused."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import ragen
from ragen.errors import ConfigError
from ragen.runs.directory import RunDirectory

WORLDS = Path(__file__).parents[1] / "envs" / "workers" / "worlds.py"
TIMED = ("time/", "memory/", "collect/replaced_workers")


def settings(mini: Path, root: Path, **more: Any) -> dict[str, Any]:
    return {
        "model.name": str(mini),
        "steps": 2,
        "rollout.groups": 2,
        "rollout.members": 2,
        "rollout.max_new_tokens": 12,
        "eval.episodes": 3,
        "warmup.data": "none",
        "filter.max_flat_steps": 9,
        "run.root": str(root),
        "run.name": "run",
        **more,
    }


def untimed(history: tuple[Mapping[str, float], ...]) -> list[dict[str, float]]:
    return [{key: value for key, value in step.items() if not key.startswith(TIMED)} for step in history]


@pytest.mark.parametrize("mode", ["process", "thread"])
@pytest.mark.parametrize("name", ["frozen_lake", f"{WORLDS}:Stairs"])
def test_a_run_is_the_same_with_workers(mini: Path, tmp_path: Path, name: str, mode: str) -> None:
    alone = ragen.train({}, settings(mini, tmp_path / "a"), env=name, progress=False)
    more = {"rollout.env_workers": 2, "rollout.env_mode": mode}
    beside = ragen.train({}, settings(mini, tmp_path / "b", **more), env=name, progress=False)
    assert untimed(beside.history) == untimed(alone.history)
    assert beside.before == alone.before
    assert beside.after == alone.after
    assert [step["collect/replaced_workers"] for step in beside.history] == [0.0, 0.0]
    assert all("collect/replaced_workers" not in step for step in alone.history)
    first, second = (RunDirectory.open(run.run).path / "trajectories" / "step-000001.jsonl" for run in (alone, beside))
    assert first.read_text() == second.read_text()


def test_workers_may_come_when_a_run_goes_on(mini: Path, tmp_path: Path) -> None:
    whole = ragen.train({}, settings(mini, tmp_path / "a"), env="frozen_lake", progress=False)
    half = ragen.train({}, settings(mini, tmp_path / "b", steps=1), env="frozen_lake", progress=False)
    more = {"steps": 2, "rollout.env_workers": 2, "rollout.env_timeout_s": 30}
    rest = ragen.train(half.run / "config.yaml", more, resume=half.run, progress=False)
    assert untimed(rest.history) == untimed(whole.history[1:])


def test_an_evaluation_is_the_same_with_workers(mini: Path) -> None:
    few = {"eval.episodes": 3, "rollout.max_new_tokens": 12}
    alone = ragen.evaluate(mini, {}, few, env="frozen_lake", progress=False)
    beside = ragen.evaluate(mini, {}, {**few, "rollout.env_workers": 2}, env="frozen_lake", progress=False)
    assert beside == alone


def test_what_workers_cannot_make_is_refused_before_a_model_is_loaded(tmp_path: Path) -> None:
    class Local(ragen.Environment):
        def __init__(self) -> None:
            super().__init__()

        success = False

        def reset(self, *, instance_seed: int, dynamics_seed: int) -> ragen.Observation:
            return ragen.Observation("?")

        def step(self, action: str) -> ragen.Step:
            return ragen.Step("!", 0.0, terminated=True)

        def actions(self) -> tuple[str, ...]:
            return ("yes",)

        def instructions(self) -> str:
            return "Answer."

    nowhere = {"model.name": str(tmp_path / "no-model"), "rollout.env_workers": 1, "run.root": str(tmp_path)}
    with pytest.raises(ConfigError, match=r"a worker process cannot make 'Local'.*FILE\.py:Class.*'thread'"):
        ragen.train({}, nowhere, env=Local, progress=False)
