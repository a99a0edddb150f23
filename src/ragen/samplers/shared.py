"""Keys and values of many conversations: what they begin with, one copy for all that begin alike, then a row each.

A conversation's prefix is all but the last token of its first context; members of a group share it. Everything after it is
the conversation's own: column j of its row holds the token at position prefix length + j.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ragen.models.native import Block, Prefixes, causal_blocks
from ragen.models.shapes import COLUMNS, rounded
from ragen.samplers.store import Store, step_places

Ids = tuple[int, ...]


class SharedRows:
    """Rows over prefixes; the forward pass that comes next is opened first, and reads and writes through `update`."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype, self.device = dtype, device
        self.own, self.prefixes = Store(dtype, device), Store(dtype, device)
        self.lengths = torch.zeros(0, dtype=torch.int64, device=device)  # own tokens of each row
        self.of_row = torch.zeros(0, dtype=torch.int64, device=device)
        self._texts: list[Ids] = []  # of the prefixes
        self._sizes = torch.zeros(0, dtype=torch.int64, device=device)
        self._targets: Tensor | None = None  # rows (or prefixes) that the open pass writes; None: the first `_active`
        self._active = 0
        self._starts = self.lengths
        self._begins = False  # the open pass runs prefixes
        self._places: Tensor | None = None

    @property
    def rows(self) -> int:
        """Rows there is room for."""
        return self.own.rows

    @property
    def columns(self) -> int:
        """Own columns there is room for."""
        return self.own.columns

    def reserve(self, rows: int, columns: int) -> None:
        """Make room for so many rows with so many own columns."""
        self.own.reserve(rows, columns)
        more = self.own.rows - len(self.lengths)
        if more > 0:
            self.lengths = torch.cat([self.lengths, self.lengths.new_zeros(more)])
            self.of_row = torch.cat([self.of_row, self.of_row.new_full((more,), -1)])

    def prefix_length(self, row: int) -> int:
        """How many tokens the row's prefix has; the row must have begun."""
        return len(self._texts[int(self.of_row[row])])

    def begin(self, starts: Sequence[tuple[int, Ids]]) -> list[tuple[int, Ids]]:
        """Let rows begin anew with these prefixes; returns the prefixes that have to be run, with their numbers."""
        fresh = {row for row, _ in starts}
        used = {number for row, number in enumerate(self.of_row.tolist()) if row not in fresh}
        known = {text: number for number, text in enumerate(self._texts) if number in used}
        free = [number for number in range(len(self._texts)) if number not in used]
        todo = []
        for row, text in starts:
            if text not in known:
                number = free.pop(0) if free else len(self._texts)
                if number == len(self._texts):
                    self._texts.append(())
                known[text], self._texts[number] = number, text
                todo.append((number, text))
            self.of_row[row] = known[text]
            self.lengths[row] = 0
        self._sizes = torch.tensor([len(text) for text in self._texts], device=self.device)
        self.prefixes.reserve(len(self._texts), max(map(len, self._texts), default=0))
        return [(number, text) for number, text in todo if text]

    def open_prefixes(self, numbers: Sequence[int], width: int) -> Tensor:
        """The next forward pass runs these prefixes, padded to ``width``; returns their positions (n, width)."""
        self._begins, self._targets = True, torch.tensor(numbers, device=self.device)
        self.prefixes.reserve(self.prefixes.rows, width)
        self._starts = torch.zeros_like(self._targets)
        return torch.arange(width, device=self.device).expand(len(numbers), -1)

    def open_block(self, rows: Sequence[int], width: int) -> Tensor:
        """The next forward pass appends ``width`` columns to these rows; returns their positions (n, width)."""
        self._begins, self._targets = False, torch.tensor(rows, device=self.device)
        return self._open(self._targets, width)

    def open_step(self, active: int) -> Tensor:
        """The next forward pass appends one column to each of the first ``active`` rows; returns positions (n, 1)."""
        self._begins, self._targets, self._active, self._places = False, None, active, None
        return self._open(torch.arange(active, device=self.device), 1)

    def _open(self, rows: Tensor, width: int) -> Tensor:
        self._starts = self.lengths[rows]
        self.reserve(self.own.rows, int(self._starts.max()) + width)
        far = self._sizes[self.of_row[rows]]
        return (far + self._starts)[:, None] + torch.arange(width, device=self.device)

    def blocks(self, width: int, heads: int, shared: int) -> list[Block]:
        """Where the queries of the open pass may look."""
        own = self._starts[:, None] + torch.arange(width, device=self.device)
        if self._begins:
            return causal_blocks(own, width, heads, self.dtype)
        of_row = self.of_row[: self._active] if self._targets is None else self.of_row[self._targets]
        columns = self.own.columns if self._targets is None else self._seen(width)
        far = Prefixes(of_row, self._sizes, self.prefixes.columns, shared) if self.prefixes.columns else None
        return causal_blocks(own, columns, heads, self.dtype, far)

    def _seen(self, width: int) -> int:
        return min(rounded(int(self._starts.max()) + width, COLUMNS), self.own.columns)

    def update(self, keys: Tensor, values: Tensor, layer: int) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor] | None]:
        """Write the new keys and values (n, kv heads, q, width); returns those to look at: each row's own, the prefixes'."""
        if self._begins:
            held = self.prefixes.layer(layer, keys)
            held[:, self._targets, :, : keys.shape[2]] = torch.stack([keys, values]).to(self.dtype)
            return keys, values, None
        held = self.own.layer(layer, keys)
        far = self.prefixes.layer(layer, keys)
        prefixes = (far[0], far[1]) if self.prefixes.columns else None
        if self._targets is None:
            both = torch.cat([keys, values]).to(self.dtype)
            if self._places is None:
                self._places = step_places(held, self._starts)
            held.view(-1, held.shape[-1])[self._places] = both.view(-1, held.shape[-1])
            # whole rows: a product over part of the columns would copy them first, each layer and step
            return held[0, : self._active], held[1, : self._active], prefixes
        columns = self._starts[:, None] + torch.arange(keys.shape[2], device=self.device)
        for part, states in zip(held, (keys, values), strict=True):
            part[self._targets[:, None], :, columns] = states.transpose(1, 2).to(self.dtype)
        seen = self._seen(keys.shape[2])
        return held[0, self._targets, :, :seen], held[1, self._targets, :, :seen], prefixes

    def swap(self, first: Sequence[int], second: Sequence[int]) -> None:
        """Exchange rows pairwise."""
        if not first:
            return
        into, out = [*first, *second], [*second, *first]
        self.own.move(into, out, int(self.lengths[into].max()))
        for table in (self.lengths, self.of_row):
            table[into] = table[out]
