"""The update: ratios, weights, counts, guards, and that it learns."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from ragen.algos.advantages import grpo
from ragen.algos.credit import Credit
from ragen.algos.losses import LossTerms, losses, ppo_clip
from ragen.algos.losses.base import PolicyLoss
from ragen.episode import Completion, EndReason, Group, StopReason, Trajectory, Turn
from ragen.errors import TrainingError
from ragen.learn.batch import Batch, collate
from ragen.learn.loss_settings import LossSettings
from ragen.learn.optimizer import Optimizer
from ragen.learn.policy import Policy
from ragen.learn.reference import Reference
from ragen.learn.stats import UpdateStats
from ragen.learn.update import update
from ragen.metrics import METRICS
from ragen.models.native import Decoder


def random_credit(batch: Batch, *, targets: bool = False) -> Credit:
    rng = np.random.default_rng(5)
    advantages = torch.where(batch.mask, torch.from_numpy(rng.normal(size=batch.ids.shape)).float(), 0)
    return Credit(advantages, torch.where(batch.mask, advantages + 0.5, 0) if targets else None)


def run(policy: Policy, batch: Batch, *, lr: float = 1e-3, credit: Credit | None = None, **settings: Any) -> UpdateStats:
    given = {"loss": LossSettings(), "trajectories": 100, "microbatch_tokens": 200, "seed": 0} | settings
    optimizer = Optimizer(policy, learning_rate=lr, critic_learning_rate=lr)
    return update(policy, optimizer, batch, credit or random_credit(batch, targets=policy.kind != "none"), **given)


def weights(policy: Policy) -> dict[str, torch.Tensor]:
    return {n: p.detach().clone() for n, p in {**policy.actor_parameters(), **policy.critic_parameters()}.items()}


@pytest.fixture
def spied_ratios(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """log ρ of each micro-batch, in order."""
    seen: list[torch.Tensor] = []

    def spy(logprobs: torch.Tensor, old: torch.Tensor, *rest: Any, **more: Any) -> LossTerms:
        seen.append((logprobs - old).detach().clone())
        return ppo_clip(logprobs, old, *rest, **more)

    table: dict[str, PolicyLoss] = losses._items
    monkeypatch.setitem(table, "ppo_clip", dataclasses.replace(table["ppo_clip"], compute=spy))
    return seen


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("budget", [30, 1000])
@pytest.mark.parametrize(
    ("name", "dropout"),
    [("llama", {"attention_dropout": 0.1}), ("gpt2", {"attn_pdrop": 0.1, "resid_pdrop": 0.1, "embd_pdrop": 0.1})],
)
def test_ratio_is_exactly_one_before_the_first_step_and_not_after_b21_dropout(
    name: str,
    dropout: dict[str, float],
    budget: int,
    dtype: torch.dtype,
    make_model: Any,
    make_groups: Any,
    spied_ratios: list[torch.Tensor],
) -> None:
    policy = Policy(make_model(name, **dropout), dtype=dtype, pad_id=0)
    assert policy.network.native is (name == "llama")
    batch = collate(make_groups(), pad_id=0)
    run(policy, batch, trajectories=3, online_k=2, microbatch_tokens=budget)
    first = len(spied_ratios) // 4 if budget == 1000 else 1
    assert all(torch.count_nonzero(ratio) == 0 for ratio in spied_ratios[:first])
    assert float(spied_ratios[-1].abs().max()) > 1e-4


def test_old_log_probabilities_of_later_mini_batches_are_those_before_the_first_step(
    make_model: Any, make_groups: Any, spied_ratios: list[torch.Tensor]
) -> None:
    """With learning rate ~0 every ratio of every mini-batch and pass is exactly 1: nothing but the weights enters it."""
    policy = Policy(make_model(), dtype=torch.float32, pad_id=0)
    run(policy, collate(make_groups(), pad_id=0), lr=1e-30, trajectories=2, online_k=2)
    assert len(spied_ratios) >= 6
    assert all(float(ratio.abs().max()) < 1e-5 for ratio in spied_ratios)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_b19_mismatch_and_kl_are_zero_at_step_0_when_the_sampler_used_the_same_temperature(
    temperature: float, make_model: Any, make_groups: Any
) -> None:
    model = make_model()
    policy = Policy(model, dtype=torch.float32, pad_id=0, temperature=temperature)
    batch = collate(make_groups(), pad_id=0)
    own = torch.zeros(batch.ids.shape)
    for r, n in enumerate(batch.lengths.tolist()):
        table = torch.log_softmax(model(batch.ids[r : r + 1, :n]).logits[0].detach() / temperature, -1)
        own[r, 1:n] = table[:-1].gather(1, batch.ids[r, 1:n, None])[:, 0]
    batch = dataclasses.replace(batch, behaviour_logprobs=torch.where(batch.mask, own, 0))
    reference = Reference(policy).logprobs(batch, 50)
    stats = run(policy, batch, loss=LossSettings(kl_coef=0.1), reference=reference)
    assert stats.mismatch_max < 1e-4
    assert stats.mismatch_mean <= stats.mismatch_max
    assert stats.kl == pytest.approx(0, abs=1e-8)


def test_b19_a_learner_at_another_temperature_than_the_sampler_shows_in_the_mismatch(
    make_model: Any, make_groups: Any
) -> None:
    batch = collate(make_groups(), pad_id=0)
    sampler = Policy(make_model(), dtype=torch.float32, pad_id=0, temperature=0.6)
    batch = dataclasses.replace(batch, behaviour_logprobs=sampler.logprobs(batch, 100))
    stats = run(Policy(make_model(), dtype=torch.float32, pad_id=0, temperature=1.0), batch)
    assert stats.mismatch_mean > 0.1


@pytest.mark.parametrize("mode", ["token-mean", "trajectory-mean", "trajectory-sum"])
@pytest.mark.parametrize("change", ["micro-batches", "padding", "row order", "packing"])
def test_b16_the_step_does_not_depend_on_how_rows_are_laid_out(
    mode: Any, change: str, make_model: Any, make_groups: Any
) -> None:
    """Plain SGD-like check: the gradient norm and the summed loss of one step, for each way to lay the rows out."""
    batch = collate(make_groups(), pad_id=0)
    credit = random_credit(batch, targets=True)
    loss = LossSettings(aggregation=mode, entropy_coef=0.01, kl_coef=0.1, value_clip=None)
    reference = Policy(make_model(seed=3), dtype=torch.float32, pad_id=0).logprobs(batch, 100)

    def one(batch: Batch, credit: Credit, reference: torch.Tensor, budget: int = 1000, pack: bool = False) -> UpdateStats:
        policy = Policy(make_model(), dtype=torch.float32, pad_id=0, critic="head")
        policy.pack = pack
        return run(policy, batch, credit=credit, loss=loss, reference=reference, microbatch_tokens=budget)

    wanted = one(batch, credit, reference)
    if change == "micro-batches":
        got = one(batch, credit, reference, budget=1)
    elif change == "packing":
        got = one(batch, credit, reference, pack=True)
    elif change == "padding":
        wide = {
            f.name: torch.nn.functional.pad(v, (0, 7), value=1) if v.ndim == 2 and f.name != "mask" else v
            for f in dataclasses.fields(batch)
            if (v := getattr(batch, f.name)) is not None
        }
        wide["mask"] = torch.nn.functional.pad(batch.mask, (0, 7), value=False)
        pad = lambda t: torch.nn.functional.pad(t, (0, 7), value=float("nan"))
        got = one(Batch(**wide), Credit(pad(credit.advantages), pad(credit.value_targets)), pad(reference))
    else:
        order = torch.randperm(len(batch.lengths), generator=torch.Generator().manual_seed(0))
        moved = Batch(**{f.name: getattr(batch, f.name)[order] for f in dataclasses.fields(batch)})
        assert credit.value_targets is not None
        got = one(moved, Credit(credit.advantages[order], credit.value_targets[order]), reference[order])
    for name, value in wanted.metrics().items():
        assert got.metrics()[name] == pytest.approx(value, rel=1e-4, abs=1e-6), name
    assert wanted.grad_norm is not None
    assert wanted.grad_norm > 0


def test_b16_two_rows_of_10_and_2_tokens_give_the_hand_computed_loss_of_each_aggregation(make_model: Any) -> None:
    """At ratio 1 the loss is −Σ w A: with A = 1 on the long row and 4 on the short one, by hand."""
    completion = lambda n: Completion(tuple(range(5, 5 + n)), (-1.0,) * n, (1.0,) * n, "", StopReason.END)
    rows = tuple(
        Trajectory("t", 0, m, (Turn((1, 2), False, completion(n), "", (), True, 0.0),), EndReason.TERMINATED, success=True)
        for m, n in enumerate((10, 2))
    )
    batch = collate([Group(0, rows)], pad_id=0)
    credit = Credit(torch.where(batch.mask, torch.tensor([[1.0], [4.0]]), 0))
    wanted = {"token-mean": -(10 * 1 + 2 * 4) / 12, "trajectory-mean": -(1 + 4) / 2, "trajectory-sum": -(10 + 8) / 2 / 100}
    for mode, value in wanted.items():
        for budget in (1, 1000):
            policy = Policy(make_model(), dtype=torch.float32, pad_id=0)
            loss = LossSettings(aggregation=mode, length_constant=100)
            assert run(policy, batch, credit=credit, loss=loss, microbatch_tokens=budget).policy_loss == pytest.approx(
                value, rel=1e-5
            )


def test_each_mini_batch_has_weights_of_its_own(make_model: Any, make_groups: Any) -> None:
    """E = 1 on two trajectories with A = 1 and A = 4: the steps' losses are −1 and −4, in any order: mean −2.5."""
    batch = collate(make_groups(groups=1, members=2), pad_id=0)
    credit = Credit(torch.where(batch.mask, torch.tensor([[1.0], [4.0]]), 0))
    policy = Policy(make_model(), dtype=torch.float32, pad_id=0)
    assert run(policy, batch, credit=credit, lr=1e-30, trajectories=1).policy_loss == pytest.approx(-2.5, rel=1e-5)


