"""The tiny model: small, whole words and symbols as tokens, the same every time."""

import hashlib
import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ragen.models import tiny
from ragen.models.load import load_model, load_tokenizer
from ragen.models.resolve import resolve_model


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    target = tmp_path_factory.mktemp("tiny")
    tiny.make(target)
    return target


@pytest.fixture(scope="module")
def tokenizer(path):
    return load_tokenizer(path)


def digests(path):
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(path.iterdir())}


def test_it_has_one_to_four_million_parameters(path):
    model = load_model(path, device=torch.device("cpu"))
    assert 1e6 < sum(weight.numel() for weight in model.parameters()) < 4e6
    assert (model.config.hidden_size, model.config.num_hidden_layers) == (192, 4)


def test_c3_another_process_with_another_hash_seed_makes_the_same_files(path, tmp_path):
    code = f"from pathlib import Path; from ragen.models import tiny; tiny.make(Path({str(tmp_path)!r}))"
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=120)
    assert digests(tmp_path) == digests(path)


def test_making_it_leaves_the_callers_generator_alone(tmp_path):
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    tiny.make(tmp_path)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(
    "word", ["<think>", "</think>", "<answer>", "</answer>", " ||", " Up", "Up", "Phoenix", " Dragon", " reward"]
)
def test_common_words_and_tags_are_single_tokens(tokenizer, word):
    assert len(tokenizer.encode(word)) == 1


def test_each_cell_of_a_grid_is_one_token(tokenizer):
    grid = "##O#\n#_P#\n#√X#\n"
    assert [tokenizer.decode([i]) for i in tokenizer.encode(grid)] == list(grid)


@given(st.text(max_size=60))
def test_any_text_comes_back(tokenizer, text):
    ids = tokenizer.encode(text, split_special_tokens=True)
    assert tokenizer.decode(ids) == text
    assert not set(ids) & {0, 1, 2}


def test_padding_has_a_token_of_its_own_and_there_is_no_default_system_text(tokenizer):
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    text = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False, add_generation_prompt=True)
    assert text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def test_it_is_resolved_once_and_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("RAGEN_CACHE", str(tmp_path))
    first = resolve_model("tiny")
    monkeypatch.setattr(tiny, "make", lambda target: pytest.fail("made twice"))
    assert resolve_model("tiny") == first
    assert first.is_relative_to(tmp_path)
    assert list(first.parent.iterdir()) == [first]
