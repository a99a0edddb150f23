"""Single tokens' texts: together they are the text of all, whatever the tokenizer cuts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.errors import ModelError
from ragen.runs.directory import RunDirectory
from ragen.runs.tokens import Pieces, decoder


@pytest.mark.parametrize("text", ["I go up.", "é€😀 and 日本語", "\u202e\x00<|im_end|>", "", "  two  blanks\n\n"])
def test_pieces_of_a_text_are_its_text(chatml_tokenizer, text):
    decode = chatml_tokenizer.decode
    ids = chatml_tokenizer.encode(text, add_special_tokens=False)
    pieces = Pieces(decode)(ids)
    assert len(pieces) == len(ids)
    assert "".join(pieces) == text


def test_a_character_of_several_tokens_belongs_to_the_last_of_them(chatml_tokenizer):
    ids = chatml_tokenizer.encode("a😀b", add_special_tokens=False)
    assert Pieces(chatml_tokenizer.decode)(ids) == ["a", "", "", "", "😀", "b"]


def test_bytes_that_are_no_text_lose_nothing(chatml_tokenizer):
    ids = chatml_tokenizer.encode("😀", add_special_tokens=False)
    broken = [ids[0], *chatml_tokenizer.encode("x", add_special_tokens=False), ids[1]]
    assert Pieces(chatml_tokenizer.decode)(broken) == ["", "\ufffdx", "\ufffd"]


def test_a_decoder_whose_texts_do_not_grow_gives_each_tokens_own_text():
    assert Pieces(lambda ids: f"<{sum(ids)}>")((1, 22)) == ["<1>", "<22>"]


@given(st.lists(st.text(max_size=6), max_size=4))
def test_the_cache_of_pairs_changes_nothing(chatml_tokenizer, texts):
    kept = Pieces(chatml_tokenizer.decode)
    for text in texts:
        ids = chatml_tokenizer.encode(text.encode("utf-8", "replace").decode(), add_special_tokens=False)
        assert kept(ids) == kept(ids) == Pieces(chatml_tokenizer.decode)(ids)


def test_a_tokenizer_that_is_not_there_is_a_model_error(tmp_path):
    from ragen.config import load_config

    words = ["--run.root", str(tmp_path), "--run.name", "one", "--model.name", str(tmp_path)]
    with pytest.raises(ModelError, match="cannot be read as a tokenizer"):
        decoder(RunDirectory.create(load_config("bandit-starpo-s-grpo-tiny", words)))
