"""Matrix products with the weights of one or several linear layers, in a compute type, under float32 master weights."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ragen.models.gradients import add_gradient
from ragen.models.native.ops import gated_linear, normed_linear, rms_norm, swiglu
from ragen.models.onednn import pack_weight, packed_linear, packing_works


class Projection:
    """y = x · Wᵀ + b, with W the rows of several ``nn.Linear`` stacked (such as query, key and value).

    `prepare` makes one copy of the weights in the compute type (a single float32 layer needs none to learn), which `drop`
    frees; gradients arrive at the layers' own parameters. With ``pack`` the copy is in oneDNN's layout, in which products of
    few rows are faster: for sampling, without gradients.
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
        """Make the copies that products in ``dtype`` need, or renew them where a weight was written."""
        weights = [layer.weight for layer in self._layers]
        biases = [layer.bias for layer in self._layers]
        seen = (dtype, pack, *(p._version for p in [*weights, *biases] if p is not None))
        if seen == self._seen:
            return
        self.drop()
        self._seen = seen
        pack = pack and weights[0].device.type == "cpu" and packing_works(dtype)
        if dtype is torch.float32 and len(self._layers) == 1 and not pack:
            return
        with torch.no_grad():
            self._weight = torch.cat([w.to(dtype) for w in weights])
            if any(b is not None for b in biases):
                zeros = [w.new_zeros(w.shape[0]) if b is None else b for w, b in zip(weights, biases, strict=True)]
                self._bias = torch.cat([b.to(dtype) for b in zeros])
            if pack:
                self._packed, self._weight = pack_weight(self._weight), None

    def __call__(self, x: Tensor) -> Tensor:
        """(N, in) in the prepared type → (N, out) in the same."""
        if self._packed is not None:
            return packed_linear(x, self._packed, self._bias)
        return functional.linear(x, *self.operands())

    def of_norm(self, x: Tensor, norm: Any, dtype: torch.dtype) -> Tensor:
        """The product with x after a root-mean-square norm (a module with ``weight`` and ``variance_epsilon``)."""
        if not torch.is_grad_enabled():
            return self(rms_norm(x, norm.weight, norm.variance_epsilon, dtype))
        return normed_linear(x, norm.weight, norm.variance_epsilon, *self.operands())

    def of_swiglu(self, x: Tensor) -> Tensor:
        """The product with `swiglu` of x (N, 2 · in)."""
        return gated_linear(x, *self.operands()) if torch.is_grad_enabled() else self(swiglu(x))

    def operands(self) -> tuple[Tensor, Tensor | None]:
        """Weight (out, in) and bias (out,) in the prepared type; gradients pass on to the layers' parameters."""
        if self._weight is None:
            (layer,) = self._layers
            return layer.weight, layer.bias
        if not torch.is_grad_enabled():
            return self._weight, self._bias
        weight: Tensor = _Copied.apply(self._weight, *(layer.weight for layer in self._layers))
        if self._bias is None:
            return weight, None
        return weight, _Copied.apply(self._bias, *(layer.bias for layer in self._layers))


class _Copied(torch.autograd.Function):
    """A stacked copy of parameters as a function of them: its gradient is cut up and added to theirs, in place."""

    @staticmethod
    def forward(ctx: Any, copy: Tensor, *parameters: Tensor | None) -> Tensor:
        ctx.parameters = parameters
        return copy.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        start = 0
        for parameter, needed in zip(ctx.parameters, ctx.needs_input_grad[1:], strict=True):
            if parameter is not None:
                end = start + parameter.shape[0]
                if needed:
                    add_gradient(parameter, gradient[start:end])
                start = end
        return None, *(None for _ in ctx.parameters)
