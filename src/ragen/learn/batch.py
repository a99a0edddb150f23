"""The training batch: R rows, right-padded; what is real is known by position, never by value."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ragen.episode import EndReason, Group, Segment
from ragen.rollout.segments import segments


@dataclass(frozen=True, slots=True)
class Batch:
    """R segments of at most T tokens; element t of every (R, T) array describes token t.

    ``ids`` (R, T) int64, padding holds the pad id but is never recognised by it; ``lengths`` (R,) int64; ``positions``
    (R, T) int64 0, 1, …; ``mask`` (R, T) bool, True = sampled by the policy; ``behaviour_logprobs`` (R, T) float32 nats, 0
    off mask; ``turn_ids`` (R, T) int32, −1 off mask; ``rewards`` (R, T) float64, so that equal returns stay equal;
    ``trajectory`` and ``group`` (R,) int64, numbered from 0 in the order given; ``truncated`` (R,) bool: the row's episode
    was cut, not ended by its environment;
    ``anchors`` (R, T) int64: a number for each state that a turn of the group began in, −1 where it is not known.
    """

    ids: Tensor
    lengths: Tensor
    positions: Tensor
    mask: Tensor
    behaviour_logprobs: Tensor
    turn_ids: Tensor
    rewards: Tensor
    trajectory: Tensor
    group: Tensor
    truncated: Tensor
    anchors: Tensor

    @property
    def trajectories(self) -> int:
        """Number of trajectories (one may have several rows)."""
        return int(self.trajectory.max()) + 1 if self.trajectory.numel() else 0


def collate(groups: Sequence[Group], pad_id: int) -> Batch:
    """Lay the trajectories of all groups into one batch, rows in (group, member, turn) order.

    Raises:
        ValueError: a trajectory ended in an error (those are counted and never trained on), or nothing is there to train on.
    """
    rows: list[tuple[Segment, int, int, bool]] = []
    anchors: list[NDArray[np.int64]] = []
    keys: dict[tuple[int, str], int] = {}
    members = [(index, trajectory) for index, group in enumerate(groups) for trajectory in group.trajectories]
    for number, (index, trajectory) in enumerate(members):
        if trajectory.end is EndReason.ERROR:
            raise ValueError(
                f"group {groups[index].index}, member {trajectory.member} ended in an error: remove it before collate"
            )
        cut = trajectory.end is not EndReason.TERMINATED
        own = [(segment, number, index, cut) for segment in segments(trajectory)]
        rows += own
        named = [
            -1 if turn.anchor is None else keys.setdefault((index, turn.anchor), len(keys)) for turn in trajectory.turns
        ]
        table = np.asarray([*named, -1], dtype=np.int64)  # turn id −1, off the mask, takes the last
        anchors += [table[segment.turn_ids] for segment, *_ in own]
    return _stack(rows, pad_id, anchors)


def collate_segments(demonstrations: Sequence[Segment], pad_id: int) -> Batch:
    """Lay single segments (demonstrations) into one batch: each is a trajectory and a group of its own."""
    unknown = [np.full(segment.turn_ids.shape, -1, dtype=np.int64) for segment in demonstrations]
    return _stack([(segment, number, number, False) for number, segment in enumerate(demonstrations)], pad_id, unknown)


def _stack(rows: list[tuple[Segment, int, int, bool]], pad_id: int, anchors: list[NDArray[np.int64]]) -> Batch:
    if not rows:
        raise ValueError("there is no row to train on: every trajectory is empty or was filtered out; skip the update")
    lengths = np.asarray([row[0].token_ids.size for row in rows], dtype=np.int64)
    shape = (len(rows), int(lengths.max()))
    ids = np.full(shape, pad_id, dtype=np.int64)
    mask = np.zeros(shape, dtype=np.bool_)
    logprobs = np.zeros(shape, dtype=np.float32)
    turn_ids = np.full(shape, -1, dtype=np.int32)
    rewards = np.zeros(shape, dtype=np.float64)
    states = np.full(shape, -1, dtype=np.int64)
    for r, (segment, *_) in enumerate(rows):
        n = int(lengths[r])
        ids[r, :n], mask[r, :n], logprobs[r, :n] = segment.token_ids, segment.mask, segment.logprobs
        turn_ids[r, :n], rewards[r, :n], states[r, :n] = segment.turn_ids, segment.rewards, anchors[r]
    return Batch(
        ids=torch.from_numpy(ids),
        lengths=torch.from_numpy(lengths),
        positions=torch.arange(shape[1]).expand(shape).contiguous(),
        mask=torch.from_numpy(mask),
        behaviour_logprobs=torch.from_numpy(logprobs),
        turn_ids=torch.from_numpy(turn_ids),
        rewards=torch.from_numpy(rewards),
        trajectory=torch.tensor([row[1] for row in rows], dtype=torch.int64),
        group=torch.tensor([row[2] for row in rows], dtype=torch.int64),
        truncated=torch.tensor([row[3] for row in rows], dtype=torch.bool),
        anchors=torch.from_numpy(states),
    )
