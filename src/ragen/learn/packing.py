"""Shared prefixes: rows that begin alike are computed as one row ``[prefix | rest of row 1 | rest of row 2 …]``.

Positions count inside each original row, and a block mask lets a token see the prefix and its own row only, so every token
gets the output it would get alone, while the prefix is computed once. `ragen.learn.network` proves that on the actual model
before it is used.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ragen.learn.batch import Batch
from ragen.models.native import Row

PREFIX = 0
PADDING = -1


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """What one forward pass computes: B packed rows of L tokens, and the N sampled tokens they predict.

    ``ids``, ``positions`` (B, L) int64. ``blocks`` (B, L) int32: 0 = shared prefix (or the whole of a row that stands
    alone), m ≥ 1 = the m-th row's own tokens, −1 = padding, always on the right. ``predictors`` (N,) int64: index into the
    flattened (B·L) outputs whose logits predict the sampled token; ``targets`` (N,) its id; ``rows``, ``columns`` (N,) its
    place in the batch. ``contexts``: for each row of a packed row, how many of its tokens the sampler had run before it
    began to sample: all but the last one of the first context.
    """

    ids: Tensor
    positions: Tensor
    blocks: Tensor
    predictors: Tensor
    targets: Tensor
    rows: Tensor
    columns: Tensor
    contexts: tuple[tuple[int, ...], ...]

    @property
    def tokens(self) -> int:
        """Places in the rows, padding included."""
        return self.ids.numel()

    @property
    def real(self) -> Tensor:
        """Which of the flattened (B·L) places hold a token, by index (F,)."""
        return (self.blocks.flatten() != PADDING).nonzero().flatten()

    def layout(self) -> list[Row]:
        """The original rows over the F real tokens: a packed row's members each see the shared prefix and themselves.

        As in the sampler, tokens from the last one of the first context on look at what comes before it apart from the rest.
        """
        rows, start = [], 0
        for line, contexts in zip(self.blocks, self.contexts, strict=True):
            marks = line[line != PADDING]
            prefix = (marks == PREFIX).nonzero().flatten() + start
            rows += _cut(prefix, 0, contexts[0])
            for member in range(1, int(marks.max()) + 1):
                own = (marks == member).nonzero().flatten() + start
                rows += _cut(torch.cat([prefix, own]), len(prefix), contexts[member - 1])
            start += len(marks)
        return rows

    def attention_mask(self, device: torch.device) -> Tensor | None:
        """(B, 1, L, L) bool, True = may attend; None where ordinary causal attention is all there is."""
        if int(self.blocks.max()) == PREFIX:
            return None
        blocks = self.blocks.to(device)
        query, key = blocks[:, :, None], blocks[:, None, :]
        order = torch.arange(blocks.shape[1], device=device)
        return (((key == query) | (key == PREFIX)) & (order[None, None, :] <= order[None, :, None]))[:, None]


def _cut(keys: Tensor, first: int, context: int) -> list[Row]:
    """Rows for the tokens of ``keys`` from ``first`` on: those inside the context, then those behind it."""
    middle = min(max(first, context), len(keys))
    rows = [Row(keys[:middle], middle - first)] if middle > first else []
    return [*rows, Row(keys, len(keys) - middle, context)] if len(keys) > middle else rows


@dataclass(frozen=True, slots=True)
class _Pack:
    """Some rows with a common prefix; ``length`` is the packed row's."""

    rows: tuple[int, ...]
    prefix: int
    length: int


