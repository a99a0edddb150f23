"""StarPO and StarPO-S: collect whole trajectories, keep the uncertain groups, give credit, update (arXiv 2504.20073).

The loop reads as the paper's algorithm box. What it needs is put together in ``loops/session.py``.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
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
from ragen.loops.compose import training_params
from ragen.loops.run_evaluations import evaluate_all, stored_report
from ragen.loops.session import Session, open_session, plan_session, with_environment
from ragen.metrics.evaluation import EvalReport
from ragen.metrics.rollout import rollout_metrics
from ragen.models.allocator import trim
from ragen.rollout.collect import Collection, collect
from ragen.rollout.instances import training_specs
from ragen.rollout.runner import EnvironmentFactory
from ragen.runs.directory import claimed_place
from ragen.runs.interrupt import INTERRUPTED, Interrupt, StepAbandoned
from ragen.runs.listener import Listener, Silent
from ragen.runs.resume import ResumePoint, resumed
from ragen.seeding import derive

DONE = "all steps done"
TurnAdvantages = dict[tuple[int, int], tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a run came to: its directory, the steps done of those ``planned``, why it stopped, evaluations before and after
    (None: not made), the metrics of the steps made now.
    """

    run: Path
    steps: int
    planned: int
    stopped: str
    before: EvalReport | None
    after: EvalReport | None
    history: tuple[Mapping[str, float], ...]


@dataclass(frozen=True, slots=True)
class StepResult:
    """A step's metrics, whether all groups were flat (nothing was updated), and what is worth a line."""

    metrics: Mapping[str, float]
    flat: bool
    messages: tuple[str, ...]


def train(
    config: Config,
    *,
    env: type[Environment] | EnvironmentFactory | None = None,
    listener: Listener | None = None,
    resume: Path | None = None,
    label: str | None = None,
) -> TrainResult:
    """Run training, or go on with the run directory ``resume``; ``label`` begins the name of a run that has none.

    The steps of a resumed run equal those of an unbroken one bit for bit, on the CPU with the same number of threads.
    Evaluations that were due and are missing are made up. Ctrl-C finishes the step (a second one abandons it), saves, and
    says how to go on.
    """
    listener = listener or Silent()
    config = with_environment(config, env)
    if resume is None:
        with claimed_place(config, label) as place:
            return _run(open_session(plan_session(config, env=env), place, listener), listener)
    with resumed(resume, config) as point:
        done = finished(point)
        if done is None:
            plan = plan_session(point.run.config, env=env)
            return _run(open_session(plan, point.run.path, listener, point), listener)
        listener.on_end(done)
        return done


def finished(point: ResumePoint) -> TrainResult | None:
    """The result of a run that has nothing left to do, steps and evaluations."""
    run, config = point.run, point.run.config
    name = "after" if point.step else "before"
    names = [name, *(f"{name}-{other}" for other in config.eval.also)] if config.eval.episodes else []
    if point.step < config.steps or None in [stored_report(run, each, point.step) for each in names]:
        return None
    before, after = stored_report(run, "before", 0), stored_report(run, name, point.step)
    return TrainResult(run.path, point.step, config.steps, DONE, before, after, ())


def _run(session: Session, listener: Listener) -> TrainResult:
    with Interrupt(listener.on_message) as interrupt:
        try:
            result = _steps(session, listener, interrupt)
        finally:
            session.run.close()
    listener.on_end(result)
    return result


def _steps(session: Session, listener: Listener, interrupt: Interrupt) -> TrainResult:
    config, run, done = session.config, session.run, session.start
    before = evaluate_all(session, "before", 0, listener, interrupt) if done == 0 else stored_report(run, "before", 0)
    if _evaluation_due(config, done):
        evaluate_all(session, f"step-{done}", done, listener, interrupt)
    history: list[Mapping[str, float]] = []
    flat_in_row, reason = session.flat_in_row, DONE
    if done < config.steps:
        listener.on_phase("train", config.steps - done)
    while done < config.steps and not interrupt():
        try:
            step = train_step(session, done, interrupt)
        except StepAbandoned:
            break
        done += 1
        history.append(step.metrics)
        flat_in_row = flat_in_row + 1 if step.flat else 0
        run.append_metrics(done, step.metrics)
        listener.on_step(done, step.metrics)
        for message in step.messages:
            listener.on_message(message)
        if flat_in_row >= config.filter.max_flat_steps:
            reason = f"stopped: every group was flat {flat_in_row} steps in a row, nothing is left to learn from"
            break
        if done < config.steps and config.run.checkpoint_every and done % config.run.checkpoint_every == 0:
            session.checkpoint(done, flat_in_row)
        if _evaluation_due(config, done):
            evaluate_all(session, f"step-{done}", done, listener, interrupt)
            listener.on_phase("train", config.steps - done)
    if done not in run.checkpoints.steps():
        session.checkpoint(done, flat_in_row)
    after = evaluate_all(session, "after", done, listener, interrupt) if config.steps else before
    reason = INTERRUPTED if interrupt() else reason
    return TrainResult(run.path, done, config.steps, reason, before, after, tuple(history))


def _evaluation_due(config: Config, done: int) -> bool:
    return config.eval.every > 0 and 0 < done < config.steps and done % config.eval.every == 0


def train_step(s: Session, step: int, interrupt: Interrupt) -> StepResult:
    """One iteration."""
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
    return StepResult(metrics, not kept, tuple(worth_a_line(collection, metrics, flat=not kept)))


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
