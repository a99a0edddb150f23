"""A call has one spelling, and no text can forge another one."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.tools.call import Call, CallError, bounded, final, final_text, harmless, is_final, read_call

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
TAGS = [f"<{slash}{name}>" for slash in ("", "/") for name in ("think", "answer", "tools", "tool_call", "tool_response")]


@given(TEXTS, st.dictionaries(TEXTS, VALUES, max_size=3))
def test_what_a_call_spells_is_the_call(name, arguments):
    assert read_call(str(Call(name, arguments))) == Call(name, arguments)
    assert str(read_call(str(Call(name, arguments)))) == str(Call(name, arguments))


@pytest.mark.parametrize("tag", TAGS)
def test_a_tag_in_an_argument_is_not_spelled_as_a_tag(tag):
    call = Call("query", {"sql": f"a {tag} < b"})
    assert tag not in str(call)
    assert "< b" in str(call)
    assert read_call(str(call)) == call


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not JSON"),
        ("{bad", "not JSON"),
        ('{"name": "f", "arguments": {}} x', "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("1" * 10_000, "not JSON"),
        ("NaN", "NaN is not a JSON number"),
        ('{"name": "f", "arguments": {"a": Infinity}}', "Infinity is not a JSON number"),
        ('{"name": "f", "arguments": {"a": [-1e999]}}', "-1e999 is too large a number"),
        ('{"name": "f", "name": "g", "arguments": {}}', "names a key twice"),
        ('{"name": "f", "arguments": {"a": 1, "a": 2}}', "names a key twice"),
        ('{"name": "f", "arguments": {"a": "\\ud800"}}', "lone surrogate"),
        ("\ud800", "not JSON"),
        ("[]", "object with"),
        ('{"name": "f"}', "object with"),
        ('{"name": "f", "parameters": {}}', "object with"),
        ('{"name": "f", "arguments": {}, "id": 1}', "object with"),
        ('{"name": 3, "arguments": {}}', "must be a text"),
        ('{"name": "f", "arguments": "{}"}', "must be a text"),
        ('{"name": "f", "arguments": null}', "must be a text"),
    ],
)
def test_a27_what_is_no_call_is_told_why_and_never_raised_otherwise(text, why):
    with pytest.raises(CallError, match=why):
        read_call(text)


@given(st.text(max_size=200))
def test_a27_any_text_is_a_call_or_an_error_in_words(text):
    try:
        call = read_call(text)
    except CallError:
        return
    assert json.loads(str(call))["name"] == call.name


def test_the_final_answer_is_a_call_as_well():
    assert final_text(read_call(final(" 18 "))) == "18"
    assert is_final(final("18"))
    assert not is_final(str(Call("answers", {"text": "18"})))
    assert final_text(Call("calculator", {"text": "18"})) is None
    for arguments in ({}, {"text": " "}, {"text": 18}, {"text": "18", "x": 1}):
        with pytest.raises(CallError, match="takes one argument"):
            final_text(Call("answer", arguments))


@given(st.lists(st.sampled_from(["<", "/", "think>", "tool_call>", "x", " ", "<answer>", "<<"])).map("".join))
def test_nothing_defused_holds_a_tag(text):
    assert not any(tag in harmless(text) for tag in TAGS)
    assert len(harmless(text)) == len(text)


def test_a_cut_is_told_and_what_fits_stays():
    assert bounded("abc", 3) == "abc"
    assert bounded("abcd" * 9, 3) == "abc… [cut: 3 of 36 characters]"


def test_a_text_is_cut_only_where_that_makes_it_shorter():
    note = len("… [cut: 20 of 50 characters]")
    lengths = [len(bounded("x" * length, 20)) for length in range(100)]
    assert lengths == [min(length, 20 + note) for length in range(100)]
