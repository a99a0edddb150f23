"""Rows as trajectories and turns; statistics within groups."""

import math

import pytest
import torch

from ragen.algos import recursion, reduce, trajectories
from ragen.algos.advantages import advantages
from ragen.algos.groups import centred, flat, numbered, sizes, standardized
from ragen.algos.trajectories import Episodes, Turns, segment_rounds

NAN = math.nan


def test_episodes_sum_all_rows_of_a_trajectory_and_leave_out_what_was_not_sampled() -> None:
    mask = torch.tensor([[True, False], [True, True], [False, False], [False, True]])
    rewards = torch.tensor([[1.0, NAN], [2.0, 4.0], [NAN, 9.0], [9.0, 8.0]])
    episodes = Episodes.of(rewards, mask, torch.tensor([7, 3, 5, 7]))
    assert episodes.index.tolist() == [2, 0, 1, 2]
    assert episodes.returns.tolist() == [6.0, 0.0, 9.0]
    assert episodes.counted.tolist() == [True, False, True]
    assert episodes.lengths().tolist() == [2, 0, 2]
    assert episodes.of_rows(torch.tensor([1, 2, 3, 1])).tolist() == [2, 3, 1]


def test_episodes_add_small_rewards_up_in_float64() -> None:
    rewards = torch.full((1, 4096), 0.1)
    total = Episodes.of(rewards, torch.ones(1, 4096, dtype=torch.bool), torch.zeros(1)).returns
    assert total.item() == 4096 * float(torch.tensor(0.1))


def test_turns_know_their_last_token_and_their_sum() -> None:
    # turn 0 is interrupted by a token that was not sampled; turn 1 lies in another row; 99 off the mask is no turn
    mask = torch.tensor([[True, False, True, False], [False, True, True, False], [False] * 4])
    ids = torch.tensor([[0, 99, 0, 99], [-1, 1, 1, 7], [3, 3, 3, 3]])
    turns = Turns.of(mask, ids, torch.tensor([4, 4, 2]))
    assert turns.present.tolist() == [[False, False], [True, True]]
    values = torch.tensor([[1.0, NAN, 2.0, NAN], [NAN, 0.0, 3.0, NAN], [NAN] * 4])
    assert turns.last(values).tolist() == [[0.0, 0.0], [2.0, 3.0]]
    assert turns.returns_to_go(values, 0.0).tolist() == [[0.0, 0.0], [3.0, 3.0]]
    table = torch.tensor([[5.0, 6.0], [7.0, 8.0]])
    assert turns.on_tokens(table).tolist() == [[7.0, 0.0, 7.0, 0.0], [0.0, 8.0, 8.0, 0.0], [0.0] * 4]
    assert ids.tolist() == [[0, 99, 0, 99], [-1, 1, 1, 7], [3, 3, 3, 3]]  # what it was given stays as it is
    assert turns.on_last(table, torch.zeros(3, 4)).tolist() == [[0, 0, 7.0, 0], [0, 0, 8.0, 0], [0.0] * 4]


def test_rounds_take_the_last_segment_of_each_trajectory_first() -> None:
    mask = torch.tensor([[True, True], [True, True], [False, True], [False, False], [True, False]])
    ids = torch.tensor([[0, 1], [3, 4], [2, 2], [9, 9], [0, 0]])
    rounds = segment_rounds(mask, ids, torch.tensor([0, 0, 0, 0, 1]))
    assert [(rows.tolist(), owners.tolist()) for rows, owners in rounds if isinstance(rows, torch.Tensor)] == [
        ([1, 4], [0, 1]),
        ([2], [0]),
        ([0], [0]),
    ]


def test_groups_are_centred_and_standardised_each_on_its_own() -> None:
    values, number = torch.tensor([1.0, 5.0, 3.0, 5.0, 9.0], dtype=torch.float64), torch.tensor([0, 1, 0, 1, 2])
    assert sizes(number).tolist() == [2, 2, 1]
    assert flat(values, number).tolist() == [False, True, False, True, True]
    assert centred(values, number).tolist() == [-1.0, 0.0, 1.0, 0.0, 0.0]
    assert standardized(values, number, eps=0.5).tolist() == [-1 / (math.sqrt(2) + 0.5), 0, 1 / (math.sqrt(2) + 0.5), 0, 0]


