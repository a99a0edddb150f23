"""Loading: clean, float32, no dropout, pad rule, clear refusals."""

import json
import logging
import re
import shutil

import pytest
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    RobertaConfig,
    RobertaForMaskedLM,
)

from ragen.config import load_config
from ragen.errors import ModelError
from ragen.loops.compose import build_agent
from ragen.models import tiny
from ragen.models.checks import check_vocabulary
from ragen.models.load import load_model, load_tokenizer, read_config
from ragen.models.memory import model_size

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


def test_d12_attention_is_sdpa_unless_a_model_cannot_have_it(made, tmp_path):
    assert load_model(made, device=CPU).config._attn_implementation == "sdpa"
    GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=16, n_layer=2, n_head=2)).save_pretrained(tmp_path / "gpt2")
    assert load_model(tmp_path / "gpt2", device=CPU).config._attn_implementation == "sdpa"


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


@pytest.mark.parametrize("kind", ["qwen2", "gpt2", "gemma3_text", "cohere", "opt"])
def test_a_tokenizer_without_the_file_of_its_words_is_refused(kind, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    with pytest.raises(ModelError, match=r"no file there is called \*token\*"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"pad_token": "<pad>"}')
    with pytest.raises(ModelError, match=r"knows no words: .*tokenizer\.json"):
        load_tokenizer(tmp_path)


def test_a_tokenizer_of_any_other_form_is_tried(copied):
    for file in copied.glob("tokenizer*"):
        file.unlink()
    (copied / "tekken.tokens").write_text("{}")
    with pytest.raises(ModelError) as found:
        load_tokenizer(copied)
    assert "no file there" not in str(found.value)


def test_a_directory_without_configuration_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"no config\.json"):
        load_model(tmp_path, device=CPU)
    with pytest.raises(ModelError, match="no tokenizer"):
        load_tokenizer(tmp_path)


SMALL = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


@pytest.mark.parametrize(
    "model",
    [
        lambda: BertModel(BertConfig(**SMALL)),
        lambda: BertForMaskedLM(BertConfig(**SMALL)),
        lambda: RobertaForMaskedLM(RobertaConfig(**SMALL)),
    ],
    ids=["no head", "bert", "roberta"],
)
def test_a_model_of_another_kind_is_refused(tmp_path, model):
    model().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="not a causal"):
        load_model(tmp_path, device=CPU)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("which", ["lm_head.weight", "model.norm.weight", "model.layers.3.mlp.down_proj.weight"])
def test_a_weight_that_is_no_number_is_named(made, tmp_path, value, which):
    model = load_model(made, device=CPU)
    with torch.no_grad():
        model.get_parameter(which).view(-1)[-1] = value
    model.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"NaN or infinite numbers in 1 weights.*another checkpoint"):
        load_model(tmp_path, device=CPU)


BROKEN = [
    "",
    "[]",
    "5",
    "{",
    "{}",
    "\xff",
    '{"model_type": 5}',
    '{"model_type": "nosuch"}',
    '{"model_type": "llama", "hidden_size": "abc"}',
    '{"model_type": "llama", "hidden_size": null}',
    '{"model_type": "llama", "num_attention_heads": 0}',
    '{"model_type": "llama", "vocab_size": 1e30}',
]


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_configuration_is_named_and_leaves_an_estimate_by_the_weights(copied, text):
    (copied / "config.json").write_text(text, encoding="latin-1")
    for read in (read_config, lambda path: load_model(path, device=CPU)):
        with pytest.raises(ModelError, match=r"config\.json.*configuration: ."):
            read(copied)
    size = model_size(copied)
    assert size.parameters > 1_000_000
    assert (size.hidden, size.layers, size.vocabulary) == (0, 0, 0)


@pytest.mark.parametrize("read", [model_size, lambda path: load_model(path, device=CPU)], ids=["size", "load"])
def test_weights_that_are_a_pickle_or_not_there_are_refused_with_what_to_do(copied, read):
    (copied / "model.safetensors").rename(copied / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"pytorch_model\.bin, a pickle.*save_pretrained"):
        read(copied)
    (copied / "pytorch_model.bin").unlink()
    with pytest.raises(ModelError, match="holds no weights"):
        read(copied)


