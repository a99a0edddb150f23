"""Keys and values of many conversations, one row each, kept alive from turn to turn.

Row r holds the keys of its tokens at columns 0 … length−1: no padding and no holes, whatever the other rows do. New tokens
are written at each row's own end, so a row's result does not depend on its companions and a turn costs its new tokens only.
Rows that take part in a step are the first ones; finished rows are swapped to the back in place.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import Cache

from ragen.models.shapes import COLUMNS, rounded


class KeyValueRows(Cache):  # type: ignore[misc]
    """A transformers cache whose rows have lengths of their own.

    Storage is (2, rows, kv heads, columns, width) a layer: keys, then values.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(layers=[])
        self.dtype, self.device = dtype, device
        self.rows, self.columns = 0, 0
        self.lengths = torch.zeros(0, dtype=torch.int64, device=device)
        self._store: dict[int, Tensor] = {}
        self._targets: Tensor | None = None  # rows written by a block; None while the first `_active` rows decode
        self._active = 0
        self._starts = self.lengths
        self._span = 0  # keys a query may see
        self._fresh = False  # a block of rows that hold nothing yet
        self._places: Tensor | None = None  # where a step writes, in a layer's flattened storage

    # What a forward pass asks of a cache.

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write the new keys and values (n, kv heads, q, width) and return all that the queries may see."""
        held = self._held(layer_idx, key_states)
        if self._targets is None:
            both = torch.cat([key_states, value_states]).to(self.dtype)
            held.view(-1, held.shape[-1])[self._step_places(held)] = both.view(-1, held.shape[-1])
            # whole rows: a product over part of the columns would copy them first, each layer and step
            return held[0, : self._active], held[1, : self._active]
        columns = self._starts[:, None] + torch.arange(key_states.shape[2], device=self.device)
        for part, states in zip(held, (key_states, value_states), strict=True):
            part[self._targets[:, None], :, columns] = states.transpose(1, 2).to(self.dtype)
        if self._fresh:
            return key_states, value_states
        return held[0, self._targets, :, : self._span], held[1, self._targets, :, : self._span]

    def _held(self, layer: int, like: Tensor) -> Tensor:
        if layer not in self._store:
            # zeros, not empty: a masked key has weight 0, and 0 · NaN from old memory would be NaN
            shape = (2, self.rows, like.shape[1], self.columns, like.shape[3])
            self._store[layer] = torch.zeros(shape, dtype=self.dtype, device=self.device)
        return self._store[layer]

    def _step_places(self, held: Tensor) -> Tensor:
        """Indices (2 · active · kv heads,) of the vectors that a step writes; the same for every layer."""
        if self._places is None:
            _, rows, heads, columns, _ = held.shape
            row = torch.arange(self._active, device=self.device)[:, None] * heads + torch.arange(heads, device=self.device)
            keys = (row * columns + self._starts[:, None]).flatten()
            self._places = torch.cat([keys, keys + rows * heads * columns])
        return self._places

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """How many columns the queries may see, from column 0."""
        return self._span, 0

    def get_query_offset(self, layer_idx: int = 0) -> Tensor | int:
        """The column of each row's first new token, (n,): the mask of ``models.attention`` takes one offset a row.

        A block of new rows is plainly causal: 0, so that transformers may leave the mask out.
        """
        return 0 if self._fresh else self._starts

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """How many columns the longest row has after this pass."""
        return self._span

    # What the sampler does with it.

    def reserve(self, rows: int, columns: int) -> None:
        """Make room for so many rows and columns; what is held stays."""
        if rows <= self.rows and columns <= self.columns:
            return
        if columns > self.columns:
            columns = rounded(max(columns, self.columns + self.columns // 8), COLUMNS)
        rows, columns = max(rows, self.rows), max(columns, self.columns)
        used = int(self.lengths.max()) if self.rows else 0
        for layer, old in self._store.items():
            self._store[layer] = old.new_zeros(2, rows, old.shape[2], columns, old.shape[4])
            self._store[layer][:, : self.rows, :, :used] = old[:, :, :, :used]
        lengths = self.lengths.new_zeros(rows)
        lengths[: self.rows] = self.lengths
        self.rows, self.columns, self.lengths = rows, columns, lengths

    def open_block(self, rows: Sequence[int], width: int) -> Tensor:
        """The next forward pass appends ``width`` columns to these rows; returns their positions (n, width)."""
        self._targets = torch.tensor(rows, device=self.device)
        self._starts = self.lengths[self._targets]
        needed = int(self._starts.max()) + width
        self.reserve(self.rows, needed)
        self._fresh = needed == width
        self._span = needed if self._fresh else min(rounded(needed, COLUMNS), self.columns)
        return self._starts[:, None] + torch.arange(width, device=self.device)

    def open_step(self, active: int) -> Tensor:
        """The next forward pass appends one column to each of the first ``active`` rows; returns positions (n, 1)."""
        self._targets, self._active, self._fresh = None, active, False
        self._starts = self.lengths[:active].clone()
        needed = int(self._starts.max()) + 1
        self.reserve(self.rows, needed)
        self._span = self.columns
        self._places = None
        return self._starts[:, None]

    @property
    def span(self) -> int:
        """How many columns the pass that is open needs."""
        return self._span

    def copy(self, source: Sequence[int], target: Sequence[int], columns: int) -> None:
        """Give the target rows the first ``columns`` of the source rows (and that length)."""
        for held in self._store.values():
            held[:, target, :, :columns] = held[:, source, :, :columns]
        self.lengths[target] = columns

    def swap(self, first: Sequence[int], second: Sequence[int]) -> None:
        """Exchange rows pairwise."""
        if not first:
            return
        into, out = [*first, *second], [*second, *first]
        used = int(self.lengths[into].max())
        for held in self._store.values():
            held[:, into, :, :used] = held[:, out, :, :used]
        self.lengths[into] = self.lengths[out]
