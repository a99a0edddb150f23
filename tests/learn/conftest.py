"""Tiny random models of several architectures, and batches of random trajectories."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from ragen.episode import Completion, EndReason, Group, StopReason, Trajectory, Turn

VOCAB = 61
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 128,
    "initializer_range": 0.2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama-tied": ("llama", {"tie_word_embeddings": True}),
    "gpt2": ("gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}),
    "qwen2": ("qwen2", {}),
    "gemma2": ("gemma2", {"head_dim": 8, "final_logit_softcapping": 0.5, "sliding_window": 64}),
    "cohere": ("cohere", {"logit_scale": 0.25}),
    "opt": ("opt", {"ffn_dim": 48, "word_embed_proj_dim": 32}),
    "bloom": ("bloom", {"n_head": 4, "n_layer": 2}),
}

MakeModel = Callable[..., Any]
MakeGroups = Callable[..., list[Group]]


@pytest.fixture(scope="session")
def make_model() -> MakeModel:
    """``make(name, seed=0, **config)``: a random model of ``ARCHITECTURES``, the same for the same seed."""
    from transformers import AutoConfig, AutoModelForCausalLM

    def make(name: str = "llama", seed: int = 0, **config: Any) -> Any:
        kind, own = ARCHITECTURES[name]
        keys = SIZES | own | config
        if kind in ("gpt2", "opt", "bloom"):
            keys.pop("num_key_value_heads")
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **keys))

    return make


@pytest.fixture(scope="session")
def make_groups() -> MakeGroups:
    """``make(groups=, members=, turns=, seed=)``: trajectories whose members share a prompt; lengths differ."""

    def make(groups: int = 2, members: int = 3, turns: int = 2, seed: int = 0, new_rows: bool = False) -> list[Group]:
        rng = np.random.default_rng(seed)

        def ids(count: int) -> tuple[int, ...]:
            return tuple(int(i) for i in rng.integers(VOCAB, size=count))

        def turn(prompt: tuple[int, ...], first: bool) -> Turn:
            sampled = ids(int(rng.integers(1, 6)))
            logprobs = tuple(float(x) for x in -rng.random(len(sampled)) * 4)
            completion = Completion(sampled, logprobs, (1.0,) * len(sampled), "", StopReason.END)
            return Turn(prompt, not (first or new_rows), completion, "", (), True, float(rng.integers(0, 3)))

        made = []
        for g in range(groups):
            prompt = ids(9)
            shared = []
            for m in range(members):
                parts = tuple(turn(prompt if k == 0 else ids(3), k == 0) for k in range(turns))
                shared.append(Trajectory("test", g, m, parts, EndReason.TERMINATED, success=True))
            made.append(Group(g, tuple(shared)))
        return made

    return make
