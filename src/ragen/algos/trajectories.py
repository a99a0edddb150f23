"""The way between rows, trajectories and turns. Off the mask a value may be anything, NaN included.

Shapes: R segments (rows), T tokens, M trajectories, K turns. Sums are float64, on the CPU. A turn stands in one row, and a
row holds its turns in order; rows may stand in any order.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from ragen.algos.credit import Credit
from ragen.algos.reduce import BLOCK, trajectory_index

ROWS = 2048  # rows handled at a time, for the same reason as BLOCK
ROUNDING = 1e-13  # of the size of what is added: above float64's rounding, below any real difference


@dataclass(frozen=True, slots=True)
class Episodes:
    """The trajectories of a batch as wholes, numbered 0 … M−1 in the order of their ids.

    ``index`` (R,) is each row's trajectory, ``returns`` (M,) float64 the sum R(τ) of its rewards over all turns and
    segments (`settled`), ``counted`` (M,) bool whether it has a sampled token at all: one without takes no part in any
    statistic.
    """

    mask: Tensor
    index: Tensor
    returns: Tensor
    counted: Tensor

    @classmethod
    def of(cls, rewards: Tensor, mask: Tensor, trajectory: Tensor) -> Self:
        """From ``rewards`` and ``mask`` (R, T) and the rows' trajectory ids (R,)."""
        mask = mask.cpu()
        index, count = trajectory_index(trajectory.cpu())
        counted = trajectory_lengths(mask, index, count) > 0
        return cls(mask, index, trajectory_returns(rewards.cpu(), mask, index, count), counted)

    def lengths(self) -> Tensor:
        """(M,) int64: |τ|, the sampled tokens of each trajectory."""
        return trajectory_lengths(self.mask, self.index, len(self.returns))

    def of_rows(self, values: Tensor) -> Tensor:
        """(R,) → (M,): a value that all rows of a trajectory share."""
        out = torch.zeros(len(self.returns), dtype=values.dtype)
        out[self.index] = values.cpu()
        return out

    def credit(self, advantages: Tensor, device: torch.device) -> Credit:
        """Lay advantages of whole trajectories (M,) on all their sampled tokens."""
        on_rows = advantages.to(torch.float32)[self.index]
        return Credit(torch.where(self.mask, on_rows[:, None], 0).to(device))


