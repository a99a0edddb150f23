"""Adding to gradients from pieces of another type, against autograd's own accumulation."""

import pytest
import torch

from ragen.models import gradients
from ragen.models.gradients import add_gradient, add_row_gradients


@pytest.mark.parametrize("chunk", [1, 7, 1 << 18])
def test_pieces_add_up_in_float32_for_any_chunk(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "CHUNK_ELEMENTS", chunk)
    weight = torch.zeros(5, 3, requires_grad=True)
    pieces = [torch.full((5, 3), value).bfloat16() for value in (1.0, 2.0**-9, 2.0**-9)]
    for piece in pieces:
        add_gradient(weight, piece)
    assert weight.grad.dtype is torch.float32
    assert torch.equal(weight.grad, torch.full((5, 3), 1.0 + 2.0**-8))  # in bfloat16 it would still be 1


def test_a_first_piece_is_copied_not_kept() -> None:
    weight, piece = torch.zeros(2, 2, requires_grad=True), torch.ones(2, 2)
    add_gradient(weight, piece)
    add_gradient(weight, piece)
    assert torch.equal(piece, torch.ones(2, 2))
    assert torch.equal(weight.grad, torch.full((2, 2), 2.0))


def test_rows_that_come_twice_count_twice_as_with_an_embedding() -> None:
    index, rows = torch.tensor([1, 3, 1]), torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    ours, theirs = (torch.zeros(4, 2, requires_grad=True) for _ in range(2))
    for _ in range(2):
        add_row_gradients(ours, index, rows)
        (torch.nn.functional.embedding(index, theirs) * rows).sum().backward()
    assert torch.equal(ours.grad, theirs.grad)


def test_vectors_and_empty_weights_are_taken_too() -> None:
    for shape in ((3,), (0, 4)):
        weight = torch.zeros(shape, requires_grad=True)
        add_gradient(weight, torch.ones(shape))
        add_gradient(weight, torch.ones(shape))
        assert torch.equal(weight.grad, torch.full(shape, 2.0))
