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

GROW = 64


class KeyValueRows(Cache):  # type: ignore[misc]
    """A transformers cache whose rows have lengths of their own; storage is (rows, kv heads, columns, width) a layer."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(layers=[])
        self.dtype, self.device = dtype, device
        self.rows, self.columns = 0, 0
        self.lengths = torch.zeros(0, dtype=torch.int64, device=device)
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}
        self._targets: Tensor | None = None  # rows written by a block; None while the first `_active` rows decode
        self._active = 0
        self._starts = self.lengths
        self._span = 0  # keys a query may see
        self._fresh = False  # a block of rows that hold nothing yet

    # What a forward pass asks of a cache.

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write the new keys and values (n, kv heads, q, width) and return all that the queries may see."""
        return (
            self._write(self._keys, key_states, layer_idx),
            self._write(self._values, value_states, layer_idx),
        )

    def _write(self, store: dict[int, Tensor], states: Tensor, layer: int) -> Tensor:
        if layer not in store:
            heads, width = states.shape[1], states.shape[3]
            # zeros, not empty: a masked key has weight 0, and 0 · NaN from old memory would be NaN
            store[layer] = torch.zeros(self.rows, heads, self.columns, width, dtype=self.dtype, device=self.device)
        held = store[layer]
        if self._targets is None:
            rows = torch.arange(self._active, device=self.device)
            held[rows, :, self._starts] = states[:, :, 0].to(self.dtype)
            return held[: self._active, :, : self._span]
        columns = self._starts[:, None] + torch.arange(states.shape[2], device=self.device)
        held[self._targets[:, None], :, columns] = states.transpose(1, 2).to(self.dtype)
        return states if self._fresh else held[self._targets, :, : self._span]

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
            columns = -(-max(columns, self.columns + self.columns // 4) // GROW) * GROW
        rows, columns = max(rows, self.rows), max(columns, self.columns)
        used = int(self.lengths.max()) if self.rows else 0
        for store in (self._keys, self._values):
            for layer, old in store.items():
                store[layer] = old.new_zeros(rows, old.shape[1], columns, old.shape[3])
                store[layer][: self.rows, :, :used] = old[:, :, :used]
        lengths = self.lengths.new_zeros(rows)
        lengths[: self.rows] = self.lengths
        self.rows, self.columns, self.lengths = rows, columns, lengths

    def open_block(self, rows: Sequence[int], width: int) -> Tensor:
        """The next forward pass appends ``width`` columns to these rows; returns their positions (n, width)."""
        self._targets = torch.tensor(rows, device=self.device)
        self._starts = self.lengths[self._targets]
        self._span = int(self._starts.max()) + width
        self._fresh = self._span == width
        return self._starts[:, None] + torch.arange(width, device=self.device)

    def open_step(self, active: int) -> Tensor:
        """The next forward pass appends one column to each of the first ``active`` rows; returns positions (n, 1)."""
        self._targets, self._active, self._fresh = None, active, False
        self._starts = self.lengths[:active].clone()
        self._span = int(self._starts.max()) + 1
        return self._starts[:, None]

    @property
    def span(self) -> int:
        """How many columns the pass that is open needs."""
        return self._span

    def copy(self, source: Sequence[int], target: Sequence[int], columns: int) -> None:
        """Give the target rows the first ``columns`` of the source rows (and that length)."""
        for store in (self._keys, self._values):
            for held in store.values():
                held[target, :, :columns] = held[source, :, :columns]
        self.lengths[target] = columns

    def swap(self, first: Sequence[int], second: Sequence[int]) -> None:
        """Exchange rows pairwise."""
        if not first:
            return
        into, out = [*first, *second], [*second, *first]
        used = int(self.lengths[into].max())
        for store in (self._keys, self._values):
            for held in store.values():
                held[into, :, :used] = held[out, :, :used]
        self.lengths[into] = self.lengths[out]
