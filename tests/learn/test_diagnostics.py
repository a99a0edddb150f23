"""Diagnostics that use the learner's forward and backward pass, against plain transformers and autograd."""

from typing import Any

import numpy as np
import pytest
import torch

from ragen.algos.advantages import grpo
from ragen.algos.reduce import token_weights
from ragen.learn.batch import collate
from ragen.learn.likelihood import cross_likelihood
from ragen.learn.loss_settings import LossSettings
from ragen.learn.optimizer import Optimizer
from ragen.learn.policy import Policy
from ragen.learn.update import policy_gradient_norm

PROMPTS = ((1, 5, 9, 4), (1, 5, 9, 7, 3), (1, 8))
REPLIES = ((11, 12, 13), (11, 20), (30,), (6, 6, 6, 6, 6))


def alone(model: Any, prompt: tuple[int, ...], reply: tuple[int, ...], temperature: float) -> float:
    logits = model(torch.tensor([[*prompt, *reply]])).logits[0, len(prompt) - 1 : -1].detach().double()
    return float(torch.log_softmax(logits / temperature, -1).gather(1, torch.tensor(reply)[:, None]).sum())


@pytest.mark.parametrize("name", ["llama", "gpt2"])
@pytest.mark.parametrize("budget", [1, 24, 1000])
def test_every_reply_under_every_prompt_equals_each_pair_alone(name: str, budget: int, make_model: Any) -> None:
    model = make_model(name)
    policy = Policy(model, dtype=torch.float32, pad_id=0, temperature=0.7)
    got = cross_likelihood(policy, PROMPTS, REPLIES, budget)
    expected = [[alone(model, prompt, reply, 0.7) for prompt in PROMPTS] for reply in REPLIES]
    assert got.shape == (4, 3)
    np.testing.assert_allclose(got, expected, atol=2e-4)


def test_a_prompt_is_computed_once_for_all_replies(make_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Policy(make_model(), dtype=torch.float32, pad_id=0)
    tokens: list[int] = []
    plain = policy.token_outputs
    monkeypatch.setattr(policy, "token_outputs", lambda micro: (tokens.append(len(micro.real)), plain(micro))[1])
    prompts = [tuple(range(k, k + 20)) for k in (1, 30)]
    cross_likelihood(policy, prompts, REPLIES, 1000)
    assert sum(tokens) == 2 * (20 + sum(map(len, REPLIES)))  # not 2 · (4 · 20 + …)


def test_nothing_to_compute_and_empty_replies(make_model: Any) -> None:
    policy = Policy(make_model(), dtype=torch.float32, pad_id=0)
    assert cross_likelihood(policy, PROMPTS, [], 100).shape == (0, 3)
    for prompts, replies in ((((),), REPLIES), (PROMPTS, ((),))):
        with pytest.raises(ValueError, match="needs a token"):
            cross_likelihood(policy, prompts, replies, 100)


@pytest.mark.parametrize("mode", ["token-mean", "trajectory-mean", "trajectory-sum"])
@pytest.mark.parametrize("critic", ["none", "head"])
def test_the_gradient_norm_of_some_groups_equals_autograd_and_touches_nothing(
    mode: Any, critic: Any, make_model: Any, make_groups: Any
) -> None:
    """At ρ = 1 the gradient of the clipped surrogate is that of −Σ w A log π."""
    batch = collate(make_groups(groups=4), pad_id=0)
    credit = grpo(batch.rewards, batch.mask, batch.trajectory, batch.group)
    rows = (batch.group == 1) | (batch.group == 3)
    policy = Policy(make_model(), dtype=torch.float32, pad_id=0, critic=critic)
    optimizer = Optimizer(policy, learning_rate=0.1)
    before = {n: p.detach().clone() for n, p in optimizer.parameters.items()}
    loss = LossSettings(aggregation=mode, entropy_coef=0.5, kl_coef=0.5, length_constant=7.0)
    norms = [policy_gradient_norm(policy, batch, credit, rows, loss=loss, microbatch_tokens=n) for n in (1, 40, 1000)]
    assert all(p.grad is None and p.equal(before[n]) for n, p in optimizer.parameters.items())
    assert (optimizer.steps, optimizer.adam.state) == (0, {})

    model = make_model()
    weights = token_weights(batch.mask & rows[:, None], batch.trajectory, mode, constant=7.0)
    total = torch.zeros(())
    for r in rows.nonzero().flatten().tolist():
        table = torch.log_softmax(model(batch.ids[r : r + 1, : batch.lengths[r]]).logits[0], -1)
        for t in batch.mask[r].nonzero().flatten().tolist():
            total = total - weights[r, t] * credit.advantages[r, t] * table[t - 1, batch.ids[r, t]]
    total.backward()
    expected = float(torch.stack([p.grad.square().sum() for p in model.parameters() if p.grad is not None]).sum().sqrt())
    assert expected > 0
    assert norms == pytest.approx([expected] * 3, rel=1e-3)


def test_flat_groups_ask_for_nothing_and_no_rows_neither(make_model: Any, make_groups: Any) -> None:
    batch = collate(make_groups(), pad_id=0)
    policy = Policy(make_model(), dtype=torch.float32, pad_id=0)
    flat = grpo(torch.zeros_like(batch.rewards), batch.mask, batch.trajectory, batch.group)
    given = {"loss": LossSettings(), "microbatch_tokens": 100}
    assert policy_gradient_norm(policy, batch, flat, batch.group == 0, **given) == 0.0
    assert policy_gradient_norm(policy, batch, flat, batch.group == 99, **given) == 0.0
