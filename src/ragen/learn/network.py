"""A causal language model as a function from rows to log-probabilities at the sampled tokens.

Llama-type models run through `ragen.models.native`, others through transformers. There, two short cuts are taken only where
they are proved on the model itself, at construction, in float32 on random ids: "output embedding applied to the backbone's
last hidden state" in place of the model's own logits, and packed rows in place of plain ones. A model for which a proof
fails (soft-capped or scaled logits, windows, recurrent layers, …) takes the plain way.
"""

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from ragen.episode import Segment
from ragen.errors import ModelError
from ragen.learn.batch import Batch, collate_segments
from ragen.learn.head import token_logprobs
from ragen.learn.packing import MicroBatch, plan
from ragen.models.native import Decoder, Projection
from ragen.models.shapes import TOKENS, rounded

TOLERANCE = 1e-4
ATTENTION_SCALE = 4.0  # row length, in hidden sizes, at which attention costs as much as everything else


@dataclass(frozen=True, slots=True)
class TokenOutputs:
    """For the N sampled tokens of a micro-batch: ``logprobs``, ``entropies`` (nats) and ``hidden`` (N, H), the last hidden
    state that predicts each of them.
    """

    logprobs: Tensor
    entropies: Tensor
    hidden: Tensor


class Network:
    """Wraps one causal LM: its master weights are float32, its products run in ``dtype`` (autocast).

    ``temperature`` divides the logits of every log-probability and entropy. ``native`` says whether the model runs through
    our own forward pass (not wanted with ``native=False``); ``packs`` and ``linear_head`` say which short cuts were proved.
    """

    def __init__(self, model: Any, *, dtype: torch.dtype, temperature: float = 1.0, native: bool = True) -> None:
        self.model = model.float()
        self.dtype, self.temperature = dtype, temperature
        silence_dropout(model)
        config = model.config.get_text_config()
        self.hidden_size: int = config.hidden_size
        self._scale = ATTENTION_SCALE * config.hidden_size
        self._window = _window(config)
        accepted = inspect.signature(self.backbone.forward).parameters
        own = inspect.signature(model.forward).parameters
        self._takes_positions = "position_ids" in accepted
        self._keeps_logits = "logits_to_keep" in own
        self._decoder = Decoder.find(model) if native else None
        self.linear_head = self.packs = self.native
        if not self.native:
            self._prove()
        if self.linear_head:
            self._head = Projection([model.get_output_embeddings()])
        self.release()  # the proof's float32 copies

    @property
    def native(self) -> bool:
        """Whether the model runs through `ragen.models.native`."""
        return self._decoder is not None

    @property
    def backbone(self) -> Any:
        """The model without its output embedding."""
        return self.model.base_model

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = next(self.model.parameters()).device
        return device

    def plan(self, batch: Batch, rows: list[int], budget: int, *, pack: bool = True) -> list[MicroBatch]:
        """Micro-batches of at most ``budget`` processed tokens; packed where the proof and the rows' lengths allow it."""
        longest = int(batch.lengths[rows].max()) if rows else 0
        fits = self._window is None or longest <= self._window
        if self.native:
            return plan(batch, rows, budget=budget, pack=pack, padded=False)
        return plan(batch, rows, budget=budget, pack=pack and self.packs and fits, attention_scale=self._scale)

    def release(self) -> None:
        """Free what is kept between forward passes over the same weights."""
        if self._decoder is not None:
            self._decoder.drop()
        if self.linear_head:
            self._head.drop()

    def outputs(self, micro: MicroBatch, *, temperature: float | None = None) -> TokenOutputs:
        """Log-probabilities, entropies and hidden states at the sampled tokens of a micro-batch, with gradients."""
        temperature = self.temperature if temperature is None else temperature
        targets = micro.targets.to(self.device)
        if self.linear_head:
            hidden = self.hidden(micro)
            self._head.prepare(self.dtype, pack=False)
            logprobs, entropies = token_logprobs(hidden, *self._head.operands(), targets, temperature=temperature)
        else:
            logits, hidden = self._own_logits(micro)
            table = torch.log_softmax(logits.float() / temperature, dim=-1)
            logprobs = table.gather(1, targets[:, None])[:, 0]
            entropies = -(table.exp() * table.clamp(min=-1e30)).sum(-1)
        return TokenOutputs(logprobs, entropies, hidden)

    def hidden(self, micro: MicroBatch) -> Tensor:
        """Last hidden states (N, H) of the predictors."""
        if self._decoder is not None:
            return self._native_hidden(self._decoder, micro)
        with self._autocast():
            states = self.backbone(**self._inputs(micro)).last_hidden_state
        return states.flatten(0, 1)[micro.predictors.to(self.device)]

    def _native_hidden(self, decoder: Decoder, micro: MicroBatch) -> Tensor:
        decoder.prepare(self.dtype)
        real = micro.real
        place = torch.empty(micro.ids.numel(), dtype=torch.int64)
        place[real] = torch.arange(len(real))
        size = rounded(len(real), TOKENS)
        layout = decoder.layout(micro.layout(), self.device, size)
        ids, positions = (
            functional.pad(table.flatten()[real], (0, size - len(real))).to(self.device)
            for table in (micro.ids, micro.positions)
        )
        return decoder.hidden(ids, positions, decoder.over(layout))[place[micro.predictors].to(self.device)]

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, self.dtype, enabled=self.dtype is not torch.float32)

    def _inputs(self, micro: MicroBatch) -> dict[str, Any]:
        # Plain rows need no mask: attention is causal and padding is on the right, so no real token can see it.
        inputs: dict[str, Any] = {"input_ids": micro.ids.to(self.device), "use_cache": False}
        mask = micro.attention_mask(self.device)
        if mask is not None:
            if self.model.config._attn_implementation == "eager":
                mask = torch.zeros(mask.shape, device=self.device).masked_fill_(~mask, torch.finfo(torch.float32).min)
            inputs |= {"attention_mask": mask, "position_ids": micro.positions.to(self.device)}
        return inputs

    def _own_logits(self, micro: MicroBatch) -> tuple[Tensor, Tensor]:
        """The model's own logits (N, V) at the predictors, and the hidden states its output embedding was given."""
        width = micro.ids.shape[1]
        columns, place = (micro.predictors % width).unique(return_inverse=True)
        kept = columns.to(self.device)
        seen: list[Tensor] = []
        hook = self.model.get_output_embeddings().register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        try:
            with self._autocast():
                extra = {"logits_to_keep": kept} if self._keeps_logits else {}
                logits = self.model(**self._inputs(micro), **extra).logits
        finally:
            hook.remove()
        if not self._keeps_logits:
            logits, seen = logits[:, kept], [seen[0][:, kept]]
        index = (micro.predictors // width).to(self.device), place.to(self.device)
        return logits[index], seen[0][index]

    @torch.no_grad()
    def _prove(self) -> None:
        """Decide ``linear_head`` and ``packs`` in float32; refuse a model whose outputs depend on what comes later."""
        if self.model.get_output_embeddings() is None:
            raise ModelError(f"{type(self.model).__name__} has no output embedding: use a causal language model")
        dtype, self.dtype, mode = self.dtype, torch.float32, self.model.training
        self.model.eval()
        try:
            batch = _probe(self.model.config.get_text_config().vocab_size)
            rows = list(range(len(batch.lengths)))
            alone = [plan(batch, [r], budget=1, pack=False, attention_scale=self._scale)[0] for r in rows]
            logits, hidden = (torch.cat(parts) for parts in zip(*map(self._own_logits, alone), strict=True))
            self.linear_head = self._head_is_linear(alone, logits)
            together = self._padded(batch, rows, pack=False)
            if not _close(self._in_order(together), hidden):
                raise ModelError(
                    f"{type(self.model).__name__} gives a token other outputs when padding follows it: it is not a causal "
                    "language model; use one trained to predict the next token"
                )
            self.packs = self._packing_holds(batch, rows, hidden)
        finally:
            self.dtype = dtype
            self.model.train(mode)

    def _head_is_linear(self, alone: list[MicroBatch], logits: Tensor) -> bool:
        head = self.model.get_output_embeddings()
        if type(head) is not nn.Linear:
            return False
        try:
            states = torch.cat([self.hidden(micro) for micro in alone])
            return _close(head(states), logits)
        except (RuntimeError, AttributeError, TypeError):  # a backbone with another interface or width
            return False

    def _packing_holds(self, batch: Batch, rows: list[int], hidden: Tensor) -> bool:
        if not self._takes_positions:
            return False
        try:
            return _close(self._in_order(self._padded(batch, rows, pack=True)), hidden)
        except (RuntimeError, ValueError, TypeError, IndexError):  # an attention that takes no 4-D mask
            return False

    def _padded(self, batch: Batch, rows: list[int], *, pack: bool) -> MicroBatch:
        (micro,) = plan(batch, rows, budget=1 << 12, pack=pack, attention_scale=self._scale)
        return micro

    def _in_order(self, micro: MicroBatch) -> Tensor:
        """Hidden states ordered by (row, column), to compare two plans."""
        states = self.hidden(micro) if self.linear_head else self._own_logits(micro)[1]
        order = np.lexsort((micro.columns.numpy(), micro.rows.numpy()))
        return states[torch.from_numpy(order).to(states.device)]


def silence_dropout(model: nn.Module) -> None:
    """Set every dropout rate to 0: sampling, old log-probabilities and loss must be one function of the weights (B21)."""
    for module in model.modules():
        for name, value in vars(module).items():
            rate = name == "p" if isinstance(module, nn.modules.dropout._DropoutNd) else "dropout" in name or "pdrop" in name
            if rate and isinstance(value, float):
                setattr(module, name, 0.0)


def _window(config: Any) -> int | None:
    """The longest row for which windowed or chunked attention is still full attention; None without a window."""
    sizes = [getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size")]
    return min((size for size in sizes if size), default=None)


def _probe(vocabulary: int) -> Batch:
    """Five rows of random ids: three share seven tokens, two share nothing with them."""
    rng = np.random.default_rng(0)
    shared = rng.integers(vocabulary, size=7)
    rows = [np.concatenate([shared, rng.integers(vocabulary, size=n)]) for n in (3, 9, 5)]
    rows += [rng.integers(vocabulary, size=n) for n in (12, 6)]
    return collate_segments(
        [
            Segment(
                token_ids=row.astype(np.int64),
                mask=np.arange(row.size) > 0,
                logprobs=np.zeros(row.size, np.float32),
                turn_ids=np.zeros(row.size, np.int32),
                rewards=np.zeros(row.size),
            )
            for row in rows
        ],
        pad_id=0,
    )


def _close(got: Tensor, wanted: Tensor) -> bool:
    """Equal to 1e-4 of the largest wanted value (NaN anywhere is unequal)."""
    if got.shape != wanted.shape:
        return False
    scale = max(1.0, float(wanted.abs().max()))
    return bool((got.float() - wanted.float()).abs().max() <= TOLERANCE * scale)
