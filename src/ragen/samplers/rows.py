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
from ragen.samplers.store import Store, step_places


class KeyValueRows(Cache):  # type: ignore[misc]
    """A transformers cache whose rows have lengths of their own."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(layers=[])
        self.dtype, self.device = dtype, device
        self.lengths = torch.zeros(0, dtype=torch.int64, device=device)
        self._store = Store(dtype, device)
        self._targets: Tensor | None = None  # rows written by a block; None while the first `_active` rows decode
        self._active = 0
        self._starts = self.lengths
        self._span = 0  # keys a query may see
        self._fresh = False  # a block of rows that hold nothing yet
        self._places: Tensor | None = None  # where a step writes, in a layer's flattened storage

    # What a forward pass asks of a cache.

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write the new keys and values (n, kv heads, q, width) and return all that the queries may see."""
        held = self._store.layer(layer_idx, key_states)
        if self._targets is None:
            both = torch.cat([key_states, value_states]).to(self.dtype)
            if self._places is None:
                self._places = step_places(held, self._starts)
            held.view(-1, held.shape[-1])[self._places] = both.view(-1, held.shape[-1])
            # whole rows: a product over part of the columns would copy them first, each layer and step
            return held[0, : self._active], held[1, : self._active]
        columns = self._starts[:, None] + torch.arange(key_states.shape[2], device=self.device)
        for part, states in zip(held, (key_states, value_states), strict=True):
            part[self._targets[:, None], :, columns] = states.transpose(1, 2).to(self.dtype)
        if self._fresh:
            return key_states, value_states
        return held[0, self._targets, :, : self._span], held[1, self._targets, :, : self._span]

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

    @property
    def rows(self) -> int:
        """Rows there is room for."""
        return self._store.rows

    @property
    def columns(self) -> int:
        """Columns there is room for."""
        return self._store.columns

    def reserve(self, rows: int, columns: int) -> None:
        """Make room for so many rows and columns; what is held stays."""
        self._store.reserve(rows, columns)
        more = self.rows - len(self.lengths)
        if more > 0:
            self.lengths = torch.cat([self.lengths, self.lengths.new_zeros(more)])

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
        self._store.move(target, source, columns)
        self.lengths[target] = columns

    def swap(self, first: Sequence[int], second: Sequence[int]) -> None:
        """Exchange rows pairwise."""
        if not first:
            return
        into, out = [*first, *second], [*second, *first]
        self._store.move(into, out, int(self.lengths[into].max()))
        self.lengths[into] = self.lengths[out]
