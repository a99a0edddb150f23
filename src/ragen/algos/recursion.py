"""The backward recursion of generalised advantage estimation over the sampled tokens of whole trajectories."""

from collections.abc import Sequence

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
    target_decay: float | None = None,
    after: Tensor | None = None,
    ends: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """A_j = r_j + γ V_{j+1} − V_j + d A_{j+1} and A_j + V_j, both (R, T) float32 and exactly 0 off the mask.

    j counts the sampled tokens of one trajectory in turn order, across turns and segments. Behind the last one A is 0 and V
    is ``after`` (M,), by default 0; so they are behind every token that ``ends`` (R, T) bool marks: V and A of what follows
    it are not looked at. ``decay`` d is a number, or one a trajectory (M,); with ``target_decay`` the A in A_j + V_j has
    that one instead. Computed in float64 on the CPU, a vector operation a token position for all rows at once.

    Shapes: ``rewards``, ``values``, ``mask``, ``turn_ids`` (R, T); ``index`` (R,) the rows' trajectories, 0 … M−1.
    """
    count = int(index.max()) + 1 if index.numel() else 0
    state = torch.zeros(2 if target_decay is None else 3, count, dtype=torch.float64)  # V and A of the token that follows
    if after is not None:
        state[0] = after
    out = torch.zeros(2, *mask.shape, dtype=torch.float32)
    for rows, owners in segment_rounds(mask, turn_ids, index):
        own = state[:, owners]
        decays = [decay[owners] if isinstance(decay, Tensor) else decay]
        decays += [] if target_decay is None else [target_decay]
        for stop in range(mask.shape[1], 0, -COLUMNS):
            block = (rows, slice(max(0, stop - COLUMNS), stop))
            on = mask[block].T.contiguous()
            if not on.any():
                continue
            reward, value = (table[block].T.to(torch.float64).contiguous() for table in (rewards, values))
            end = ends[block].T.contiguous() if ends is not None else None
            found = _block(reward, value, on, end, own, gamma, decays)
            for table, part in zip(out, (found[0], found[-1] + value), strict=True):
                table[block] = torch.where(on, part, 0).T.to(torch.float32)
        state[:, owners] = own
    return out[0], out[1]


def _block(
    rewards: Tensor,
    values: Tensor,
    mask: Tensor,
    ends: Tensor | None,
    state: Tensor,
    gamma: float,
    decays: Sequence[float | Tensor],
) -> list[Tensor]:
    """For each decay d, A over (C, n) positions and rows, anything off the mask; ``state`` (1 + decays, n) is carried on.

    In each column A = δ + d A', where a position off the mask has δ = 0 and d = 1 and so hands on what follows it.
    """
    seen = torch.cat([values, state[:1]])  # V of the first sampled token from here on
    if not mask.all():
        value, on, columns = values.unbind(), mask.unbind(), seen.unbind()
        for c in range(len(rewards) - 1, -1, -1):
            torch.where(on[c], value[c], columns[c + 1], out=columns[c])
    following = seen[1:] if ends is None else seen[1:].masked_fill(ends, 0)
    delta = torch.where(mask, torch.add(rewards, following, alpha=gamma).sub_(values), 0)
    state[0] = seen[0]
    found = []
    for number, decay in enumerate(decays, start=1):
        slope = torch.where(mask, torch.as_tensor(decay, dtype=torch.float64), 1.0)
        if ends is not None:
            slope.masked_fill_(ends, 0)
        advantages = torch.cat([delta, state[number : number + 1]])
        new, factor, columns = delta.unbind(), slope.unbind(), advantages.unbind()
        for c in range(len(rewards) - 1, -1, -1):
            torch.addcmul(new[c], factor[c], columns[c + 1], out=columns[c])
        state[number] = advantages[0]
        found.append(advantages[:-1])
    return found
