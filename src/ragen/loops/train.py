"""StarPO and StarPO-S: collect whole trajectories, keep the uncertain groups, give credit, update (arXiv 2504.20073).

The loop reads as the paper's algorithm box. What it needs is put together in ``loops/session.py``.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import torch
from numpy.typing import NDArray

from ragen.algos.filters import Selection, group_stats, select_groups
from ragen.config.schema import Config
from ragen.envs import Environment
from ragen.episode import Group
from ragen.learn.batch import Batch, collate
from ragen.learn.stats import UpdateStats
from ragen.loops.compose import World, training_params
from ragen.loops.evaluate import evaluate_agent
from ragen.loops.session import Session, open_session
from ragen.metrics.evaluation import EvalReport
from ragen.metrics.rollout import rollout_metrics
from ragen.models.allocator import trim
from ragen.rollout.collect import Collection, collect
from ragen.rollout.instances import training_specs
from ragen.rollout.runner import EnvironmentFactory
from ragen.runs.interrupt import Interrupt, StepAbandoned
from ragen.runs.listener import Listener, Silent
from ragen.seeding import derive

TurnAdvantages = dict[tuple[int, int], tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a run came to: its directory, the steps done, why it stopped, evaluations before and after, step metrics."""

    run: Path
    steps: int
    stopped: str
    before: EvalReport | None
    after: EvalReport | None
    history: tuple[Mapping[str, float], ...]


def train(
    config: Config,
    *,
    env: type[Environment] | EnvironmentFactory | None = None,
    listener: Listener | None = None,
    resume: Path | None = None,
) -> TrainResult:
    """Run training, or go on with the run directory ``resume``.

    The steps of a resumed run equal those of an unbroken one bit for bit, on the CPU with the same number of threads.
    Ctrl-C finishes the step (a second one abandons it), saves, and says how to go on.
    """
    listener = listener or Silent()
    session = open_session(config, env=env, listener=listener, resume=resume)
    with Interrupt(listener.on_message) as interrupt:
        return _run(session, listener, interrupt, fresh=resume is None)


def _run(session: Session, listener: Listener, interrupt: Interrupt, *, fresh: bool) -> TrainResult:
    config, run = session.config, session.run
    before = evaluate_all(session, "before", listener, interrupt) if fresh else None
    history: list[Mapping[str, float]] = []
    flat_in_row, reason = session.flat_in_row, "all steps done"
    listener.on_phase("train", config.steps - session.start)
    for step in range(session.start, config.steps):
        if interrupt():
            reason = "interrupted"
            break
        try:
            metrics, flat = train_step(session, step, interrupt)
        except StepAbandoned:
            reason = "interrupted"
            break
        history.append(metrics)
        flat_in_row = flat_in_row + 1 if flat else 0
        run.append_metrics(step + 1, metrics)
        listener.on_step(step + 1, metrics)
        if flat_in_row >= config.filter.max_flat_steps:
            reason = f"stopped: every group was flat {flat_in_row} steps in a row, nothing is left to learn from"
            break
        if step + 1 < config.steps:
            _periodic(session, step + 1, flat_in_row, listener, interrupt)
    done = session.start + len(history)
    session.checkpoint(done, flat_in_row)
    after = evaluate_all(session, "after", listener, interrupt) if history and reason != "interrupted" else before
    run.close()
    result = TrainResult(run.path, done, reason, before, after, tuple(history))
    listener.on_end(result)
    return result


def _periodic(session: Session, done: int, flat_in_row: int, listener: Listener, interrupt: Interrupt) -> None:
    config = session.config
    if config.run.checkpoint_every and done % config.run.checkpoint_every == 0:
        session.checkpoint(done, flat_in_row)
    if config.eval.every and done % config.eval.every == 0:
        evaluate_all(session, f"step-{done}", listener, interrupt)
        listener.on_phase("train", config.steps - done)


def train_step(s: Session, step: int, interrupt: Interrupt) -> tuple[dict[str, float], bool]:
    """One iteration; returns its metrics and whether no group was kept (all flat: nothing was updated)."""
    started = time.perf_counter()
    with interrupt.abandonable():
        collection = collect_step(s, step)
    trim()
    collected = time.perf_counter()
    selection = filter_groups(collection, s.config)
    kept = [collection.groups[i] for i in selection.kept]
    metrics = rollout_metrics(collection.groups, len(collection.errors)) | filter_metrics(selection)
    turn_advantages: TurnAdvantages = {}
    if kept:
        stats, turn_advantages = learn(s, step, kept, selection.weights)
        metrics |= stats.metrics()
    else:
        metrics |= {"update/skipped": 1.0, "update/optimizer_steps": 0.0}
    s.agent.sampler.load(s.policy.model.state_dict(), version=step + 1)
    trim()
    metrics |= time_metrics(collection, started, collected, time.perf_counter())
    every = s.config.run.trajectories_every
    if every and step % every == 0:
        s.run.write_trajectories(step + 1, collection.groups, collection.errors, turn_advantages)
    return metrics, not kept


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


def learn(s: Session, step: int, kept: Sequence[Group], weights: NDArray[np.float64]) -> tuple[UpdateStats, TurnAdvantages]:
    """Credit, then the update; also returns each kept turn's mean advantage."""
    batch = collate(kept, s.agent.tokenizer.pad_token_id)
    reference = s.reference_logprobs(batch)
    credit = s.credit(batch, reference)
    each = [w for group, w in zip(kept, weights, strict=True) for _ in group.trajectories]
    stats = s.update(
        batch,
        credit,
        reference,
        torch.as_tensor(each, dtype=torch.float32),
        seed=derive(s.config.seed, "train", "update", step),
    )
    return stats, turn_means(kept, batch, credit.advantages)


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


def time_metrics(collection: Collection, started: float, collected: float, ended: float) -> dict[str, float]:
    """Seconds of rollout, update and step; sampled tokens a second of rollout; resident memory in GB (10⁹ bytes)."""
    tokens = sum(t.sampled_tokens for t in collection.trajectories)
    return {
        "time/rollout_s": collected - started,
        "time/update_s": ended - collected,
        "time/step_s": ended - started,
        "time/tokens_per_s": tokens / (collected - started),
        "memory/rss_gb": psutil.Process().memory_info().rss / 1e9,
    }


def evaluate_all(s: Session, name: str, listener: Listener, interrupt: Interrupt) -> EvalReport | None:
    """Evaluate on the run's own environment and on ``eval.also``; returns the report of the first (None: none made)."""
    if s.config.eval.episodes == 0 or interrupt():
        return None
    try:
        with interrupt.abandonable():
            report = _evaluate(s, s.world, name, listener)
            for world in s.others:
                _evaluate(s, world, f"{name}-{world.name}", listener)
    except StepAbandoned:
        s.agent.sampler.release()
        return None
    return report


def _evaluate(s: Session, world: World, name: str, listener: Listener) -> EvalReport:
    listener.on_phase(f"evaluate {name}", s.config.eval.episodes * s.config.eval.samples)
    report, _ = evaluate_agent(s.agent, world, s.config, label=s.run.path.name, progress=listener.on_progress)
    trim()
    s.run.write_eval(name, report.to_dict())
    listener.on_eval(name, report)
    return report
