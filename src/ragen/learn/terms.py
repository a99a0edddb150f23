"""The loss of a mini-batch and its gradient, micro-batch by micro-batch.

A loss of tokens alone adds up over micro-batches. One that looks at trajectories, or at pairs of them, does not: they
may be spread over several. Its derivative by each token's log-probability is then taken first, on the log-probabilities
of the whole mini-batch (a forward pass without gradients); a second pass sends Σ derivative · log π back through the
model. That is exact, by the chain rule, and keeps no more than one micro-batch's activations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ragen.algos.credit import Credit
from ragen.algos.kl import kl_estimate
from ragen.algos.losses import LossTerms, PolicyLoss, losses, truncated_ratio, value_loss
from ragen.algos.reduce import Mean, weighted_mean
from ragen.learn.batch import Batch
from ragen.learn.loss_settings import LossSettings
from ragen.learn.minibatches import MiniBatch
from ragen.learn.network import TokenOutputs
from ragen.learn.packing import MicroBatch
from ragen.learn.policy import Policy
from ragen.learn.preferences import Lesson


@dataclass(frozen=True, slots=True)
class Tables:
    """(R, T) numbers the loss reads; ``old_*`` are the learner's before its first step, filled in before they are read.

    In rows marked in ``recorded`` (R,) the ratio's base is ``behaviour`` in place of ``old_logprobs``.
    ``further`` are arrays by the names under which policy losses ask for them; ``coupled``: the policy loss does not add up
    over micro-batches.
    """

    advantages: Tensor
    targets: Tensor | None
    reference: Tensor | None
    behaviour: Tensor
    old_logprobs: Tensor
    old_values: Tensor
    recorded: Tensor
    further: Mapping[str, Tensor]
    coupled: bool


@dataclass(frozen=True, slots=True)
class Terms:
    """Sums over a mini-batch: scalars by name, and the means that a policy loss reports."""

    scalars: dict[str, Tensor] = field(default_factory=dict)
    means: dict[str, Mean] = field(default_factory=dict)

    def add(self, scalars: Mapping[str, Tensor], means: Mapping[str, Mean]) -> None:
        """Add those of a micro-batch."""
        for name, value in scalars.items():
            self.scalars[name] = self.scalars[name] + value.detach() if name in self.scalars else value.detach()
        for name, (total, mass) in means.items():
            before = self.means.get(name)
            self.means[name] = Mean(total, mass) if before is None else Mean(before.total + total, before.mass + mass)

    def metrics(self) -> dict[str, float]:
        """All of them as numbers; a mean over nothing is left out."""
        means = {name: float(mean.total / mean.mass) for name, mean in self.means.items() if mean.mass > 0}
        return {name: float(value) for name, value in self.scalars.items()} | means


def make_tables(
    policy: Policy,
    batch: Batch,
    credit: Credit,
    loss: LossSettings,
    reference: Tensor | None,
    learned: Lesson,
    *,
    with_values: bool = True,
    recorded: Tensor | None = None,
) -> Tables:
    """The tables of an update, for a critic's value loss too unless ``with_values`` is False; no row is ``recorded`` by
    default.

    Raises ValueError where the loss lacks something it needs.
    """
    rule = losses.get(loss.name)
    if loss.kl_coef > 0 and reference is None:
        raise ValueError("loss.kl_coef is above 0: give the reference's log-probabilities (Reference.logprobs)")
    with_values = with_values and policy.kind != "none"
    if with_values and credit.value_targets is None:
        raise ValueError("the policy has a critic but the credit has no value targets: use an estimator with values (gae)")
    targets = credit.value_targets if with_values else None
    empty = torch.zeros(batch.ids.shape, dtype=torch.float32)
    return Tables(
        credit.advantages,
        targets,
        reference,
        batch.behaviour_logprobs,
        empty,
        empty.clone(),
        torch.zeros(len(batch.ids), dtype=torch.bool) if recorded is None else recorded,
        learned.tables,
        coupled=_coupled(rule, batch, loss),
    )


def _coupled(rule: PolicyLoss, batch: Batch, loss: LossSettings) -> bool:
    """Whether the loss looks at tokens of several rows at once: pairs or labelled trajectories, or units in several rows."""
    split = loss.ratio_unit == "trajectory" and len(batch.lengths) > len(batch.trajectory.unique())
    return bool({"trajectories", "turns"} & set(rule.needs)) or ("units" in rule.needs and split)


@torch.no_grad()
def remember(policy: Policy, minis: Sequence[MiniBatch], tables: Tables) -> None:
    """Fill in the old log-probabilities and values of these mini-batches."""
    for micro in (micro for mini in minis for micro in mini.micros):
        outputs = policy.token_outputs(micro)
        _keep(tables, micro, outputs.logprobs, _values(policy, micro, tables, outputs))


def accumulate(
    policy: Policy,
    mini: MiniBatch,
    tables: Tables,
    loss: LossSettings,
    *,
    untouched: bool,
    critic_only: bool = False,
    share: float = 1.0,
) -> Terms:
    """Leave ``share`` times the mini-batch's gradient on the parameters; return its summed terms.

    ``untouched``: no step was taken yet, so what this pass computes are the old log-probabilities and values as well.
    ``critic_only``: the policy gets no gradient.
    """
    total = Terms()
    derivatives: list[Tensor] = []
    if tables.coupled:
        whole, derivatives = _whole(policy, mini, tables, loss, untouched=untouched)
        total.add({"policy_loss": whole.loss, "loss": whole.loss}, whole.means)
    for number, micro in enumerate(mini.micros):
        with torch.set_grad_enabled(not critic_only):  # a value head then sees hidden states that pass no gradient on
            outputs = policy.token_outputs(micro)
        values = _values(policy, micro, tables, outputs)
        if untouched:
            _keep(tables, micro, outputs.logprobs, values)
        further, scalars = _further(policy, micro, mini, tables, loss, outputs, values)
        if tables.coupled:
            (share * ((derivatives[number] * outputs.logprobs).sum() + further)).backward()
            total.add({"loss": further} | scalars, {})
        else:
            own = _policy_terms(policy, mini.micros[number : number + 1], mini, tables, loss, outputs.logprobs)
            (share * (own.loss + further)).backward()
            total.add({"policy_loss": own.loss, "loss": own.loss + further} | scalars, own.means)
    return total


def _whole(
    policy: Policy, mini: MiniBatch, tables: Tables, loss: LossSettings, *, untouched: bool
) -> tuple[LossTerms, list[Tensor]]:
    """The policy loss of the mini-batch, and its derivative by each micro-batch's log-probabilities."""
    with torch.no_grad():
        parts = [policy.token_outputs(micro).logprobs for micro in mini.micros]
    if untouched:
        for micro, part in zip(mini.micros, parts, strict=True):
            _keep(tables, micro, part, None)
    logprobs = torch.cat(parts).requires_grad_()
    terms = _policy_terms(policy, mini.micros, mini, tables, loss, logprobs)
    (derivative,) = torch.autograd.grad(terms.loss, logprobs)
    return terms, list(derivative.split([len(part) for part in parts]))


