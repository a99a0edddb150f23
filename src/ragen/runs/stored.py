"""Stored episodes for whoever reads them: a step of a run, or an evaluation that was kept."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragen.errors import CheckpointError, ConfigError
from ragen.runs.directory import RunDirectory, find_run
from ragen.runs.evaluations import EPISODES, EvaluationDirectory, find_evaluation
from ragen.runs.events import StoredTrajectory
from ragen.runs.summary import groups_a_step

Stored = RunDirectory | EvaluationDirectory


@dataclass(frozen=True, slots=True)
class Episodes:
    """Episodes with what their reader must know.

    ``about`` tells where they come from, ``groups_a_step`` is as in ``runs.summary``; ``step`` is None where there is no
    training (an evaluation).
    """

    items: tuple[StoredTrajectory, ...]
    about: str
    groups_a_step: int | None
    step: int | None


def open_stored(path: str | Path) -> Stored:
    """A run or an evaluation, by path or by its name under ``runs/`` or ``evals/``; CheckpointError where it is neither."""
    try:
        found = find_run(path)
    except CheckpointError:
        evaluation = find_evaluation(path)
        if evaluation is None:
            raise
        return evaluation
    return RunDirectory.open(found)


def env_of(stored: Stored) -> Mapping[str, Any]:
    """The section ``env`` of its settings."""
    return stored.config.env if isinstance(stored, RunDirectory) else stored.config["env"]


def seed_of(stored: Stored) -> int:
    """A run's seed, or that of an evaluation's instances."""
    return stored.config.seed if isinstance(stored, RunDirectory) else int(stored.config["eval"]["seed"])


def context_of(stored: Stored) -> str:
    """The setting ``rollout.context`` that it was played with."""
    return stored.config.rollout.context if isinstance(stored, RunDirectory) else str(stored.config["rollout"]["context"])


def episodes(stored: Stored, step: int | None = None) -> Episodes:
    """The episodes of a run's ``step`` (None: the last one stored), or those of an evaluation.

    Raises CheckpointError where there are none, ConfigError for a step of an evaluation.
    """
    if isinstance(stored, EvaluationDirectory):
        if step is not None:
            raise ConfigError(f"'{stored.path}' is an evaluation, which has no training steps: leave --step out")
        items = tuple(stored.trajectories())
        if not items:
            raise CheckpointError(f"'{stored.path / EPISODES}' holds no episode yet: repeat the evaluation's command")
        return Episodes(items, f"{stored.path} · evaluation of {stored.player}", None, None)
    items = tuple(stored.trajectories(step))
    number = stored.trajectory_steps()[-1] if step is None else step
    a_step = groups_a_step(stored.config)
    return Episodes(items, f"{stored.path} · step {number}", a_step, number)
