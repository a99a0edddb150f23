"""Evaluation: fixed seeded instances, success and return with intervals, reference players beside the agent."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ragen.config.schema import Config
from ragen.envs.guard import made
from ragen.envs.locate import shown
from ragen.envs.workers import Workers
from ragen.episode import EndReason, Trajectory
from ragen.errors import ConfigError, EnvironmentFault
from ragen.loops.compose import Agent, World, build_rules, evaluation_params
from ragen.metrics.evaluation import EvalReport, PlayerScore, evaluation_report, rate_interval
from ragen.rollout.collect import Progress, collect, in_groups
from ragen.rollout.demonstrations import play, players_of
from ragen.rollout.instances import evaluation_specs, started
from ragen.rollout.runner import EpisodeSpec
from ragen.runs.evaluations import EvaluationDirectory, Place, PlayedEpisode
from ragen.runs.events import StoredTrajectory

T = TypeVar("T")
ROLLOUT = ("max_new_tokens", "max_trajectory_tokens", "stop_strings", "context", "window", "thinking", "format_penalty")
FEW_VALID = 0.5  # a rate of valid replies below which the reader is told why that may be


def evaluate_agent(
    agent: Agent,
    world: World,
    config: Config,
    *,
    label: str,
    players: bool = True,
    progress: Progress | None = None,
    workers: Workers | None = None,
    kept: EvaluationDirectory | None = None,
) -> tuple[EvalReport, tuple[Trajectory, ...]]:
    """Play the fixed evaluation episodes of ``world`` with ``agent``; returns the report and the sound episodes themselves.

    Episodes that ``kept`` holds are not played again, and those that are played are stored there, batch by batch.
    """
    settings = config.eval
    if settings.episodes < 1:
        raise ConfigError("eval.episodes is 0: set it to 1 or more to evaluate")
    specs = evaluation_specs(world.name, episodes=settings.episodes, samples=settings.samples, seed=settings.seed)
    trajectories = _played(agent, world, config, specs, kept, progress, workers)
    groups, errors = in_groups(specs, trajectories), [t for t in trajectories if t.end is EndReason.ERROR]
    firsts = specs[:: settings.samples]
    scores = score_players(world, firsts) if players else {}
    report = evaluation_report(
        groups,
        env=world.name,
        settings=world.settings,
        model=label,
        samples=settings.samples,
        temperature=settings.temperature,
        seed=settings.seed,
        errors=len(errors),
        ceiling=ceiling(world, firsts),
        players=scores,
        notes=notes(world, errors, scores),
    )
    return report, tuple(trajectory for group in groups for trajectory in group.trajectories)


def _played(
    agent: Agent,
    world: World,
    config: Config,
    specs: Sequence[EpisodeSpec],
    kept: EvaluationDirectory | None,
    progress: Progress | None,
    workers: Workers | None,
) -> list[Trajectory]:
    """The trajectory of each of ``specs``: stored, or played now."""
    played = _stored(kept, progress)
    collect(
        agent.sampler,
        agent.renderer,
        world.make,
        [spec for spec in specs if (spec.group, spec.member) not in played],
        rules=build_rules(config.rollout, agent.max_context),
        params=evaluation_params(config),
        batch=config.eval.batch,
        progress=progress,
        keep=partial(_keep, played, kept),
        all_may_fail=any(trajectory.end is not EndReason.ERROR for trajectory in played.values()),
        workers=workers,
    )
    return [played[spec.group, spec.member] for spec in specs]


def shared_settings(world: World, config: Config) -> dict[str, Any]:
    """What makes results what they are, of a local model's evaluation and of an endpoint's alike."""
    return {
        "env": {"name": world.name, **world.settings},
        "eval": {name: getattr(config.eval, name) for name in ("episodes", "samples", "temperature", "seed")},
        "rollout": {name: getattr(config.rollout, name) for name in ROLLOUT},
    }


def model_settings(world: World, config: Config, agent: Agent, model: str) -> dict[str, Any]:
    """What makes the results of a local model's evaluation what they are: another value is another evaluation.

    Weights are told by their place and the time of their last change.
    """
    changed = max((file.stat().st_mtime for file in agent.path.glob("*.safetensors")), default=0.0)
    weights = {"weights": str(agent.path.resolve()), "changed": changed, "dtype": str(agent.dtype).removeprefix("torch.")}
    shared = shared_settings(world, config)
    own = {"max_context": agent.max_context, "force_think": config.rollout.force_think}
    return {"model": {"name": model, **weights}, **shared, "rollout": shared["rollout"] | own}


def _stored(kept: EvaluationDirectory | None, progress: Progress | None) -> dict[Place, Trajectory]:
    stored = {} if kept is None else {place: each.stored.trajectory for place, each in kept.played().items()}
    if stored and progress is not None:
        progress(len(stored))
    return stored


def _keep(
    played: dict[Place, Trajectory],
    kept: EvaluationDirectory | None,
    specs: Sequence[EpisodeSpec],
    ended: Sequence[Trajectory],
) -> None:
    """Add a batch to ``played``, and store it, unless all of it failed: a broken environment is to be mended first."""
    played.update(zip(((spec.group, spec.member) for spec in specs), ended, strict=True))
    if kept is not None and any(trajectory.end is not EndReason.ERROR for trajectory in ended):
        for spec, trajectory in zip(specs, ended, strict=True):
            kept.add(PlayedEpisode(StoredTrajectory(spec.group, trajectory)))


def score_players(world: World, specs: Sequence[EpisodeSpec]) -> dict[str, PlayerScore]:
    """The environment's reference players on the same instances and dynamics seeds; episodes that fail are left out."""
    scores = {}
    for name, player in players_of(started(world.make)).items():
        results = _sound(partial(play, make_env=world.make, player=player), specs)
        if results:
            interval, _ = rate_interval([(success,) for success, _ in results])
            success = float(np.mean([success for success, _ in results]))
            mean_return = float(np.mean([value for _, value in results]))
            scores[name] = PlayerScore(success, interval, mean_return, len(specs) - len(results))
    return scores


