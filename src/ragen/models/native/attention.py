"""Attention of rows over their own keys: column j of a row's keys holds the token at position j.

The sampler's cache and the learner's packed batches both come here in this shape, with the same products and the same
roundings in the same order, so that the two agree: bit for bit where a machine's products do not depend on the number of
rows (bfloat16 ones of an AMD EPYC with AVX-512 BF16 did not), else to rounding.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ragen.models.shapes import COLUMNS, rounded

SCORES = 1 << 21  # attention scores worked on at a time


@dataclass(frozen=True, slots=True)
class Block:
    """Some queries of some rows: ``rows`` × ``queries``, the ``seen`` first columns, and what is added to the scores."""

    rows: slice
    queries: slice
    seen: int
    bias: Tensor  # (rows, 1, 1, queries, seen) in the scores' type: 0 where a query may look, −inf where not


def causal_blocks(positions: Tensor, columns: int, heads: int, dtype: torch.dtype) -> list[Block]:
    """Cut queries at ``positions`` (B, q), each below ``columns``, into blocks of at most `SCORES` scores in ``dtype``.

    A query at position p sees the columns 0 … p. The blocks serve every layer of a forward pass.
    """
    rows, width = positions.shape
    step = max(1, min(width, SCORES // (heads * columns)))
    count = max(1, SCORES // (heads * step * columns))
    blocks = []
    for top in range(0, rows, count):
        for left in range(0, width, step):
            part = positions[top : top + count, left : left + step]
            seen = columns if width == 1 else min(columns, rounded(int(part.max()) + 1, COLUMNS))
            hidden = torch.arange(seen, device=positions.device) > part[:, :, None]
            bias = torch.zeros(hidden.shape, dtype=dtype, device=positions.device).masked_fill_(hidden, -torch.inf)
            blocks.append(Block(slice(top, top + count), slice(left, left + step), seen, bias[:, None, None]))
    return blocks


def attend(queries: Tensor, keys: Tensor, values: Tensor, blocks: list[Block], scale: float) -> Tensor:
    """softmax(scale · q · kᵀ) · v.

    Args:
        queries: (B, heads, q, d).
        keys, values: (B, kv heads, k, d); a key-value head serves heads / kv heads consecutive query heads.
        blocks: of `causal_blocks`.

    Returns (B, heads, q, d). Scaled queries, scores and weights are rounded to the inputs' type; softmax is float32 inside.
    """
    if queries.shape[2] == 1 and len(blocks) == 1:
        return _attend_once(queries, keys, values, blocks[0].bias, scale)
    out = torch.empty_like(queries)
    for block in blocks:
        q = queries[block.rows, :, block.queries]
        k = keys[block.rows, :, : block.seen]
        weights = _weights(_grouped(q * scale, k), k, block.bias)
        out[block.rows, :, block.queries] = (weights @ values[block.rows, :, : block.seen]).view(q.shape)
    return out


def _attend_once(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor, scale: float) -> Tensor:
    """One query a row: the same products as above, without the reshaping that costs as much as they do."""
    (rows, heads, _, width), (shared, seen) = queries.shape, keys.shape[1:3]
    grouped = (queries * scale).view(rows * shared, heads // shared, width)
    scores = torch.bmm(grouped, keys.reshape(-1, seen, width).transpose(1, 2)).view(rows, heads, seen)
    weights = torch.softmax(scores.add_(bias[:, 0, 0]), dim=-1)
    return torch.bmm(weights.view(rows * shared, -1, seen), values.reshape(-1, seen, width)).view(queries.shape)


def attend_backward(
    gradient: Tensor, queries: Tensor, keys: Tensor, values: Tensor, blocks: list[Block], scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of `attend` for queries (in their type), keys and values.

    With weights p and o = p·v: ∂v = pᵀ·∂o, ∂s = p ∘ (∂o·vᵀ − Σ_k p ∘ ∂o·vᵀ), ∂q = scale·∂s·k, ∂k = scale·∂sᵀ·q. The weights
    are computed again from queries and keys: nothing of size (q, k) is kept between the passes.
    """
    if len(blocks) == 1 and blocks[0].seen == keys.shape[2]:
        return _block_backward(gradient, queries, keys, values, blocks[0].bias, scale)
    grad_queries = torch.empty_like(queries)
    grad_keys = torch.zeros_like(keys, dtype=torch.float32)
    grad_values = torch.zeros_like(grad_keys)
    for block in blocks:
        q = queries[block.rows, :, block.queries]
        k, v = keys[block.rows, :, : block.seen], values[block.rows, :, : block.seen]
        up = gradient[block.rows, :, block.queries]
        found = _block_backward(up, q, k, v, block.bias, scale)
        grad_queries[block.rows, :, block.queries] = found[0]
        grad_keys[block.rows, :, : block.seen] += found[1]
        grad_values[block.rows, :, : block.seen] += found[2]
    return grad_queries, grad_keys, grad_values


def _block_backward(
    gradient: Tensor, queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    asked = _grouped(queries * scale, keys)
    weights, up = _weights(asked, keys, bias), _grouped(gradient, keys)
    grad_values = weights.transpose(2, 3) @ up
    inner = torch.ops.aten._softmax_backward_data(up @ values.transpose(2, 3), weights, -1, weights.dtype)
    return (inner @ keys).mul_(scale).view(queries.shape), inner.transpose(2, 3) @ asked, grad_values


def _weights(asked: Tensor, keys: Tensor, bias: Tensor) -> Tensor:
    """(B, kv heads, group · q, k) attention weights of scaled, grouped queries."""
    (rows, shared, seen, _), width = keys.shape, bias.shape[3]
    scores = asked @ keys.transpose(2, 3)
    scores.view(rows, shared, -1, width, seen).add_(bias)
    return torch.softmax(scores, dim=-1)


def _grouped(queries: Tensor, keys: Tensor) -> Tensor:
    """(B, heads, q, d) → (B, kv heads, group · q, d)."""
    return queries.reshape(queries.shape[0], keys.shape[1], -1, queries.shape[3])
