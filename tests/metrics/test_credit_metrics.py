"""What the advantages of a batch are like."""

import math

import pytest
import torch

from ragen.metrics.credit import credit_metrics, shared_states


def test_credit_is_described_over_the_sampled_tokens() -> None:
    mask = torch.tensor([[True, True, False], [True, True, False]])
    got = credit_metrics(torch.tensor([[1.0, 0.0, math.nan], [3.0, 0.0, 0.0]]), mask)
    assert got == {"credit/advantage_mean": 1.0, "credit/zero": 0.5, "credit/advantage_std": pytest.approx(math.sqrt(2))}
    assert credit_metrics(torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.bool)) == {}


def test_shared_states_count_turns_of_one_group() -> None:
    # group 0: states 3, 3 and 4; one of group 1: 3, shared with none there; one turn whose state is not known
    anchors = torch.tensor([[3, 3, 4], [3, 3, -1], [3, -1, -1]])
    turns = torch.tensor([[0, 0, 1], [0, 0, 1], [0, -1, -1]])
    group = torch.tensor([0, 0, 1])
    assert shared_states(anchors, turns >= 0, turns, torch.arange(3), group) == 2 / 5
    assert shared_states(anchors, torch.zeros(3, 3, dtype=torch.bool), turns, torch.arange(3), group) == 0.0
