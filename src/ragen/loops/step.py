"""One iteration of StarPO: collect, filter, credit, update."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import psutil
import torch
from numpy.typing import NDArray

from ragen.algos.filters import Selection, group_uncertainty, select_groups
from ragen.algos.uncertainty import Members
from ragen.config.schema import Config
from ragen.episode import Group
from ragen.learn.batch import Batch, collate
from ragen.learn.imitation import Imitation
from ragen.loops.carried import Carried
from ragen.loops.curriculum import next_stage
from ragen.loops.diagnostics import diagnose
from ragen.loops.gather import Gathered, gather, gather_metrics
from ragen.loops.replay import remembered, replay_metrics, replayed
from ragen.loops.session import Session
from ragen.metrics.credit import credit_metrics, shared_states
from ragen.metrics.rollout import rollout_metrics
from ragen.models.allocator import trim
from ragen.rollout.collect import Collection
from ragen.runs.interrupt import Interrupt
from ragen.wording import counted

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
        gathered = gather(s, carried)
    trim()
    collected, collection = time.perf_counter(), gathered.collection
    metrics = rollout_metrics(collection.groups, len(collection.errors)) | gather_metrics(gathered, s.config)
    if s.config.diagnostics.every and step % s.config.diagnostics.every == 0:
        metrics |= diagnose(s, collection.groups, carried)
    selection = filter_groups(gathered.candidates, s.config)
    kept, weights = [gathered.candidates[i] for i in selection.kept], selection.weights
    old = replayed(carried.replay, s.config.replay, fresh=len(kept), step=step, seed=s.config.seed)
    metrics |= filter_metrics(len(kept), gathered) | replay_metrics(old, kept, s.config.replay, step=step)
    carried, turn_advantages, imitation = gathered.carried, TurnAdvantages(), s.imitation(step)
    if imitation is not None and not kept:  # the demonstrations alone teach: no episode has a weight in the policy's loss
        kept, weights = list(collection.groups), np.zeros(len(collection.groups))
    if kept:
        learnt = learn(s, step, kept, weights, imitation, old, carried)
        metrics |= learnt.metrics
        carried = learnt.carried
        turn_advantages = learnt.turn_advantages if len(selection.kept) else turn_advantages
    else:
        metrics |= {"update/skipped": 1.0, "update/optimizer_steps": 0.0}
    s.agent.sampler.load(s.policy.model.state_dict(), version=step + 1)
    trim()
    metrics |= time_metrics(collection, started, collected, time.perf_counter(), metrics.get("time/diagnostics_s", 0.0))
    every = s.config.run.trajectories_every
    if every and step % every == 0:
        s.run.write_trajectories(step + 1, collection.groups, collection.errors, turn_advantages)
    after = hand_on(s.config, carried, kept, weights, step, metrics["rollout/success"])
    return StepResult(metrics, after, tuple(worth_a_line(gathered, after, metrics)))


def hand_on(
    config: Config, carried: Carried, kept: Sequence[Group], weights: NDArray[np.float64], step: int, success: float
) -> Carried:
    """What step ``step`` leaves to the next, credit and collection having added theirs; groups of weight 0 did not train."""
    trained = [group for group, weight in zip(kept, weights, strict=True) if weight > 0]
    carried = replace(
        carried,
        flat_in_row=0 if kept else carried.flat_in_row + 1,
        replay=remembered(carried.replay, trained, config.replay, step=step),
    )
    return next_stage(carried, config.curriculum, done=step + 1, success=success)


def worth_a_line(gathered: Gathered, after: Carried, metrics: Mapping[str, float]) -> Iterator[str]:
    """What the row of the step does not tell."""
    collection = gathered.collection
    if metrics["filter/kept_groups"] == 0:
        taught = "the demonstrations alone teach" if metrics.get("update/optimizer_steps") else "no update"
        yield f"{taught}: every group flat; valid format {metrics.get('rollout/valid_format', math.nan):.3f}"
    if errors := len(collection.errors):
        first = " ".join(collection.errors[0].error.split())
        played = counted(errors + len(collection.trajectories), "episode")
        yield f"{errors} of {played} lost to errors; the first said: {first}"
    if after.stage > gathered.carried.stage:
        yield f"curriculum: stage {after.stage + 1} from the next step on; success {metrics['rollout/success']:.3f}"


def filter_groups(groups: Sequence[Group], config: Config) -> Selection:
    """StarPO-S: rank groups by their uncertainty (std of raw returns, or another metric) and keep the uncertain ones."""
    task = config.filter.returns == "task"
    stats, flat = group_uncertainty([members_of(group, task=task) for group in groups], config.filter.metric)
    return select_groups(stats, flat, strategy=config.filter.strategy, value=config.filter.value)


def members_of(group: Group, *, task: bool) -> Members:
    """What a group's metrics are computed from; a member that sampled nothing has entropy 0."""
    entropies = [[e for turn in t.turns for e in turn.completion.entropies] for t in group.trajectories]
    return Members(
        returns=group.returns(task=task),
        entropies=np.array([np.mean(each) if each else 0.0 for each in entropies], dtype=np.float64),
        lengths=np.array([t.sampled_tokens for t in group.trajectories], dtype=np.float64),
    )


