"""Rows of older policies in an update: their ratio is against what was recorded, that of fresh rows against the learner."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.learn.test_update import random_credit, run, weights

from ragen.algos.importance import ratio_summary
from ragen.algos.reduce import token_weights
from ragen.learn.batch import Batch, collate
from ragen.learn.policy import Policy
from ragen.learn.update import LossSettings

CLIP = {"clip_low": 0.2, "clip_high": 0.28}
LOSS = LossSettings(own=CLIP)


def case(make_model: Any, make_groups: Any, critic: Any = "none") -> tuple[Policy, Batch, torch.Tensor]:
    """A policy, a batch of 6 trajectories in rows of their own, and marks on the second group's."""
    policy = Policy(make_model(), dtype=torch.float32, pad_id=0, critic=critic)
    batch = collate(make_groups(), pad_id=0)
    own = policy.logprobs(batch, 1000)
    shift = 0.6 * torch.sin(torch.arange(own.numel())).reshape(own.shape)
    behaviour = torch.where(batch.mask, own - shift, 0)  # log ρ is `shift`: inside the clip and beyond it, on both sides
    return policy, replace(batch, behaviour_logprobs=behaviour), batch.group == 1


def test_the_loss_of_recorded_rows_is_the_clipped_ratio_to_the_behaviour_policy(make_model: Any, make_groups: Any) -> None:
    policy, batch, recorded = case(make_model, make_groups)
    credit = random_credit(batch)
    own = policy.logprobs(batch, 1000)
    ratio = torch.where(recorded[:, None], own - batch.behaviour_logprobs, 0).exp()
    surrogate = torch.minimum(ratio * credit.advantages, ratio.clamp(0.8, 1.28) * credit.advantages)
    by_hand = -(token_weights(batch.mask, batch.trajectory, "trajectory-mean") * surrogate).sum()
    stats = run(policy, batch, credit=credit, loss=LOSS, recorded=recorded)
    assert stats.policy_loss == pytest.approx(float(by_hand), abs=1e-5)
    assert min(stats.rule["clip_low"], stats.rule["clip_high"]) > 0


def test_recorded_rows_keep_their_ratio_in_every_mini_batch_and_pass(make_model: Any, make_groups: Any) -> None:
    policy, batch, recorded = case(make_model, make_groups)
    ones = random_credit(batch)
    once = run(policy, batch, lr=1e-30, credit=ones, loss=LOSS, recorded=recorded, trajectories=6)
    often = run(policy, batch, lr=1e-30, credit=ones, loss=LOSS, recorded=recorded, trajectories=2, online_k=2)
    assert often.optimizer_steps == 6
    assert often.policy_loss == pytest.approx(once.policy_loss, abs=1e-5)  # mini-batches of equal size: means of means
    assert often.replay_ratio_mean == pytest.approx(once.replay_ratio_mean, rel=1e-5)


def test_without_marks_nothing_recorded_enters(make_model: Any, make_groups: Any) -> None:
    moved = []
    for recorded in (None, False):
        policy, batch, marks = case(make_model, make_groups)
        stats = run(policy, batch, loss=LOSS, recorded=marks & recorded if recorded is not None else None)
        assert (stats.replay_ratio_mean, stats.replay_ratio_max, stats.replay_ess) == (None, None, None)
        assert (stats.rule["clip_low"], stats.rule["clip_high"]) == (0.0, 0.0)
        moved.append(weights(policy))
    assert all(moved[0][name].equal(moved[1][name]) for name in moved[0])


def test_statistics_of_the_ratio_are_of_recorded_rows_and_the_mismatch_of_fresh_ones(
    make_model: Any, make_groups: Any
) -> None:
    policy, batch, recorded = case(make_model, make_groups)
    moved = policy.logprobs(batch, 1000) - batch.behaviour_logprobs
    old, fresh = (moved[batch.mask & rows[:, None]] for rows in (recorded, ~recorded))
    stats = run(policy, batch, loss=LOSS, recorded=recorded)
    assert stats.replay_ratio_mean == pytest.approx(float(old.exp().mean()), rel=1e-4)
    assert stats.replay_ratio_max == pytest.approx(float(old.exp().max()), rel=1e-4)
    assert stats.mismatch_mean == pytest.approx(float(fresh.abs().mean()), rel=1e-4)
    alone = run(policy, batch, loss=LOSS, recorded=torch.ones_like(recorded))
    assert "update/mismatch_max" not in alone.metrics()  # there is no fresh row


def test_old_values_stay_those_of_the_critic_before_the_update(make_model: Any, make_groups: Any) -> None:
    losses = []
    for marked in (False, True):
        policy, batch, recorded = case(make_model, make_groups, critic="head")
        losses.append(run(policy, batch, loss=LOSS, recorded=recorded if marked else None).value_loss)
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_the_summary_of_ratios_by_hand() -> None:
    summary = ratio_summary(torch.log(torch.tensor([0.5, 1.0, 1.5])))
    assert summary == pytest.approx({"mean": 1.0, "max": 1.5, "ess": 9 / (3 * 3.5)})
    assert ratio_summary(torch.zeros(4)) == {"mean": 1.0, "max": 1.0, "ess": 1.0}
    assert ratio_summary(torch.zeros(0)) == {}
