"""A flat batch of tokens seen as rows: which tokens ask, and which tokens they may look at.

Rows that begin alike share the tokens of their common prefix. Only attention needs rows; everything else in a layer works
on the flat tokens, without padding.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ragen.models.native.attention import Block, attend, attend_backward, causal_blocks
from ragen.models.shapes import COLUMNS, QUERIES, ROWS, rounded

WASTE = 1.25  # rows share a bucket while it holds at most this many times their own scores


@dataclass(frozen=True, slots=True)
class Row:
    """One row's tokens as indices into the flat batch: ``keys`` in order of position; the last ``queries`` of them ask."""

    keys: Tensor
    queries: int


@dataclass(frozen=True, slots=True)
class _Bucket:
    """B rows side by side: what each place of them holds, as indices into the (N · heads) rows of the flat tokens' heads.

    ``queries`` (B, heads, q) and ``keys`` (B, kv heads, k), padded with the first token's; ``real`` (B, q) bool, or None
    where all queries are.
    """

    queries: Tensor
    keys: Tensor
    real: Tensor | None
    blocks: list[Block]

    def gather(self, queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(N, heads, d) → (B, heads, q, d), and (N, kv heads, d) → (B, kv heads, k, d) of keys and values."""
        return _heads(queries, self.queries), _heads(keys, self.keys), _heads(values, self.keys)


class RowLayout:
    """Rows in buckets of similar size, over ``tokens`` flat tokens (by default those that the rows hold).

    A token asks in one row at most; the attention of one that asks in none is 0. ``heads`` are those of queries and those of
    keys and values; the scores are of ``dtype``.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        heads: tuple[int, int],
        dtype: torch.dtype,
        device: torch.device,
        tokens: int | None = None,
    ) -> None:
        found = [_indices(group) for group in _grouped_rows(rows)]
        places = torch.cat([queries[real] for queries, _, real, _ in found])
        asked = sum(queries.numel() for queries, *_ in found)
        self.buckets = []
        # where each head of each flat token stands among the outputs of all buckets; the last place is for those that do
        # not ask
        order = torch.full((len(places) if tokens is None else tokens, heads[0]), asked * heads[0])
        start = 0
        for queries, keys, real, positions in found:
            (count, wide), each = queries.shape, torch.arange(heads[0])[None, :, None]
            outputs = start + torch.arange(count * heads[0] * wide).view(count, heads[0], wide)
            order[queries[real]] = outputs.transpose(1, 2)[real]
            start += outputs.numel()
            self.buckets.append(
                _Bucket(
                    (queries[:, None] * heads[0] + each).to(device),
                    (keys[:, None] * heads[1] + torch.arange(heads[1])[None, :, None]).to(device),
                    None if bool(real.all()) else real.to(device),
                    causal_blocks(positions.to(device), keys.shape[1], heads[0], dtype),
                )
            )
        self.complete = bool((order < start).all())
        self.order = order.flatten().to(device)

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        """Attention of flat tokens: queries (N, heads, d), keys and values (N, kv heads, d) → (N, heads, d)."""
        out: Tensor = _Attend.apply(queries, keys, values, self, scale)
        return out

    def spread(self, parts: list[Tensor]) -> Tensor:
        """What the queries of all buckets gave, (B, heads, q, d) each, in the order of the flat tokens: (N, heads, d)."""
        heads, width = parts[0].shape[1], parts[0].shape[3]
        parts = [part.view(-1, width) for part in parts]
        if not self.complete:
            parts = [*parts, parts[0].new_zeros(1, width)]
        whole = parts[0] if len(parts) == 1 else torch.cat(parts)
        return whole.index_select(0, self.order).view(-1, heads, width)


class _Attend(torch.autograd.Function):
    """Gathers each bucket, attends, and spreads the outputs; the backward pass gathers again."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, values: Tensor, layout: RowLayout, scale: float) -> Tensor:
        ctx.save_for_backward(queries, keys, values)
        ctx.layout, ctx.scale = layout, scale
        parts = [attend(*bucket.gather(queries, keys, values), bucket.blocks, scale) for bucket in layout.buckets]
        return layout.spread(parts)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        queries, keys, values = ctx.saved_tensors
        layout = ctx.layout
        parts = []
        shape = (keys.shape[0] * keys.shape[1], keys.shape[2])
        grad_keys, grad_values = torch.zeros(2, *shape, dtype=torch.float32, device=keys.device)
        for bucket in layout.buckets:
            up = _heads(gradient, bucket.queries)
            if bucket.real is not None:
                up.masked_fill_(~bucket.real[:, None, :, None], 0.0)
            q, k, v = bucket.gather(queries, keys, values)
            found = attend_backward(up, q, k, v, bucket.blocks, ctx.scale)
            parts.append(found[0])
            for whole, part in zip((grad_keys, grad_values), found[1:], strict=True):  # summed in float32
                whole.index_add_(0, bucket.keys.flatten(), part.view(-1, shape[1]).float())
        grads = (whole.to(keys.dtype).view(keys.shape) for whole in (grad_keys, grad_values))
        return layout.spread(parts), *grads, None, None


def _heads(flat: Tensor, places: Tensor) -> Tensor:
    """Rows of (N, heads, d), seen as (N · heads, d), at ``places`` (…,): (…, d)."""
    return flat.reshape(-1, flat.shape[-1]).index_select(0, places.flatten()).view(*places.shape, -1)


def _grouped_rows(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows of similar size together: greedily, in order of size, while padding stays within `WASTE`."""
    groups: list[list[Row]] = []
    own = 0
    for row in sorted(rows, key=lambda row: (row.queries, len(row.keys))):
        score = row.queries * len(row.keys)
        if groups:
            members = [*groups[-1], row]
            whole = len(members) * max(r.queries for r in members) * max(len(r.keys) for r in members)
            if whole <= WASTE * (own + score):
                groups[-1].append(row)
                own += score
                continue
        groups.append([row])
        own = score
    return groups


def _indices(rows: Sequence[Row]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Tokens that ask (B, q) and that are seen (B, k), padded with 0; which of the former are real; their positions."""
    count = rounded(len(rows), ROWS)
    asking = rounded(max(row.queries for row in rows), QUERIES)
    looking = rounded(max(len(row.keys) for row in rows), COLUMNS)
    queries = torch.zeros(count, asking, dtype=torch.int64)
    keys = torch.zeros(count, looking, dtype=torch.int64)
    positions = torch.zeros_like(queries)
    real = torch.zeros(queries.shape, dtype=torch.bool)
    for i, row in enumerate(rows):
        length = len(row.keys)
        keys[i, :length] = row.keys
        queries[i, : row.queries] = row.keys[length - row.queries :]
        positions[i, : row.queries] = torch.arange(length - row.queries, length)
        real[i, : row.queries] = True
    return queries, keys, real, positions