def test_the_second_pass_compares_with_the_policy_before_the_first(
    make_model: Any, make_groups: Any, spied_ratios: list[torch.Tensor]
) -> None:
    policy = Policy(make_model(), dtype=torch.float32, pad_id=0)
    run(policy, collate(make_groups(), pad_id=0), online_k=2, microbatch_tokens=10_000)
    first, second = spied_ratios
    assert torch.count_nonzero(first) == 0
    assert float(second.abs().max()) > 1e-4


@pytest.mark.parametrize("critic", ["none", "separate"])
def test_every_step_of_an_update_computes_with_the_weights_that_the_step_before_left(
    critic: Any, make_model: Any, make_groups: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our own forward pass keeps stacked copies of the weights from step to step; transformers' keeps none."""
    after = []
    for native in (True, False):
        if not native:
            monkeypatch.setattr(Decoder, "find", lambda model: None)
        other = make_model(seed=1) if critic == "separate" else None
        policy = Policy(make_model(), dtype=torch.float32, pad_id=0, critic=critic, critic_model=other)
        assert policy.network.native is native
        stats = run(policy, collate(make_groups(), pad_id=0), lr=1e-2, trajectories=2, online_k=2)
        assert stats.optimizer_steps == 6
        after.append(weights(policy))
    for name, value in after[0].items():
        torch.testing.assert_close(value, after[1][name], rtol=1e-3, atol=1e-4)


def test_the_entropy_bonus_raises_entropy_and_its_value_enters_the_loss(make_model: Any, make_groups: Any) -> None:
    batch = collate(make_groups(), pad_id=0)
    nothing = Credit(torch.zeros(batch.ids.shape))
    policy = Policy(make_model(), dtype=torch.float32, pad_id=0)
    loss = LossSettings(entropy_coef=0.5, aggregation="token-mean")
    before, after = (run(policy, batch, credit=nothing, loss=loss) for _ in range(2))
    assert before.entropy is not None
    assert after.entropy is not None
    assert after.entropy > before.entropy + 0.01
    assert before.loss == pytest.approx(-0.5 * before.entropy, rel=1e-4)


@pytest.mark.parametrize("estimator", ["k2", "k3"])
def test_the_kl_term_pulls_towards_the_reference_and_its_value_enters_the_loss(
    estimator: Any, make_model: Any, make_groups: Any
) -> None:
    batch = collate(make_groups(), pad_id=0)
    reference = Policy(make_model(seed=3), dtype=torch.float32, pad_id=0).logprobs(batch, 100)
    policy = Policy(make_model(), dtype=torch.float32, pad_id=0)
    loss = LossSettings(kl_coef=0.5, kl_estimator=estimator, aggregation="token-mean")
    nothing = Credit(torch.zeros(batch.ids.shape))
    before, after = (run(policy, batch, credit=nothing, loss=loss, reference=reference) for _ in range(2))
    assert before.kl is not None
    assert after.kl is not None
    assert after.kl < before.kl - 0.01
    assert before.loss == pytest.approx(0.5 * before.kl, rel=1e-4)


def test_soft_filter_weights_scale_each_trajectory_and_weight_zero_removes_it(make_model: Any, make_groups: Any) -> None:
    batch = collate(make_groups(groups=1, members=2), pad_id=0)
    credit = Credit(torch.where(batch.mask, torch.tensor([[1.0], [3.0]]), 0))
    losses_found = [
        run(
            Policy(make_model(), dtype=torch.float32, pad_id=0), batch, credit=credit, trajectory_weights=torch.tensor(w)
        ).policy_loss
        for w in ([1.0, 1.0], [1.0, 0.0], [0.5, 1.0])
    ]
    assert losses_found == pytest.approx([-2.0, -0.5, -1.75])


@pytest.mark.parametrize(("size", "passes", "steps"), [(3, 1, 2), (4, 2, 4), (100, 3, 3), (1, 1, 6)])
def test_optimizer_steps_are_passes_times_ceil_of_trajectories_over_e(
    size: int, passes: int, steps: int, make_model: Any, make_groups: Any
) -> None:
    batch = collate(make_groups(new_rows=True), pad_id=0)
    assert batch.trajectories == 6
    assert len(batch.lengths) == 12  # E counts trajectories, not rows
    stats = run(Policy(make_model(), dtype=torch.float32, pad_id=0), batch, trajectories=size, online_k=passes)
    assert stats.optimizer_steps == steps
    assert stats.skipped == 0


def test_the_order_of_trajectories_depends_on_seed_and_pass_only(make_model: Any, make_groups: Any) -> None:
    batch = collate(make_groups(), pad_id=0)
    found = []
    for seed in (1, 1, 2):
        policy = Policy(make_model(), dtype=torch.float32, pad_id=0)
        run(policy, batch, trajectories=2, seed=seed)
        torch.manual_seed(seed + 50)
        found.append(weights(policy))
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
    assert any(not torch.equal(found[0][name], found[2][name]) for name in found[0])


def test_b22_train_mode_during_the_update_the_mode_before_restored_after(make_model: Any, make_groups: Any) -> None:
    model = make_model().eval()
    modes: list[bool] = []
    model.model.layers[0].register_forward_pre_hook(lambda module, _: modes.append(module.training))
    policy = Policy(model, dtype=torch.float32, pad_id=0)
    modes.clear()
    run(policy, collate(make_groups(), pad_id=0), trajectories=2)
    assert modes
    assert all(modes)
    assert not model.training


def test_d6_fully_masked_rows_and_mini_batches_change_nothing_and_nothing_is_nan(make_model: Any, make_groups: Any) -> None:
    batch = collate(make_groups(), pad_id=0)
    credit = random_credit(batch)
    batch.mask[3:] = False
    stats = run(Policy(make_model(), dtype=torch.float32, pad_id=0), batch, credit=credit, trajectories=1)
    assert stats.optimizer_steps == 3
    assert all(np.isfinite(value) for value in stats.metrics().values())
    alone = Batch(**{f.name: getattr(batch, f.name)[:3] for f in dataclasses.fields(batch)})
    few = run(Policy(make_model(), dtype=torch.float32, pad_id=0), alone, credit=Credit(credit.advantages[:3]))
    many = run(Policy(make_model(), dtype=torch.float32, pad_id=0), batch, credit=credit)
    assert many.metrics() == pytest.approx(few.metrics(), rel=1e-5)


def test_d3_a_non_finite_loss_changes_nothing_and_is_counted_the_third_in_a_row_raises(
    make_model: Any, make_groups: Any
) -> None:
    batch = collate(make_groups(), pad_id=0)
    credit = random_credit(batch)
    broken = Credit(torch.where(batch.trajectory[:, None] == 0, float("nan"), credit.advantages))
    policy = Policy(make_model(), dtype=torch.float32, pad_id=0)
    optimizer = Optimizer(policy, learning_rate=1e-3, warmup_steps=10)
    settings: dict[str, Any] = {"loss": LossSettings(), "microbatch_tokens": 100, "seed": 0}
    before = weights(policy)
    stats = update(policy, optimizer, batch, broken, trajectories=100, **settings)
    assert (stats.optimizer_steps, stats.non_finite, stats.skipped, optimizer.steps) == (0, 1, 1, 0)
    assert all(torch.equal(value, before[name]) for name, value in weights(policy).items())
    assert not optimizer.adam.state
    assert stats.loss is None
    assert all(np.isfinite(value) for value in stats.metrics().values())
    stats = update(policy, optimizer, batch, broken, trajectories=1, **settings)
    assert (stats.optimizer_steps, stats.non_finite, stats.skipped) == (5, 1, 0)
    assert stats.loss is not None
    assert np.isfinite(stats.loss)
    with pytest.raises(TrainingError, match=r"optimiser step 6: loss is not finite, 3 times in a row"):
        update(policy, optimizer, batch, broken, trajectories=100, online_k=3, **settings)


def test_d3_a_non_finite_gradient_names_its_tensor(make_model: Any, make_groups: Any) -> None:
    policy = Policy(make_model(), dtype=torch.float32, pad_id=0)
    optimizer = Optimizer(policy, learning_rate=1e-3)
    target = policy.model.model.layers[1].mlp.down_proj.weight

    def attempt() -> None:
        for parameter in policy.model.parameters():
            parameter.grad = torch.ones_like(parameter)
        target.grad[0, 0] = float("inf")
        assert optimizer.step({"loss": torch.zeros(())}).skipped

    attempt()
    attempt()
    with pytest.raises(TrainingError, match=r"gradient of model\.model\.layers\.1\.mlp\.down_proj\.weight"):
        attempt()


@pytest.mark.parametrize("critic", ["head", "separate"])
def test_e6_a_critic_from_any_causal_lm_starts_at_zero_and_learns_the_returns(
    critic: Any, make_model: Any, make_groups: Any
) -> None:
    extra = {"critic_model": make_model("llama-tied", seed=1)} if critic == "separate" else {}
    policy = Policy(make_model("llama-tied"), dtype=torch.float32, pad_id=0, critic=critic, **extra)
    batch = collate(make_groups(), pad_id=0)
    credit = Credit(torch.zeros(batch.ids.shape), torch.where(batch.mask, batch.ids / 61.0, 0))
    assert torch.count_nonzero(policy.values(batch, 100)) == 0
    optimizer = Optimizer(policy, learning_rate=1e-3, critic_learning_rate=1e-2)
    found = [
        update(
            policy,
            optimizer,
            batch,
            credit,
            loss=LossSettings(value_clip=None),
            trajectories=100,
            microbatch_tokens=100,
            seed=0,
        )
        for _ in range(30)
    ]
    assert found[0].value_loss is not None
    assert found[0].value_loss == pytest.approx(float(0.5 * ((batch.ids / 61.0)[batch.mask] ** 2).mean()), rel=1e-4)
    assert found[0].explained_variance == 0
    assert found[-1].value_loss is not None
    assert found[-1].value_loss < 0.3 * found[0].value_loss
    assert found[-1].explained_variance is not None
    assert found[-1].explained_variance > 0.5
    assert set(found[0].metrics()) <= set(METRICS)


def test_what_is_missing_is_named(make_model: Any, make_groups: Any) -> None:
    batch = collate(make_groups(), pad_id=0)
    with pytest.raises(ValueError, match="kl_coef"):
        run(Policy(make_model(), dtype=torch.float32, pad_id=0), batch, loss=LossSettings(kl_coef=0.1))
    with pytest.raises(ValueError, match="no value targets"):
        run(Policy(make_model(), dtype=torch.float32, pad_id=0, critic="head"), batch, credit=random_credit(batch))


def test_a_policy_gradient_step_makes_the_rewarded_reply_likelier_and_the_other_less_likely(make_model: Any) -> None:
    def member(m: int, sampled: tuple[int, ...], reward: float) -> Trajectory:
        reply = Completion(sampled, (-4.0,) * len(sampled), (1.0,) * len(sampled), "", StopReason.END)
        return Trajectory(
            "t", 0, m, (Turn((1, 2, 3), False, reply, "", (), True, reward),), EndReason.TERMINATED, success=True
        )

    batch = collate([Group(0, (member(0, (10, 11), 1.0), member(1, (20, 21), 0.0)))], pad_id=0)
    policy = Policy(make_model(), dtype=torch.float32, pad_id=0)
    credit = grpo(batch.rewards, batch.mask, batch.trajectory, batch.group)
    before = policy.logprobs(batch, 100).sum(1)
    run(policy, batch, credit=credit, lr=1e-3)
    after = policy.logprobs(batch, 100).sum(1)
    assert after[0] > before[0] + 0.01
    assert after[1] < before[1] - 0.01


@pytest.mark.parametrize("kind", ["head", "separate"])
def test_while_only_the_critic_learns_the_policy_stays_as_it_is(kind: str, make_model: Any, make_groups: Any) -> None:
    critic_model = make_model(seed=1) if kind == "separate" else None
    policy = Policy(make_model(), dtype=torch.float32, pad_id=0, critic=kind, critic_model=critic_model)
    batch = collate(make_groups(), pad_id=0)
    before = weights(policy)
    stats = run(policy, batch, loss=LossSettings(entropy_coef=0.1), trajectories=2, online_k=2, critic_only=True)
    after = weights(policy)
    moved = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert moved == set(policy.critic_parameters())
    assert stats.optimizer_steps == 6
    assert stats.value_loss is not None
    assert stats.grad_norm is None  # a value head's, or 0, would make the policy's first one a spike
    assert run(policy, batch).grad_norm is not None
    assert not torch.equal(weights(policy)["model.lm_head.weight"], before["model.lm_head.weight"])


def test_the_critic_s_steps_are_those_of_a_full_update(make_model: Any, make_groups: Any) -> None:
    """A separate critic learns the same whether or not the policy learns with it."""
    batch = collate(make_groups(), pad_id=0)
    found = []
    for alone in (False, True):
        policy = Policy(make_model(), dtype=torch.float32, pad_id=0, critic="separate", critic_model=make_model(seed=1))
        optimizer = Optimizer(policy, learning_rate=1e-3, critic_learning_rate=1e-2, grad_clip=1e9)
        credit, options = random_credit(batch, targets=True), {"trajectories": 3, "microbatch_tokens": 200, "seed": 0}
        update(policy, optimizer, batch, credit, loss=LossSettings(), critic_only=alone, **options)
        found.append({name: value.detach().clone() for name, value in policy.critic_parameters().items()})
    assert all(torch.equal(value, found[1][name]) for name, value in found[0].items())
