"""What a step leaves in memory: nothing of its episodes (case D9)."""

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest

import ragen
from ragen.episode import Trajectory
from ragen.rollout.runner import EpisodeRunner
from ragen.runs.listener import Silent

SETTINGS: dict[str, Any] = {
    "model.dtype": "float32",
    "warmup.data": "none",
    "filter.strategy": "none",
    "rollout.groups": 2,
    "rollout.members": 2,
    "rollout.max_new_tokens": 4,
    "eval.episodes": 2,
    "steps": 3,
}


@pytest.mark.parametrize("leak", [False, True])
def test_d9_no_episode_outlives_its_step(mini: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leak: bool) -> None:
    """With a leak on purpose the same count grows, so it would show one."""
    made: list[weakref.ref[Trajectory]] = []
    leaked: list[Trajectory] = []
    plain = EpisodeRunner.trajectory

    def watched(self: EpisodeRunner, policy_version: int) -> Trajectory:
        trajectory = plain(self, policy_version)
        made.append(weakref.ref(trajectory))
        if leak:
            leaked.append(trajectory)
        return trajectory

    def alive() -> int:
        gc.collect()
        return sum(reference() is not None for reference in made)

    class Counting(Silent):
        def __init__(self) -> None:
            self.counts: list[int] = []

        def on_step(self, step: int, metrics: Any) -> None:
            self.counts.append(alive())

    monkeypatch.setattr(EpisodeRunner, "trajectory", watched)
    counting = Counting()
    settings = SETTINGS | {"model.name": str(mini), "run.root": str(tmp_path)}
    ragen.train("bandit-starpo-grpo", settings, listener=counting)
    assert len(made) == 2 + 3 * 4 + 2  # evaluated, trained on, evaluated
    assert counting.counts == ([6, 10, 14] if leak else [0, 0, 0])
    assert alive() == (16 if leak else 0)
