"""Steps of a Llama-type layer with hand-written gradients: each keeps only its input for the backward pass.

Element-wise arithmetic is in float32 (silu · up in the inputs' type); inputs and results may be of a reduced type. A row's
result depends on that row only.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ragen.models.gradients import add_row_gradients


class _Embedded(torch.autograd.Function):
    """Rows of a weight; their gradients are added to the weight's own in place, not as a tensor of its size."""

    @staticmethod
    def forward(ctx: Any, ids: Tensor, weight: Tensor, untrained: int | None) -> Tensor:
        ctx.save_for_backward(ids, weight)
        ctx.untrained = untrained
        return functional.embedding(ids, weight).float()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        ids, weight = ctx.saved_tensors
        if ctx.untrained is not None:
            trained = (ids != ctx.untrained).nonzero()[:, 0]
            ids, gradient = ids[trained], gradient[trained]
        add_row_gradients(weight, ids, gradient)
        return None, None, None


def embedded(ids: Tensor, weight: Tensor, untrained: int | None = None) -> Tensor:
    """Rows ``ids`` (N,) of the weight (V, H), a leaf, float32; row ``untrained`` gets no gradient (torch's padding_idx)."""
    rows: Tensor = _Embedded.apply(ids, weight, untrained)
    return rows


class _NormedLinear(torch.autograd.Function):
    """y = n · Wᵀ + b of n = x / √(mean(x²) + ε) · g (Zhang & Sennrich, arXiv 1910.07467); n is computed again backwards."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, eps: float, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, gain, weight)
        ctx.eps = eps
        return functional.linear(_normed(x, gain, eps, weight.dtype), weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, gain, weight = ctx.saved_tensors
        unit, scale = _unit(x.float(), ctx.eps)
        grad_weight = gradient.T @ (unit * gain).to(weight.dtype) if ctx.needs_input_grad[3] else None
        grad_bias = gradient.sum(0) if ctx.needs_input_grad[4] else None
        grad_x, grad_gain = _norm_backward(gradient @ weight, unit, scale, gain)
        return grad_x.to(x.dtype), grad_gain if ctx.needs_input_grad[1] else None, None, grad_weight, grad_bias


def normed_linear(x: Tensor, gain: Tensor, eps: float, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`rms_norm` of x (N, in) in the weight's type, times weightᵀ (out, in), plus bias (out,)."""
    product: Tensor = _NormedLinear.apply(x, gain, eps, weight, bias)
    return product


class _RMSNorm(torch.autograd.Function):
    """y = x / √(mean(x²) + ε) · g over the last dimension."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
        ctx.save_for_backward(x, gain)
        ctx.eps = eps
        return _normed(x, gain, eps, dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, gain = ctx.saved_tensors
        grad_x, grad_gain = _norm_backward(gradient, *_unit(x.float(), ctx.eps), gain)
        return grad_x.to(x.dtype), grad_gain if ctx.needs_input_grad[1] else None, None, None


def _norm_backward(gradient: Tensor, unit: Tensor, scale: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
    """With u = x / rms(x): ∂g = Σ_rows ∂y ∘ u and ∂x = (v − u · mean(v ∘ u)) / rms(x), v = ∂y ∘ g; all float32."""
    gradient = gradient.float()
    grad_gain = (gradient * unit).flatten(0, -2).sum(0)
    inner = gradient * gain
    along = torch.linalg.vecdot(inner, unit)[..., None] / unit.shape[-1]
    return inner.addcmul_(unit, along, value=-1).mul_(scale), grad_gain


def _normed(x: Tensor, gain: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    return _unit(x.float(), eps)[0].mul_(gain).to(dtype)


def _unit(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """x / rms(x) and 1 / rms(x) of the last dimension."""
    squares = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_()
    scale = squares.div_(x.shape[-1]).add_(eps).rsqrt_()
    return x * scale, scale


def rms_norm(x: Tensor, gain: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    """Root-mean-square normalisation of the last dimension with ``gain`` (its size), float32 inside, as ``dtype``."""
    if not torch.is_grad_enabled():
        return _normed(x, gain, eps, dtype)
    normed: Tensor = _RMSNorm.apply(x, gain, eps, dtype)
    return normed


class _GatedLinear(torch.autograd.Function):
    """y = h · Wᵀ + b of h = silu(a) ∘ c, [a | c] = x (Shazeer, arXiv 2002.05202); h is computed again backwards.

    ∂silu/∂a = σ(a) · (1 + a · (1 − σ(a))).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return functional.linear(swiglu(x), weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        gate, up = x.chunk(2, dim=-1)
        active = functional.silu(gate)
        inner = gradient @ weight
        grad_x = torch.empty_like(x)
        left, right = grad_x.chunk(2, dim=-1)
        torch.mul(inner, active, out=right)
        torch.ops.aten.silu_backward.grad_input(inner.mul_(up), gate, grad_input=left)
        grad_weight = gradient.T @ active.mul_(up) if ctx.needs_input_grad[1] else None
        return grad_x, grad_weight, gradient.sum(0) if ctx.needs_input_grad[2] else None


def gated_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`swiglu` of x (N, 2 · in), times weightᵀ (out, in), plus bias (out,)."""
    product: Tensor = _GatedLinear.apply(x, weight, bias)
    return product


def swiglu(x: Tensor) -> Tensor:
    """(…, 2·F) → (…, F): the first half through silu, times the second."""
    gate, up = x.chunk(2, dim=-1)
    return functional.silu(gate).mul_(up)


class _Rotate(torch.autograd.Function):
    """Each pair (x_i, x_{i+d/2}) turned by the angle of its position; the gradient is turned back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, heads: int) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.heads = heads
        return _rotated(x, cos, sin, heads)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        cos, sin = ctx.saved_tensors
        return _rotated(gradient, cos, -sin, ctx.heads), None, None, None


def _rotated(x: Tensor, cos: Tensor, sin: Tensor, heads: int) -> Tensor:
    turned = x[:, :heads].float()
    first, second = turned.chunk(2, dim=-1)
    across = torch.cat([second, first], dim=-1)
    turned = torch.mul(turned, cos).addcmul_(across, sin)
    return torch.cat([turned.to(x.dtype), x[:, heads:]], dim=1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor, heads: int) -> Tensor:
    """Rotary position embedding (Su et al., arXiv 2104.09864) of the first ``heads`` of x (N, all heads, d).

    y = x · cos + swap(x) · sin, where swap exchanges the halves of a head. ``cos`` (N, 1, d) float32 holds the cosines of
    the d/2 angles twice, ``sin`` the negative sines and the sines. The other heads (the values) are copied.
    """
    if not torch.is_grad_enabled():
        return _rotated(x, cos, sin, heads)
    rotated: Tensor = _Rotate.apply(x, cos, sin, heads)
    return rotated
