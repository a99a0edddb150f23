"""The same from Python: ``ragen.train(...)`` and ``ragen.evaluate(...)`` in a script or notebook."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ragen.config import Config, load_config
from ragen.envs import Environment
from ragen.errors import CheckpointError, ModelError
from ragen.loops.compose import World, build_agent, build_world
from ragen.loops.evaluate import evaluate_agent
from ragen.loops.session import held_out_contents
from ragen.loops.train import TrainResult
from ragen.loops.train import train as run_training
from ragen.metrics.evaluation import EvalReport
from ragen.models.resolve import MADE, resolve_model
from ragen.rollout.instances import contents, evaluation_specs
from ragen.rollout.runner import EnvironmentFactory
from ragen.runs.directory import RunDirectory, find_run
from ragen.runs.listener import Listener, Silent

Source = str | Path | Mapping[str, Any]
EnvironmentLike = type[Environment] | EnvironmentFactory


def train(
    source: Source,
    settings: Mapping[str, Any] | None = None,
    *,
    env: EnvironmentLike | None = None,
    listener: Listener | None = None,
    resume: str | Path | None = None,
) -> TrainResult:
    """Train an agent.

    Args:
        source: a preset name, a YAML file, or a mapping of settings.
        settings: overrides by dotted key, for example ``{"steps": 20, "rollout.groups": 4}``.
        env: an environment class of your own (or a function that makes one) instead of a registered preset.
        listener: told of every step; default says nothing.
        resume: a run directory to go on with.

    Raises:
        RagenError: with what to do next, for anything a user can mend.
    """
    config = load_config(source, _overrides(settings))
    return run_training(config, env=env, listener=listener, resume=None if resume is None else Path(resume))


def evaluate(
    model: str | Path,
    source: Source | None = None,
    settings: Mapping[str, Any] | None = None,
    *,
    env: EnvironmentLike | None = None,
    players: bool = True,
    listener: Listener | None = None,
) -> EvalReport:
    """Evaluate a run, a checkpoint directory, or any Hugging Face causal LM on fixed seeded instances.

    ``source`` and ``settings`` are as in ``train``; without a source, a run's own config is used, and the defaults for a
    model. ``players`` plays the environment's reference players on the same instances. Nothing is written.
    """
    return evaluate_words(model, source, _overrides(settings), env=env, players=players, listener=listener)


def evaluate_words(
    model: str | Path,
    source: Source | None,
    overrides: Sequence[str],
    *,
    env: EnvironmentLike | None = None,
    players: bool = True,
    listener: Listener | None = None,
) -> EvalReport:
    """``evaluate`` with overrides as command-line words."""
    load_config(source if source is not None else {}, overrides)  # a mistyped setting must not wait for a model
    path, stored = find_model(model)
    config = load_config(source if source is not None else _stored(stored), overrides)
    listener = listener or Silent()
    if config.run.threads:
        torch.set_num_threads(config.run.threads)
    world = build_world(config.env, env)
    agent = build_agent(path, config.model, config.rollout)
    listener.on_phase(f"evaluate {model} on {world.name}", config.eval.episodes * config.eval.samples)
    report, _ = evaluate_agent(agent, world, config, label=str(model), players=players, progress=listener.on_progress)
    report = replace(report, notes=(*report.notes, *_training_notes(stored, config, world)))
    listener.on_eval(world.name, report)
    return report


def find_model(model: str | Path, root: str | Path = "runs") -> tuple[Path, Config | None]:
    """The directory of a model's files, and the config of its run where it is a run, its checkpoints, or one of them.

    Of a run it is the newest complete checkpoint. Raises ModelError that tells what the name could have been.
    """
    path = Path(model)
    for folder in (path, Path(root) / path):
        home = folder.parent if folder.name == "checkpoints" else folder
        if (home / "config.yaml").is_file():
            run = RunDirectory.open(home)
            return run.checkpoints.latest(), run.config
    home = path.parent.parent
    if (path / "config.json").is_file() and (home / "config.yaml").is_file():
        return path, RunDirectory.open(home).config
    try:
        return resolve_model(str(model)), None
    except ModelError as error:
        if model in MADE:
            raise
        raise ModelError(f"{error}; nor is it a run: {_near_run(path, Path(root))}") from None


def _training_notes(stored: Config | None, config: Config, world: World) -> tuple[str, ...]:
    """What a reader must know where a run is evaluated on instances that its training did not leave out."""
    if stored is None or stored.env.get("name") != config.env.get("name"):
        return ()
    specs = evaluation_specs("", episodes=config.eval.episodes, samples=1, seed=config.eval.seed)
    played = contents(world.make, specs)
    loose = played - held_out_contents(stored, (world,))
    if not loose:
        return ()
    return (f"{len(loose)} of {len(played)} initial states were not kept out of this run's training: it may have seen them",)


def _near_run(path: Path, root: Path) -> str:
    try:
        return str(find_run(path, root))
    except CheckpointError as error:
        return str(error)


def _stored(config: Config | None) -> Mapping[str, Any]:
    return {} if config is None else config.model_dump(mode="json")


def _overrides(settings: Mapping[str, Any] | None) -> list[str]:
    return [f"{key}={json.dumps(value)}" for key, value in (settings or {}).items()]