def plan(
    batch: Batch, rows: Sequence[int], *, budget: int, pack: bool, attention_scale: float = math.inf, padded: bool = True
) -> list[MicroBatch]:
    """Split ``rows`` of the batch into micro-batches of at most ``budget`` processed tokens.

    Two things may be longer: one row, which stays whole, and rows packed behind a prefix of more than half the budget, which
    may have as many own tokens together as the prefix has. (Else prefixes near the budget would be computed for every row.)
    Rows without a sampled token are left out. Rows are packed where that is cheaper; the cost of a row of L tokens is taken
    as L·(1 + L / ``attention_scale``): dense masks make long packed rows dear. Where padding is computed too (``padded``) it
    counts against the budget; rows of similar length share a micro-batch. The result is deterministic.
    """
    ids, lengths = batch.ids.numpy(), batch.lengths.numpy()
    wanted = [int(r) for r in rows if bool(batch.mask[r].any())]
    if any(bool(batch.mask[r, 0]) for r in wanted):
        raise ValueError("the first token of a row cannot be a sampled one: nothing precedes it that could predict it")
    packs = (
        _packs(ids, lengths, wanted, budget, attention_scale)
        if pack
        else [_Pack((r,), int(lengths[r]), int(lengths[r])) for r in wanted]
    )
    packs.sort(key=lambda p: (p.length, p.rows))
    batches: list[list[_Pack]] = []
    for item in packs:
        before = batches[-1] if batches else []
        size = item.length * (len(before) + 1) if padded else item.length + sum(p.length for p in before)
        if before and size <= budget:
            before.append(item)
        else:
            batches.append([item])
    return [_micro_batch(batch, chosen) for chosen in batches]


def _packs(ids: NDArray[np.int64], lengths: NDArray[np.int64], rows: list[int], budget: int, scale: float) -> list[_Pack]:
    """Greedy over the rows in lexicographic order, where rows with a long common prefix are neighbours.

    A row joins the last pack where that costs less than the row alone. (Stopping where a pack's cost a row is lowest was
    slower for groups of 16: it leaves packs of unequal length, hence padding.)
    """

    def cost(length: int) -> float:
        return length * (1.0 + length / scale)

    packs: list[_Pack] = []
    for r in sorted(rows, key=lambda r: (ids[r, : lengths[r]].tolist(), r)):
        alone = _Pack((r,), int(lengths[r]), int(lengths[r]))
        if packs:
            last = packs[-1]
            prefix = min(last.prefix, _common(ids[last.rows[0]], ids[r], min(last.prefix, alone.length)))
            members = (*last.rows, r)
            joined = _Pack(members, prefix, prefix + sum(int(lengths[m]) - prefix for m in members))
            if joined.length <= max(budget, 2 * prefix) and cost(joined.length) < cost(last.length) + cost(alone.length):
                packs[-1] = joined
                continue
        packs.append(alone)
    return packs


def _common(a: NDArray[np.int64], b: NDArray[np.int64], limit: int) -> int:
    """Length of the common prefix of two id rows, at most ``limit``."""
    different = np.flatnonzero(a[:limit] != b[:limit])
    return int(different[0]) if different.size else limit


def _micro_batch(batch: Batch, packs: list[_Pack]) -> MicroBatch:
    """Lay out the packs; the only place where 'token t is predicted by the output at t − 1' is written (law 3)."""
    width = max(p.length for p in packs)
    pad = torch.zeros((), dtype=torch.int64)
    ids = pad.expand(len(packs), width).clone()
    positions = torch.arange(width).expand(len(packs), width).clone()
    blocks = torch.full((len(packs), width), PADDING, dtype=torch.int32)
    predictors, targets, rows, columns = [], [], [], []
    for line, item in enumerate(packs):
        offset = item.prefix  # a row that stands alone is all prefix
        ids[line, :offset] = batch.ids[item.rows[0], :offset]
        blocks[line, :offset] = PREFIX
        for member, r in enumerate(item.rows, start=1):
            length = int(batch.lengths[r])
            end = offset + length - item.prefix
            ids[line, offset:end] = batch.ids[r, item.prefix : length]
            positions[line, offset:end] = batch.positions[r, item.prefix : length]
            blocks[line, offset:end] = member
            sampled = batch.mask[r, :length].nonzero().flatten()
            before = sampled - 1
            place = torch.where(before < item.prefix, before, before - item.prefix + offset)
            predictors.append(line * width + place)
            targets.append(batch.ids[r, sampled])
            rows.append(torch.full_like(sampled, r))
            columns.append(sampled)
            offset = end
    return MicroBatch(
        ids,
        positions,
        blocks,
        torch.cat(predictors),
        torch.cat(targets),
        torch.cat(rows),
        torch.cat(columns),
        tuple(tuple(int(batch.mask[r].int().argmax()) - 1 for r in item.rows) for item in packs),
    )
