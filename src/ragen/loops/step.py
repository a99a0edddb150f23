"""One iteration of StarPO: collect, filter, credit, update."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import psutil
import torch
from numpy.typing import NDArray

from ragen.algos.filters import Selection, group_stats, select_groups
from ragen.config.schema import Config
from ragen.episode import Group
from ragen.learn.batch import Batch, collate
from ragen.loops.carried import Carried
from ragen.loops.compose import training_params
from ragen.loops.diagnostics import diagnose
from ragen.loops.session import Session
from ragen.metrics.credit import credit_metrics, shared_states
from ragen.metrics.rollout import rollout_metrics
from ragen.models.allocator import trim
from ragen.rollout.collect import Collection, collect
from ragen.rollout.instances import training_specs
from ragen.runs.interrupt import Interrupt

TurnAdvantages = dict[tuple[int, int], tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class StepResult:
    """A step's metrics, what it hands to the next one, and what is worth a line."""

    metrics: Mapping[str, float]
    carried: Carried
    messages: tuple[str, ...]


def train_step(s: Session, step: int, carried: Carried, interrupt: Interrupt) -> StepResult:
    """Step number ``step`` (from 0)."""
    started = time.perf_counter()
    with interrupt.abandonable():
        collection = collect_step(s, step)
    trim()
    collected = time.perf_counter()
    metrics = rollout_metrics(collection.groups, len(collection.errors))
    if s.config.diagnostics.every and step % s.config.diagnostics.every == 0:
        metrics |= diagnose(s, collection.groups, carried)
    selection = filter_groups(collection, s.config)
    kept = [collection.groups[i] for i in selection.kept]
    metrics |= filter_metrics(selection)
    turn_advantages: TurnAdvantages = {}
    if kept:
        learnt = learn(s, step, kept, selection.weights, carried)
        metrics |= learnt.metrics
        turn_advantages, carried = learnt.turn_advantages, learnt.carried
    else:
        metrics |= {"update/skipped": 1.0, "update/optimizer_steps": 0.0}
    s.agent.sampler.load(s.policy.model.state_dict(), version=step + 1)
    trim()
    metrics |= time_metrics(collection, started, collected, time.perf_counter(), metrics.get("time/diagnostics_s", 0.0))
    every = s.config.run.trajectories_every
    if every and step % every == 0:
        s.run.write_trajectories(step + 1, collection.groups, collection.errors, turn_advantages)
    carried = replace(carried, flat_in_row=0 if kept else carried.flat_in_row + 1)
    return StepResult(metrics, carried, tuple(worth_a_line(collection, metrics, flat=not kept)))


def worth_a_line(collection: Collection, metrics: Mapping[str, float], *, flat: bool) -> Iterator[str]:
    """What the row of the step does not tell."""
    if flat:
        valid = metrics.get("rollout/valid_format", math.nan)
        yield f"no update: every group flat; valid format {valid:.3f}"
    if errors := len(collection.errors):
        first = " ".join(collection.errors[0].error.split())
        yield f"{errors} of {errors + len(collection.trajectories)} episodes lost to errors; the first said: {first}"


def collect_step(s: Session, step: int) -> Collection:
    """P groups × G episodes of this step's instances."""
    rollout = s.config.rollout
    specs = training_specs(
        s.world.name,
        s.world.make,
        seed=s.config.seed,
        step=step,
        groups=rollout.groups,
        members=rollout.members,
        held_out=s.held_out,
    )
    return collect(s.agent.sampler, s.agent.renderer, s.world.make, specs, rules=s.rules, params=training_params(rollout))


def filter_groups(collection: Collection, config: Config) -> Selection:
    """StarPO-S: rank groups by the standard deviation of their raw returns and keep the uncertain ones (method §2)."""
    task = config.filter.returns == "task"
    stds, flat = group_stats([group.returns(task=task) for group in collection.groups])
    return select_groups(stds, flat, strategy=config.filter.strategy, value=config.filter.value)


@dataclass(frozen=True, slots=True)
class Learnt:
    """Metrics of credit and update, each kept turn's mean advantage, and what goes to the next step."""

    metrics: Mapping[str, float]
    turn_advantages: TurnAdvantages
    carried: Carried


def learn(s: Session, step: int, kept: Sequence[Group], weights: NDArray[np.float64], carried: Carried) -> Learnt:
    """Credit, then the update."""
    batch = collate(kept, s.agent.tokenizer.pad_token_id)
    reference = s.reference_logprobs(batch)
    credit, after = s.credit(batch, reference, carried)
    each = [w for group, w in zip(kept, weights, strict=True) for _ in group.trajectories]
    stats = s.update(batch, credit, reference, torch.as_tensor(each, dtype=torch.float32), step)
    metrics = dict(stats.metrics()) | credit_metrics(credit.advantages, batch.mask)
    if "baseline" in s.estimator.needs:
        metrics["credit/baseline"] = carried.mean_return
    if "anchors" in s.estimator.needs:
        metrics["credit/shared_states"] = shared_states(
            batch.anchors, batch.mask, batch.turn_ids, batch.trajectory, batch.group
        )
    return Learnt(metrics, turn_means(kept, batch, credit.advantages), after)


def turn_means(kept: Sequence[Group], batch: Batch, advantages: torch.Tensor) -> TurnAdvantages:
    """Each turn's mean advantage over its sampled tokens, keyed by (group index, member)."""
    members = [(group.index, t.member, len(t.turns)) for group in kept for t in group.trajectories]
    means: TurnAdvantages = {}
    for number, (group, member, turns) in enumerate(members):
        rows = batch.trajectory == number
        turn_ids, values = batch.turn_ids[rows], advantages[rows]
        means[group, member] = tuple(float(values[turn_ids == turn].mean()) for turn in range(turns))
    return means


def filter_metrics(selection: Selection) -> dict[str, float]:
    """How many groups the filter kept."""
    kept = len(selection.kept)
    return {
        "filter/kept_groups": float(kept),
        "filter/kept_fraction": kept / max(1, len(selection.flat)),
        "filter/flat_groups": float(selection.flat.mean()),
    }


def time_metrics(
    collection: Collection, started: float, collected: float, ended: float, diagnostics: float
) -> dict[str, float]:
    """Seconds of rollout, update and step; sampled tokens a second of rollout; resident memory in GB (10⁹ bytes)."""
    tokens = sum(t.sampled_tokens for t in collection.trajectories)
    return {
        "time/rollout_s": collected - started,
        "time/update_s": ended - collected - diagnostics,
        "time/step_s": ended - started,
        "time/tokens_per_s": tokens / (collected - started),
        "memory/rss_gb": psutil.Process().memory_info().rss / 1e9,
    }
