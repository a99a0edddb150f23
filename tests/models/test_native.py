"""Our own forward pass against the Hugging Face module it runs: outputs, gradients, and sampler against learner."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from ragen.models.native import Decoder, Prefixes, Row, attend, attention, causal_blocks, ops
from ragen.models.native.projection import Projection

SIZES: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
FAMILY: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama, tied": ("llama", {"tie_word_embeddings": True}),
    "llama, biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, one key head": ("llama", {"num_key_value_heads": 1}),
    "llama 3 rotation": (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 10000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
    ),
    "mistral": ("mistral", {"sliding_window": None}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {"head_dim": 12}),
}
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "mistral, window": ("mistral", {"sliding_window": 8}),
    "gelu": ("llama", {"hidden_act": "gelu"}),
    "gemma2": ("gemma2", {"head_dim": 8}),
    "gemma3": ("gemma3_text", {"head_dim": 8}),
    "cohere": ("cohere", {}),
    "granite": ("granite", {"residual_multiplier": 0.3}),
    "granite, logits": ("granite", {"logits_scaling": 4.0}),
    "olmo2": ("olmo2", {}),
    "phi3": ("phi3", {}),
    "gpt_neox": ("gpt_neox", {}),
    "dynamic rotation": ("llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}),
}


def build(kind: str, settings: dict[str, Any], seed: int = 0) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**SIZES | settings), dtype=torch.float32).eval()
        for weight in model.parameters():  # away from the usual start, where norms are 1 and biases 0
            weight.data += torch.randn_like(weight) * 0.15
    return model


@pytest.fixture(params=sorted(FAMILY))
def model(request: pytest.FixtureRequest) -> Any:
    return build(*FAMILY[request.param])


PREFIX, MEMBERS = 7, (5, 11, 1, 8)
APART = (7, 7, 0, 3)  # how much of the prefix is looked at apart


def shared_rows() -> tuple[Tensor, Tensor, list[Row], list[Tensor]]:
    """Flat ids and positions of a prefix with four members and of a row of its own; the rows; the same rows' ids apart."""
    rng = np.random.default_rng(0)
    ids = torch.from_numpy(rng.integers(3, 61, size=PREFIX + sum(MEMBERS) + 9))
    prefix = torch.arange(PREFIX)
    rows, positions, start = [Row(prefix, PREFIX)], [prefix], PREFIX
    for count, apart in zip(MEMBERS, APART, strict=True):
        rows.append(Row(torch.cat([prefix, torch.arange(start, start + count)]), count, apart))
        positions.append(torch.arange(PREFIX, PREFIX + count))
        start += count
    rows.append(Row(torch.arange(start, start + 9), 9))
    positions.append(torch.arange(9))
    return ids, torch.cat(positions), rows, [ids[row.keys] for row in rows]


def own_hidden(model: Any, rows: list[Row], apart: list[Tensor]) -> Tensor:
    """The module's hidden states of each row run alone, at the flat places of the tokens that ask in it."""
    hidden = [model.base_model(input_ids=ids[None]).last_hidden_state[0] for ids in apart]
    parts = [states[-row.queries :] for row, states in zip(rows, hidden, strict=True)]
    places = torch.cat([row.keys[-row.queries :] for row in rows])
    return torch.cat(parts)[places.argsort()]


def test_rows_with_a_shared_prefix_give_the_modules_hidden_states_and_gradients(model: Any) -> None:
    decoder = Decoder.find(model)
    assert decoder is not None
    ids, positions, rows, apart = shared_rows()
    weights = torch.randn(len(ids), SIZES["hidden_size"], generator=torch.Generator().manual_seed(1))
    wanted = own_hidden(model, rows, apart)
    (wanted * weights).sum().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    decoder.prepare(torch.float32)
    got = decoder.hidden(ids, positions, decoder.over(decoder.layout(rows, torch.device("cpu"))))
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)
    (got * weights).sum().backward()
    scale = max(float(g.abs().max()) for g in gradients.values())
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert found.keys() == gradients.keys()
    for name, gradient in gradients.items():
        assert float((found[name] - gradient).abs().max()) <= 1e-4 * scale, name


