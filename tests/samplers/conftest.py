"""A tokenizer and small random models of several architectures, built from configurations."""

import itertools

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from ragen.models import tiny

SMALL = {"hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "pad_token_id": 0}
GROUPED = {**SMALL, "num_key_value_heads": 2, "max_position_embeddings": 512}
ARCHITECTURES = {
    "llama": GROUPED,
    "qwen2": GROUPED,
    "qwen3": {**GROUPED, "head_dim": 16},
    "mistral": {**GROUPED, "sliding_window": 9},
    "gemma3_text": {
        **GROUPED,
        "head_dim": 16,
        "sliding_window": 9,
        "layer_types": ["sliding_attention"] * 2 + ["full_attention"],
    },
    "phi3": {**GROUPED, "sliding_window": 11},
    "gpt2": {
        "n_embd": 48,
        "n_layer": 3,
        "n_head": 4,
        "n_positions": 512,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": 0,
    },
    "gpt_neox": {**SMALL, "max_position_embeddings": 512},
}


@pytest.fixture(scope="session")
def tokenizer():
    return tiny.build_tokenizer(tiny.texts()[:60])


def build(kind, vocabulary, seed=0, settings=None):
    own = ARCHITECTURES[kind] if settings is None else settings
    config = CONFIG_MAPPING[kind](**{"vocab_size": vocabulary, "bos_token_id": 1, "eos_token_id": 2, **own})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
        for name, weight in model.named_parameters():
            if weight.dim() > 1:  # larger than the usual start, so that distributions are far from flat
                torch.nn.init.normal_(weight, std=0.3 if "embed" in name or "wte" in name else 0.15)
    return model


@pytest.fixture(scope="session")
def llama(tokenizer):
    return build("llama", len(tokenizer))


@pytest.fixture(scope="session", params=sorted(ARCHITECTURES))
def model(request, tokenizer):
    return build(request.param, len(tokenizer))


def generated(model, contexts, new, side_by_side, ends=(2,)):
    """transformers' greedy replies, for so many contexts at a time, padded on the left."""
    replies = []
    for start in range(0, len(contexts), side_by_side):
        part = contexts[start : start + side_by_side]
        width = max(map(len, part))
        ids = torch.tensor([[0] * (width - len(context)) + list(context) for context in part])
        mask = torch.tensor([[0] * (width - len(context)) + [1] * len(context) for context in part])
        whole = model.generate(
            ids, attention_mask=mask, do_sample=False, max_new_tokens=new, eos_token_id=list(ends), pad_token_id=0
        )
        for row in whole[:, width:].tolist():
            last = next((i for i, token in enumerate(row) if token in ends), new - 1)
            replies.append(tuple(row[: last + 1]))
    return replies


def assert_same_replies(model, contexts, got, wanted):
    """Token for token. Rounding may decide between two logits that are as good as equal, in one reply of a hundred."""
    ties = 0
    for context, ours, theirs in zip(contexts, got, wanted, strict=True):
        if ours != theirs:
            at = next(i for i, (a, b) in enumerate(itertools.zip_longest(ours, theirs)) if a != b)
            with torch.no_grad():
                first, second = model(torch.tensor([[*context, *theirs[:at]]])).logits[0, -1].topk(2).values.tolist()
            assert first - second <= 1e-4, f"{context}: {ours} and {theirs}"
            ties += 1
    assert ties <= len(contexts) // 100
