"""Weights in the layout that oneDNN's matrix products want, on CPUs, in bfloat16 and float32.

A product of few rows re-orders the whole weight each time, which can cost as much as the product itself; packed once, 16
rows by 576 × 3,072 took 0.15 instead of 0.23 ms in bfloat16. In float32 torch multiplies plain weights by another library,
which took two to three times as long for 16 rows and up to twice as long for 128. Results are those of ``linear``: in
bfloat16 bit for bit, in float32 to rounding (both probed; else nothing is packed).
"""

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

PACKED = (torch.bfloat16, torch.float32)
TOLERANCE = 1e-5  # of float32 products of 24 numbers of at most 1


@cache
def packing_works(dtype: torch.dtype) -> bool:
    """Whether this torch build and processor multiply by packed weights of this type as ``linear`` does."""
    if dtype not in PACKED:
        return False
    try:
        x, weight = (torch.linspace(-1, 1, n).reshape(-1, 24).to(dtype) for n in (72, 384))
        bias = torch.linspace(-1, 1, 16).to(dtype)
        with torch.no_grad():
            plain = [functional.linear(x, weight, b) for b in (None, bias)]
            packed = [packed_linear(x, pack_weight(weight), b) for b in (None, bias)]
        if dtype is torch.bfloat16:
            return all(map(torch.equal, plain, packed))
        return all(torch.allclose(one, other, rtol=0.0, atol=TOLERANCE) for one, other in zip(plain, packed, strict=True))
    except (AttributeError, NotImplementedError, RuntimeError):
        return False


def pack_weight(weight: Tensor) -> Tensor:
    """A weight (out, in) as an opaque tensor for `packed_linear`."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, None)
    return packed


def packed_linear(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    """x · Wᵀ + b of rows (…, in) in the weight's type."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
    return product
