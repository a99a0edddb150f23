"""Supervised steps: the loss by an independent way, and that replies become likely."""

from typing import Any

import numpy as np
import pytest
import torch

from ragen.episode import Segment
from ragen.errors import TrainingError
from ragen.learn.batch import Batch, collate_segments
from ragen.learn.optimizer import Optimizer
from ragen.learn.policy import Policy
from ragen.learn.supervised import supervised_step


def segment(prompt: list[int], reply: list[int]) -> Segment:
    n = len(prompt) + len(reply)
    zeros = np.zeros(n, np.float32)
    return Segment(np.array(prompt + reply), np.arange(n) >= len(prompt), zeros, zeros.astype(np.int32), zeros)


@pytest.fixture
def batch() -> Batch:
    return collate_segments([segment([1, 2, 3], [7, 8, 9, 2]), segment([1, 2, 3], [5, 2]), segment([4, 4], [30])], pad_id=2)


def test_the_loss_is_the_token_mean_cross_entropy_of_the_replies_at_temperature_1(batch: Batch, make_model: Any) -> None:
    model = make_model()
    labels = torch.where(batch.mask, batch.ids, -100)
    wanted = torch.nn.functional.cross_entropy(model(batch.ids).logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    for budget in (1, 1000):
        policy = Policy(make_model(), dtype=torch.float32, pad_id=2, temperature=0.5)
        loss = supervised_step(policy, Optimizer(policy, learning_rate=1e-3), batch, microbatch_tokens=budget)
        assert loss == pytest.approx(float(wanted.detach()), rel=1e-5)


def test_replies_become_likely_and_a_batch_without_a_reply_is_passed_over(batch: Batch, make_model: Any) -> None:
    policy = Policy(make_model(), dtype=torch.float32, pad_id=2)
    optimizer = Optimizer(policy, learning_rate=1e-2)
    empty = collate_segments([segment([1, 2], [])], pad_id=2)
    found = [supervised_step(policy, optimizer, each, microbatch_tokens=100) for each in [batch, empty] * 20]
    assert found[1::2] == [None] * 20
    assert optimizer.steps == 20
    first, *_, last = found[::2]
    assert first is not None
    assert last is not None
    assert last < 0.5 < first


def test_d3_weights_that_are_not_finite_stop_the_warm_up(batch: Batch, make_model: Any) -> None:
    policy = Policy(make_model(), dtype=torch.float32, pad_id=2)
    with torch.no_grad():
        policy.model.model.norm.weight[0] = float("nan")
    optimizer = Optimizer(policy, learning_rate=1e-2)
    for _ in range(2):
        loss = supervised_step(policy, optimizer, batch, microbatch_tokens=100)
        assert loss is not None
        assert np.isnan(loss)
    with pytest.raises(TrainingError, match="supervised loss is not finite"):
        supervised_step(policy, optimizer, batch, microbatch_tokens=100)
