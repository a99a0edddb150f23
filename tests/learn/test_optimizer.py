"""AdamW: rates, warm-up, clipping."""

from typing import Any

import pytest
import torch

from ragen.learn.optimizer import Optimizer
from ragen.learn.policy import Policy


def give(policy: Policy, value: float) -> None:
    for parameter in {**policy.actor_parameters(), **policy.critic_parameters()}.values():
        parameter.grad = torch.full_like(parameter, value)


def test_b30_the_first_of_ten_warm_up_steps_already_moves_the_weights_by_a_tenth(make_model: Any) -> None:
    """Adam's first step is lr · sign(g) up to ε, so the step shows the rate: lr/10, then 2·lr/10, …, then lr."""
    policy = Policy(make_model(), dtype=torch.float32, pad_id=0, critic="head")
    optimizer = Optimizer(policy, learning_rate=1e-2, critic_learning_rate=1e-1, warmup_steps=10, grad_clip=1e9)
    weight, head = policy.model.lm_head.weight, policy.critic_parameters()["value_head.weight"]
    before, head_before = weight.detach().clone(), head.detach().clone()
    give(policy, 1.0)
    assert not optimizer.step({}).skipped
    torch.testing.assert_close(before - weight.detach(), torch.full_like(before, 1e-3), rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(head_before - head.detach(), torch.full_like(head_before, 1e-2), rtol=1e-3, atol=1e-6)
    assert optimizer.learning_rate == pytest.approx(1e-3)
    for _ in range(11):
        give(policy, 1.0)
        optimizer.step({})
    assert optimizer.steps == 12
    assert optimizer.learning_rate == pytest.approx(1e-2)


def test_the_actor_s_warm_up_waits_for_its_first_gradient(make_model: Any) -> None:
    policy = Policy(make_model(), dtype=torch.float32, pad_id=0, critic="head")
    optimizer = Optimizer(policy, learning_rate=1e-2, critic_learning_rate=1e-1, warmup_steps=10, weight_decay=0.5)
    before = {name: p.detach().clone() for name, p in policy.actor_parameters().items()}
    head = policy.critic_parameters()["value_head.weight"].detach().clone()
    for _ in range(4):
        give(policy, 1.0)
        for parameter in policy.actor_parameters().values():
            parameter.grad = None
        optimizer.step({})
    assert all(torch.equal(p, before[name]) for name, p in policy.actor_parameters().items())
    assert not torch.equal(policy.critic_parameters()["value_head.weight"], head)
    assert (optimizer.steps, optimizer.actor_steps) == (4, 0)
    give(policy, 1.0)
    optimizer.step({})
    assert (optimizer.steps, optimizer.actor_steps) == (5, 1)
    assert optimizer.learning_rate == pytest.approx(1e-3)


def test_the_norm_is_reported_before_clipping_and_gradients_are_dropped_after(make_model: Any) -> None:
    policy = Policy(make_model(), dtype=torch.float32, pad_id=0)
    optimizer = Optimizer(policy, learning_rate=1e-3, grad_clip=0.5)
    give(policy, 2.0)
    count = sum(p.numel() for p in policy.actor_parameters().values())
    assert optimizer.step({}).grad_norm == pytest.approx(2 * count**0.5, rel=1e-4)
    assert all(p.grad is None for p in policy.actor_parameters().values())
    moment = optimizer.adam.state[policy.model.lm_head.weight]["exp_avg"]
    torch.testing.assert_close(moment, torch.full_like(moment, 0.1 * 0.5 / count**0.5), rtol=1e-3, atol=0)


def test_a_separate_critic_is_clipped_on_its_own(make_model: Any) -> None:
    policy = Policy(make_model(), dtype=torch.float32, pad_id=0, critic="separate", critic_model=make_model("gpt2"))
    optimizer = Optimizer(policy, learning_rate=1e-3, grad_clip=1e9)
    give(policy, 0.0)
    for name, parameter in policy.critic_parameters().items():
        if name.startswith("critic."):
            parameter.grad = torch.full_like(parameter, 1e3)
    assert optimizer.step({}).grad_norm == 0


def test_weight_decay_shrinks_matrices_and_leaves_vectors_alone(make_model: Any) -> None:
    policy = Policy(make_model(), dtype=torch.float32, pad_id=0)
    optimizer = Optimizer(policy, learning_rate=0.1, weight_decay=0.5)
    matrix, vector = policy.model.lm_head.weight, policy.model.model.norm.weight
    before = matrix.detach().clone(), vector.detach().clone()
    give(policy, 0.0)
    optimizer.step({})
    torch.testing.assert_close(matrix.detach(), before[0] * 0.95)
    assert torch.equal(vector, before[1])


def test_d3_only_skipped_steps_in_a_row_count_towards_the_stop(make_model: Any) -> None:
    policy = Policy(make_model(), dtype=torch.float32, pad_id=0)
    optimizer = Optimizer(policy, learning_rate=1e-3)
    for value in (float("nan"), float("nan"), 1.0, float("nan"), float("nan"), 1.0):
        give(policy, value)
        optimizer.step({})
    assert (optimizer.steps, optimizer.skipped, optimizer.skipped_in_a_row) == (2, 4, 0)
