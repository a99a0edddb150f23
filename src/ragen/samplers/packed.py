"""Packed copies of a Hugging Face model's linear weights, for sampling through transformers.

On a CPU a product of a few rows casts (under autocast) and re-orders the whole weight each time, which costs more than the
product. Packed once a collection, the results are those of the plain layers (``ragen.models.onednn``).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ragen.models.onednn import pack_weight, packed_linear, packing_works


class PackedLinears:
    """The packed weights of a model's plain linear layers, until ``drop``."""

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        first = next(model.parameters())
        self._enabled = first.device.type == "cpu" and packing_works(dtype)
        self._dtype = dtype
        self._model = model
        self._forwards: list[tuple[nn.Linear, Callable[[Tensor], Tensor]]] = []

    def drop(self) -> None:
        """Free the copies; they are made anew from the weights as they are at the next use."""
        self._forwards = []

    @contextmanager
    def use(self) -> Iterator[None]:
        """Let the linear layers compute with packed weights inside the block."""
        if self._enabled and not self._forwards:
            layers = [m for m in self._model.modules() if type(m) is nn.Linear and "forward" not in vars(m)]
            self._forwards = [(layer, _forward(layer, self._dtype)) for layer in layers]
        for layer, forward in self._forwards:
            layer.forward = forward  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            for layer, _ in self._forwards:
                del layer.forward


def _forward(layer: nn.Linear, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    with torch.no_grad():
        packed = pack_weight(layer.weight.detach().to(dtype))
        bias = None if layer.bias is None else layer.bias.detach().to(dtype)
    return lambda x: packed_linear(x.to(dtype), packed, bias)
