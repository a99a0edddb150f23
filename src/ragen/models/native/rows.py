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
    """B rows side by side. ``queries`` (B, q), ``keys`` (B, k): indices of tokens, padded with 0; ``real`` (B, q) bool."""

    queries: Tensor
    keys: Tensor
    real: Tensor
    blocks: list[Block]


class RowLayout:
    """Rows in buckets of similar size, over ``tokens`` flat tokens (by default those that the rows hold).

    A token asks in one row at most; the attention of one that asks in none is 0.
    """

    def __init__(self, rows: Sequence[Row], heads: int, device: torch.device, tokens: int | None = None) -> None:
        self.buckets = [_bucket(group, heads, device) for group in _grouped_rows(rows)]
        places = torch.cat([bucket.queries[bucket.real] for bucket in self.buckets])
        asking = len(places)
        # where each flat token stands among the queries of all buckets; the last place is for those that do not ask
        self.order = torch.full((asking if tokens is None else tokens,), asking, device=device)
        self.order[places] = torch.arange(asking, device=device)
        self.complete = len(self.order) == asking

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        """Attention of flat tokens: queries (N, heads, d), keys and values (N, kv heads, d) → (N, heads, d)."""
        out: Tensor = _Attend.apply(queries, keys, values, self, scale)
        return out


class _Attend(torch.autograd.Function):
    """Gathers each bucket, attends, and scatters back; the backward pass gathers again."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, values: Tensor, layout: RowLayout, scale: float) -> Tensor:
        ctx.save_for_backward(queries, keys, values)
        ctx.layout, ctx.scale = layout, scale
        parts = []
        for bucket in layout.buckets:
            q, k, v = _gathered(queries, keys, values, bucket)
            out = attend(q, k, v, bucket.blocks, scale)
            parts.append(out.transpose(1, 2)[bucket.real])
        return _spread(parts, layout)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        queries, keys, values = ctx.saved_tensors
        layout = ctx.layout
        parts = []
        grad_keys, grad_values = torch.zeros(2, *keys.shape, dtype=torch.float32, device=keys.device)
        for bucket in layout.buckets:
            up = gradient[bucket.queries].masked_fill_(~bucket.real[..., None, None], 0.0).transpose(1, 2)
            q, k, v = _gathered(queries, keys, values, bucket)
            found = attend_backward(up, q, k, v, bucket.blocks, ctx.scale)
            parts.append(found[0].transpose(1, 2)[bucket.real])
            index = bucket.keys.flatten()
            for whole, part in zip((grad_keys, grad_values), found[1:], strict=True):  # summed in float32
                whole.index_add_(0, index, part.transpose(1, 2).flatten(0, 1).float())
        return _spread(parts, layout), grad_keys.to(keys.dtype), grad_values.to(values.dtype), None, None


def _gathered(queries: Tensor, keys: Tensor, values: Tensor, bucket: _Bucket) -> list[Tensor]:
    indices = (bucket.queries, bucket.keys, bucket.keys)
    return [part[index].transpose(1, 2) for part, index in zip((queries, keys, values), indices, strict=True)]


def _spread(parts: list[Tensor], layout: RowLayout) -> Tensor:
    """What the queries of all buckets gave, in the order of the flat tokens."""
    if not layout.complete:
        parts = [*parts, parts[0].new_zeros(1, *parts[0].shape[1:])]
    return (parts[0] if len(parts) == 1 else torch.cat(parts))[layout.order]


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


def _bucket(rows: Sequence[Row], heads: int, device: torch.device) -> _Bucket:
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
    blocks = causal_blocks(positions.to(device), looking, heads)
    return _Bucket(queries.to(device), keys.to(device), real.to(device), blocks)
