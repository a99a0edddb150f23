"""The search against BM25 written out, and its snippets."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.errors import ConfigError
from ragen.tools.search import Document, SearchIndex, snippet

WORDS = st.lists(st.sampled_from(["cat", "dog", "fish", "bird", "the", "running"]), min_size=1, max_size=8).map(" ".join)


def by_hand(documents, index, query):
    """(score, number) of each document that scores, best first, by the formula term by term."""
    terms = [index.terms(f"{d.title}\n{d.text}") for d in documents]
    mean = sum(map(len, terms)) / len(terms)
    scores = []
    for number, held in enumerate(terms):
        score = 0.0
        for term in dict.fromkeys(index.terms(query)):
            n, f = sum(term in other for other in terms), held.count(term)
            idf = math.log(1 + (len(terms) - n + 0.5) / (n + 0.5))
            score += idf * f / (f + 1.2 * (1 - 0.75 + 0.75 * len(held) / max(mean, 1)))
        if score > 0:
            scores.append((round(-score, 9), number))
    return sorted(scores)


@given(st.lists(WORDS, min_size=1, max_size=8), WORDS)
def test_the_order_is_that_of_the_formula(texts, query):
    documents = [Document(str(i), text) for i, text in enumerate(texts)]
    index = SearchIndex(documents)
    found = [int(document.title) for document in index.search(query, 20)]
    expected = {number: score for score, number in by_hand(documents, index, query)}
    assert set(found) == set(expected)
    assert [expected[number] for number in found] == sorted(expected.values())


def test_case_endings_and_stop_words_do_not_matter():
    index = SearchIndex([Document("Rivers", "The longest ones."), Document("Mountains", "High.")])
    for query in ("river", "RIVERS", "the river?", "one"):
        assert [d.title for d in index.search(query, 5)] == ["Rivers"]
    for nothing in ("", "the", "zebra", "\x00", "\ud800", "🙂", "x" * 100_000):
        assert index.search(nothing, 5) == ()


def test_as_many_as_asked_for_and_ties_in_order():
    index = SearchIndex([Document(str(i), "cat") for i in range(5)])
    assert [d.title for d in index.search("cat", 3)] == ["0", "1", "2"]
    with pytest.raises(ConfigError, match="a document at least"):
        SearchIndex([])


def test_a_snippet_is_the_stretch_with_most_words_of_the_query():
    text = "Alpha beta gamma. " * 10 + "The tower of Paris was built in 1889. " + "Delta epsilon. " * 10
    shown = snippet(Document("x", text), "when was the tower built", 60)
    assert "tower of Paris was built" in shown
    assert shown.startswith("… ")
    assert shown.endswith(" …")
    assert snippet(Document("x", "Short\ntext."), "zebra", 60) == "Short text."


@given(st.text(max_size=80), st.text(max_size=20), st.integers(1, 40))
def test_a_snippet_is_bounded_and_on_one_line(text, query, length):
    shown = snippet(Document("x", text), query, length)
    assert len(shown) <= length + 4
    assert len(shown.splitlines()) <= 1
