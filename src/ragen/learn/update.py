"""The update: k passes over a collected batch, in mini-batches of E trajectories (arXiv 2504.20073, StarPO).

π_old is the learner itself before the first optimiser step. The first mini-batch takes it from its own forward pass, the
others from a pass before it with the same micro-batches, so every ratio is exactly 1 until the first step. All segments of
a trajectory share a mini-batch, and token weights are those of the mini-batch, so the split into micro-batches does not
matter.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ragen.algos.credit import Credit
from ragen.algos.kl import kl_estimate
from ragen.algos.losses import explained_variance, losses, value_loss
from ragen.algos.reduce import Aggregation, token_weights
from ragen.learn.batch import Batch
from ragen.learn.optimizer import Optimizer
from ragen.learn.packing import MicroBatch
from ragen.learn.policy import Policy
from ragen.learn.stats import UpdateStats
from ragen.seeding import derive, generator


@dataclass(frozen=True, slots=True)
class LossSettings:
    """loss = policy loss − entropy_coef · H + kl_coef · KL + value_coef · value loss.

    Policy loss, entropy and KL use the token weights of ``aggregation``; the value loss is a mean over tokens.
    ``name`` is the policy loss, ``own`` its settings. ``value_coef`` is for the value head; a separate critic has parameters
    and a learning rate of its own and takes 1.
    """

    name: str = "ppo_clip"
    own: Mapping[str, Any] = field(default_factory=lambda: {"clip_low": 0.2, "clip_high": 0.2})
    aggregation: Aggregation = "trajectory-mean"
    length_constant: float = 256.0
    entropy_coef: float = 0.0
    kl_coef: float = 0.0
    kl_estimator: Literal["k2", "k3"] = "k3"
    value_coef: float = 0.5
    value_clip: float | None = 0.2


@dataclass(frozen=True, slots=True)
class _Window:
    """One mini-batch: its micro-batches and the weights (R, T) of its tokens, 0 elsewhere."""

    micros: list[MicroBatch]
    weights: Tensor
    value_weights: Tensor


@dataclass(frozen=True, slots=True)
class _Tables:
    """(R, T) numbers the loss reads; ``old_*`` are the learner's before its first step, filled in before they are read."""

    advantages: Tensor
    targets: Tensor | None
    reference: Tensor | None
    old_logprobs: Tensor
    old_values: Tensor


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
    critic_only: bool = False,
) -> UpdateStats:
    """Run ``online_k`` passes of ⌈M / E⌉ optimiser steps over the batch's M trajectories, E = ``trajectories``.

    Each pass shuffles the trajectories by a seed derived from ``seed``; the last, partial mini-batch counts too.
    ``microbatch_tokens`` bounds the processed tokens of a forward pass and changes results by rounding only. ``credit`` has
    value targets for a policy with a critic; ``trajectory_weights`` (M,) multiply the loss of each trajectory (soft filter);
    ``reference`` (R, T) are the reference's log-probabilities, for ``loss.kl_coef`` > 0. With ``critic_only`` the policy
    gets no gradient and stays as it is: the warm-up of a critic (VAPO, arXiv 2504.05118).

    Raises:
        ValueError: a KL term without reference, or a critic without value targets.
        TrainingError: non-finite numbers three steps in a row.
    """
    tables = _tables(policy, batch, credit, loss, reference)
    sums: dict[str, list[float]] = defaultdict(list)
    non_finite = 0
    with policy.training_mode():
        for number in range(online_k):
            order = derive(seed, "train", "order", number)
            windows = _windows(policy, batch, loss, trajectories, microbatch_tokens, order, trajectory_weights)
            if number == 0:
                _remember(policy, windows[1:], tables)
            for index, window in enumerate(windows):
                untouched = number == index == 0
                terms = _accumulate(policy, window, tables, loss, untouched=untouched, critic_only=critic_only)
                step = optimizer.step({"loss": terms["loss"]})
                non_finite += step.skipped
                if not step.skipped:
                    sums["grad_norm"].append(step.grad_norm)
                    for name, value in terms.items():
                        sums[name].append(float(value))
    return _stats(batch, tables, sums, optimizer, non_finite)


def policy_gradient_norm(
    policy: Policy, batch: Batch, credit: Credit, rows: Tensor, *, loss: LossSettings, microbatch_tokens: int
) -> float:
    """‖∇ policy loss‖₂ over the actor's parameters, of the ``rows`` (R,) bool of the batch as one mini-batch, at ρ = 1.

    Without entropy, KL and value terms: what the advantages alone ask for. 0.0 where no row has a sampled token. Parameters
    and optimiser are left as they are; no gradient stays.
    """
    micros = policy.plan(batch, rows.nonzero().flatten().tolist(), microbatch_tokens)
    if not micros:
        return 0.0
    mask = batch.mask & rows[:, None]
    weights = token_weights(mask, batch.trajectory, loss.aggregation, constant=loss.length_constant)
    empty = torch.zeros(batch.ids.shape, dtype=torch.float32)
    tables = _Tables(credit.advantages, None, None, empty, empty)
    parameters = policy.actor_parameters().values()
    with policy.training_mode():
        window = _Window(micros, weights, weights)
        _accumulate(policy, window, tables, replace(loss, entropy_coef=0.0), untouched=True, critic_only=False)
    norm = float(torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]))
    for parameter in parameters:
        parameter.grad = None
    return norm


