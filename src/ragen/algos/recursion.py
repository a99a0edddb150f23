"""The backward recursion of generalised advantage estimation over the sampled tokens of whole trajectories."""

import torch
from torch import Tensor

from ragen.algos.trajectories import segment_rounds

COLUMNS = 64  # tokens turned on their side at a time


def backward(
    rewards: Tensor,
    values: Tensor,
    mask: Tensor,
    turn_ids: Tensor,
    index: Tensor,
    *,
    gamma: float,
    decay: float | Tensor,
    after: Tensor | None = None,
    ends: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """A_j = r_j + γ V_{j+1} − V_j + d A_{j+1} and A_j + V_j, both (R, T) float32 and exactly 0 off the mask.

    j counts the sampled tokens of one trajectory in turn order, across turns and segments. Behind the last one A is 0 and V
    is ``after`` (M,), by default 0; so they are behind every token that ``ends`` (R, T) bool marks: V and A of what follows
    it are not looked at. ``decay`` d is a number, or one a trajectory (M,). Computed in float64 on the CPU, one vector
    operation a token position for all rows at once.

    Shapes: ``rewards``, ``values``, ``mask``, ``turn_ids`` (R, T); ``index`` (R,) the rows' trajectories, 0 … M−1.
    """
    count = int(index.max()) + 1 if index.numel() else 0
    state = torch.zeros(2, count, dtype=torch.float64)  # V and A of the token that follows
    if after is not None:
        state[0] = after
    out = torch.zeros(2, *mask.shape, dtype=torch.float32)
    for rows, owners in segment_rounds(mask, turn_ids, index):
        own = state[:, owners]
        slope = decay[owners] if isinstance(decay, Tensor) else decay
        for stop in range(mask.shape[1], 0, -COLUMNS):
            block = (rows, slice(max(0, stop - COLUMNS), stop))
            on = mask[block].T.contiguous()
            if on.any():
                reward, value = (table[block].T.to(torch.float64).contiguous() for table in (rewards, values))
                end = ends[block].T.contiguous() if ends is not None else None
                found = _block(reward, value, on, end, own, gamma, slope)
                for table, part in zip(out, found, strict=True):
                    table[block] = torch.where(on, part, 0).T.to(torch.float32)
        state[:, owners] = own
    return out[0], out[1]


def _block(
    rewards: Tensor, values: Tensor, mask: Tensor, ends: Tensor | None, state: Tensor, gamma: float, decay: float | Tensor
) -> tuple[Tensor, Tensor]:
    """The recursion over (C, n) positions and rows, from the last to the first; ``state`` (2, n) is carried on in place."""
    next_value, advantage = state
    found = torch.empty_like(rewards)
    for c in range(len(rewards) - 1, -1, -1):
        if ends is not None:
            state.masked_fill_(ends[c], 0)
        new = torch.add(rewards[c], next_value, alpha=gamma).sub_(values[c])
        new = new.addcmul_(advantage, decay) if isinstance(decay, Tensor) else new.add_(advantage, alpha=decay)
        torch.where(mask[c], new, advantage, out=advantage)
        torch.where(mask[c], values[c], next_value, out=next_value)
        found[c] = advantage
    return found, found + values