def test_the_pad_tokens_embedding_and_frozen_parts_are_trained_as_in_the_module() -> None:
    """torch gives an embedding's ``padding_idx`` no gradient, also where it stands inside the text."""
    found = []
    for native in (True, False):
        model = build(*FAMILY["llama"])
        assert model.model.embed_tokens.padding_idx == 0
        model.model.layers[0].self_attn.k_proj.weight.requires_grad_(False)
        ids = torch.tensor([5, 0, 7, 5, 0])
        if native:
            decoder = Decoder(model)
            decoder.prepare(torch.float32)
            row = Row(torch.arange(5), 5)
            hidden = decoder.hidden(ids, torch.arange(5), decoder.over(decoder.layout([row], torch.device("cpu"))))
        else:
            hidden = model.base_model(input_ids=ids[None]).last_hidden_state[0]
        hidden.square().sum().backward()
        found.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert found[0].keys() == found[1].keys()
    assert "model.layers.0.self_attn.k_proj.weight" not in found[0]
    assert not found[0]["model.embed_tokens.weight"][0].any()
    for name, gradient in found[1].items():
        torch.testing.assert_close(found[0][name], gradient, rtol=1e-4, atol=1e-5)


def test_bfloat16_gradients_point_where_float32_ones_do(model: Any) -> None:
    ids, positions, rows, _ = shared_rows()
    weights = torch.randn(len(ids), SIZES["hidden_size"], generator=torch.Generator().manual_seed(1))
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        model.zero_grad()
        decoder = Decoder(model)
        decoder.prepare(dtype)
        hidden = decoder.hidden(ids, positions, decoder.over(decoder.layout(rows, torch.device("cpu"))))
        (hidden * weights).sum().backward()
        found.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    for name, exact in found[0].items():
        cosine = functional.cosine_similarity(found[1][name].flatten(), exact.flatten(), dim=0)
        assert cosine > 0.99, name
        assert found[1][name].dtype is torch.float32


@pytest.mark.parametrize("kind", sorted(OTHERS))
def test_models_of_other_families_are_left_to_transformers(kind: str) -> None:
    assert Decoder.find(build(*OTHERS[kind])) is None


def test_a_hooked_or_patched_module_is_left_to_transformers() -> None:
    for change in (
        lambda m: m.model.layers[1].register_forward_hook(lambda *_: None),
        lambda m: m.model.norm.register_forward_pre_hook(lambda *_: None),
        lambda m: setattr(m.model.layers[0].mlp, "forward", m.model.layers[0].mlp.forward),
    ):
        model = build(*FAMILY["llama"])
        assert Decoder.find(model) is not None
        assert Decoder.find(model) is not None  # looking leaves no hook behind
        change(model)
        assert Decoder.find(model) is None


def test_copies_are_renewed_when_a_weight_is_written_and_freed_when_dropped() -> None:
    model = build(*FAMILY["llama, biases"])
    attention = model.model.layers[0].self_attn
    layers = [attention.q_proj, attention.k_proj]
    projection = Projection(layers)
    x = torch.randn(3, 32, generator=torch.Generator().manual_seed(0)).bfloat16()

    def wanted() -> Tensor:
        # stacked, too: a product of another width may add in another order
        weight, bias = (torch.cat([getattr(part, name).bfloat16() for part in layers]) for name in ("weight", "bias"))
        return functional.linear(x, weight, bias)

    for pack in (False, True):
        with torch.no_grad():
            projection.prepare(torch.bfloat16, pack=pack)
            assert torch.equal(projection(x), wanted())
            attention.k_proj.weight[0] += 1.0
            projection.prepare(torch.bfloat16, pack=pack)
            assert torch.equal(projection(x), wanted())
    with torch.no_grad():  # another type, too, for a single layer as for several
        for one in (projection, Projection(layers[:1])):
            for dtype in (torch.bfloat16, torch.float32, torch.bfloat16):
                one.prepare(dtype, pack=False)
                assert one(x.to(dtype)).dtype is dtype
    held = [value for value in vars(projection).values() if isinstance(value, Tensor)]
    assert held
    projection.drop()
    assert not [value for value in vars(projection).values() if isinstance(value, Tensor)]


