"""Adding to the float32 gradients of master weights from pieces of a reduced type.

Autograd would make a float32 copy of every piece and add that; for an embedding it would make one as large as the weight
out of a few rows. A gradient that is already there takes the piece in place, a few rows at a time (8 instead of 42 ms for
49,152 × 576 in bfloat16).
"""

import torch
from torch import Tensor

CHUNK_ELEMENTS = 1 << 18  # float32 numbers converted at a time: few enough for the cache


@torch.no_grad()
def add_gradient(parameter: Tensor, piece: Tensor) -> None:
    """Add ``piece`` (the parameter's shape, any float type) to the parameter's gradient; without one it becomes it."""
    if parameter.grad is None:
        parameter.grad = torch.empty_like(parameter).copy_(piece)
        return
    rows = max(1, CHUNK_ELEMENTS // max(1, piece[:1].numel()))
    for whole, part in zip(parameter.grad.split(rows), piece.split(rows), strict=True):
        whole.add_(part.to(whole.dtype))


@torch.no_grad()
def add_row_gradients(parameter: Tensor, index: Tensor, rows: Tensor) -> None:
    """Add ``rows`` (N, …) to the rows ``index`` (N,) of the parameter's gradient; an index may come more than once."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    parameter.grad.index_add_(0, index, rows.to(parameter.grad.dtype))