@dataclass(frozen=True, slots=True)
class Turns:
    """The turns of a batch with a sampled token, as tables (M, K) over trajectories and turn numbers.

    ``present`` (M, K) bool; ``rows`` and ``columns`` (M, K) int64, the place in (R, T) of a turn's last sampled token (0
    where not present); ``turn_ids`` (R, T) int64 and ``index`` (R,) are those of the rows.
    """

    mask: Tensor
    turn_ids: Tensor
    index: Tensor
    present: Tensor
    rows: Tensor
    columns: Tensor

    @classmethod
    def of(cls, mask: Tensor, turn_ids: Tensor, trajectory: Tensor) -> Self:
        """From ``mask`` and ``turn_ids`` (R, T) and the rows' trajectory ids (R,)."""
        mask, turn_ids = mask.cpu(), turn_ids.cpu()
        index, count = trajectory_index(trajectory.cpu())
        # ends of runs of one turn: few, and the last of them in a row is the turn's last token
        ends = mask.clone()
        for part in blocks(*mask.shape):
            ends[part, :-1] &= ~(mask[part, 1:] & (turn_ids[part, 1:] == turn_ids[part, :-1]))
        rows, columns = ends.nonzero(as_tuple=True)
        turns = turn_ids[rows, columns].long()
        last = torch.ones(len(rows), dtype=torch.bool)
        last[:-1] = (rows[1:] != rows[:-1]) | (turns[1:] != turns[:-1])
        rows, columns, turns = rows[last], columns[last], turns[last]
        place = (index[rows], turns)
        shape = (count, int(turns.max()) + 1 if len(turns) else 0)
        present = torch.zeros(shape, dtype=torch.bool).index_put_(place, torch.ones(len(turns), dtype=torch.bool))
        tables = [torch.zeros(shape, dtype=torch.int64).index_put_(place, numbers) for numbers in (rows, columns)]
        return cls(mask, turn_ids, index, present, *tables)

    def last(self, values: Tensor) -> Tensor:
        """(R, T) → (M, K): what stands on each turn's last sampled token, 0 where there is no turn."""
        return torch.where(self.present, values.cpu()[self.rows, self.columns], 0)

    def _found(self, values: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """Of the sampled tokens whose value is not 0 (few, in rewards): the places in (M, K), and the values in float64."""
        some = torch.zeros_like(self.mask)
        for part in blocks(*self.mask.shape):
            torch.logical_and(self.mask[part], values[part], out=some[part])
        rows, columns = some.nonzero(as_tuple=True)
        return (self.index[rows], self.turn_ids[rows, columns].long()), values[rows, columns].to(torch.float64)

    def _sums(self, place: tuple[Tensor, Tensor], values: Tensor) -> Tensor:
        return torch.zeros(self.present.shape, dtype=torch.float64).index_put_(place, values, accumulate=True)

    def returns_to_go(self, rewards: Tensor, gamma: float) -> Tensor:
        """(R, T) → (M, K) float64, `settled`: G_k = Σ_{l≥k} γ^{l−k} r_l over turns with a sampled token (γ = 0: r_k alone).

        0 where there is no turn.
        """
        place, paid = self._found(rewards.cpu())
        totals, sizes = (self._to_go(self._sums(place, part), gamma) for part in (paid, paid.abs()))
        out = torch.zeros_like(totals)
        out[self.present] = settled(totals[self.present], sizes[self.present])
        return out

    def _to_go(self, rewards: Tensor, gamma: float) -> Tensor:
        out = torch.zeros_like(rewards)
        running = torch.zeros(len(rewards), dtype=rewards.dtype)
        for k in range(rewards.shape[1] - 1, -1, -1):
            running = torch.where(self.present[:, k], rewards[:, k] + gamma * running, running)
            out[:, k] = running
        return out

    def on_last(self, table: Tensor, out: Tensor) -> Tensor:
        """Write a table (M, K) on the turns' last sampled tokens of ``out`` (R, T), in place."""
        out[self.rows[self.present], self.columns[self.present]] = table[self.present].to(out.dtype)
        return out

    def on_tokens(self, table: Tensor) -> Tensor:
        """(M, K) → (R, T) float32: each turn's value on all its sampled tokens, exactly 0 off the mask."""
        out = torch.zeros(self.mask.shape, dtype=torch.float32)
        if not self.present.any():
            return out
        table = table.to(torch.float32)
        for rows in blocks(*self.mask.shape):
            turns = self.turn_ids[rows].long().clamp(0, table.shape[1] - 1)
            out[rows] = torch.where(self.mask[rows], table[self.index[rows]].gather(1, turns), 0)
        return out


def trajectory_returns(rewards: Tensor, mask: Tensor, index: Tensor, count: int) -> Tensor:
    """R(τ) = Σ rewards over the sampled tokens of all rows of a trajectory, `settled`: (M,) float64.

    ``rewards``, ``mask`` (R, T); ``index`` (R,) the rows' trajectories, 0 … M−1, of which there are ``count``.
    """
    sums, sizes = torch.zeros(2, count, dtype=torch.float64)
    for rows in blocks(*mask.shape):
        inside = torch.where(mask[rows], rewards[rows], 0)
        sums.index_add_(0, index[rows], inside.sum(dim=1, dtype=torch.float64))
        sizes.index_add_(0, index[rows], inside.abs_().sum(dim=1, dtype=torch.float64))
    return settled(sums, sizes)


def trajectory_lengths(mask: Tensor, index: Tensor, count: int) -> Tensor:
    """(M,) int64: the sampled tokens of each of the ``count`` trajectories; ``index`` (R,) is each row's trajectory."""
    return torch.zeros(count, dtype=torch.int64).index_add_(0, index, row_lengths(mask))


def row_lengths(mask: Tensor) -> Tensor:
    """(R,) int64: the sampled tokens of each row of ``mask`` (R, T)."""
    return torch.cat([mask[:0].sum(dim=1), *(mask[rows].sum(dim=1) for rows in blocks(*mask.shape))])


def settled(sums: Tensor, sizes: Tensor) -> Tensor:
    """Sums (M,) float64 with those made equal, to the least of them, that differ by rounding alone.

    The same rewards in another order, or over other turns, add up to other last bits: then max R = min R would not tell a
    flat group. ``sizes`` (M,) are the sums of the absolute values, of which rounding is a share below ``ROUNDING``; only
    those of the two sums count, so that large rewards elsewhere in the batch make nothing equal.
    """
    ordered, order = sums.sort()
    own = sizes[order]
    apart = torch.ones(len(sums), dtype=torch.bool)
    apart[1:] = ~(ordered.diff() <= ROUNDING * torch.maximum(own[1:], own[:-1]))
    out = torch.empty_like(sums)
    out[order] = ordered[apart][apart.cumsum(0) - 1]
    return out


def blocks(rows: int, width: int) -> list[slice]:
    """Slices of whole rows that hold about ``BLOCK`` tokens each."""
    size = max(1, BLOCK // max(1, width))
    return [slice(start, start + size) for start in range(0, rows, size)]


def segment_rounds(mask: Tensor, turn_ids: Tensor, index: Tensor) -> list[tuple[Tensor | slice, Tensor]]:
    """Pairs (rows, their trajectories): the last segment of every trajectory, then the one before it, and so on.

    ``mask``, ``turn_ids`` (R, T), ``index`` (R,). No pair has two rows of a trajectory, or more than ``ROWS``; rows without
    a sampled token are left out where a trajectory has several rows.
    """
    if len(torch.unique(index)) == len(index):
        return [(slice(start, start + ROWS), index[start : start + ROWS]) for start in range(0, len(index), ROWS)]
    used = mask.any(dim=1).nonzero()[:, 0]
    first = mask[used].to(torch.uint8).argmax(dim=1)
    order = torch.argsort(turn_ids[used, first], descending=True, stable=True)
    order = order[torch.argsort(index[used][order], stable=True)]
    rows = used[order]
    counts = torch.bincount(index[rows], minlength=int(index.max()) + 1)
    rank = torch.arange(len(rows)) - (counts.cumsum(0) - counts)[index[rows]]
    rounds = [rows[rank == k] for k in range(int(counts.max()) if len(rows) else 0)]
    return [(part, index[part]) for each in rounds for part in torch.split(each, ROWS)]