def _tables(policy: Policy, batch: Batch, credit: Credit, loss: LossSettings, reference: Tensor | None) -> _Tables:
    if loss.kl_coef > 0 and reference is None:
        raise ValueError("loss.kl_coef is above 0: give the reference's log-probabilities (Reference.logprobs)")
    if policy.kind != "none" and credit.value_targets is None:
        raise ValueError("the policy has a critic but the credit has no value targets: use an estimator with values (gae)")
    targets = credit.value_targets if policy.kind != "none" else None
    reference = reference if loss.kl_coef > 0 else None
    empty = torch.zeros(batch.ids.shape, dtype=torch.float32)
    return _Tables(credit.advantages, targets, reference, empty, empty.clone())


def _windows(
    policy: Policy, batch: Batch, loss: LossSettings, size: int, budget: int, seed: int, factors: Tensor | None
) -> list[_Window]:
    """Mini-batches of ``size`` shuffled trajectories; one without a sampled token is left out."""
    order = generator(seed).permutation(batch.trajectories)
    trajectory = batch.trajectory.numpy()
    windows = []
    for start in range(0, len(order), size):
        inside = torch.from_numpy(np.isin(trajectory, order[start : start + size]))
        mask = batch.mask & inside[:, None]
        micros = policy.plan(batch, inside.nonzero().flatten().tolist(), budget)
        if micros:
            each = None if factors is None else factors[batch.trajectory]
            weights = token_weights(
                mask, batch.trajectory, loss.aggregation, constant=loss.length_constant, trajectory_weights=each
            )
            windows.append(_Window(micros, weights, token_weights(mask, batch.trajectory, "token-mean")))
    return windows


@torch.no_grad()
def _remember(policy: Policy, windows: list[_Window], tables: _Tables) -> None:
    """Fill in the old log-probabilities and values of these mini-batches."""
    for micro in (micro for window in windows for micro in window.micros):
        outputs = policy.token_outputs(micro)
        place = micro.rows, micro.columns
        tables.old_logprobs[place] = outputs.logprobs.cpu()
        if tables.targets is not None:
            tables.old_values[place] = policy.token_values(micro, outputs).cpu()


def _accumulate(
    policy: Policy, window: _Window, tables: _Tables, loss: LossSettings, *, untouched: bool, critic_only: bool
) -> dict[str, Tensor]:
    """Leave the mini-batch's gradient on the parameters; return its summed terms."""
    total: dict[str, Tensor] = {}
    for micro in window.micros:
        terms = _terms(policy, micro, window, tables, loss, untouched=untouched, critic_only=critic_only)
        terms["loss"].backward()
        for name, value in terms.items():
            total[name] = total[name] + value.detach() if name in total else value.detach()
    mass = window.weights.sum()
    for name in ("clip_low", "clip_high"):
        total[name] = total[name] / mass if mass > 0 else total[name]
    return total


def _terms(
    policy: Policy,
    micro: MicroBatch,
    window: _Window,
    tables: _Tables,
    loss: LossSettings,
    *,
    untouched: bool,
    critic_only: bool,
) -> dict[str, Tensor]:
    """Loss terms of one micro-batch; they add up over the mini-batch. All vectors are (N,): its sampled tokens."""
    with torch.set_grad_enabled(not critic_only):  # a value head then sees hidden states that pass no gradient on
        outputs = policy.token_outputs(micro)
    values = policy.token_values(micro, outputs) if tables.targets is not None else None
    place = micro.rows, micro.columns
    if untouched:
        tables.old_logprobs[place] = outputs.logprobs.detach().cpu()
        if values is not None:
            tables.old_values[place] = values.detach().cpu()

    def at(table: Tensor) -> Tensor:
        return table[place].to(policy.device)

    weights, mean = at(window.weights), at(window.value_weights)
    arrays = {
        "logprobs": outputs.logprobs,
        "old_logprobs": at(tables.old_logprobs),
        "advantages": at(tables.advantages),
        "weights": weights,
    }
    policy_terms = losses.get(loss.name)(arrays, loss.own)
    terms = {"policy_loss": policy_terms.loss, "clip_low": policy_terms.clipped_low, "clip_high": policy_terms.clipped_high}
    total = policy_terms.loss
    terms["entropy"] = (mean * outputs.entropies.detach()).sum()
    if loss.entropy_coef > 0:
        total = total - loss.entropy_coef * (weights * outputs.entropies).sum()
    if tables.reference is not None:
        divergence = kl_estimate(outputs.logprobs, at(tables.reference), loss.kl_estimator)
        terms["kl"] = (mean * divergence.detach()).sum()
        total = total + loss.kl_coef * (weights * divergence).sum()
    if values is not None and tables.targets is not None:
        terms["value_loss"] = value_loss(values, at(tables.old_values), at(tables.targets), mean, clip=loss.value_clip)
        total = total + (1.0 if policy.kind == "separate" else loss.value_coef) * terms["value_loss"]
    return terms | {"loss": total}


def _stats(
    batch: Batch, tables: _Tables, sums: Mapping[str, list[float]], optimizer: Optimizer, non_finite: int
) -> UpdateStats:
    means = {name: float(np.mean(values)) for name, values in sums.items()}
    mismatch = (tables.old_logprobs - batch.behaviour_logprobs)[batch.mask].abs()
    explained = None if tables.targets is None else float(explained_variance(tables.old_values, tables.targets, batch.mask))
    return UpdateStats(
        loss=means.get("loss"),
        policy_loss=means.get("policy_loss"),
        clip_low=means.get("clip_low"),
        clip_high=means.get("clip_high"),
        entropy=means.get("entropy"),
        grad_norm=means.get("grad_norm"),
        mismatch_mean=float(mismatch.mean()),
        mismatch_max=float(mismatch.max()),
        learning_rate=optimizer.learning_rate,
        optimizer_steps=len(sums["loss"]),
        non_finite=non_finite,
        value_loss=means.get("value_loss"),
        explained_variance=explained,
        kl=means.get("kl"),
    )
