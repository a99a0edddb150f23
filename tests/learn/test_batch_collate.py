"""The batch: right-padded, numbered, and masked by position."""

import dataclasses

import numpy as np
import pytest
import torch

from ragen.episode import Completion, EndReason, Group, Segment, StopReason, Trajectory, Turn
from ragen.learn.batch import collate, collate_segments


def trajectory(
    sampled: tuple[int, ...], member: int, end: EndReason = EndReason.TERMINATED, cut: bool = False
) -> Trajectory:
    completion = Completion(sampled, (-1.0,) * len(sampled), (1.0,) * len(sampled), "", StopReason.END)
    first = Turn((5, 6), False, completion, "", (), True, 1.0)
    turns = (first, dataclasses.replace(first, prompt_ids=(6,))) if cut else (first,)
    return Trajectory("env", 0, member, turns, end, success=False)


def test_rows_are_in_group_member_turn_order_with_trajectories_and_groups_numbered_from_0() -> None:
    groups = [
        Group(7, (trajectory((1,), 0), trajectory((2, 3), 1, cut=True))),
        Group(4, (trajectory((9,), 0, EndReason.BUDGET),)),
    ]
    batch = collate(groups, pad_id=0)
    assert batch.trajectory.tolist() == [0, 1, 1, 2]
    assert batch.group.tolist() == [0, 0, 0, 1]
    assert batch.trajectories == 3
    assert batch.ids.tolist() == [[5, 6, 1, 0], [5, 6, 2, 3], [6, 2, 3, 0], [5, 6, 9, 0]]
    assert batch.lengths.tolist() == [3, 4, 3, 3]
    assert batch.positions.tolist() == [[0, 1, 2, 3]] * 4
    assert batch.turn_ids.tolist() == [[-1, -1, 0, -1], [-1, -1, 0, 0], [-1, 1, 1, -1], [-1, -1, 0, -1]]
    assert batch.rewards.sum(1).tolist() == [1, 1, 1, 1]
    assert batch.truncated.tolist() == [False, False, False, True]


@pytest.mark.parametrize("end", [0, 9], ids=["end = pad", "end"])
def test_b12_the_reward_lies_on_the_last_sampled_token_whether_padding_follows_or_not(end: int) -> None:
    short, long = trajectory((3, 4, end), 0), trajectory((3, 4, 3, 4, end), 1)
    batch = collate([Group(0, (short, long))], pad_id=0)
    assert batch.ids.tolist() == [[5, 6, 3, 4, end, 0, 0], [5, 6, 3, 4, 3, 4, end]]
    assert batch.rewards.tolist() == [[0, 0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 0, 0, 1]]
    assert batch.mask[batch.rewards != 0].all()


def test_states_are_numbered_within_their_group_on_the_sampled_tokens() -> None:
    def anchored(member: int, keys: tuple[str | None, ...], cut: bool = False) -> Trajectory:
        first = trajectory((1, 2), member, cut=True)
        turns = [dataclasses.replace(turn, anchor=key, extends=not cut) for turn, key in zip(first.turns, keys, strict=True)]
        return dataclasses.replace(first, turns=(dataclasses.replace(turns[0], extends=False), turns[1]))

    batch = collate(
        [Group(0, (anchored(0, ("a", "b")), anchored(1, ("b", None), cut=True))), Group(1, (anchored(0, ("a", "a")),))], 0
    )
    assert batch.anchors.tolist() == [
        [-1, -1, 0, 0, -1, 1, 1],
        [-1, -1, 1, 1, -1, -1, -1],
        [-1] * 7,
        [-1, -1, 2, 2, -1, 2, 2],
    ]


def test_a6_padding_is_known_by_position_when_the_pad_id_is_the_end_of_turn_id() -> None:
    row = Segment(
        np.array([5, 6, 0]), np.array([False, True, True]), *(np.zeros(3, t) for t in (np.float32, np.int32, np.float32))
    )
    longer = dataclasses.replace(row, **{f.name: np.resize(getattr(row, f.name), 6) for f in dataclasses.fields(row)})
    batch = collate_segments([row, longer], pad_id=0)
    assert batch.ids[0].tolist() == [5, 6, 0, 0, 0, 0]
    assert batch.mask[0].tolist() == [False, True, True, False, False, False]
    assert batch.lengths.tolist() == [3, 6]


def test_an_episode_that_ended_in_an_error_is_refused_by_name_and_an_empty_batch_too() -> None:
    with pytest.raises(ValueError, match="group 3, member 1"):
        collate([Group(3, (trajectory((1,), 1, EndReason.ERROR),))], pad_id=0)
    with pytest.raises(ValueError, match="no row"):
        collate([], pad_id=0)


def test_types_are_the_documented_ones() -> None:
    batch = collate([Group(0, (trajectory((1,), 0),))], pad_id=0)
    kinds = {f.name: getattr(batch, f.name).dtype for f in dataclasses.fields(batch)}
    assert kinds == {
        "ids": torch.int64,
        "lengths": torch.int64,
        "positions": torch.int64,
        "mask": torch.bool,
        "behaviour_logprobs": torch.float32,
        "turn_ids": torch.int32,
        "rewards": torch.float64,
        "trajectory": torch.int64,
        "group": torch.int64,
        "truncated": torch.bool,
        "anchors": torch.int64,
    }
