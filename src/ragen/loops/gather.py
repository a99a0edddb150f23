"""What a step collects: which instances, under which settings, and how often until enough groups are live."""

from collections.abc import Collection as Container
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ragen.algos.filters import group_stats
from ragen.algos.greso import flat_streaks, play_probability
from ragen.config.schema import Config
from ragen.episode import Group
from ragen.loops.carried import Carried
from ragen.loops.compose import training_params
from ragen.loops.session import Session
from ragen.rollout.collect import Collection, collect
from ragen.rollout.instances import training_specs
from ragen.rollout.pool import Draw, draw


@dataclass(frozen=True, slots=True)
class Gathered:
    """Everything a step collected, in ``batches`` parts; ``flat`` (P′,) bool tells which groups have equal returns.

    ``candidates`` are the groups the filter chooses from. ``skipped``: how often an instance was passed over, ``replaced``:
    how many workers of environments had to be replaced.
    """

    collection: Collection
    flat: NDArray[np.bool_]
    candidates: tuple[Group, ...]
    batches: int
    skipped: int
    replaced: int
    carried: Carried


def gather(s: Session, carried: Carried) -> Gathered:
    """P groups × G episodes; with ``rollout.resample`` as many groups again as are flat or lost, a bounded number of times.

    With resampling the candidates are the live groups alone: at most P, fewer where the bound was reached first.
    Source: dynamic sampling of DAPO (arXiv 2503.14476, §3.2). Deviation: only the missing groups are collected again, so no
    live group is thrown away (DAPO collects whole batches, without a bound).
    """
    rollout = s.config.rollout
    parts: list[Collection] = []
    played: dict[int, int] = {}
    skipped, missing, replaced = 0, rollout.groups, s.workers.replaced
    while missing and len(parts) <= rollout.resample:
        drawn = next_instances(s.config, carried, missing, played.values())
        played |= dict(enumerate(drawn.instances, start=carried.drawn))
        parts.append(_collect(s, carried, drawn.instances, again=bool(parts)))
        carried = replace(carried, drawn=carried.drawn + missing, cursor=drawn.cursor)
        skipped += drawn.skipped
        missing = rollout.groups - sum(int((~flat_groups(part.groups, s.config)).sum()) for part in parts)
    groups = tuple(group for part in parts for group in part.groups)
    flat = flat_groups(groups, s.config)
    if rollout.instances:
        streaks = carried.streaks or (0,) * rollout.instances
        known = {played[group.index]: bool(level) for group, level in zip(groups, flat, strict=True)}
        carried = replace(carried, streaks=flat_streaks(streaks, known))
    live = tuple(group for group, level in zip(groups, flat, strict=True) if not level)
    errors = tuple(trajectory for part in parts for trajectory in part.errors)
    replaced = s.workers.replaced - replaced
    candidates = live if rollout.resample else groups
    return Gathered(Collection(groups, errors), flat, candidates, len(parts), skipped, replaced, carried)


def next_instances(config: Config, carried: Carried, count: int, taken: Container[int]) -> Draw:
    """The numbers of the next training instances: new ones, or those of the pool whose turn it is."""
    rollout = config.rollout
    if not rollout.instances:
        return Draw(tuple(range(carried.drawn, carried.drawn + count)), carried.cursor, 0)
    streaks = carried.streaks or (0,) * rollout.instances
    probability = play_probability(streaks, explore=rollout.explore, least=rollout.explore_min)
    return draw(config.seed, cursor=carried.cursor, count=count, probability=probability, taken=taken)


def flat_groups(groups: Sequence[Group], config: Config) -> NDArray[np.bool_]:
    """Which groups are flat in the returns the filter ranks by."""
    return group_stats([group.returns(task=config.filter.returns == "task") for group in groups]).flat


def gather_metrics(gathered: Gathered, config: Config) -> dict[str, float]:
    """How much was collected and how; of pool, workers and curriculum only where there are some."""
    metrics = {"collect/groups": float(len(gathered.collection.groups)), "collect/batches": float(gathered.batches)}
    if config.rollout.instances:
        metrics["collect/skipped_instances"] = float(gathered.skipped)
    if config.rollout.env_workers:
        metrics["collect/replaced_workers"] = float(gathered.replaced)
    if config.curriculum.stages:
        metrics["collect/stage"] = float(gathered.carried.stage + 1)
    return metrics


def _collect(s: Session, carried: Carried, instances: Sequence[int], *, again: bool) -> Collection:
    world = (*s.stages, s.world)[carried.stage]
    specs = training_specs(
        world.name,
        lambda: s.workers.environments(world.make, 1)[0],
        seed=s.config.seed,
        first=carried.drawn,
        instances=instances,
        members=s.config.rollout.members,
        held_out=s.held_out,
    )
    return collect(
        s.agent.sampler,
        s.agent.renderer,
        world.make,
        specs,
        rules=s.rules,
        params=training_params(s.config.rollout),
        all_may_fail=again,
        workers=s.workers,
    )
