"""Diversity of replies against hand counts and a plain double loop."""

import itertools
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.metrics.diversity import distinct_n, reasoning, self_similarity, words


def test_words_ignore_case_and_keep_punctuation_apart() -> None:
    assert words("Go UP, now!  É2") == ["go", "up", ",", "now", "!", "é2"]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("<think> go up </think><answer>Up</answer>", "go up"),
        ("go up</think><answer>Up</answer>", "go up"),  # the opener was forced
        ("\n<think></think><answer>Up</answer>", ""),
        ("<answer>Up</answer>", None),
        ("<think>a</think>b</think>", "a"),
    ],
)
def test_reasoning_is_what_stands_before_the_closing_tag(reply: str, expected: str | None) -> None:
    assert reasoning(reply) == expected


def test_distinct_n_by_hand() -> None:
    texts = ["a b a b", "a b c"]  # pairs: ab ba ab | ab bc
    assert distinct_n(texts, 1) == pytest.approx(3 / 7)
    assert distinct_n(texts, 2) == pytest.approx(3 / 5)
    assert distinct_n(texts, 3) == pytest.approx(3 / 3)  # aba bab | abc
    assert math.isnan(distinct_n(["a", "b"], 2))
    with pytest.raises(ValueError, match="n must be 1 or more"):
        distinct_n(texts, 0)


def test_one_wording_everywhere_is_seen_by_both() -> None:
    varied = [f"first {i} then {i + 50} so {i + 100}" for i in range(16)]
    same = ["first I go up then I go left"] * 16
    assert distinct_n(same) < 0.1 < 0.9 < distinct_n(varied)
    assert self_similarity(same) == pytest.approx(1.0)
    assert self_similarity(varied) == pytest.approx(0.5)  # three of six words are shared


def test_self_similarity_by_hand() -> None:
    assert self_similarity(["up", "left"]) == 0.0
    assert self_similarity(["up left", "up down", ""]) == pytest.approx(0.5)
    assert self_similarity(["up up left", "up"]) == pytest.approx(2 / math.sqrt(5))
    assert math.isnan(self_similarity(["up"]))
    assert math.isnan(self_similarity(["", " "]))


@given(st.lists(st.text("ab c", max_size=8), max_size=7))
def test_self_similarity_equals_the_double_loop(texts: list[str]) -> None:
    counts = [Counter(words(t)) for t in texts if words(t)]
    pairs = [
        sum(a[w] * b[w] for w in a) / math.sqrt(sum(n * n for n in a.values()) * sum(n * n for n in b.values()))
        for a, b in itertools.combinations(counts, 2)
    ]
    if pairs:
        assert self_similarity(texts) == pytest.approx(sum(pairs) / len(pairs), abs=1e-9)
    else:
        assert math.isnan(self_similarity(texts))
