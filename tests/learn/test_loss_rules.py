"""Every policy loss inside the update: coupled over micro-batches, with pairs, labels and importance weights."""

import dataclasses
import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from ragen.algos.credit import Credit
from ragen.algos.losses import losses
from ragen.episode import Completion, EndReason, Group, StopReason, Trajectory, Turn
from ragen.learn.batch import Batch, collate
from ragen.learn.imitation import Imitation
from ragen.learn.loss_settings import LossSettings
from ragen.learn.minibatches import MiniBatch, minibatches
from ragen.learn.optimizer import Optimizer
from ragen.learn.policy import Policy
from ragen.learn.preferences import Lesson, Preferences, lesson
from ragen.learn.stats import UpdateStats
from ragen.learn.terms import accumulate, make_tables
from ragen.learn.update import update
from ragen.metrics import METRICS

OWN = {"clip_low": 0.2, "clip_high": 0.28, "beta": 0.3}
COMPARING = ["dpo", "step_dpo", "kto", "sft"]


def settings(name: str, **more: Any) -> LossSettings:
    return LossSettings(name=name, own=OWN, **more)


def advantages_of(batch: Batch) -> Tensor:
    """One advantage a trajectory."""
    values = torch.randn(batch.trajectories, generator=torch.Generator().manual_seed(1))
    return torch.where(batch.mask, values[batch.trajectory][:, None], 0)


def reference_of(batch: Batch, make_model: Any) -> Tensor:
    return Policy(make_model(seed=3), dtype=torch.float32, pad_id=0).logprobs(batch, 1000)


def new_policy(make_model: Any) -> Policy:
    return Policy(make_model(), dtype=torch.float32, pad_id=0)


def run(policy: Policy, batch: Batch, loss: LossSettings, reference: Tensor | None = None, **more: Any) -> UpdateStats:
    given = {"trajectories": 100, "microbatch_tokens": 200, "seed": 0, "lr": 1e-3} | more
    optimizer = Optimizer(policy, learning_rate=given.pop("lr"))
    return update(policy, optimizer, batch, Credit(advantages_of(batch)), loss=loss, reference=reference, **given)


def gradients(
    policy: Policy, batch: Batch, loss: LossSettings, old: Tensor, budget: int, **forced: Any
) -> dict[str, Tensor]:
    """The parameters' gradients of one mini-batch of everything, against given old log-probabilities."""
    learned = lesson(batch, losses.get(loss.name), loss.preferences, ratio_unit=loss.ratio_unit)
    tables = make_tables(policy, batch, Credit(advantages_of(batch)), loss, old, learned)
    tables.old_logprobs.copy_(old)
    tables = dataclasses.replace(tables, **forced)
    (mini,) = all_in_one(policy, batch, learned, budget)
    with policy.training_mode():
        accumulate(policy, mini, tables, loss, untouched=False)
    found = {name: p.grad.clone() for name, p in policy.actor_parameters().items() if p.grad is not None}
    policy.model.zero_grad()
    return found


def all_in_one(policy: Policy, batch: Batch, learned: Lesson, budget: int, size: int = 100) -> list[MiniBatch]:
    return minibatches(policy, batch, learned, LossSettings(), size, budget, 0)


