"""Attention of rows over keys: a prefix that several rows share, stored once, then each row's own.

The sampler's cache and the learner's packed batches both come here in this shape, with the same products and the same
roundings in the same order, so that the two agree: bit for bit where a machine's products do not depend on the number of
rows (bfloat16 ones of an AMD EPYC with AVX-512 BF16 did not), else to rounding.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ragen.models.shapes import COLUMNS, ROWS, rounded

SCORES = 1 << 21  # attention scores worked on at a time


@dataclass(frozen=True, slots=True)
class Prefixes:
    """What rows begin with: ``of_row`` (B,) numbers of prefixes, ``lengths`` (P,) of theirs, ``columns`` of their store.

    ``shared`` is the number of key-value heads.
    """

    of_row: Tensor
    lengths: Tensor
    columns: int
    shared: int


@dataclass(frozen=True, slots=True)
class Meeting:
    """Brings the queries of all rows of a prefix together, m a prefix, and what they found back to the rows.

    ``numbers`` (P,) are the prefixes, None for all. ``into`` (P, kv heads, m · group · q) are indices into the B · heads · q
    queries, ``real`` tells which of them are no padding (None: all), ``back`` (B, kv heads, group · q) undoes ``into``.
    """

    numbers: Tensor | None
    into: Tensor
    real: Tensor | None
    back: Tensor

    def gather(self, rows: Tensor) -> Tensor:
        """(B, kv heads, group · q, w) → (P, kv heads, m · group · q, w)."""
        return rows.flatten(0, 2).index_select(0, self.into.flatten()).view(*self.into.shape, -1)

    def gather_real(self, rows: Tensor) -> Tensor:
        """The same with zeros for padding: for sums over the queries."""
        found = self.gather(rows)
        return found if self.real is None else found.mul_(self.real[..., None])

    def spread(self, found: Tensor) -> Tensor:
        """(P, kv heads, m · group · q, w) → (B, kv heads, group · q, w)."""
        return found.flatten(0, 2).index_select(0, self.back.flatten()).view(*self.back.shape, -1)

    def to(self, device: torch.device) -> "Meeting":
        """The same on another device."""
        numbers, real = (None if part is None else part.to(device) for part in (self.numbers, self.real))
        return Meeting(numbers, self.into.to(device), real, self.back.to(device))

    def chosen(self, prefixes: Tensor) -> Tensor:
        """The prefixes that take part."""
        return prefixes if self.numbers is None else prefixes[self.numbers]


@dataclass(frozen=True, slots=True)
class Block:
    """Some queries of some rows: ``rows`` × ``queries``, the ``seen`` first own columns, and what is added to the scores.

    ``bias`` (rows, 1, 1, queries, prefix columns + seen) is 0 where a query may look and −inf where not. ``meeting`` is None
    where rows have no prefix.
    """

    rows: slice
    queries: slice
    seen: int
    bias: Tensor
    meeting: Meeting | None

    def to(self, device: torch.device) -> "Block":
        """The same on another device."""
        meeting = None if self.meeting is None else self.meeting.to(device)
        return Block(self.rows, self.queries, self.seen, self.bias.to(device), meeting)


def causal_blocks(
    positions: Tensor, columns: int, heads: int, dtype: torch.dtype, prefixes: Prefixes | None = None
) -> list[Block]:
    """Cut queries at own ``positions`` (B, q), each below ``columns``, into blocks of at most `SCORES` scores in ``dtype``.

    A query at own position p sees its row's prefix and own columns 0 … p. The blocks serve every layer of a forward pass.
    """
    rows, width = positions.shape
    far = 0 if prefixes is None else prefixes.columns
    step = max(1, min(width, SCORES // (heads * (columns + far))))
    count = max(1, SCORES // (heads * step * (columns + far)))
    blocks = []
    for top in range(0, rows, count):
        for left in range(0, width, step):
            part = positions[top : top + count, left : left + step]
            seen = columns if width == 1 else min(columns, rounded(int(part.max()) + 1, COLUMNS))
            hidden = torch.arange(seen, device=positions.device) > part[:, :, None]
            meeting = None
            if prefixes is not None:
                of_row = prefixes.of_row[top : top + count]
                beyond = torch.arange(far, device=positions.device) >= prefixes.lengths[of_row][:, None]
                hidden = torch.cat([beyond[:, None].expand(-1, part.shape[1], -1), hidden], -1)
                meeting = _meeting(of_row, len(prefixes.lengths), heads, prefixes.shared, part.shape[1], whole=count >= rows)
            bias = torch.zeros(hidden.shape, dtype=dtype, device=positions.device).masked_fill_(hidden, -torch.inf)
            blocks.append(Block(slice(top, top + count), slice(left, left + step), seen, bias[:, None, None], meeting))
    return blocks


def _meeting(of_row: Tensor, prefixes: int, heads: int, shared: int, width: int, *, whole: bool) -> Meeting:
    """Rows in the order of their prefixes, padded to as many for each."""
    device, numbers = of_row.device, None
    if not whole:
        numbers, of_row = of_row.unique(return_inverse=True)
        prefixes = len(numbers)
    order = of_row.argsort(stable=True)
    counts = of_row.bincount(minlength=prefixes)
    rank = torch.empty_like(of_row)
    rank[order] = torch.arange(len(of_row), device=device) - (counts.cumsum(0) - counts)[of_row[order]]
    most = rounded(int(counts.max()), ROWS)
    member = torch.zeros(prefixes * most, dtype=torch.int64, device=device)
    real = torch.zeros(prefixes * most, dtype=torch.bool, device=device)
    place = of_row * most + rank
    member[place], real[place] = torch.arange(len(of_row), device=device), True
    group, wide = heads // shared, heads // shared * width
    head = torch.arange(shared, device=device)[:, None] * wide + torch.arange(wide, device=device)  # (kv heads, group · q)
    into = member.view(prefixes, 1, most, 1) * (heads * width) + head[:, None]
    at = (of_row[:, None] * shared + torch.arange(shared, device=device)) * most + rank[:, None]
    back = at[..., None] * wide + torch.arange(group * width, device=device)
    kept = None if bool(real.all()) else real.view(prefixes, 1, most, 1).expand(into.shape).flatten(2)
    return Meeting(numbers, into.flatten(2), kept, back)


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    blocks: list[Block],
    scale: float,
    prefixes: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """softmax(scale · q · kᵀ) · v over a row's prefix and its own keys.

    Args:
        queries: (B, heads, q, d).
        keys, values: (B, kv heads, k, d); a key-value head serves heads / kv heads consecutive query heads.
        blocks: of `causal_blocks`.
        prefixes: their keys and values, (P, kv heads, columns, d) each; where the blocks know of prefixes.

    Returns (B, heads, q, d). Scaled queries, scores, weights and the two parts of the sum (prefix, own) are rounded to the
    inputs' type; softmax is float32 inside.
    """
    out = torch.empty_like(queries) if len(blocks) > 1 else None
    for block in blocks:
        q = queries[block.rows, :, block.queries]
        k, v = keys[block.rows, :, : block.seen], values[block.rows, :, : block.seen]
        weights = _weights(_grouped(q * scale, k), k, block, prefixes)
        if block.meeting is None or prefixes is None:
            found = weights @ v
        else:
            far, own = weights.split([weights.shape[-1] - block.seen, block.seen], dim=-1)
            found = own @ v
            found += block.meeting.spread(block.meeting.gather(far) @ block.meeting.chosen(prefixes[1]))
        if out is None:
            return found.view(q.shape)
        out[block.rows, :, block.queries] = found.view(q.shape)
    return queries if out is None else out


def attend_backward(
    gradient: Tensor,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    blocks: list[Block],
    scale: float,
    prefixes: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Gradients of `attend`: for queries, for [keys, values], and for the prefixes' [keys, values] ([] without).

    With weights p and o = p·v: ∂v = pᵀ·∂o, ∂s = p ∘ (∂o·vᵀ − Σ_k p ∘ ∂o·vᵀ), ∂q = scale·∂s·k, ∂k = scale·∂sᵀ·q. The weights
    are computed again from queries and keys: nothing of size (q, k) is kept between the passes.
    """
    if len(blocks) == 1 and blocks[0].seen == keys.shape[2]:
        return _block_backward(gradient, queries, keys, values, blocks[0], scale, prefixes)
    grad_queries = torch.empty_like(queries)
    own = [torch.zeros_like(part, dtype=torch.float32) for part in (keys, values)]
    far = [torch.zeros_like(part, dtype=torch.float32) for part in prefixes or ()]
    for block in blocks:
        rows, some = block.rows, block.queries
        k, v = keys[rows, :, : block.seen], values[rows, :, : block.seen]
        found = _block_backward(gradient[rows, :, some], queries[rows, :, some], k, v, block, scale, prefixes)
        grad_queries[rows, :, some] = found[0]
        for whole, part in zip(own, found[1], strict=True):
            whole[rows, :, : block.seen] += part
        numbers = None if block.meeting is None else block.meeting.numbers
        for whole, part in zip(far, found[2], strict=True):
            whole[slice(None) if numbers is None else numbers] += part
    return grad_queries, own, far