@pytest.mark.parametrize("of_row", [None, [0, 0, 0], [1, 0, 1], [2, 0, 1]], ids=str)
@pytest.mark.parametrize(("heads", "shared"), [(4, 4), (4, 2), (3, 1)])
@pytest.mark.parametrize("scores", [1, 40, 150, 1 << 21])
def test_attention_equals_torchs_with_any_cut_into_blocks_and_any_sharing_of_prefixes(
    heads: int, shared: int, scores: int, of_row: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "SCORES", scores)
    random = torch.Generator().manual_seed(heads + shared)
    positions = torch.tensor([[3, 4, 5], [0, 1, 2], [5, 6, 7]])  # the last column is seen by none

    def tensor(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, requires_grad=True)

    queries, keys, values = tensor(3, heads, 3, 8), tensor(3, shared, 9, 8), tensor(3, shared, 9, 8)
    inputs, all_keys, all_values = [queries, keys, values], keys, values
    mask = torch.arange(9) <= positions[:, None, :, None]
    prefixes, far = None, None
    if of_row is not None:
        index, lengths = torch.tensor(of_row), torch.tensor([6, 2, 4])
        prefixes = Prefixes(index, lengths, 6, shared)
        far = tensor(3, shared, 6, 8), tensor(3, shared, 6, 8)
        inputs += far
        all_keys, all_values = (torch.cat([a[index], b], 2) for a, b in zip(far, (keys, values), strict=True))
        inside = (torch.arange(6) < lengths[index][:, None])[:, None, None].expand(-1, -1, 3, -1)
        mask = torch.cat([inside, mask], -1)
    wanted = functional.scaled_dot_product_attention(
        queries, all_keys, all_values, attn_mask=mask, scale=0.3, enable_gqa=heads != shared
    )
    up = torch.randn(wanted.shape, generator=random)
    gradients = torch.autograd.grad(wanted, inputs, up)
    blocks = causal_blocks(positions, 9, heads, torch.float32, prefixes)
    with torch.no_grad():
        torch.testing.assert_close(attend(queries, keys, values, blocks, 0.3, far), wanted, rtol=1e-5, atol=1e-5)
        first, own, begun = attention.attend_backward(up, queries, keys, values, blocks, 0.3, far)
    for got, gradient in zip([first, *own, *begun], gradients, strict=True):
        torch.testing.assert_close(got, gradient[:, :, : got.shape[2]], rtol=1e-4, atol=1e-5)
        assert not gradient[:, :, got.shape[2] :].any()


def test_one_query_a_row_equals_the_same_query_among_others_bit_for_bit() -> None:
    random = torch.Generator().manual_seed(0)
    for dtype, columns in itertools.product((torch.bfloat16, torch.float32), (16, 96)):
        queries = torch.randn(5, 4, 3, 8, generator=random).to(dtype)
        keys, values = (torch.randn(5, 2, columns, 8, generator=random).to(dtype) for _ in range(2))
        positions = torch.tensor([[2, 7, 11]]).expand(5, 3)
        together = attend(queries, keys, values, causal_blocks(positions, columns, 4, dtype), 0.35)
        for i in range(3):
            blocks = causal_blocks(positions[:, i : i + 1], columns, 4, dtype)
            alone = attend(queries[:, :, i : i + 1], keys, values, blocks, 0.35)
            torch.testing.assert_close(
                alone[:, :, 0], together[:, :, i], rtol=0, atol=0 if dtype is torch.bfloat16 else 1e-6
            )


def test_every_operation_has_the_gradients_of_its_plain_formula() -> None:
    random = torch.Generator().manual_seed(3)

    def tensor(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, requires_grad=True)

    def norm(x: Tensor, gain: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * gain

    def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        first, second, rest = x[:, :2, :4], x[:, :2, 4:], x[:, 2:]
        c, s = cos[..., :4], sin[..., 4:]
        return torch.cat([torch.cat([first * c - second * s, second * c + first * s], -1), rest], 1)

    angles = torch.randn(6, 1, 4, generator=random)
    cos, sin = (torch.cat([a, b], -1) for a, b in ((angles.cos(), angles.cos()), (-angles.sin(), angles.sin())))
    x, gain, weight, bias = tensor(6, 8), tensor(8), tensor(5, 8), tensor(5)
    wide, narrow, heads = tensor(6, 16), tensor(5, 8), tensor(6, 3, 8)
    cases = [
        (ops.rms_norm(x, gain, 1e-5, torch.float32), norm(x, gain), (x, gain)),
        (
            ops.normed_linear(x, gain, 1e-5, weight, bias),
            functional.linear(norm(x, gain), weight, bias),
            (x, gain, weight, bias),
        ),
        (
            ops.gated_linear(wide, narrow, bias),
            functional.linear(functional.silu(wide[:, :8]) * wide[:, 8:], narrow, bias),
            (wide, narrow, bias),
        ),
        (ops.rotate(heads, cos, sin, 2), turn(heads, cos, sin), (heads,)),
    ]
    for got, wanted, inputs in cases:
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
        up = torch.randn(got.shape, generator=random)
        for a, b in zip(torch.autograd.grad(got, inputs, up), torch.autograd.grad(wanted, inputs, up), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_padding_within_a_bucket_and_the_order_of_rows_change_nothing() -> None:
    model = build(*FAMILY["llama"])
    decoder = Decoder(model)
    decoder.prepare(torch.float32)
    ids, positions, rows, _ = shared_rows()
    with torch.no_grad():
        first, second = (
            decoder.hidden(ids, positions, decoder.over(decoder.layout(order, torch.device("cpu"))))
            for order in (rows, rows[::-1])
        )
    torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-5)