def ceiling(world: World, specs: Sequence[EpisodeSpec]) -> float | None:
    """Mean success probability of best play over the instances (those without a fault), or None where it is not known."""

    def best(spec: EpisodeSpec) -> float | None:
        env = made(world.make)
        env.reset(instance_seed=spec.instance_seed, dynamics_seed=spec.dynamics_seed)
        return env.best_success()

    values = _sound(best, specs)
    return None if None in values or not values else float(np.mean(np.asarray(values, dtype=np.float64)))


def _sound(play_one: Callable[[EpisodeSpec], T], specs: Sequence[EpisodeSpec]) -> list[T]:
    """What ``play_one`` gives for each episode, without those in which the environment fails."""
    results = []
    for spec in specs:
        with suppress(EnvironmentFault):
            results.append(play_one(spec))
    return results


def notes(world: World, errors: Sequence[Trajectory], players: Mapping[str, PlayerScore]) -> list[str]:
    """What a reader must know beside the numbers."""
    said = []
    if started(world.make).content() is None:
        said.append("no held-out content (the environment names none): training may have seen these prompts; fresh chance")
    hint = world.settings.get("hint", "none")
    if hint not in ("none", None):
        said.append(f"the observation helps: hint = {hint}")
    if errors:
        said.append(f"lost to errors: {len(errors)} of the agent's episodes; the first said: {errors[0].error}")
    for name, score in players.items():
        if score.lost:
            said.append(f"lost to errors: {score.lost} of the episodes of the player '{name}', in none of its numbers")
    return said


def format_note(report: EvalReport, why: str, then: str) -> tuple[str, ...]:
    """Why most replies may have been invalid and what to do next; nothing where at least half of them were valid."""
    few = report.valid_format < FEW_VALID
    return (f"valid format is below {FEW_VALID:g}: {why}; next: {then}",) if few else ()


def few_valid(world: World, stored: Config | None, model: str) -> tuple[str, str]:
    """For ``format_note``: why, and what next; ``stored`` are the settings of the run that ``model`` is (None: none)."""
    env = shlex.quote(str(world.spec["name"]))
    if stored is None:
        return (
            "the model may never have been taught this reply format",
            f"ragen warmup PRESET --model {shlex.quote(model)} --env {env} --warmup.data format, and evaluate that",
        )
    trained = str(stored.env.get("name"))
    if trained != world.spec["name"]:
        return (
            f"the run was trained on {shown(trained)}, not on {shown(str(world.spec['name']))}",
            f"train on it (ragen train PRESET --env {env}), or take this for what carries over",
        )
    if stored.warmup.data == "none":
        return "the run had no warm-up", "a new run with --warmup.data format"
    return (
        "the run's warm-up was too short, or training has lost the format",
        "a new run with more --warmup.demonstrations or --warmup.epochs, or a lower --optim.learning_rate",
    )
