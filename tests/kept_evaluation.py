"""An evaluation as it is kept on disk, made without a model or an endpoint."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ragen.config import load_config
from ragen.episode import Completion, EndReason, StopReason, Trajectory, Turn
from ragen.loops.compose import build_world
from ragen.loops.evaluate import shared_settings
from ragen.runs.evaluations import EvaluationDirectory, PlayedEpisode
from ragen.runs.events import StoredTrajectory

ENDPOINT = {"endpoint": {"url": "http://here/v1", "model": "wise", "body": {}}}


def spoken(text: str, **changes: Any) -> Turn:
    """A turn of an endpoint's model, whose token ids are not known."""
    base = {"prompt_ids": (), "extends": False, "observation": "Walk.", "actions": ("Left",), "valid": True, "reward": 0.0}
    return Turn(**{"completion": Completion((), (), (), text, StopReason.END, untold_tokens=3), **base, **changes})


def spoken_episode(seed: int, *texts: str, **changes: Any) -> Trajectory:
    """An episode of an endpoint's model, won if the last text says so."""
    turns = tuple(spoken(text, extends=k > 0) for k, text in enumerate(texts))
    base = {"env": "frozen_lake", "instance_seed": seed, "member": 0, "turns": turns, "end": EndReason.TERMINATED}
    return Trajectory(**{"success": "won" in (texts or ("",))[-1], **base, **changes})


def kept(
    root: Path,
    episodes: Sequence[Trajectory],
    *,
    name: str = "wise",
    env: str = "frozen_lake",
    player: dict[str, Any] | None = None,
    planned: int | None = None,
) -> EvaluationDirectory:
    """The evaluation ``root/name`` with these episodes, one an instance."""
    words = ["--env", env, "--eval.episodes", str(planned or len(episodes))]
    config = load_config({}, words)
    asked = (player or ENDPOINT) | shared_settings(build_world(config.env), config)
    with EvaluationDirectory.begun(root, name, asked) as evaluation:
        for group, episode in enumerate(episodes):
            evaluation.add(PlayedEpisode(StoredTrajectory(group, episode), failure=episode.error))
    return EvaluationDirectory.open(root / name)
