"""How a causal LM is run while it decodes: with rows kept alive across turns, or plainly for models that cannot."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from ragen.models.native import Decoder
from ragen.models.shapes import COLUMNS, rounded
from ragen.samplers.base import Request
from ragen.samplers.passes import NativePass, RowPass, TransformersPass, cache_argument
from ragen.samplers.rows import KeyValueRows
from ragen.samplers.shared import Ids, SharedRows

BLOCK_TOKENS = 2048  # processed tokens a prefill pass at most
CHECK_LENGTHS = (7, 3, 12)


R = TypeVar("R", bound=KeyValueRows | SharedRows)


class RowEngine(ABC, Generic[R]):
    """Decodes with rows kept alive: a slot pays only for ids it does not hold yet, equal new contexts are run once."""

    def __init__(self, forward: RowPass[R], dtype: torch.dtype, device: torch.device) -> None:
        self.forward, self.dtype, self.device = forward, dtype, device
        self.release()

    def release(self) -> None:
        """Forget all slots and free their memory."""
        self._rows = self._empty()
        self._slots: list[int] = []  # the slot of each row
        self._held: dict[int, Ids] = {}

    @abstractmethod
    def _empty(self) -> R:
        """A cache without rows."""

    @abstractmethod
    def _prepare(self, contexts: Sequence[Ids], held: Sequence[Ids], budget: int) -> None:
        """Bring the first rows, which hold ``held``, to all but the last id of their contexts."""

    def batches(self, requests: Sequence[Request]) -> list[list[int]]:
        """Which requests decode side by side: all of them."""
        return [list(range(len(requests)))]

    def begin(self, requests: Sequence[Request]) -> list[int]:
        """Bring the first n rows to all but the last id of their contexts; returns the index of each row's request."""
        order = self._place([request.slot for request in requests])
        held = [self._held.pop(slot, ()) for slot in self._slots[: len(requests)]]
        budget = min(max(request.max_new_tokens for request in requests), COLUMNS)
        self._prepare([requests[i].context for i in order], held, budget)
        return order

    def step(self, tokens: Tensor, advance: Tensor) -> Tensor:
        """Feed one id a row (n,); rows with ``advance`` False stay as they are. Returns logits (n, V)."""
        n = tokens.shape[0]
        positions = self._rows.open_step(n)
        logits = self.forward.logits(tokens[:, None], positions, self._rows)
        self._rows.lengths[:n] += advance
        return logits

    def keep(self, alive: Sequence[bool]) -> list[int]:
        """Bring the rows that go on to the front; returns which old row each of the first n rows now is."""
        order = list(range(len(alive)))
        count = sum(alive)
        gaps = [row for row in range(count) if not alive[row]]
        movers = [row for row in range(count, len(alive)) if alive[row]]
        self._swap(gaps, movers)
        for gap, mover in zip(gaps, movers, strict=True):
            order[gap], order[mover] = mover, gap
        return order

    def finish(self, requests: Sequence[Request], sampled: Sequence[tuple[int, ...]]) -> None:
        """Remember what each slot holds: its context and every sampled id but the last, which was never fed."""
        for request, ids in zip(requests, sampled, strict=True):
            self._held[request.slot] = request.context + ids[:-1]

    def _fill(self, block: Sequence[Ids], positions: Tensor) -> None:
        """Run new ids of the rows that were opened; short ones are filled up behind their end, to be overwritten."""
        width = positions.shape[1]
        ids = torch.tensor([[*new, *[new[-1]] * (width - len(new))] for new in block], device=self.device)
        self.forward.fill(ids, positions, self._rows)

    def _width(self, block: Sequence[Ids]) -> int:
        return rounded(max(map(len, block)), self.forward.grain)

    def _place(self, slots: Sequence[int]) -> list[int]:
        """Bring these slots to the first rows, moving as few as possible; returns the index of each row's slot."""
        index = {slot: i for i, slot in enumerate(slots)}
        known = set(self._slots)
        self._slots += [slot for slot in slots if slot not in known]
        self._rows.reserve(len(self._slots), self._rows.columns)
        gaps = [row for row in range(len(slots)) if self._slots[row] not in index]
        movers = [row for row in range(len(slots), len(self._slots)) if self._slots[row] in index]
        self._swap(gaps, movers)
        return [index[slot] for slot in self._slots[: len(slots)]]

    def _swap(self, first: list[int], second: list[int]) -> None:
        self._rows.swap(first, second)
        for a, b in zip(first, second, strict=True):
            self._slots[a], self._slots[b] = self._slots[b], self._slots[a]