@dataclass(frozen=True, slots=True)
class Learnt:
    """Metrics of credit and update, each kept turn's mean advantage, and what goes to the next step."""

    metrics: Mapping[str, float]
    turn_advantages: TurnAdvantages
    carried: Carried


def learn(
    s: Session,
    step: int,
    kept: Sequence[Group],
    weights: NDArray[np.float64],
    imitation: Imitation | None,
    old: Sequence[Group],
    carried: Carried,
) -> Learnt:
    """Credit, then the update, of the ``kept`` groups and of replayed ``old`` ones (of weight 1)."""
    batch = collate((*kept, *old), s.agent.tokenizer.pad_token_id)
    reference = s.reference_logprobs(batch)
    credit, after = s.credit(batch, reference, carried)
    each = [w for group, w in zip(kept, weights, strict=True) for _ in group.trajectories]
    each += [1.0 for group in old for _ in group.trajectories]
    recorded = batch.group >= len(kept) if old else None
    stats = s.update(batch, credit, reference, torch.as_tensor(each, dtype=torch.float32), imitation, recorded, step)
    metrics = dict(stats.metrics()) | credit_metrics(credit.advantages, batch.mask)
    if "baseline" in s.estimator.needs:
        metrics["credit/baseline"] = carried.mean_return
    if "anchors" in s.estimator.needs:
        metrics["credit/shared_states"] = shared_states(
            batch.anchors, batch.mask, batch.turn_ids, batch.trajectory, batch.group
        )
    return Learnt(metrics, turn_means((*kept, *old), batch, credit.advantages), after)


def turn_means(kept: Sequence[Group], batch: Batch, advantages: torch.Tensor) -> TurnAdvantages:
    """Each turn's mean advantage over its sampled tokens, keyed by (group index, member)."""
    members = [(group.index, t.member, len(t.turns)) for group in kept for t in group.trajectories]
    means: TurnAdvantages = {}
    for number, (group, member, turns) in enumerate(members):
        rows = batch.trajectory == number
        turn_ids, values = batch.turn_ids[rows], advantages[rows]
        means[group, member] = tuple(float(values[turn_ids == turn].mean()) for turn in range(turns))
    return means


def filter_metrics(kept: int, gathered: Gathered) -> dict[str, float]:
    """How many of the collected groups the filter kept."""
    return {
        "filter/kept_groups": float(kept),
        "filter/kept_fraction": kept / max(1, len(gathered.flat)),
        "filter/flat_groups": float(gathered.flat.mean()),
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
