"""A flat batch of tokens seen as rows: which tokens ask, and which tokens they may look at.

Rows that begin alike share the tokens of their common prefix. Only attention needs rows; everything else in a layer works
on the flat tokens, without padding.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ragen.models.native.attention import Block, Prefixes, attend, attend_backward, causal_blocks
from ragen.models.shapes import COLUMNS, QUERIES, ROWS, rounded

WASTE = 1.25  # rows share a bucket while it holds at most this many times their own scores


@dataclass(frozen=True, slots=True)
class Row:
    """One row's tokens as indices into the flat batch: ``keys`` in order of position; the last ``queries`` of them ask.

    The first ``prefix`` keys are looked at apart from the rest, once for all rows that begin with the same ones.
    """

    keys: Tensor
    queries: int
    prefix: int = 0

    @property
    def own(self) -> int:
        """Keys behind the prefix."""
        return len(self.keys) - self.prefix


@dataclass(frozen=True, slots=True)
class _Bucket:
    """B rows side by side: what each place of them holds, as indices into the (N · heads) rows of the flat tokens' heads.

    ``queries`` (B, heads, q), ``keys`` (B, kv heads, k) and ``prefixes`` (P, kv heads, columns; or None) are padded with the
    first token's; ``real`` (B, q) bool, or None where all queries are.
    """

    queries: Tensor
    keys: Tensor
    prefixes: Tensor | None
    real: Tensor | None
    blocks: list[Block]

    def gather(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor] | None]:
        """(N, kv heads, d) twice → own keys and values (B, kv heads, k, d), and the prefixes' (P, kv heads, columns, d)."""
        far = None if self.prefixes is None else (_heads(keys, self.prefixes), _heads(values, self.prefixes))
        return _heads(keys, self.keys), _heads(values, self.keys), far


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
        found = [_indices(group, heads[1]) for group in _grouped_rows(rows)]
        places = torch.cat([queries[real] for queries, real, *_ in found])
        asked = sum(queries.numel() for queries, *_ in found)
        self.buckets = []
        # where each head of each flat token stands among the outputs of all buckets; the last place is for those that do
        # not ask
        order = torch.full((len(places) if tokens is None else tokens, heads[0]), asked * heads[0])
        start = 0
        for queries, real, positions, keys, far, prefixes in found:
            (count, wide), each = queries.shape, torch.arange(heads[0])[None, :, None]
            outputs = start + torch.arange(count * heads[0] * wide).view(count, heads[0], wide)
            order[queries[real]] = outputs.transpose(1, 2)[real]
            start += outputs.numel()
            blocks = causal_blocks(positions, keys.shape[1], heads[0], dtype, prefixes)
            self.buckets.append(
                _Bucket(
                    (queries[:, None] * heads[0] + each).to(device),
                    _of_heads(keys, heads[1]).to(device),
                    None if far is None else _of_heads(far, heads[1]).to(device),
                    None if bool(real.all()) else real.to(device),
                    [block.to(device) for block in blocks],
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
        parts = []
        for bucket in layout.buckets:
            k, v, far = bucket.gather(keys, values)
            parts.append(attend(_heads(queries, bucket.queries), k, v, bucket.blocks, scale, far))
        return layout.spread(parts)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        queries, keys, values = ctx.saved_tensors
        layout = ctx.layout
        parts = []
        shape = (keys.shape[0] * keys.shape[1], keys.shape[2])
        sums = torch.zeros(2, *shape, dtype=torch.float32, device=keys.device)  # of keys and of values
        for bucket in layout.buckets:
            up = _heads(gradient, bucket.queries)
            if bucket.real is not None:
                up.masked_fill_(~bucket.real[:, None, :, None], 0.0)
            k, v, far = bucket.gather(keys, values)
            found = attend_backward(up, _heads(queries, bucket.queries), k, v, bucket.blocks, ctx.scale, far)
            parts.append(found[0])
            for index, pair in ((bucket.keys, found[1]), (bucket.prefixes, found[2])):
                if index is not None:
                    for whole, part in zip(sums, pair, strict=True):
                        whole.index_add_(0, index.flatten(), part.reshape(-1, shape[1]).float())
        grad_keys, grad_values = (whole.to(keys.dtype).view(keys.shape) for whole in sums)
        return layout.spread(parts), grad_keys, grad_values, None, None


def _heads(flat: Tensor, places: Tensor) -> Tensor:
    """Rows of (N, heads, d), seen as (N · heads, d), at ``places`` (…,): (…, d)."""
    return flat.reshape(-1, flat.shape[-1]).index_select(0, places.flatten()).view(*places.shape, -1)


def _of_heads(tokens: Tensor, heads: int) -> Tensor:
    """(B, k) indices of tokens → (B, heads, k) indices of their heads."""
    return tokens[:, None] * heads + torch.arange(heads)[None, :, None]


def _grouped_rows(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows of similar size together: greedily, in order of size, while padding stays within `WASTE`."""
    groups: list[list[Row]] = []
    own = 0
    for row in sorted(rows, key=lambda row: (row.prefix > 0, row.queries, row.own)):
        score = row.queries * row.own
        if groups and (groups[-1][0].prefix > 0) is (row.prefix > 0):
            members = [*groups[-1], row]
            whole = len(members) * max(r.queries for r in members) * max(r.own for r in members)
            if whole <= WASTE * (own + score):
                groups[-1].append(row)
                own += score
                continue
        groups.append([row])
        own = score
    return groups


def _indices(rows: Sequence[Row], shared: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None, Prefixes | None]:
    """What rows side by side hold, as indices of tokens padded with 0.

    Returns the tokens that ask (B, q), which of them are real, their own positions, own keys (B, k), and the prefixes' keys
    (P, columns) with who begins with which.
    """
    count = rounded(len(rows), ROWS)
    asking = rounded(max(row.queries for row in rows), QUERIES)
    looking = rounded(max(row.own for row in rows), COLUMNS)
    queries = torch.zeros(count, asking, dtype=torch.int64)
    keys = torch.zeros(count, looking, dtype=torch.int64)
    positions = torch.zeros_like(queries)
    real = torch.zeros(queries.shape, dtype=torch.bool)
    of_row = torch.zeros(count, dtype=torch.int64)
    prefixes: dict[bytes, int] = {}
    begins: list[Tensor] = []
    for i, row in enumerate(rows):
        keys[i, : row.own] = row.keys[row.prefix :]
        queries[i, : row.queries] = row.keys[len(row.keys) - row.queries :]
        positions[i, : row.queries] = torch.arange(row.own - row.queries, row.own)
        real[i, : row.queries] = True
        begin = row.keys[: row.prefix]
        of_row[i] = prefixes.setdefault(begin.numpy().tobytes(), len(prefixes))
        begins += [begin] if of_row[i] == len(begins) else []
    if rows[0].prefix == 0:
        return queries, real, positions, keys, None, None
    lengths = torch.tensor([len(begin) for begin in begins])
    far = torch.zeros(len(begins), rounded(int(lengths.max()), COLUMNS), dtype=torch.int64)
    for line, begin in zip(far, begins, strict=True):
        line[: len(begin)] = begin
    return queries, real, positions, keys, far, Prefixes(of_row, lengths, far.shape[1], shared)
