"""Every masked mean. Off the mask a value may be anything, NaN included.

Shapes: R segments (rows), T tokens, M trajectories.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

Aggregation = Literal["token-mean", "trajectory-mean", "trajectory-sum"]
BLOCK = 1 << 18  # numbers handled at a time: temporary copies stay in the processor's cache


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean of ``values`` where ``mask`` is True (scalar); 0 where nothing is."""
    return torch.where(mask, values, 0).sum() / mask.sum().clamp(min=1)


def weighted_sum(values: Tensor, weights: Tensor) -> Tensor:
    """Σ weights · values (scalar); a value of weight 0 is never looked at.

    ``values`` may be NaN where the weight is 0, and passes no gradient there; but a gradient that goes on through the
    arithmetic which *made* a NaN is NaN, so mask the inputs of such arithmetic first.
    """
    return (torch.where(weights != 0, values, 0) * weights).sum()


class Mean(NamedTuple):
    """A weighted mean in two parts that add up over the parts of a batch: ``total`` = Σ w·x, ``mass`` = Σ w (scalars)."""

    total: Tensor
    mass: Tensor


def weighted_mean(values: Tensor, weights: Tensor) -> Mean:
    """The mean of ``values`` (or of a bool's truth) by ``weights`` of the same shape; no gradient passes."""
    return Mean(weighted_sum(values.detach().to(weights.dtype), weights), weights.sum())


def unit_sums(values: Tensor, mask: Tensor, units: Tensor) -> Tensor:
    """Σ of ``values`` over the tokens of each unit where ``mask`` is True: (U,), U = the largest unit number + 1.

    All tensors have one shape, (R, T) or (N,); ``units`` int64 number what a token belongs to (a turn, a trajectory).
    Numbers need not be consecutive: a unit without a token has sum 0.
    """
    inside = units[mask]
    count = int(inside.max()) + 1 if inside.numel() else 0
    return torch.zeros(count, dtype=values.dtype, device=values.device).index_add(0, inside, values[mask])


def whiten(values: Tensor, mask: Tensor, eps: float = 1e-8) -> Tensor:
    """(values − mean) / (std + eps) over the mask, exactly 0 off it; std with Bessel's correction; computed in float64.

    Fewer than two values, or equal ones, give exactly 0.
    """
    mean, deviation = _spread(values, mask)
    out = torch.zeros(values.shape, dtype=values.dtype, device=values.device)
    if deviation is None:
        return out
    for part, on, place in zip(*(torch.split(table.flatten(), BLOCK) for table in (values, mask, out)), strict=True):
        white = part.to(torch.float64, copy=True).sub_(mean).div_(deviation + eps)
        place.copy_(white if is_full(on) else torch.where(on, white, 0))
    return out


def _spread(values: Tensor, mask: Tensor) -> tuple[float, float | None]:
    """Mean and std over the mask, float64; no std where fewer than two values, or only equal ones, are there.

    Blocks are read once: count n, mean and M = Σ (x − mean)² of each are merged by M + M' + (mean' − mean)² n n' / (n + n')
    (Chan, Golub and LeVeque 1983).
    """
    count, mean, squares, ends = 0, 0.0, 0.0, []
    for part, on in zip(torch.split(values.flatten(), BLOCK), torch.split(mask.flatten(), BLOCK), strict=True):
        inside = part if is_full(on) else part[on]
        if not len(inside):
            continue
        ends += [end.item() for end in inside.aminmax()]
        wide = inside.to(torch.float64)
        here = float(wide.mean())
        off, share = here - mean, len(inside) / (count + len(inside))
        squares += float((wide - here).square_().sum()) + off * off * count * share
        mean += off * share
        count += len(inside)
    lowest, highest = torch.tensor(ends or [0.0], dtype=torch.float64).aminmax()
    if count < 2 or lowest == highest:
        return mean, None
    return mean, (squares / (count - 1)) ** 0.5


def is_full(mask: Tensor) -> bool:
    """Whether ``mask`` is True everywhere, in a tenth of the time of ``mask.all()``."""
    return not mask.numel() or bool(mask.view(torch.uint8).amin())


def trajectory_index(trajectory: Tensor) -> tuple[Tensor, int]:
    """Number the trajectories 0 … M−1 in the order of their ids: ((R,) int64, M)."""
    ids, index = torch.unique(trajectory, return_inverse=True)
    return index, ids.numel()


def token_weights(
    mask: Tensor,
    trajectory: Tensor,
    mode: Aggregation,
    *,
    constant: float = 256.0,
    trajectory_weights: Tensor | None = None,
) -> Tensor:
    """Weights (R, T) float32 such that the loss is ``(weights * per_token).sum()``, 0 off the mask.

    Give the rows of a whole (mini-)batch: its denominators are then inside the weights, so that the gradient does not
    depend on how those rows are later split into micro-batches or devices.

    - ``token-mean``: 1 / n, with n the trained tokens of all rows (DAPO, arXiv 2503.14476); Σ = 1
    - ``trajectory-mean``: 1 / (M · |τ|), |τ| = trained tokens of all segments of the trajectory (GRPO, PPO of RAGEN); Σ = 1
    - ``trajectory-sum``: 1 / (M · constant) (Dr. GRPO, arXiv 2503.20783)

    A trajectory without a trained token has weight 0 and does not count in M; with none at all every weight is 0.
    ``trajectory`` (R,) are ids; ``trajectory_weights`` (R,), the same on all segments of a trajectory, multiply the result
    and leave the denominators alone (otherwise a mini-batch of one weakly weighted group would undo its weight).
    """
    index, count = trajectory_index(trajectory)
    tokens = torch.zeros(count, dtype=torch.int64, device=mask.device).index_add_(0, index, mask.sum(dim=1))
    trained = (tokens > 0).sum().clamp(min=1)
    if mode == "token-mean":
        per_row = 1.0 / tokens.sum().clamp(min=1).to(torch.float32).expand(len(mask))
    elif mode == "trajectory-mean":
        per_row = 1.0 / (trained * tokens.clamp(min=1)).to(torch.float32)[index]
    elif mode == "trajectory-sum":
        per_row = 1.0 / (trained.to(torch.float32) * constant).expand(len(mask))
    else:
        raise ValueError(f"unknown aggregation '{mode}': use token-mean, trajectory-mean or trajectory-sum")
    if trajectory_weights is not None:
        per_row = per_row * trajectory_weights.to(torch.float32)
    return torch.where(mask, per_row[:, None], 0.0)
