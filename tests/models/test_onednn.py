"""Packed weights multiply as the plain layer does: in bfloat16 bit for bit, in float32 to rounding."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from ragen.models.native.projection import Projection
from ragen.models.onednn import PACKED, pack_weight, packed_linear, packing_works

pytestmark = pytest.mark.skipif(not all(map(packing_works, PACKED)), reason="this torch packs no weights")


@pytest.mark.parametrize("dtype", PACKED)
@pytest.mark.parametrize("rows", [1, 7, 16, 130])
@pytest.mark.parametrize(("wide", "out"), [(24, 16), (96, 33), (576, 960)])
def test_a_packed_weight_gives_what_linear_gives(dtype, rows, wide, out):
    torch.manual_seed(rows)
    x, weight, bias = (torch.randn(*shape).to(dtype) for shape in ((rows, wide), (out, wide), (out,)))
    for b in (None, bias):
        got, expected = packed_linear(x, pack_weight(weight), b), functional.linear(x, weight, b)
        torch.testing.assert_close(got, expected, rtol=0, atol=0 if dtype is torch.bfloat16 else 2e-6 * wide)


@pytest.mark.parametrize("dtype", PACKED)
def test_layers_are_packed_for_sampling_and_plain_again_for_learning(dtype):
    torch.manual_seed(0)
    layers = [nn.Linear(24, n, bias=n == 8) for n in (16, 8)]
    x = torch.randn(5, 24).to(dtype)
    for some in (layers, layers[:1]):
        projection = Projection(some)
        expected = torch.cat(
            [functional.linear(x, p.weight.to(dtype), p.bias if p.bias is None else p.bias.to(dtype)) for p in some], -1
        )
        with torch.no_grad():
            projection.prepare(dtype, pack=True)
            assert projection._packed is not None
            torch.testing.assert_close(projection(x), expected, rtol=0, atol=0 if dtype is torch.bfloat16 else 1e-5)
            some[0].weight.add_(1.0)  # a step of the optimiser: packed anew
            projection.prepare(dtype, pack=True)
            assert not torch.allclose(projection(x), expected, atol=1e-2)
            some[0].weight.sub_(1.0)
        projection.prepare(dtype, pack=False)
        assert projection._packed is None
        torch.testing.assert_close(projection(x), expected, rtol=0, atol=1e-2 if dtype is torch.bfloat16 else 1e-5)


def test_another_type_is_not_packed():
    assert not packing_works(torch.float64)