class CopyingEngine(RowEngine[KeyValueRows]):
    """For models that run through transformers: every row holds all its tokens, members get a copy of their prompt."""

    def _empty(self) -> KeyValueRows:
        return KeyValueRows(self.dtype, self.device)

    def _prepare(self, contexts: Sequence[Ids], held: Sequence[Ids], budget: int) -> None:
        rows = self._rows
        kept = [min(_common_prefix(old, new), len(new) - 1) for old, new in zip(held, contexts, strict=True)]
        rows.reserve(len(self._slots), max(map(len, contexts)) + budget)
        rows.lengths[: len(kept)] = torch.tensor(kept, device=self.device)
        leaders: dict[Ids, int] = {}
        followers: dict[int, list[tuple[int, int]]] = {}
        todo = []
        for row, context in enumerate(contexts):
            if kept[row] == len(context) - 1:
                continue
            leader = leaders.setdefault(context, row)
            if leader == row:
                todo.append((row, context[kept[row] : -1]))
            else:
                followers.setdefault(len(context) - 1, []).append((leader, row))
        todo.sort(key=lambda item: (int(rows.lengths[item[0]]) > 0, len(item[1])))
        for numbers, block in _blocks(todo):
            self._fill(block, rows.open_block(numbers, self._width(block)))
            rows.lengths[numbers] += torch.tensor([len(new) for new in block], device=self.device)
        for length, pairs in followers.items():
            rows.copy([leader for leader, _ in pairs], [row for _, row in pairs], length)


class SharedEngine(RowEngine[SharedRows]):
    """For models that run through `ragen.models.native`: what conversations begin with is run and kept once."""

    def _empty(self) -> SharedRows:
        return SharedRows(self.dtype, self.device)

    def _prepare(self, contexts: Sequence[Ids], held: Sequence[Ids], budget: int) -> None:
        rows = self._rows
        starts, todo, own = [], [], []
        for row, (old, new) in enumerate(zip(held, contexts, strict=True)):
            kept = min(_common_prefix(old, new), len(new) - 1)
            before = rows.prefix_length(row) if old else 0
            if not old or kept < before:
                starts.append((row, new[:-1]))
                own.append(1)
                continue
            rows.lengths[row] = kept - before
            own.append(len(new) - before)
            if kept < len(new) - 1:
                todo.append((row, new[kept:-1]))
        rows.reserve(len(self._slots), max(own) + budget)
        begun = rows.begin(starts)
        for numbers, block in _blocks(sorted(begun, key=lambda item: len(item[1]))):
            self._fill(block, rows.open_prefixes(numbers, self._width(block)))
        for numbers, block in _blocks(sorted(todo, key=lambda item: len(item[1]))):
            self._fill(block, rows.open_block(numbers, self._width(block)))
            rows.lengths[numbers] += torch.tensor([len(new) for new in block], device=self.device)


def _blocks(todo: Sequence[tuple[int, Ids]]) -> Iterator[tuple[list[int], list[Ids]]]:
    """Cut a list of (row, ids), shortest first, into blocks of at most `BLOCK_TOKENS` tokens, padding included."""
    start = 0
    while start < len(todo):
        end = start + 1
        while end < len(todo) and (end + 1 - start) * len(todo[end][1]) <= BLOCK_TOKENS:
            end += 1
        yield [row for row, _ in todo[start:end]], [ids for _, ids in todo[start:end]]
        start = end