def _policy_terms(
    policy: Policy, micros: Sequence[MicroBatch], mini: MiniBatch, tables: Tables, loss: LossSettings, logprobs: Tensor
) -> LossTerms:
    """The policy loss over the sampled tokens of these micro-batches, in their order; ``logprobs`` (N,)."""
    place = torch.cat([micro.rows for micro in micros]), torch.cat([micro.columns for micro in micros])
    rule = losses.get(loss.name)
    weights = mini.weights[place]
    old = torch.where(tables.recorded[place[0]], tables.behaviour[place], tables.old_logprobs[place])
    means = {}
    if loss.tis_cap is not None:
        used = weights != 0
        factor = truncated_ratio(old, tables.behaviour[place], used, loss.tis_cap)
        means = {
            "tis_factor": weighted_mean(factor, used.float()),
            "tis_capped": weighted_mean(factor == loss.tis_cap, used.float()),
        }
        weights = weights * factor
    named = {
        "advantages": tables.advantages,
        **({} if tables.reference is None else {"reference_logprobs": tables.reference}),
        **tables.further,
    }
    arrays = {name: table[place].to(policy.device) for name, table in named.items() if name in rule.needs}
    arrays |= {name: value.to(policy.device) for name, value in {**mini.shared, "old_logprobs": old}.items()}
    terms = rule(arrays | {"logprobs": logprobs, "weights": weights.to(policy.device)}, loss.own)
    return LossTerms(terms.loss, {**terms.means, **means})


def _further(
    policy: Policy,
    micro: MicroBatch,
    mini: MiniBatch,
    tables: Tables,
    loss: LossSettings,
    outputs: TokenOutputs,
    values: Tensor | None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """What is added to the policy loss of a micro-batch, and its terms; they add up over the mini-batch."""

    def at(table: Tensor) -> Tensor:
        return table[micro.rows, micro.columns].to(policy.device)

    weights, mean = at(mini.weights), at(mini.value_weights)
    total = torch.zeros((), device=policy.device)
    terms = {"entropy": (mean * outputs.entropies.detach()).sum()}
    if loss.entropy_coef > 0:
        total = total - loss.entropy_coef * (weights * outputs.entropies).sum()
    if loss.kl_coef > 0 and tables.reference is not None:
        divergence = kl_estimate(outputs.logprobs, at(tables.reference), loss.kl_estimator)
        terms["kl"] = (mean * divergence.detach()).sum()
        total = total + loss.kl_coef * (weights * divergence).sum()
    if values is not None and tables.targets is not None:
        terms["value_loss"] = value_loss(values, at(tables.old_values), at(tables.targets), mean, clip=loss.value_clip)
        total = total + (1.0 if policy.kind == "separate" else loss.value_coef) * terms["value_loss"]
    return total, terms


def _values(policy: Policy, micro: MicroBatch, tables: Tables, outputs: TokenOutputs) -> Tensor | None:
    return policy.token_values(micro, outputs) if tables.targets is not None else None


def _keep(tables: Tables, micro: MicroBatch, logprobs: Tensor, values: Tensor | None) -> None:
    place = micro.rows, micro.columns
    tables.old_logprobs[place] = logprobs.detach().cpu()
    if values is not None:
        tables.old_values[place] = values.detach().cpu()