@pytest.mark.parametrize("name", ["ppo_clip", "pg", "cispo", "gspo", "gmpo"])
def test_two_passes_give_the_gradient_of_one(name: str, make_model: Any, make_groups: Any) -> None:
    """Each trajectory is one row here, so both ways can be taken; the old policy is another one, so ratios differ from 1."""
    batch = collate(make_groups(), pad_id=0)
    old = reference_of(batch, make_model)
    policy = new_policy(make_model)
    loss = settings(name, entropy_coef=0.01, kl_coef=0.1)
    one, two = (gradients(policy, batch, loss, old, 40, coupled=coupled) for coupled in (False, True))
    assert len(one) > 5
    for key, value in one.items():
        torch.testing.assert_close(two[key], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("unit", ["trajectory", "turn"])
@pytest.mark.parametrize("name", ["gspo", "gmpo", *COMPARING])
def test_b16_rows_of_a_trajectory_in_several_micro_batches_change_nothing(
    name: str, unit: Any, make_model: Any, make_groups: Any
) -> None:
    batch = collate(make_groups(new_rows=True, turns=3), pad_id=0)
    old = reference_of(batch, make_model)
    policy = new_policy(make_model)
    loss = settings(name, ratio_unit=unit)
    whole, split = (gradients(policy, batch, loss, old, budget) for budget in (10_000, 1))
    assert any(float(value.abs().max()) > 1e-4 for value in whole.values())
    for key, value in whole.items():
        torch.testing.assert_close(split[key], value, rtol=1e-3, atol=1e-6)


def test_a_trajectory_of_several_rows_has_one_ratio_and_turns_have_their_own(make_model: Any, make_groups: Any) -> None:
    """Against the sums taken directly from the log-probabilities."""
    batch = collate(make_groups(groups=1, members=2, new_rows=True), pad_id=0)
    old = reference_of(batch, make_model)
    policy = new_policy(make_model)
    difference = (policy.logprobs(batch, 1000) - old).double()
    advantages = advantages_of(batch)
    for unit, keys in (("trajectory", batch.trajectory), ("turn", torch.arange(len(batch.lengths)))):
        expected = 0.0
        for key in keys.unique():
            rows = keys == key
            inside = batch.mask & rows[:, None]
            sampled = (batch.mask & (batch.trajectory == batch.trajectory[rows][0])[:, None]).sum()
            mean = difference[inside].mean().exp()
            expected -= float(mean * advantages[inside][0] * inside.sum() / sampled / 2)
        loss = LossSettings(name="gspo", own={"clip_low": 0.999, "clip_high": 1e9}, ratio_unit=unit)  # type: ignore[arg-type]
        learned = lesson(batch, losses.get("gspo"), loss.preferences, ratio_unit=unit)
        tables = make_tables(policy, batch, Credit(advantages), loss, None, learned)
        assert tables.coupled == (unit == "trajectory")
        tables.old_logprobs.copy_(old)
        (mini,) = all_in_one(policy, batch, learned, 1)
        got = float(accumulate(policy, mini, tables, loss, untouched=False).scalars["policy_loss"])
        assert got == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", sorted(losses))
def test_every_registered_loss_trains_and_defines_its_metrics(name: str, make_model: Any, make_groups: Any) -> None:
    batch = collate(make_groups(new_rows=True), pad_id=0)
    policy = new_policy(make_model)
    stats = run(policy, batch, settings(name), reference_of(batch, make_model), trajectories=3, online_k=2)
    assert stats.optimizer_steps >= 2
    assert set(stats.metrics()) <= set(METRICS)
    assert stats.grad_norm is not None
    assert stats.grad_norm > 0


@pytest.mark.parametrize("name", ["dpo", "step_dpo", "kto"])
def test_a_preference_loss_ranks_as_the_returns_do_after_some_steps(name: str, make_model: Any, make_groups: Any) -> None:
    batch = collate(make_groups(groups=3, members=4, seed=2), pad_id=0)
    policy = new_policy(make_model)
    reference = policy.logprobs(batch, 1000)
    found = [run(policy, batch, settings(name), reference).rule for _ in range(8)]
    assert found[0]["preference_margin"] == pytest.approx(0, abs=1e-5)
    assert found[-1]["preference_margin"] > 0.1
    assert found[-1]["preference_accuracy"] == 1.0


def test_sft_makes_the_good_trajectories_likelier_and_looks_at_no_other(make_model: Any, make_groups: Any) -> None:
    batch = collate(make_groups(seed=2), pad_id=0)
    returns = [float(batch.rewards[batch.trajectory == m].sum()) for m in range(batch.trajectories)]
    loss = settings("sft", preferences=Preferences(threshold=sorted(returns)[-2] - 1e-3))
    good = torch.tensor([r >= sorted(returns)[-2] for r in returns])
    policy = new_policy(make_model)
    before = policy.logprobs(batch, 1000)
    stats = run(policy, batch, loss)
    tokens = batch.mask & good[batch.trajectory][:, None]
    expected = [-before[tokens & (batch.trajectory == m)[:, None]].mean() for m in good.nonzero().flatten()]
    assert stats.policy_loss == pytest.approx(float(torch.stack(expected).mean()), rel=1e-4)
    assert float((policy.logprobs(batch, 1000) - before)[tokens].mean()) > 0.01
    broken = dataclasses.replace(batch, behaviour_logprobs=torch.where(tokens, batch.behaviour_logprobs, float("nan")))
    assert run(new_policy(make_model), broken, loss).loss == pytest.approx(stats.loss)


def test_a_batch_without_anything_to_learn_from_takes_no_step(make_model: Any, make_groups: Any) -> None:
    batch = collate(make_groups(), pad_id=0)
    flat = dataclasses.replace(batch, rewards=torch.zeros_like(batch.rewards))
    for name in COMPARING:
        stats = run(new_policy(make_model), flat, settings(name), torch.zeros(batch.ids.shape))
        assert (stats.optimizer_steps, stats.skipped) == (0, 1)
        assert stats.metrics()["update/optimizer_steps"] == 0


@pytest.mark.parametrize("name", ["dpo", "kto", "sft", "step_dpo"])
def test_returns_that_cancel_to_nothing_but_rounding_teach_nothing(name: str) -> None:
    """0.5 − 0.5 and (0.9 − 0.3) − 0.3 − 0.3, all tenths: the second is −1.1e-16, far above a share of |R| itself."""

    def member(m: int, *rewards: float) -> Trajectory:
        replies = [Completion((9 + m, 5 + k), (-1.0,) * 2, (1.0,) * 2, "", StopReason.END) for k in range(len(rewards))]
        turns = [
            Turn((1, 2), k > 0, reply, "", (), True, r) for k, (reply, r) in enumerate(zip(replies, rewards, strict=True))
        ]
        return Trajectory("t", 0, m, tuple(turns), EndReason.BUDGET, success=False)

    third = -0.1 - 0.1 - 0.1
    noisy = [member(0, 0.5, -0.5), member(1, 0.9 + third, third, third)]
    assert len({t.total_return for t in noisy}) == 2
    for extra, teaches in (([], False), ([member(2, 0.1)], True)):
        batch = collate([Group(0, (*noisy, *extra))], pad_id=0)
        learned = lesson(batch, losses.get(name), Preferences(), ratio_unit="trajectory")
        assert bool(learned.trained.any()) is teaches


@pytest.mark.parametrize("name", ["dpo", "step_dpo"])
def test_mini_batches_of_a_paired_loss_hold_whole_groups_and_every_pair_once(
    name: str, make_model: Any, make_groups: Any
) -> None:
    batch = collate(make_groups(groups=5, members=3), pad_id=0)
    learned = lesson(batch, losses.get(name), Preferences(pairing="all"), ratio_unit="trajectory")
    minis = all_in_one(new_policy(make_model), batch, learned, 1000, size=7)
    key = "trajectory_pairs" if name == "dpo" else "turn_pairs"
    seen = list(itertools.chain.from_iterable(mini.shared[key].tolist() for mini in minis))
    assert sorted(seen) == sorted(learned.shared[key].tolist())
    for mini in minis:
        assert len(batch.group[(mini.weights > 0).any(1)].unique()) <= 2


def test_tis_weighs_tokens_by_learner_against_sampler(make_model: Any, make_groups: Any) -> None:
    batch = collate(make_groups(), pad_id=0)
    own = new_policy(make_model).logprobs(batch, 1000)
    plain = run(new_policy(make_model), dataclasses.replace(batch, behaviour_logprobs=own), LossSettings())
    for shift, cap, factor, capped in ((0.0, 2.0, 1.0, 0.0), (-0.5, 2.0, 1.6487, 0.0), (-3.0, 2.0, 2.0, 1.0)):
        shifted = dataclasses.replace(batch, behaviour_logprobs=torch.where(batch.mask, own + shift, 0))
        for name in ("ppo_clip", "gspo", "pg"):
            stats = run(new_policy(make_model), shifted, settings(name, tis_cap=cap))
            assert stats.rule["tis_factor"] == pytest.approx(factor, rel=1e-3)
            assert stats.rule["tis_capped"] == pytest.approx(capped, abs=1e-6)
            if name == "ppo_clip":
                assert stats.policy_loss == pytest.approx(factor * (plain.policy_loss or 0), rel=1e-3)
                assert stats.grad_norm == pytest.approx(factor * (plain.grad_norm or 0), rel=1e-3)
    assert "tis_factor" not in plain.rule


def test_a_loss_that_compares_with_a_reference_names_it_when_it_is_missing(make_model: Any, make_groups: Any) -> None:
    with pytest.raises(ValueError, match="dpo needs reference_logprobs"):
        run(new_policy(make_model), collate(make_groups(), pad_id=0), settings("dpo"))


def demonstrations(make_groups: Any) -> Batch:
    return collate(make_groups(groups=1, members=5, seed=9), pad_id=0)


@pytest.mark.parametrize("weighting", ["uniform", "phi"])
def test_the_mixture_is_one_minus_mu_of_rl_and_mu_of_the_supervised_gradient(
    weighting: Any, make_model: Any, make_groups: Any
) -> None:
    """Plain gradient steps are linear: with SGD the moves of RL and of imitation alone add up to that of the mixture."""
    batch, shown = collate(make_groups(), pad_id=0), demonstrations(make_groups)

    def moved(coef: float | None, budget: int = 1000) -> tuple[dict[str, Tensor], UpdateStats]:
        policy = new_policy(make_model)
        before = {name: p.detach().clone() for name, p in policy.actor_parameters().items()}
        optimizer = Optimizer(policy, learning_rate=1.0, grad_clip=1e9)
        groups = [{"params": group["params"]} for group in optimizer.adam.param_groups]
        optimizer.adam = torch.optim.SGD(groups, lr=1.0)  # type: ignore[assignment]
        stats = update(
            policy,
            optimizer,
            batch,
            Credit(advantages_of(batch)),
            loss=LossSettings(),
            trajectories=100,
            microbatch_tokens=budget,
            seed=0,
            imitation=None if coef is None else Imitation(shown, coef, weighting),
        )
        return {name: p.detach() - before[name] for name, p in policy.actor_parameters().items()}, stats

    rl, plain = moved(None)
    supervised, alone = moved(1.0)
    mixed, stats = moved(0.3)
    split, _ = moved(0.3, budget=1)
    assert any(float((rl[name] - supervised[name]).abs().max()) > 0.01 for name in rl)
    for name in rl:
        torch.testing.assert_close(mixed[name], 0.7 * rl[name] + 0.3 * supervised[name], rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(split[name], mixed[name], rtol=1e-3, atol=1e-5)
    assert plain.loss is not None
    assert alone.loss == pytest.approx(alone.sft_loss)
    assert alone.sft_loss is not None
    assert stats.loss == pytest.approx(0.7 * plain.loss + 0.3 * alone.sft_loss, rel=1e-5)
    own = new_policy(make_model).logprobs(shown, 1000)[shown.mask]
    expected = -own if weighting == "uniform" else -own * own.exp() * (1 - own.exp())
    assert stats.sft_loss == pytest.approx(float(expected.mean()), rel=1e-4)
    assert (stats.sft_coef, stats.sft_rows) == (0.3, 5)
    assert set(stats.metrics()) <= set(METRICS)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_each_pass_goes_over_the_demonstrations_once(count: int, make_groups: Any) -> None:
    imitation = Imitation(demonstrations(make_groups), 0.5)
    parts = [imitation.part(index, count) for index in range(count)]
    assert sorted(itertools.chain.from_iterable(parts)) == list(range(5))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
