"""The memory estimate, by hand."""

from types import SimpleNamespace

import psutil
import pytest
import torch
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTJConfig,
    GPTJForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
)

from ragen.errors import ModelError
from ragen.models.memory import BASE_BYTES, Activations, available_memory, check_memory, memory_estimate, model_size

N = 1_000_000


def test_full_fine_tuning_in_float32_is_sixteen_bytes_a_parameter():
    assert memory_estimate(N, torch.float32, trainable=N) == BASE_BYTES + 16 * N


def test_bfloat16_adds_a_compute_copy_and_a_reference_its_weights():
    assert memory_estimate(N, torch.bfloat16, trainable=N, reference=True) == BASE_BYTES + 16 * N + 2 * N + 4 * N


def test_adapters_cost_only_their_own_moments_and_a_critic_sixteen_bytes():
    assert memory_estimate(N, torch.float32, trainable=1000, critic=10) == BASE_BYTES + 4 * N + 12_000 + 160


def test_activations_count_layers_and_at_most_a_chunk_of_logits():
    small = memory_estimate(
        N, torch.float32, trainable=0, activations=Activations(tokens=10, hidden=8, layers=2, vocabulary=100)
    )
    assert small == BASE_BYTES + 4 * N + 4 * 10 * 2 * 16 * 8 + 4 * 4 * 10 * 100
    large = memory_estimate(
        N, torch.float32, trainable=0, activations=Activations(tokens=1000, hidden=8, layers=2, vocabulary=100)
    )
    assert large == BASE_BYTES + 4 * N + 4 * 1000 * 2 * 16 * 8 + 4 * 4 * 256 * 100


@pytest.mark.parametrize(("limit", "free"), [("1000", 650), ("max", None), ("junk", None), (str(2**60), None)])
def test_a_containers_limit_counts_and_files_kept_in_memory_are_free(tmp_path, monkeypatch, limit, free):
    stat = "anon 500\nfile 250\nactive_file 100\ninactive_file 50\nshmem 100"
    for name, text in {"max": limit, "current": "500", "stat": stat}.items():
        (tmp_path / f"memory.{name}").write_text(f"{text}\n")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=7000))
    assert available_memory(torch.device("cpu"), tmp_path) == (7000 if free is None else free)


def test_d8_too_little_memory_names_both_numbers_and_what_to_change():
    cpu = torch.device("cpu")
    check_memory(1, cpu)
    with pytest.raises(
        ModelError, match=r"needs about 1048576.0 GiB on cpu.*GiB are free.*lora.rank.*kl_coef.*microbatch_tokens"
    ):
        check_memory(2**50, cpu)
    assert 0 < available_memory(cpu) < 2**50


@pytest.mark.parametrize(
    "make",
    [
        lambda: GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=3, n_head=2, vocab_size=50)),
        lambda: GPTJForCausalLM(GPTJConfig(n_embd=16, n_layer=3, n_head=2, vocab_size=50, rotary_dim=4)),
        lambda: BloomForCausalLM(BloomConfig(hidden_size=16, n_layer=3, n_head=2, vocab_size=50)),
        lambda: MambaForCausalLM(MambaConfig(hidden_size=16, num_hidden_layers=3, vocab_size=50)),
        lambda: LlamaForCausalLM(
            LlamaConfig(hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=8, vocab_size=50)
        ),
    ],
    ids=["gpt2", "gptj", "bloom", "mamba", "llama"],
)
def test_sizes_are_read_whatever_a_family_calls_them(tmp_path, make):
    model = make()
    model.save_pretrained(tmp_path)
    size = model_size(tmp_path)
    assert (size.hidden, size.layers, size.vocabulary) == (16, 3, 50)
    assert size.parameters == sum(weight.numel() for weight in model.parameters())
