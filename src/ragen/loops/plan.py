"""What can be known of a run, and refused, before a model is loaded."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ragen.algos.advantages import AdvantageEstimator, advantages
from ragen.config.schema import Config
from ragen.envs import Environment
from ragen.errors import CheckpointError, ConfigError
from ragen.learn.lora import require_peft
from ragen.loops.carried import Carried
from ragen.loops.compose import World, build_shaping, build_world, check_workers, world_of
from ragen.loops.demonstrations import mixed_specs, oracle_problems
from ragen.loops.effects import effect_problems
from ragen.loops.loss_checks import loss_problems
from ragen.loops.requirements import rule_problems
from ragen.models.device import choose_device
from ragen.rollout.demonstrations import demonstration_specs
from ragen.rollout.instances import contents, evaluation_specs, training_specs
from ragen.rollout.pool import visited
from ragen.rollout.runner import EnvironmentFactory
from ragen.rollout.shaping import Shaping
from ragen.runs.trackers import require_trackers
from ragen.wording import counted


@dataclass(frozen=True, slots=True)
class Plan:
    """What can be known of a run, and refused, before a model is loaded."""

    config: Config
    world: World
    stages: tuple[World, ...]
    others: tuple[World, ...]
    estimator: AdvantageEstimator
    shaping: Shaping
    held_out: frozenset[str]


def with_environment(config: Config, env: type[Environment] | EnvironmentFactory | None) -> Config:
    """The settings with the environment in full: where its class lies, and the settings it was given."""
    return config.model_copy(update={"env": dict(world_of(config, env).spec)})


def plan_session(config: Config, *, env: type[Environment] | EnvironmentFactory | None, resumed: bool = False) -> Plan:
    """Check everything that can be checked without a model.

    A ``resumed`` run may carry settings that no longer count: it cannot change them, only what they depend on.
    """
    if config.run.threads:
        torch.set_num_threads(config.run.threads)
    choose_device(config.model.device)
    if config.model.lora.rank:
        require_peft()
    world = world_of(config, env)  # before what else is looked up by name: it loads the plugins
    require_trackers(config.run.trackers)
    stages = tuple(stage_world(config, number, env) for number in range(len(config.curriculum.stages)))
    others = tuple(build_world({"name": name}) for name in config.eval.also)
    check_workers(config, (*stages, world, *others))
    estimator = advantages.get(config.advantage.name)
    shaping = fitting(config, world, resumed=resumed)
    return Plan(config, world, stages, others, estimator, shaping, held_out_contents(config, (world, *others)))


def fitting(config: Config, world: World, *, resumed: bool = False) -> Shaping:
    """What training pays beside the task; raises ConfigError where the settings do not fit one another or the ``world``."""
    rule = advantages.get(config.advantage.name)
    problems = [*loss_problems(config), *oracle_problems(config, world), *rule_problems(config, rule, world.make)]
    problems += [] if resumed else effect_problems(config)
    if problems:
        raise ConfigError("\n".join(problems))
    return build_shaping(config.reward, world)


def stage_world(config: Config, number: int, env: type[Environment] | EnvironmentFactory | None) -> World:
    """The world of a curriculum's stage ``number`` (from 0): the run's own with the stage's settings on top."""
    try:
        return build_world({**config.env, **config.curriculum.stages[number].env}, env)
    except ConfigError as error:
        raise ConfigError(f"curriculum.stages, stage {number + 1}: {error}") from None


def held_out_contents(config: Config, worlds: Sequence[World]) -> frozenset[str]:
    """Content keys of the evaluation instances of these worlds: training and warm-up leave them out."""
    if config.eval.episodes == 0:
        return frozenset()
    specs = evaluation_specs("", episodes=config.eval.episodes, samples=1, seed=config.eval.seed)
    return frozenset().union(*(contents(world.make, specs) for world in worlds))


def check_held_out(plan: Plan, trained: Config, carried: Carried, steps: int) -> None:
    """With other evaluation settings than before, nothing of the ``steps`` done, or of the warm-up, may be among the
    evaluation instances.
    """
    if not plan.held_out or trained.eval == plan.config.eval:
        return
    seen = trained_contents(trained, plan.world, plan.stages, carried, steps) & plan.held_out
    if seen:
        some = f"{counted(len(seen), 'evaluation instance')} {'is' if len(seen) == 1 else 'are'}"
        raise CheckpointError(
            f"with eval.episodes {plan.config.eval.episodes}, eval.seed {plan.config.eval.seed} and eval.also "
            f"{list(plan.config.eval.also)} {some} among those the run has trained on: keep the run's own, or "
            "evaluate other instances without going on (ragen eval RUN --seed S)"
        )


def trained_contents(trained: Config, world: World, stages: Sequence[World], carried: Carried, steps: int) -> frozenset[str]:
    """Content keys of what was trained on up to the end of ``steps`` steps: groups, and demonstrations, those of the warm-up
    too (but not the conversations of a file, which may name no instance).
    """
    before = held_out_contents(trained, (world, *(build_world({"name": name}) for name in trained.eval.also)))
    pool = visited(trained.seed, trained.rollout.instances, carried.cursor)
    seen: set[str] = set()
    for place, groups in zip((*stages, world), carried.spans(), strict=False):
        instances = (pool if groups else ()) if trained.rollout.instances else groups
        specs = training_specs(
            place.name, place.make, seed=trained.seed, first=0, instances=instances, members=1, held_out=before
        )
        seen |= contents(place.make, specs)
    shown = [spec for step in range(steps) for spec in mixed_specs(trained, world.name, step)]
    if trained.warmup.data in ("format", "oracle"):
        shown += demonstration_specs(world.name, seed=trained.seed, count=trained.warmup.demonstrations)
    return frozenset(seen | (contents(world.make, shown) - before))
