"""Loading: clean, float32, no dropout, pad rule, clear refusals."""

import json
import logging
import shutil

import pytest
import torch
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

from ragen.errors import ModelError
from ragen.models import tiny
from ragen.models.load import load_model, load_tokenizer

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("abc")
    tiny.make(path)
    return path


@pytest.fixture
def copied(made, tmp_path):
    return shutil.copytree(made, tmp_path / "model")


def test_a13_a_model_loads_from_any_path_in_silence(made, capfd, caplog):
    with caplog.at_level(logging.DEBUG):
        tokenizer, model = load_tokenizer(made), load_model(made, device=CPU)
    assert capfd.readouterr() == ("", "")
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []
    assert not model.training
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    assert len(tokenizer) == model.config.vocab_size


def test_half_precision_files_load_as_float32(made, tmp_path):
    load_model(made, device=CPU).to(torch.bfloat16).save_pretrained(tmp_path)
    assert {weight.dtype for weight in load_model(tmp_path, device=CPU).parameters()} == {torch.float32}


def test_b21_dropout_is_off_even_in_training_mode(tmp_path):
    config = GPT2Config(vocab_size=50, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    assert config.attn_pdrop == config.resid_pdrop == 0.1
    GPT2LMHeadModel(config).save_pretrained(tmp_path)
    model = load_model(tmp_path, device=CPU).train()
    ids = torch.arange(20)[None]
    assert torch.equal(model(ids).logits, model(ids).logits)
    assert (model.config.attn_pdrop, model.config.resid_pdrop, model.config.embd_pdrop) == (0.0, 0.0, 0.0)


def test_a6_without_a_pad_token_the_end_token_pads_and_nothing_grows(copied):
    path = copied / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    del settings["pad_token"]
    path.write_text(json.dumps(settings))
    tokenizer = load_tokenizer(copied)
    assert tokenizer.pad_token_id == tokenizer.eos_token_id
    assert len(tokenizer) == load_model(copied, device=CPU).get_input_embeddings().weight.shape[0]


def test_a_tokenizer_without_pad_and_end_is_refused(copied):
    path = copied / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    del settings["pad_token"], settings["eos_token"]
    path.write_text(json.dumps(settings))
    with pytest.raises(ModelError, match="neither a pad nor an end-of-sequence token"):
        load_tokenizer(copied)


def test_a_directory_without_configuration_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"no config\.json"):
        load_model(tmp_path, device=CPU)
    with pytest.raises(ModelError, match="no tokenizer"):
        load_tokenizer(tmp_path)


def test_a_model_of_another_kind_is_refused(tmp_path):
    config = BertConfig(vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    BertModel(config).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="not a causal"):
        load_model(tmp_path, device=CPU)


def test_missing_or_damaged_weights_are_refused(copied):
    (copied / "model.safetensors").write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00{}      ")
    with pytest.raises(ModelError, match=r"lacks .* weights"):
        load_model(copied, device=CPU)
    (copied / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ModelError, match="does not load"):
        load_model(copied, device=CPU)


def test_h8_code_that_comes_with_a_model_is_not_run(copied, tmp_path):
    config = json.loads((copied / "config.json").read_text())
    config |= {"model_type": "evil", "auto_map": {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"}}
    (copied / "config.json").write_text(json.dumps(config))
    (copied / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(ModelError, match="does not load"):
        load_model(copied, device=CPU)
    assert not (tmp_path / "ran").exists()
