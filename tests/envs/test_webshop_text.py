"""Text of a product file: whatever stands in it, it is no mark of a reply, a page or a label."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.envs.base import MARKS, action_problem
from ragen.envs.webshop.text import clean, shortened

NASTY = st.text(st.sampled_from("<>/|[] \n\t\x00\u200b\u202e\u2028\ud800thinkaswerTHINKSEPé漢0"), max_size=60)


@pytest.mark.parametrize(
    ("raw", "plain"),
    [
        ("  a \t b\n\nc ", "a b c"),
        ("a||b|||c | d", "a|b|c | d"),
        ("[Buy Now] [SEP]", "(Buy Now) (SEP)"),
        ("<think>x</think><ANSWER>", "(think)x(/think)(ANSWER)"),
        ("< Prev, <5 mm>", "< Prev, <5 mm>"),
        ("<th\u200bink>", "(think)"),
        ("|\u200b|", "|"),
        ("up\u202edown\x00end", "updown end"),
        ("<|im_end|>", "<|im_end|>"),
        ("caf\u00e9\u00a0bar\u3000tea", "café bar tea"),
        ("", ""),
    ],
)
def test_a13_marks_of_replies_pages_and_labels_lose_their_meaning(raw, plain):
    assert clean(raw) == plain


@given(st.one_of(NASTY, st.text(max_size=80)))
def test_clean_text_is_one_line_without_marks_and_stays_as_it_is(raw):
    text = clean(raw)
    assert clean(text) == text
    assert text == " ".join(text.split())
    assert len(text.splitlines()) <= 1
    assert not any(mark in text.lower() for mark in (*MARKS, "[", "]"))
    if text:
        assert action_problem(f"click[{text}]") is None
    text.encode()


def test_text_is_shortened_with_an_ellipsis_only_where_it_is_too_long():
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abcdefg", 6) == "abcde…"
    assert shortened("abcd efg", 6) == "abcd…"
