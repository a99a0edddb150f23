"""The update: k passes over a collected batch, in mini-batches of E trajectories (arXiv 2504.20073, StarPO).

π_old is the learner itself before the first optimiser step; in rows of older policies (replay) it is the recorded behaviour
policy. The first mini-batch takes it from its own forward pass, the
others from a pass before it with the same micro-batches, so every ratio is exactly 1 until the first step. All segments of
a trajectory share a mini-batch, and token weights are those of the mini-batch, so the split into micro-batches does not
matter.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ragen.algos.credit import Credit
from ragen.algos.importance import ratio_summary
from ragen.algos.losses import explained_variance, losses
from ragen.learn.batch import Batch
from ragen.learn.imitation import Imitation
from ragen.learn.loss_settings import LossSettings
from ragen.learn.minibatches import minibatches
from ragen.learn.optimizer import Optimizer
from ragen.learn.policy import Policy
from ragen.learn.preferences import Lesson, lesson
from ragen.learn.stats import UpdateStats
from ragen.learn.terms import Tables, Terms, accumulate, make_tables, remember
from ragen.seeding import derive


def update(
    policy: Policy,
    optimizer: Optimizer,
    batch: Batch,
    credit: Credit,
    *,
    loss: LossSettings,
    trajectories: int,
    microbatch_tokens: int,
    seed: int,
    online_k: int = 1,
    trajectory_weights: Tensor | None = None,
    reference: Tensor | None = None,
    imitation: Imitation | None = None,
    recorded: Tensor | None = None,
    critic_only: bool = False,
) -> UpdateStats:
    """Run ``online_k`` passes of ⌈M / E⌉ optimiser steps over the batch's M trajectories, E = ``trajectories``.

    Each pass shuffles the trajectories by a seed derived from ``seed``; the last, partial mini-batch counts too.
    ``microbatch_tokens`` bounds the processed tokens of a forward pass and changes results by rounding only. ``credit`` has
    value targets for a policy with a critic; ``trajectory_weights`` (M,) multiply the loss of each trajectory (soft filter);
    ``reference`` (R, T) are the reference's log-probabilities, for ``loss.kl_coef`` > 0 and losses that need them; each pass
    goes over ``imitation`` once; ``recorded`` (R,) bool marks rows of older policies, whose π_old is the behaviour policy as
    recorded; ``critic_only`` leaves the policy as it is (VAPO's critic warm-up, arXiv 2504.05118).

    Raises:
        ValueError: a KL term or a loss without the reference it needs, or a critic without value targets.
        TrainingError: non-finite numbers three steps in a row.
    """
    learned = lesson(batch, losses.get(loss.name), loss.preferences, ratio_unit=loss.ratio_unit)
    tables = make_tables(policy, batch, credit, loss, reference, learned, recorded=recorded)
    sums: dict[str, list[float]] = defaultdict(list)
    non_finite = 0
    with policy.training_mode():
        for number in range(online_k):
            order = derive(seed, "train", "order", number)
            minis = minibatches(policy, batch, learned, loss, trajectories, microbatch_tokens, order, trajectory_weights)
            if number == 0:
                remember(policy, minis[1:], tables)
            for index, mini in enumerate(minis):
                share = 1.0 if imitation is None else 1.0 - imitation.coef
                untouched = number == index == 0
                terms = accumulate(policy, mini, tables, loss, untouched=untouched, critic_only=critic_only, share=share)
                if imitation is not None:
                    _imitate(policy, imitation, imitation.part(index, len(minis)), microbatch_tokens, terms)
                non_finite += not _step(optimizer, terms, sums, with_norm=not critic_only)
    return _stats(batch, tables, learned, sums, optimizer, non_finite, imitation)


def _step(optimizer: Optimizer, terms: Terms, sums: Mapping[str, list[float]], *, with_norm: bool) -> bool:
    """Take the step and note its numbers, the policy's gradient norm where it has one; False where it was left out."""
    step = optimizer.step({"loss": terms.scalars["loss"]})
    if not step.skipped:
        norm = {"grad_norm": step.grad_norm} if with_norm else {}
        for name, value in (norm | terms.metrics()).items():
            sums[name].append(value)
    return not step.skipped


def _imitate(policy: Policy, imitation: Imitation, rows: list[int], budget: int, terms: Terms) -> None:
    """Add the demonstrations' gradient and terms to those of a mini-batch, of which 1 − μ counts."""
    loss = imitation.accumulate(policy, rows, budget)
    terms.add({"sft_loss": loss, "loss": imitation.coef * (loss - terms.scalars["loss"])}, {})


def policy_gradient_norm(
    policy: Policy, batch: Batch, credit: Credit, rows: Tensor, *, loss: LossSettings, microbatch_tokens: int
) -> float:
    """‖∇ policy loss‖₂ over the actor's parameters, of the ``rows`` (R,) bool of the batch as one mini-batch, at ρ = 1.

    Without entropy, KL and value terms: what the advantages alone ask for. 0.0 where no row has a sampled token. Parameters
    and optimiser are left as they are; no gradient stays. For losses with advantages.
    """
    bare = replace(loss, entropy_coef=0.0, kl_coef=0.0)
    everything = lesson(batch, losses.get(loss.name), loss.preferences, ratio_unit=loss.ratio_unit)
    chosen = replace(everything, trained=everything.trained & rows[:, None])
    minis = minibatches(policy, batch, chosen, bare, batch.trajectories, microbatch_tokens, 0)
    if not minis:
        return 0.0
    tables = make_tables(policy, batch, credit, bare, None, chosen, with_values=False)
    parameters = policy.actor_parameters().values()
    with policy.training_mode():
        accumulate(policy, minis[0], tables, bare, untouched=True)
    norm = float(torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]))
    for parameter in parameters:
        parameter.grad = None
    return norm


def _stats(
    batch: Batch,
    tables: Tables,
    learned: Lesson,
    sums: Mapping[str, list[float]],
    optimizer: Optimizer,
    non_finite: int,
    imitation: Imitation | None,
) -> UpdateStats:
    means = {name: float(np.mean(values)) for name, values in sums.items()}
    moved, recorded = tables.old_logprobs - batch.behaviour_logprobs, tables.recorded[:, None]
    mismatch = moved[learned.trained & ~recorded].abs()
    replay = ratio_summary(moved[learned.trained & recorded])
    explained = None if tables.targets is None else float(explained_variance(tables.old_values, tables.targets, batch.mask))
    own = ("loss", "policy_loss", "entropy", "grad_norm", "value_loss", "kl", "sft_loss")
    return UpdateStats(
        **{name: means.get(name) for name in own},
        mismatch_mean=float(mismatch.mean()) if mismatch.numel() else None,
        mismatch_max=float(mismatch.max()) if mismatch.numel() else None,
        learning_rate=optimizer.learning_rate,
        optimizer_steps=len(sums["loss"]),
        non_finite=non_finite,
        explained_variance=explained,
        replay_ratio_mean=replay.get("mean"),
        replay_ratio_max=replay.get("max"),
        replay_ess=replay.get("ess"),
        sft_coef=None if imitation is None else imitation.coef,
        sft_rows=None if imitation is None else len(imitation.batch.lengths),
        rule={name: value for name, value in means.items() if name not in own},
    )
