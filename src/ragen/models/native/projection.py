"""Matrix products with the weights of one or several linear layers, in a compute type, under float32 master weights."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ragen.models.onednn import pack_weight, packed_linear, packing_works


class Projection:
    """y = x · Wᵀ + b, with W the rows of several ``nn.Linear`` stacked (such as query, key and value).

    In a reduced type one stacked copy is kept until `drop` and renewed when a weight was written; in float32 the layers'
    own weights are used and nothing is copied. Gradients arrive at the layers' parameters. ``pack`` keeps the copy in
    oneDNN's layout instead, in which products of few rows are faster: for sampling, without gradients.
    """

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        self._layers = tuple(layers)
        self.drop()

    def drop(self) -> None:
        """Free the copies."""
        self._weight: Tensor | None = None
        self._bias: Tensor | None = None
        self._packed: Tensor | None = None
        self._seen: tuple[Any, ...] = ()

    def prepare(self, dtype: torch.dtype, *, pack: bool) -> None:
        """Make the copies that products in ``dtype`` need, or renew them."""
        weights = [layer.weight for layer in self._layers]
        biases = [layer.bias for layer in self._layers]
        seen = (dtype, pack, *(p._version for p in [*weights, *biases] if p is not None))
        if seen == self._seen:
            return
        self.drop()
        self._seen = seen
        if dtype is torch.float32:
            return
        with torch.no_grad():
            weight = torch.cat([w.to(dtype) for w in weights])
            if any(b is not None for b in biases):
                zeros = [w.new_zeros(w.shape[0]) if b is None else b for w, b in zip(weights, biases, strict=True)]
                self._bias = torch.cat([b.to(dtype) for b in zeros])
            if pack and dtype is torch.bfloat16 and weight.device.type == "cpu" and packing_works():
                self._packed = pack_weight(weight)
            else:
                self._weight = weight

    def __call__(self, x: Tensor) -> Tensor:
        """(N, in) in the prepared type → (N, out) in the same."""
        if self._packed is not None:
            return packed_linear(x, self._packed, self._bias)
        if self._weight is None:
            parts = [functional.linear(x, layer.weight, layer.bias) for layer in self._layers]
            return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
        if not torch.is_grad_enabled():
            return functional.linear(x, self._weight, self._bias)
        weight = _Copied.apply(self._weight, *(layer.weight for layer in self._layers))
        bias = None if self._bias is None else _Copied.apply(self._bias, *(layer.bias for layer in self._layers))
        return functional.linear(x, weight, bias)


class _Copied(torch.autograd.Function):
    """A stacked copy of parameters as a function of them: its gradient is cut up and handed to each."""

    @staticmethod
    def forward(ctx: Any, copy: Tensor, *parameters: Tensor | None) -> Tensor:
        ctx.sizes = [0 if p is None else p.shape[0] for p in parameters]
        return copy.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        parts = gradient.split([size for size in ctx.sizes if size])
        iterator = iter(parts)
        return None, *(next(iterator).float() if size else None for size in ctx.sizes)
