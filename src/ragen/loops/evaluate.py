"""Evaluation: fixed seeded instances, success and return with intervals, reference players beside the agent."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

import numpy as np

from ragen.config.schema import Config
from ragen.envs.guard import guarded
from ragen.envs.workers import Workers
from ragen.episode import Trajectory
from ragen.errors import ConfigError, EnvironmentFault
from ragen.loops.compose import Agent, World, build_rules, evaluation_params
from ragen.metrics.evaluation import EvalReport, PlayerScore, evaluation_report, rate_interval
from ragen.rollout.collect import Progress, collect
from ragen.rollout.demonstrations import play, players_of
from ragen.rollout.instances import evaluation_specs, started
from ragen.rollout.runner import EpisodeSpec

T = TypeVar("T")


def evaluate_agent(
    agent: Agent,
    world: World,
    config: Config,
    *,
    label: str,
    players: bool = True,
    progress: Progress | None = None,
    workers: Workers | None = None,
) -> tuple[EvalReport, tuple[Trajectory, ...]]:
    """Play the fixed evaluation episodes of ``world`` with ``agent``; returns the report and the episodes themselves."""
    settings = config.eval
    if settings.episodes < 1:
        raise ConfigError("eval.episodes is 0: set it to 1 or more to evaluate")
    specs = evaluation_specs(world.name, episodes=settings.episodes, samples=settings.samples, seed=settings.seed)
    collection = collect(
        agent.sampler,
        agent.renderer,
        world.make,
        specs,
        rules=build_rules(config.rollout, agent.max_context),
        params=evaluation_params(config),
        batch=settings.batch,
        progress=progress,
        workers=workers,
    )
    firsts = specs[:: settings.samples]
    report = evaluation_report(
        collection.groups,
        env=world.name,
        settings=world.settings,
        model=label,
        samples=settings.samples,
        temperature=settings.temperature,
        seed=settings.seed,
        errors=len(collection.errors),
        ceiling=ceiling(world, firsts),
        players=score_players(world, firsts) if players else {},
        notes=notes(world, collection.errors),
    )
    return report, collection.trajectories


def score_players(world: World, specs: Sequence[EpisodeSpec]) -> dict[str, PlayerScore]:
    """The environment's reference players on the same instances and dynamics seeds; episodes that fail are left out."""
    scores = {}
    for name, player in players_of(started(world.make)).items():
        results = _sound(partial(play, make_env=world.make, player=player), specs)
        if results:
            interval, _ = rate_interval([(success,) for success, _ in results])
            success = float(np.mean([success for success, _ in results]))
            scores[name] = PlayerScore(success, interval, float(np.mean([value for _, value in results])))
    return scores


def ceiling(world: World, specs: Sequence[EpisodeSpec]) -> float | None:
    """Mean success probability of best play over the instances (those without a fault), or None where it is not known."""

    def best(spec: EpisodeSpec) -> float | None:
        env = guarded(world.make())
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


def notes(world: World, errors: Sequence[Trajectory]) -> list[str]:
    """What a reader must know beside the numbers."""
    said = []
    if started(world.make).content() is None:
        said.append("no held-out content (the environment names none): training may have seen these prompts; fresh chance")
    hint = world.settings.get("hint", "none")
    if hint not in ("none", None):
        said.append(f"the observation helps: hint = {hint}")
    if errors:
        said.append(f"lost to errors: {len(errors)} of the agent's episodes; the first said: {errors[0].error}")
    return said
