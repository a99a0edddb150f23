"""The one-file textbook loop computes what the library computes: advantages, loss and gradient on a frozen batch."""

import dataclasses
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from ragen.algos.advantages import grpo
from ragen.algos.losses import losses
from ragen.episode import Segment
from ragen.learn.batch import Batch, collate_segments
from ragen.learn.loss_settings import LossSettings
from ragen.learn.minibatches import minibatches
from ragen.learn.policy import Policy
from ragen.learn.preferences import lesson
from ragen.learn.terms import accumulate, make_tables

ROOT = Path(__file__).parents[1]
GROUPS, MEMBERS = 3, 4


@pytest.fixture(scope="module")
def textbook() -> Any:
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        import textbook
    finally:
        sys.path.remove(str(ROOT / "examples"))
        sys.modules.pop("textbook", None)
    assert "ragen" not in vars(textbook)
    return textbook


@pytest.fixture(scope="module")
def played(textbook: ModuleType) -> Any:
    """A rollout of random weights, its returns made different within two of the three groups."""
    with torch.random.fork_rng():
        found = textbook.rollout(textbook.make_model(seed=1), GROUPS, MEMBERS)
    returns = torch.tensor([0.1, 1.3, -0.2, 0.1, 2.0, 2.0, 2.0, 2.0, 0.15, 1.15, 0.3, 0.3])
    return dataclasses.replace(found, returns=returns)


def as_batch(played: Any) -> Batch:
    """The rollout as the library's rows: the return lies on the last sampled token."""
    rows = []
    for ids, mask, total in zip(played.ids.numpy(), played.mask.numpy(), played.returns.tolist(), strict=True):
        last = int(np.flatnonzero(mask)[-1])
        rewards = np.zeros(len(ids), np.float32)
        rewards[last] = total
        zeros, turns = np.zeros(len(ids), np.float32), np.where(mask, 0, -1).astype(np.int32)
        rows.append(Segment(*(array[: last + 1] for array in (ids, mask, zeros, turns, rewards))))
    return dataclasses.replace(collate_segments(rows, pad_id=0), group=torch.arange(GROUPS).repeat_interleave(MEMBERS))


def test_the_mask_marks_exactly_the_replies(textbook: ModuleType, played: Any) -> None:
    agent, user = textbook.IDS["<agent>"], textbook.IDS["<user>"]
    start = len(textbook.message("choose"))
    assert played.ids[:, 0].tolist() == [user] * 12
    assert not played.mask[:, :start].any()
    assert played.mask[:, start].all()
    assert played.ids[:, start - 1].tolist() == [agent] * 12
    assert int(played.mask.sum(1).max()) <= textbook.TURNS * textbook.REPLY


def test_advantages_loss_and_gradient_are_the_librarys(textbook: ModuleType, played: Any) -> None:
    batch = as_batch(played)
    credit = grpo(batch.rewards, batch.mask, batch.trajectory, batch.group)
    advantages = textbook.grpo_advantages(played.returns, MEMBERS)
    width = batch.ids.shape[1]
    torch.testing.assert_close(torch.where(batch.mask, advantages[:, None], 0), credit.advantages, rtol=1e-6, atol=1e-6)
    assert advantages[4:8].tolist() == [0.0] * 4

    with torch.no_grad():  # π_old: other weights, so that some ratios are clipped
        old = textbook.token_logprobs(textbook.make_model(seed=1), played.ids)
    model = textbook.make_model(seed=2)
    loss = textbook.ppo_loss(textbook.token_logprobs(model, played.ids), old, advantages, played.mask, low=0.02, high=0.03)
    loss.backward()
    expected = {f"model.{name}": p.grad for name, p in model.named_parameters()}

    policy = Policy(textbook.make_model(seed=2), dtype=torch.float32, pad_id=0)
    settings = LossSettings(own={"clip_low": 0.02, "clip_high": 0.03})
    learned = lesson(batch, losses.get(settings.name), settings.preferences, ratio_unit="trajectory")
    tables = make_tables(policy, batch, credit, settings, None, learned)
    tables.old_logprobs.copy_(old[:, :width])
    (mini,) = minibatches(policy, batch, learned, settings, 100, 60, 0)
    terms = accumulate(policy, mini, tables, settings, untouched=False)
    found = terms.metrics()
    assert found["policy_loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert found["clip_low"] > 0.05
    assert found["clip_high"] > 0.05
    for name, parameter in policy.actor_parameters().items():
        torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-4, atol=1e-6)


def test_it_learns_the_risky_arm(textbook: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with torch.random.fork_rng():
        history = textbook.train(steps=12, groups=2, members=16)
    assert history[0] < 0.4
    assert np.mean(history[-3:]) > 0.6
    assert "mean return" in capsys.readouterr().out