def test_b3_equal_values_are_centred_to_exactly_zero_where_their_mean_is_rounded() -> None:
    values = torch.full((3,), 0.1, dtype=torch.float64)
    assert (values.sum() / 3).item() != 0.1
    assert centred(values, torch.zeros(3, dtype=torch.int64)).tolist() == [0.0, 0.0, 0.0]


def test_combinations_of_keys_are_numbered() -> None:
    assert numbered(torch.tensor([4, 4, 9, 4]), torch.tensor([1, 0, 1, 1])).tolist() == [1, 0, 2, 1]
    assert numbered(torch.tensor([], dtype=torch.int64)).tolist() == []


@pytest.mark.parametrize("rule", ["gae", "bi_level_gae", "vapo", "gigpo", "reinforce_pp"])
def test_results_do_not_depend_on_how_many_rows_and_tokens_are_handled_at_a_time(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    rows, width = 9, 11
    turns = torch.randint(-1, 2, (rows, width)).sort(dim=1).values + torch.tensor([0, 0, 2, 0, 2, 4, 0, 0, 2])[:, None]
    mask = (turns % 2 == 0) & (torch.rand(rows, width) < 0.7)
    arrays = {
        "rewards": torch.randn(rows, width),
        "mask": mask,
        "turn_ids": torch.where(mask, turns, -1),
        "trajectory": torch.tensor([0, 1, 1, 2, 2, 2, 3, 4, 4]),
        "group": torch.tensor([0, 0, 0, 0, 0, 0, 1, 1, 1]),
        "values": torch.randn(rows, width),
        "truncated": torch.tensor([1, 0, 0, 1, 1, 1, 0, 1, 1]).bool(),
        "anchors": torch.randint(-1, 2, (rows, 1)).expand(rows, width),
    }
    settings = {"gamma": 0.9, "lam": 0.8, "gamma_turn": 0.7, "bootstrap_truncated": True, "whiten": True}
    plain = advantages.get(rule)(arrays, settings)
    for module, name, size in (
        (trajectories, "ROWS", 2),
        (trajectories, "BLOCK", 3),
        (recursion, "COLUMNS", 4),
        (reduce, "BLOCK", 5),
    ):
        monkeypatch.setattr(module, name, size)
    small = advantages.get(rule)(arrays, settings)
    torch.testing.assert_close(small.advantages, plain.advantages)
    if plain.value_targets is not None:
        torch.testing.assert_close(small.value_targets, plain.value_targets)


@pytest.mark.parametrize("rule", ["gae", "bi_level_gae", "vapo", "reinforce_pp"])
def test_blocks_without_holes_equal_blocks_with_holes(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column that was not sampled after every four that were, with blocks of four columns and of five."""
    generator = torch.Generator().manual_seed(0)
    tables = torch.randn(2, 6, 12, generator=generator)
    turns = torch.randint(0, 2, (6, 12), generator=generator).cumsum(dim=1)
    columns = torch.arange(15)[torch.arange(15) % 5 < 4]
    holes = torch.full((2, 6, 15), NAN)
    holes[:, :, columns] = tables
    spread = torch.full((6, 15), -1)
    spread[:, columns] = turns
    owners, cut = torch.tensor([0, 0, 1, 2, 2, 3]), torch.tensor([1, 1, 0, 1, 1, 0]).bool()
    turns[[1, 4]] += 20
    spread[[1, 4]] = torch.where(spread[[1, 4]] < 0, -1, spread[[1, 4]] + 20)
    settings = {"gamma": 0.9, "lam": 0.8, "gamma_turn": 0.7, "length_alpha": 0.5, "bootstrap_truncated": True}
    found = []
    for (rewards, values), ids, size in ((tables, turns, 4), (holes, spread, 5)):
        monkeypatch.setattr(recursion, "COLUMNS", size)
        arrays = {"rewards": rewards, "mask": ids >= 0, "turn_ids": ids, "trajectory": owners, "values": values}
        found.append(advantages.get(rule)(arrays | {"truncated": cut}, settings))
    full, gapped = found
    torch.testing.assert_close(gapped.advantages[:, columns], full.advantages)
    if full.value_targets is not None:
        torch.testing.assert_close(gapped.value_targets[:, columns], full.value_targets)