def _block_backward(
    gradient: Tensor,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    block: Block,
    scale: float,
    prefixes: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    asked, up = _grouped(queries * scale, keys), _grouped(gradient, keys)
    weights = _weights(asked, keys, block, prefixes)
    inner = up @ values.transpose(2, 3)
    meeting = block.meeting
    if meeting is None or prefixes is None:
        inner = torch.ops.aten._softmax_backward_data(inner, weights, -1, weights.dtype)
        own = [inner.transpose(2, 3) @ asked, weights.transpose(2, 3) @ up]
        return (inner @ keys).mul_(scale).view(queries.shape), own, []
    far_keys, far_values = map(meeting.chosen, prefixes)
    far_up = meeting.gather_real(up)
    inner = torch.cat([meeting.spread(far_up @ far_values.transpose(2, 3)), inner], dim=-1)
    inner = torch.ops.aten._softmax_backward_data(inner, weights, -1, weights.dtype)
    sizes = [inner.shape[-1] - block.seen, block.seen]
    (far_inner, own_inner), (far_weights, own_weights) = (part.split(sizes, dim=-1) for part in (inner, weights))
    far_inner = meeting.gather_real(far_inner)
    own = [own_inner.transpose(2, 3) @ asked, own_weights.transpose(2, 3) @ up]
    far = [far_inner.transpose(2, 3) @ meeting.gather(asked), meeting.gather(far_weights).transpose(2, 3) @ far_up]
    grad_queries = (own_inner @ keys).add_(meeting.spread(far_inner @ far_keys))
    return grad_queries.mul_(scale).view(queries.shape), own, far


def _weights(asked: Tensor, keys: Tensor, block: Block, prefixes: tuple[Tensor, Tensor] | None) -> Tensor:
    """(B, kv heads, group · q, prefix columns + seen) attention weights of scaled, grouped queries."""
    (rows, shared, _, _), width = keys.shape, block.bias.shape[3]
    scores = asked @ keys.transpose(2, 3)
    if block.meeting is not None and prefixes is not None:
        far = block.meeting.gather(asked) @ block.meeting.chosen(prefixes[0]).transpose(2, 3)
        scores = torch.cat([block.meeting.spread(far), scores], dim=-1)
    scores.view(rows, shared, -1, width, scores.shape[-1]).add_(block.bias)
    return torch.softmax(scores, dim=-1)


def _grouped(queries: Tensor, keys: Tensor) -> Tensor:
    """(B, heads, q, d) → (B, kv heads, group · q, d)."""
    return queries.reshape(queries.shape[0], keys.shape[1], -1, queries.shape[3])
