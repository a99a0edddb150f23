"""The backward recursion of generalised advantage estimation over the sampled tokens of whole trajectories."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ragen.algos.reduce import is_full
from ragen.algos.trajectories import segment_rounds

COLUMNS = 64  # tokens turned on their side at a time
Fixed = tuple[tuple[Tensor, ...], Tensor]  # places in a block, as (E,) indices a dimension, and A there (E,)


def backward(
    rewards: Tensor,
    values: Tensor | None,
    mask: Tensor,
    turn_ids: Tensor,
    index: Tensor,
    *,
    gamma: float,
    decay: float | Tensor,
    target_decay: float | None = None,
    after: Tensor | None = None,
    ends: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """A_j = r_j + γ V_{j+1} − V_j + d A_{j+1} and A_j + V_j, both (R, T) float32 and exactly 0 off the mask.

    j counts the sampled tokens of one trajectory in turn order, across turns and segments. Behind the last one A is 0 and V
    is ``after`` (M,), by default 0. ``ends`` are marks (R, T) bool and advantages of turns (M, K) float64: a marked token
    has the A of its turn, whatever it and what follows would give. ``decay`` d is a number, or one a trajectory (M,); with
    ``target_decay`` the A in A_j + V_j has that one instead. ``values`` None are zeros. Computed in float64 on the CPU, a
    vector operation a token position for all rows at once.

    Shapes: ``rewards``, ``values``, ``mask``, ``turn_ids`` (R, T); ``index`` (R,) the rows' trajectories, 0 … M−1.
    """
    count = int(index.max()) + 1 if index.numel() else 0
    state = torch.zeros(2 if target_decay is None else 3, count, dtype=torch.float64)  # V and A of the token that follows
    if after is not None:
        state[0] = after
    out = [torch.zeros(mask.shape, dtype=torch.float32) for _ in range(1 if values is None else 2)]
    for rows, owners in segment_rounds(mask, turn_ids, index):
        own = state[:, owners]
        decays = [decay[owners] if isinstance(decay, Tensor) else decay]
        decays += [] if target_decay is None else [target_decay]
        space = torch.empty(len(own), COLUMNS + 1, len(owners), dtype=torch.float64)  # once: new memory is slow
        for stop in range(mask.shape[1], 0, -COLUMNS):
            block = (rows, slice(max(0, stop - COLUMNS), stop))
            on = _turned(_part(mask, *block))
            whole = is_full(on)
            if not whole and not on.any():
                continue
            reward, value = _turned(_part(rewards, *block)), None if values is None else _turned(_part(values, *block))
            fixed = None if ends is None else _fixed(_part(ends[0], *block), ends[1][owners], _part(turn_ids, *block))
            seen, *found = _block(reward, value, None if whole else on, fixed, own, gamma, decays, space)
            parts = found[:1] if values is None else [found[0], seen.add_(found[-1])]
            for table, part in zip(out, parts, strict=True):
                table[block] = _turned((part if whole else torch.where(on, part, 0)).to(torch.float32))
        state[:, owners] = own
    return out[0], out[-1]


def _part(table: Tensor, rows: Tensor | slice, columns: slice) -> Tensor:
    """``table[rows, columns]``; where ``rows`` are numbers, faster than by indexing."""
    return table[rows, columns] if isinstance(rows, slice) else table[:, columns].index_select(0, rows)


def _turned(table: Tensor) -> Tensor:
    """(n, C) → (C, n). Fast is only a table that lies in one piece, and a copy that does not convert numbers as well."""
    return table.contiguous().T.contiguous()


def _fixed(ends: Tensor, advantages: Tensor, turn_ids: Tensor) -> Fixed:
    """``ends``, ``turn_ids`` (n, C), ``advantages`` (n, K) of the rows' turns."""
    positions, rows = _turned(ends).nonzero(as_tuple=True)
    return (positions, rows), advantages[rows, turn_ids[rows, positions].long()]


def _block(
    rewards: Tensor,
    values: Tensor | None,
    mask: Tensor | None,
    fixed: Fixed | None,
    state: Tensor,
    gamma: float,
    decays: Sequence[float | Tensor],
    space: Tensor,
) -> list[Tensor]:
    """V and, for each decay d, A over (C, n) positions and rows, anything off the mask; ``state`` (1 + decays, n) goes on.

    In each column A = δ + d A', where a position off the mask has δ = 0 and d = 1 and so hands on what follows it, and one
    that is ``fixed`` has its A as δ and d = 0. ``mask`` None is True everywhere, ``values`` None are zeros (V is then not
    to be read). The results lie in ``space`` (1 + decays, > C, n).
    """
    size = len(rewards)
    seen, *tables = space[:, : size + 1]  # one position more: what follows the block
    delta = tables[0][:size].copy_(rewards)
    if values is not None:
        seen[:size], seen[size] = values, state[0]
        if mask is not None:
            columns = seen.unbind()  # V of the first sampled token from here on
            for c in range(size - 1, -1, -1):
                torch.where(mask[c], columns[c], columns[c + 1], out=columns[c])
        state[0] = seen[0]
        delta.add_(seen[1:], alpha=gamma).sub_(seen[:size])
    if mask is not None:
        delta.masked_fill_(~mask, 0)
    if fixed is not None:
        delta[fixed[0]] = fixed[1]
    for table in tables[1:]:
        table[:size] = delta
    for table, decay, after in zip(tables, decays, state[1:], strict=True):
        table[size] = after
        columns = table.unbind()
        factors = _factors(decay, mask, fixed, rewards.shape)
        for c in range(size - 1, -1, -1):
            columns[c].addcmul_(factors[c], columns[c + 1])
        after.copy_(columns[0])
    return [table[:size] for table in (seen, *tables)]


def _factors(decay: float | Tensor, mask: Tensor | None, fixed: Fixed | None, shape: torch.Size) -> Sequence[Tensor]:
    """d at each position of the block: 1 off the mask, 0 where A is fixed."""
    slope = torch.as_tensor(decay, dtype=torch.float64)
    if mask is None and (fixed is None or not len(fixed[1])):
        return [slope] * shape[0]
    slope = slope.expand(shape).clone() if mask is None else torch.where(mask, slope, 1.0)
    if fixed is not None:
        slope[fixed[0]] = 0.0
    return slope.unbind()
