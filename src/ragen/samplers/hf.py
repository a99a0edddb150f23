"""A sampler that decodes any Hugging Face causal LM in batches with its own loop."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from ragen.episode import Completion, StopReason
from ragen.errors import ModelError, TrainingError
from ragen.models.native import Decoder
from ragen.models.shapes import ROWS, rounded
from ragen.samplers.base import Request, SamplingParams
from ragen.samplers.draw import Draw, Drawer, StopFinder, decode
from ragen.samplers.engines import PlainEngine, RowEngine, choose_engine
from ragen.samplers.packed import PackedLinears
from ragen.seeding import generator

Hear = Callable[[int, int], None]
COMPACT = 8  # finished rows leave the decode batch when they are more than one in this many


@dataclass(slots=True)
class _Replies:
    """What was sampled so far for a batch of requests: arrays (n, longest budget) and a count a request."""

    ids: NDArray[np.int64]
    logprobs: NDArray[np.float32]
    entropies: NDArray[np.float32]
    counts: NDArray[np.int64]
    stops: list[StopReason | None]

    @classmethod
    def empty(cls, n: int, longest: int) -> "_Replies":
        ids, numbers = np.zeros((n, longest), np.int64), np.zeros((n, longest), np.float32)
        return cls(ids, numbers, numbers.copy(), np.zeros(n, np.int64), [None] * n)

    def sampled(self, i: int) -> tuple[int, ...]:
        return tuple(self.ids[i, : self.counts[i]].tolist())


class HFSampler:
    """Samples from a model that it shares with the learner.

    A turn costs only the ids that its slot has not seen; equal contexts of new slots (the members of a group) are run once;
    finished rows leave the batch. That needs transformers' attention interface and is used only if, at construction, its
    logits equal the plain model's on this very model; otherwise contexts of equal length decode side by side without
    reuse (``reuses_cache`` is then False). Under bfloat16 transformers runs the float32 weights by autocast, as the learner,
    so both round at the same places; the weights are cast once a collection.

    Llama-type models run through `ragen.models.native` (unless ``native`` is False), exactly as the learner runs them. How
    a model is run is chosen anew where its modules are others than before (adapters).

    ``end_ids`` end a reply and are part of it. Embeddings are never resized and no pad token is needed.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: Any,
        *,
        end_ids: frozenset[int],
        dtype: torch.dtype,
        native: bool = True,
    ) -> None:
        self.version = 0
        self._module = model
        # adapters of peft live inside the base model: running that one runs them
        self._model: PreTrainedModel = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._tokenizer = tokenizer
        self._end_ids = np.asarray(sorted(end_ids), dtype=np.int64)
        self._dtype = dtype
        self._draw = Drawer()
        self._packed = PackedLinears(self._model, dtype)
        self._seen = _fingerprint(self._model)
        self._native = native
        self._choose()

    def _choose(self) -> None:
        """Prove how the model can be run, with the modules that it consists of now."""
        self._modules = tuple(self._model.modules())
        with _inference(self._model, torch.float32):
            self._decoder = Decoder.find(self._model) if self._native else None
            self._engine: RowEngine[Any] | PlainEngine = choose_engine(self._model, self._decoder, self._dtype)
        if self._decoder is not None:
            self._decoder.drop()  # the proof's float32 copies

    @property
    def reuses_cache(self) -> bool:
        """Whether slots keep their keys and values from turn to turn."""
        return isinstance(self._engine, RowEngine)

    def generate(self, requests: Sequence[Request], params: SamplingParams, hear: Hear | None = None) -> list[Completion]:
        """Sample one reply a request, in the order of the requests; ``hear(i, id)`` is told each id of request i at once.

        Raises TrainingError when a model gives NaN or infinite logits; the slots are then forgotten.
        """
        _validate(requests)
        if not requests:
            return []
        if _fingerprint(self._model) != self._seen:  # changed in place without ``load``: nothing computed before holds
            self.release()
        if self._modules != tuple(self._model.modules()):  # adapters were put in, which what was chosen before would miss
            self.release()
            self._choose()
        completions: list[Completion | None] = [None] * len(requests)
        finder = StopFinder(self._tokenizer, params.stop_strings) if params.stop_strings else None
        with self._computing():
            try:
                for batch in self._engine.batches(requests):
                    part = [requests[i] for i in batch]
                    told = None if hear is None else _numbered(hear, batch)
                    for i, completion in zip(batch, self._decode(part, params, finder, told), strict=True):
                        completions[i] = completion
            except BaseException:
                self.release()
                raise
        return [completion for completion in completions if completion is not None]

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Use these weights from now on (copied unless they are the model's own) and forget every slot."""
        own = dict(self._module.named_parameters(remove_duplicate=False))
        own.update(self._module.named_buffers(remove_duplicate=False))
        with torch.no_grad():
            for name, tensor in weights.items():
                if name not in own:
                    raise ModelError(
                        f"cannot load weight '{name}': the sampler's {type(self._model).__name__} has no such tensor"
                    )
                if own[name].shape != tensor.shape:
                    raise ModelError(
                        f"cannot load weight '{name}' of shape {tuple(tensor.shape)}: the model has {tuple(own[name].shape)}"
                    )
                if own[name].data_ptr() != tensor.data_ptr():
                    own[name].copy_(tensor)
        self.release()
        self.version = version

    def release(self) -> None:
        """Forget all slots and free their memory."""
        self._engine.release()
        self._packed.drop()
        if self._decoder is not None:
            self._decoder.drop()
        self._seen = _fingerprint(self._model)

    @contextmanager
    def _computing(self) -> Iterator[None]:
        if self._decoder is not None:
            self._decoder.prepare(self._dtype, pack=True)
            with torch.no_grad():
                yield
        else:
            with _inference(self._model, self._dtype), self._packed.use():
                yield

    def _decode(
        self, requests: Sequence[Request], params: SamplingParams, finder: StopFinder | None, hear: Hear | None
    ) -> list[Completion]:
        n, device = len(requests), self._model.device
        longest = max(request.max_new_tokens for request in requests)
        limits = np.asarray([request.max_new_tokens for request in requests])
        uniforms = np.zeros((n, longest), np.float32)
        for i, request in enumerate(requests):
            uniforms[i, : request.max_new_tokens] = generator(request.seed).random(request.max_new_tokens)
        replies = _Replies.empty(n, longest)
        order = np.asarray(self._engine.begin(requests))  # the request of each row
        newest = np.asarray([requests[i].context[-1] for i in order])
        alive = np.ones(n, dtype=bool)  # by row
        while alive.any():
            logits = self._engine.step(torch.from_numpy(newest).to(device), torch.from_numpy(alive).to(device))
            steps = np.minimum(replies.counts[order], longest - 1)
            draw = self._draw(logits, torch.from_numpy(uniforms[order, steps]).to(device), params)
            _refuse(draw, [requests[i].slot for i in order], alive, self.version, self._module)
            newest = draw.ids.cpu().numpy()
            _record(replies, order[alive], draw, torch.from_numpy(alive))
            if hear is not None:
                for i, token in zip(order[alive].tolist(), newest[alive].tolist(), strict=True):
                    hear(i, token)
            self._stop(replies, order, alive, limits, finder)
            count = rounded(int(alive.sum()), ROWS) if self.reuses_cache else len(alive)
            if alive.any() and (len(alive) - count) * COMPACT > len(alive):
                kept = np.asarray(self._engine.keep(alive.tolist()))
                order, newest, alive = order[kept][:count], newest[kept][:count], alive[kept][:count]
        self._engine.finish(requests, [replies.sampled(i) for i in range(n)])
        return [self._completion(replies, i) for i in range(n)]

    def _stop(
        self, replies: _Replies, order: NDArray[Any], alive: NDArray[Any], limits: NDArray[Any], finder: StopFinder | None
    ) -> None:
        """Mark the rows (in place) that just sampled an end id, finished a stop string, or spent their budget."""
        rows = np.flatnonzero(alive)
        which = order[rows]
        counts = replies.counts[which]
        ended = np.isin(replies.ids[which, counts - 1], self._end_ids)
        full = counts >= limits[which]
        for row, i, end, spent in zip(rows, which, ended, full, strict=True):
            if end:
                replies.stops[i] = StopReason.END
            elif finder is not None and finder.found(replies.sampled(i)):
                replies.stops[i] = StopReason.STOP_STRING
            elif spent:
                replies.stops[i] = StopReason.LENGTH
            alive[row] = replies.stops[i] is None

    def _completion(self, replies: _Replies, i: int) -> Completion:
        count, ids = replies.counts[i], replies.sampled(i)
        return Completion(
            token_ids=ids,
            logprobs=tuple(replies.logprobs[i, :count].tolist()),
            entropies=tuple(replies.entropies[i, :count].tolist()),
            text=decode(self._tokenizer, ids),
            stop=replies.stops[i] or StopReason.LENGTH,
        )


def _validate(requests: Sequence[Request]) -> None:
    if len({request.slot for request in requests}) < len(requests):
        raise ValueError("two requests of one call name the same slot; each episode needs a slot of its own")
    for request in requests:
        if not request.context or request.max_new_tokens < 1:
            raise ValueError(
                f"the request of slot {request.slot} has {len(request.context)} context ids and max_new_tokens "
                f"{request.max_new_tokens}: both must be at least 1"
            )


def _refuse(draw: Draw, slots: Sequence[int], alive: NDArray[np.bool_], version: int, model: torch.nn.Module) -> None:
    bad = [slots[row] for row in draw.bad if alive[row]]
    if bad:
        raise TrainingError(
            f"the model gave NaN or infinite logits for slot {bad[0]} ({len(bad)} of {int(alive.sum())} rows, weights of "
            f"version {version}): its weights are broken ({_norm_in_words(model)}). Go back to the last checkpoint with a "
            "lower learning rate"
        )


def _norm_in_words(model: torch.nn.Module) -> str:
    """The L2 norm of all parameters, of their finite numbers alone where some are not, and how many those are."""
    square, broken, count = 0.0, 0, 0
    for parameter in model.parameters():
        value = parameter.detach()
        finite = value.isfinite()
        square += float(torch.linalg.vector_norm(value.where(finite, 0.0), dtype=torch.float64)) ** 2
        broken += value.numel() - int(finite.sum())
        count += value.numel()
    norm = f"parameter norm {math.sqrt(square):.6g}"
    return f"{norm}, without {broken} of {count} numbers that are not finite" if broken else f"{norm}, all numbers finite"


def _record(replies: _Replies, which: NDArray[np.int64], draw: Draw, alive: Tensor) -> None:
    at = replies.counts[which]
    alive = alive.to(draw.ids.device)
    replies.ids[which, at] = draw.ids[alive].cpu().numpy()
    replies.logprobs[which, at] = draw.logprobs[alive].cpu().numpy()
    replies.entropies[which, at] = draw.entropies[alive].cpu().numpy()
    replies.counts[which] += 1


def _numbered(hear: Hear, batch: Sequence[int]) -> Hear:
    """``hear`` for a part of the requests: their numbers in the whole call."""
    return lambda i, token: hear(batch[i], token)


def _fingerprint(model: PreTrainedModel) -> int:
    """Changes whenever a weight is written in place."""
    return sum(parameter._version for parameter in model.parameters())


@contextmanager
def _inference(model: PreTrainedModel, dtype: torch.dtype) -> Iterator[None]:
    """Evaluation mode without gradients, under autocast for a reduced ``dtype``; everything is put back after.

    Autocast keeps the cast of a weight only while the weight asks for gradients, so frozen ones (under adapters) ask for
    them here; the casts are dropped at the end, because a learner's own autocast must not find ones without gradients.
    """
    training = model.training
    frozen = (
        [p for p in model.parameters() if not p.requires_grad and p.is_floating_point()] if dtype != torch.float32 else []
    )
    model.eval()
    for parameter in frozen:
        parameter.requires_grad_(True)
    try:
        with torch.no_grad(), torch.autocast(model.device.type, dtype=dtype, enabled=dtype != torch.float32):
            yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)
        torch.clear_autocast_cache()
        model.train(training)