def test_a_token_beyond_the_embeddings_is_refused_where_text_can_reach_it(made):
    tokenizer = load_tokenizer(made)
    rows = len(tokenizer)
    check_vocabulary(tokenizer, rows, [], "m")
    check_vocabulary(tokenizer, rows, [10**6], "m")  # a tokenizer that fits needs no closer look
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]}, replace_extra_special_tokens=False)
    check_vocabulary(tokenizer, rows, [0, 1], "m")  # text never becomes a special token
    with pytest.raises(ModelError, match=rf"m: .*ids up to {rows} \('<image>'\).*0 to {rows - 1} only"):
        check_vocabulary(tokenizer, rows, [rows], "m")
    tokenizer.add_tokens(["word"])
    with pytest.raises(ModelError, match=rf"ids up to {rows + 1} \('word'\).*resize_token_embeddings"):
        check_vocabulary(tokenizer, rows, [], "m")


@pytest.mark.parametrize("missing", [1, 300, 900])
def test_a_vocabulary_smaller_than_the_tokenizer_stops_the_agent(copied, missing):
    model = load_model(copied, device=CPU)
    model.resize_token_embeddings(model.config.vocab_size - missing)
    model.save_pretrained(copied)
    config = load_config("bandit-starpo-s-grpo-tiny")
    with pytest.raises(ModelError, match="do not belong together"):
        build_agent(copied, config.model, config.rollout)


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


def _edited(folder, file, **changes):
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


REFUSED = {  # what transformers refuses in a configuration with errors of several kinds
    "heads": {"num_attention_heads": 7},
    "negative": {"hidden_size": -1},
    "null": {"max_position_embeddings": None},
    "layers": {"num_hidden_layers": "four"},
    "activation": {"hidden_act": "zzz"},
    "epsilon": {"rms_norm_eps": []},
    "rope": {"rope_parameters": {"rope_type": "zzz", "rope_theta": 1.0}},
}


@pytest.mark.parametrize("changes", REFUSED.values(), ids=REFUSED)
def test_a_configuration_that_transformers_refuses_is_a_model_error_wherever_it_is_met(copied, changes):
    _edited(copied, "config.json", **changes)
    config = load_config("bandit-starpo-s-grpo-tiny")
    for load in (lambda: load_model(copied, device=CPU), lambda: build_agent(copied, config.model, config.rollout)):
        with pytest.raises(ModelError, match=r"config\.json|does not load|cannot be run") as error:
            load()
        assert not re.search(r"model: '\w+'$", str(error.value)), "a key alone says nothing"


def test_a_tokenizer_file_without_its_entries_is_named(copied):
    (copied / "tokenizer.json").write_text("{}")
    with pytest.raises(
        ModelError, match=r"no tokenizer that can be loaded: a file of the tokenizer \(tokenizer\.json.*lacks"
    ):
        load_tokenizer(copied)


def test_a_directory_without_a_tokenizer_is_told_which_files_are_missing(copied):
    for file in copied.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(ModelError, match=r"has no tokenizer: no file there is called \*token\*.*save_pretrained"):
        load_tokenizer(copied)


@pytest.fixture
def sharded(made, tmp_path):
    load_model(made, device=CPU).save_pretrained(tmp_path, max_shard_size="2MB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    return tmp_path


def test_weights_in_several_files_load(made, sharded):
    whole, parts = load_model(made, device=CPU), load_model(sharded, device=CPU)
    assert all(torch.equal(one, other) for one, other in zip(whole.parameters(), parts.parameters(), strict=True))


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "5", '{"weight_map": null}', '{"weight_map": ["a"]}', "\xff", "[" * 100_000]
)
def test_a_broken_index_of_weights_is_named(sharded, text):
    (sharded / "model.safetensors.index.json").write_text(text, encoding="latin-1")
    for read in (model_size, lambda path: load_model(path, device=CPU)):
        with pytest.raises(
            ModelError, match=r"model\.safetensors\.index\.json, which tells the file .* read: .*copy it again"
        ):
            read(sharded)


def test_a_missing_part_of_the_weights_is_named(sharded):
    gone = max(sharded.glob("model-*.safetensors"))
    gone.unlink()
    for read in (model_size, lambda path: load_model(path, device=CPU)):
        with pytest.raises(ModelError, match=f"lacks {gone.name}, which"):
            read(sharded)
