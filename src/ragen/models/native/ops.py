"""Element-wise steps of a Llama-type layer with hand-written gradients: each keeps only its input for the backward pass.

All arithmetic is in float32; inputs and results may be of a reduced type. A row's result depends on that row only.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


class _RMSNorm(torch.autograd.Function):
    """y = x / √(mean(x²) + ε) · g over the last dimension (Zhang & Sennrich, arXiv 1910.07467)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
        ctx.save_for_backward(x, gain)
        ctx.eps = eps
        return functional.rms_norm(x.float(), gain.shape, gain, eps).to(dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, gain = ctx.saved_tensors
        wide, gradient = x.float(), gradient.float()
        scale = torch.rsqrt(torch.linalg.vecdot(wide, wide)[..., None] / x.shape[-1] + ctx.eps)
        unit = wide * scale
        grad_gain = (gradient * unit).flatten(0, -2).sum(0) if ctx.needs_input_grad[1] else None
        gradient = gradient * gain
        along = torch.linalg.vecdot(gradient, unit)[..., None] / x.shape[-1]
        return gradient.addcmul_(unit, along, value=-1).mul_(scale).to(x.dtype), grad_gain, None, None


def rms_norm(x: Tensor, gain: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    """Root-mean-square normalisation of the last dimension with ``gain`` (its size), float32 inside, as ``dtype``."""
    normed: Tensor = _RMSNorm.apply(x, gain, eps, dtype)
    return normed


class _SwiGLU(torch.autograd.Function):
    """y = silu(a) · b for [a | b] = x (Shazeer, arXiv 2002.05202); ∂silu/∂a = σ(a)·(1 + a·(1 − σ(a)))."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        gate, up = x.chunk(2, dim=-1)
        return functional.silu(gate).mul_(up)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        gate, up = x.chunk(2, dim=-1)
        result = torch.empty_like(x)
        left, right = result.chunk(2, dim=-1)
        torch.mul(gradient, functional.silu(gate), out=right)
        torch.ops.aten.silu_backward.grad_input(gradient * up, gate, grad_input=left)
        return result


def swiglu(x: Tensor) -> Tensor:
    """(…, 2·F) → (…, F): the first half through silu, times the second."""
    gated: Tensor = _SwiGLU.apply(x)
    return gated


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
    result = torch.empty_like(x)
    first, second = x[:, :heads].float().chunk(2, dim=-1)
    left, right = result[:, :heads].chunk(2, dim=-1)
    left.copy_(torch.mul(first, cos).addcmul_(second, sin, value=-1))
    right.copy_(torch.mul(second, cos).addcmul_(first, sin))
    result[:, heads:] = x[:, heads:]
    return result


def rotate(x: Tensor, cos: Tensor, sin: Tensor, heads: int) -> Tensor:
    """Rotary position embedding (Su et al., arXiv 2104.09864) of the first ``heads`` of x (N, all heads, d).

    ``cos``, ``sin`` (N, 1, d/2), float32. The other heads (the values) are copied.
    """
    rotated: Tensor = _Rotate.apply(x, cos, sin, heads)
    return rotated
