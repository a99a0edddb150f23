"""Where keys and values lie: a tensor a layer, made when the layer is first seen, grown in place."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ragen.models.shapes import COLUMNS, rounded


class Store:
    """Keys and values of a layer each, (2, rows, kv heads, columns, width), all zeros where nothing was written.

    Zeros, because a masked key has weight 0, and 0 · NaN from old memory would be NaN.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype, self.device = dtype, device
        self.rows, self.columns = 0, 0
        self._held: dict[int, Tensor] = {}

    def layer(self, number: int, like: Tensor) -> Tensor:
        """The layer's tensor; ``like`` (…, kv heads, q, width) tells its shape."""
        if number not in self._held:
            shape = (2, self.rows, like.shape[-3], self.columns, like.shape[-1])
            self._held[number] = torch.zeros(shape, dtype=self.dtype, device=self.device)
        return self._held[number]

    def reserve(self, rows: int, columns: int) -> None:
        """Make room for so many rows and columns; what is held stays."""
        if rows <= self.rows and columns <= self.columns:
            return
        if columns > self.columns:
            columns = rounded(max(columns, self.columns + self.columns // 8), COLUMNS)
        rows, columns = max(rows, self.rows), max(columns, self.columns)
        for number, old in self._held.items():
            new = old.new_zeros(2, rows, old.shape[2], columns, old.shape[4])
            new[:, : self.rows, :, : self.columns] = old
            self._held[number] = new
        self.rows, self.columns = rows, columns

    def move(self, into: Sequence[int], out: Sequence[int], used: int) -> None:
        """Put the first ``used`` columns of the rows ``out`` where ``into`` are."""
        for held in self._held.values():
            held[:, into, :, :used] = held[:, out, :, :used]


def step_places(held: Tensor, ends: Tensor) -> Tensor:
    """Where a step writes in a layer's tensor seen as (…, width): indices (2 · n · kv heads,) of column ``ends`` (n,) of the
    first n rows, keys then values. The same for every layer.
    """
    _, rows, heads, columns, _ = held.shape
    row = torch.arange(len(ends), device=ends.device)[:, None] * heads + torch.arange(heads, device=ends.device)
    keys = (row * columns + ends[:, None]).flatten()
    return torch.cat([keys, keys + rows * heads * columns])
