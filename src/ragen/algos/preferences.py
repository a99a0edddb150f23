"""What preference losses learn from: which trajectories or turns are better than which others.

Shapes: R rows, T tokens, M trajectories, U units (trajectories or turns), Q pairs.
"""

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Pairing = Literal["best-worst", "all"]
_TOLERANCE = 1e-9  # relative: larger than the rounding of a sum of rewards, smaller than any real difference


def turn_numbers(mask: Tensor, turn_ids: Tensor, trajectory: Tensor) -> Tensor:
    """Number the turns of all trajectories 0 … U−1, in (trajectory, turn) order: (R, T) int64, −1 off the mask."""
    longest = int(turn_ids.max()) + 1 if turn_ids.numel() else 1
    numbers = torch.full(mask.shape, -1, dtype=torch.int64)
    keys = (trajectory[:, None] * longest + turn_ids.to(torch.int64))[mask]
    numbers[mask] = torch.unique(keys, return_inverse=True)[1]
    return numbers


def turn_contents(ids: Tensor, mask: Tensor, turns: Tensor, group: Tensor) -> tuple[Tensor, Tensor]:
    """(histories, replies), both (U,) int64: turns with equal numbers in the first follow the same tokens, in one group of
    ``group`` (R,); with equal numbers in the second they sampled the same tokens.

    A turn's history is what stands before its first sampled token in its row, ``ids`` (R, T).
    """
    count = int(turns.max()) + 1 if turns.numel() else 0
    histories, replies = torch.zeros(count, dtype=torch.int64), torch.zeros(count, dtype=torch.int64)
    before: dict[tuple[int, bytes], int] = {}
    sampled: dict[bytes, int] = {}
    table, numbers, groups = ids.numpy(), torch.where(mask, turns, -1).numpy(), group.tolist()
    for r in range(len(table)):
        for turn in np.unique(numbers[r][numbers[r] >= 0]):
            own = np.flatnonzero(numbers[r] == turn)
            histories[turn] = before.setdefault((groups[r], table[r, : own[0]].tobytes()), len(before))
            replies[turn] = sampled.setdefault(table[r, own].tobytes(), len(sampled))
    return histories, replies


def preference_pairs(
    values: Tensor, alike: Tensor, *, pairing: Pairing, margin: float = 0.0, contents: Tensor | None = None
) -> Tensor:
    """(Q, 2) int64: the better and the worse one of units that are ``alike`` (U,), by their ``values`` (U,).

    - ``best-worst``: the unit of the highest value against that of the lowest, one pair of each set of alike units (of
      equal values the lower number)
    - ``all``: every two units

    A pair needs a difference above ``margin`` ≥ 0 (and above rounding), and, where ``contents`` (U,) are given, different
    ones: the gradients of equal replies cancel. Pairs are in ascending order of (set, better, worse).
    """
    value, content = values.numpy(), None if contents is None else contents.numpy()
    pairs = [np.empty((0, 2), dtype=np.int64)]
    for units in _sets(alike.numpy()):
        own = value[units]
        best, worst = (units, units) if pairing == "all" else (units[[np.argmax(own)]], units[[np.argmin(own)]])
        least = margin + _rounding(own)
        for i in best:  # a row of all pairs at a time: memory as the pairs that are found need, not as those looked at
            below = value[i] - value[worst] > least
            if content is not None:
                below &= content[i] != content[worst]
            pairs.append(np.stack([np.full(below.sum(), i), worst[below]], axis=1))
    return torch.from_numpy(np.concatenate(pairs))


def preference_labels(returns: Tensor, group: Tensor, threshold: float | None) -> Tensor:
    """(M,) int64: 1 = a good trajectory, −1 = a bad one, 0 = neither.

    With a ``threshold``: good iff its return is above it, else bad. Without: above or below the mean of its ``group`` (M,)
    by more than rounding; else neither, as in a flat group.
    """
    if threshold is not None:
        return torch.where(returns > threshold, 1, -1)
    labels = torch.zeros(len(returns), dtype=torch.int64)
    for units in _sets(group.numpy()):
        off = returns[units] - returns[units].mean()
        labels[units] = torch.where(off.abs() > _rounding(returns[units].numpy()), off.sign(), 0).to(torch.int64)
    return labels


def _rounding(values: NDArray[np.float64]) -> float:
    """Differences up to this are none: the same rewards in another order, or over other turns, add up to that."""
    return _TOLERANCE * float(np.abs(values).max())


def _sets(alike: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """The numbers of the units of each set, ascending."""
    order = np.argsort(alike, kind="stable")
    starts = np.flatnonzero(np.diff(alike[order])) + 1
    return [units.astype(np.int64) for units in np.split(order, starts) if units.size]
