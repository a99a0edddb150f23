"""bfloat16 copies of a model's linear weights in the layout that oneDNN's matrix products want.

Under autocast a CPU product of a few rows casts and re-orders the whole weight each time, which costs more than the product.
Packed once a collection, the results are bit for bit those of autocast (probed at start-up; otherwise nothing is packed),
so a sampler that uses them rounds where the learner rounds.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional


@cache
def packing_works() -> bool:
    """Whether this torch build and processor multiply by packed weights exactly as ``linear`` in bfloat16 does."""
    try:
        x, weight = (torch.linspace(-1, 1, n).reshape(-1, 24).bfloat16() for n in (72, 384))
        bias = torch.linspace(-1, 1, 16).bfloat16()
        with torch.no_grad():
            return all(torch.equal(functional.linear(x, weight, b), _multiply(x, _pack(weight), b)) for b in (None, bias))
    except (AttributeError, NotImplementedError, RuntimeError):
        return False


def _pack(weight: Tensor) -> Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight, None)


def _multiply(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")


class PackedLinears:
    """The packed weights of a model's plain linear layers, until ``drop``."""

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        first = next(model.parameters())
        self._enabled = dtype == torch.bfloat16 and first.device.type == "cpu" and packing_works()
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
            self._forwards = [(layer, _forward(layer)) for layer in layers]
        for layer, forward in self._forwards:
            layer.forward = forward  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            for layer, _ in self._forwards:
                del layer.forward


def _forward(layer: nn.Linear) -> Callable[[Tensor], Tensor]:
    with torch.no_grad():
        packed = _pack(layer.weight.detach().bfloat16())
        bias = None if layer.bias is None else layer.bias.detach().bfloat16()
    return lambda x: _multiply(x.bfloat16(), packed, bias)