class PlainEngine:
    """Decodes any causal LM: contexts of equal length side by side, without padding, nothing kept between turns.

    For models whose attention does not go through transformers' interface (or that are recurrent). Slower, and always the
    model's own computation.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self._cache_argument = cache_argument(model)
        self.release()

    def release(self) -> None:
        """Free the model's own cache."""
        self._cache: Any = None
        self._ids: Tensor | None = None

    def batches(self, requests: Sequence[Request]) -> list[list[int]]:
        """Which requests decode side by side: those with contexts of one length."""
        lengths = sorted({len(request.context) for request in requests})
        return [[i for i, r in enumerate(requests) if len(r.context) == length] for length in lengths]

    def begin(self, requests: Sequence[Request]) -> list[int]:
        """Start these contexts afresh, one a row in the order given."""
        self.release()
        self._ids = torch.tensor([request.context[:-1] for request in requests], dtype=torch.int64, device=self.model.device)
        return list(range(len(requests)))

    def step(self, tokens: Tensor, advance: Tensor) -> Tensor:
        """Feed one id a row (n,); returns logits (n, V)."""
        ids = tokens[:, None] if self._ids is None else torch.cat([self._ids, tokens[:, None]], dim=1)
        if self._cache_argument is None:
            self._ids = ids
            return self.model(input_ids=ids).logits[:, -1]
        self._ids = None
        out = self.model(input_ids=ids, use_cache=True, **{self._cache_argument: self._cache})
        self._cache = out[self._cache_argument]
        return out.logits[:, -1]

    def keep(self, alive: Sequence[bool]) -> list[int]:
        """Nothing moves: a model's own cache may not be divisible by rows."""
        return list(range(len(alive)))

    def finish(self, requests: Sequence[Request], sampled: Sequence[tuple[int, ...]]) -> None:
        """Nothing is kept."""
        self.release()


def choose_engine(model: PreTrainedModel, decoder: Decoder | None, dtype: torch.dtype) -> "RowEngine[Any] | PlainEngine":
    """The row engine if its logits equal the plain model's on this very model, else the plain one."""

    def engine(dtype: torch.dtype) -> RowEngine[Any]:
        if decoder is None:
            return CopyingEngine(TransformersPass(model), dtype, model.device)
        return SharedEngine(NativePass(decoder), dtype, model.device)

    return engine(dtype) if rows_agree(model, engine(torch.float32)) else PlainEngine(model)


@torch.no_grad()
def rows_agree(model: PreTrainedModel, engine: RowEngine[Any], tolerance: float = 1e-4) -> bool:
    """Whether prefill, decoding and a second turn in rows give the logits of plain forward passes, in float32.

    The tolerance is relative to the largest logit (at least 1).
    """
    if cache_argument(model) is None:
        return False
    rng = np.random.default_rng(0)
    size = int(model.get_input_embeddings().weight.shape[0])
    texts = [tuple(rng.integers(size, size=n + 5).tolist()) for n in CHECK_LENGTHS]
    try:
        for cut, turns in ((0, (0, 1)), (4, (4, 5))):
            engine.begin([Request(i, t[: n + cut], 0, 8) for i, (t, n) in enumerate(zip(texts, CHECK_LENGTHS, strict=True))])
            for more in turns:
                ends = [n + more for n in CHECK_LENGTHS]
                tokens = torch.tensor([t[end - 1] for t, end in zip(texts, ends, strict=True)], device=model.device)
                got = engine.step(tokens, torch.ones_like(tokens, dtype=torch.bool))
                for row, (text, end) in enumerate(zip(texts, ends, strict=True)):
                    want = model(input_ids=torch.tensor([text[:end]], device=model.device)).logits[0, -1]
                    if (got[row] - want).abs().max() > tolerance * max(1.0, float(want.abs().max())):
                        return False
            held = [t[: n + turns[-1] + 1] for t, n in zip(texts, CHECK_LENGTHS, strict=True)]
            engine.finish([Request(i, (), 0, 8) for i in range(len(texts))], held)
    except (AttributeError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError, IndexError):
        return False  # an architecture that wants something else of its cache or mask
    return True


def _common_prefix(held: Ids, context: Ids) -> int:
    """How many leading ids agree."""
    if context[: len(held)] == held:
        return len(held)
    return next((i for i, (a, b) in enumerate(zip(held, context, strict=False)) if a != b), min(len(held), len(context)))
