"""Forward passes over a cache of rows: through our own decoder, or through transformers."""

import inspect
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ragen.models.attention import use_attention
from ragen.models.native import Decoder, attend
from ragen.models.shapes import FILL
from ragen.samplers.rows import KeyValueRows
from ragen.samplers.shared import SharedRows

R_contra = TypeVar("R_contra", contravariant=True)


class RowPass(Protocol[R_contra]):
    """Runs a model on the new ids (n, q) of the rows that are open in a cache, at ``positions`` (n, q).

    ``grain``: blocks of new ids are filled up to a multiple of it, behind the end of each row.
    """

    grain: int

    def fill(self, ids: Tensor, positions: Tensor, rows: R_contra) -> None:
        """Compute keys and values only."""
        ...

    def logits(self, ids: Tensor, positions: Tensor, rows: R_contra) -> Tensor:
        """Logits (n, V) after the last id of each row."""
        ...


class NativePass:
    """Runs `ragen.models.native.Decoder`."""

    grain = FILL

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    def fill(self, ids: Tensor, positions: Tensor, rows: SharedRows) -> None:
        """Compute keys and values only."""
        self._hidden(ids, positions, rows)

    def logits(self, ids: Tensor, positions: Tensor, rows: SharedRows) -> Tensor:
        """Logits (n, V) after the last id of each row."""
        hidden = self._hidden(ids, positions, rows).view(*ids.shape, -1)[:, -1]
        return self._decoder.head(hidden.to(rows.dtype))

    def _hidden(self, ids: Tensor, positions: Tensor, rows: SharedRows) -> Tensor:
        blocks = rows.blocks(ids.shape[1], self._decoder.heads, self._decoder.shared)

        def look(layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            queries, keys, values = (part.unflatten(0, ids.shape).transpose(1, 2) for part in (queries, keys, values))
            keys, values, prefixes = rows.update(keys, values, layer)
            return attend(queries, keys, values, blocks, self._decoder.scale, prefixes).transpose(1, 2).flatten(0, 1)

        return self._decoder.hidden(ids.flatten(), positions.flatten(), look)


class TransformersPass:
    """Runs a Hugging Face causal LM with the rows as its cache and the attention of `ragen.models.attention`."""

    grain = 1  # learned position embeddings end where the context does: there is no place behind the longest row

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        argument, base = cache_argument(model), model.base_model
        self._cache_argument = argument or "cache"
        # filling needs no logits: run the model without its head
        self._headless = base is not model and cache_argument(base) == argument

    def fill(self, ids: Tensor, positions: Tensor, rows: KeyValueRows) -> None:
        """Compute keys and values only."""
        self._run(self._model.base_model if self._headless else self._model, ids, positions, rows)

    def logits(self, ids: Tensor, positions: Tensor, rows: KeyValueRows) -> Tensor:
        """Logits (n, V) after the last id of each row."""
        logits: Tensor = self._run(self._model, ids, positions, rows).logits[:, -1]
        return logits

    def _run(self, module: torch.nn.Module, ids: Tensor, positions: Tensor, rows: KeyValueRows) -> Any:
        seen = torch.ones(ids.shape[0], rows.span, dtype=torch.int64, device=ids.device)
        extra: dict[str, Any] = {self._cache_argument: rows}
        if module is self._model:
            extra["logits_to_keep"] = 1
        with use_attention(self._model):
            return module(input_ids=ids, attention_mask=seen, position_ids=positions, use_cache=True, **extra)


def cache_argument(model: torch.nn.Module) -> str | None:
    """The name under which the model's forward takes a key-value cache (transformers renamed it), or None."""
    names = inspect.signature(model.forward).parameters
    return next((name for name in ("cache", "past_key_values") if name in names), None)
