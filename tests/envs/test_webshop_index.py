"""The search engine: tokens after Lucene, scores and ranking against brute force and against a published ranking."""

import math
import os
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.envs.webshop import index as index_module
from ragen.envs.webshop.analysis import terms
from ragen.envs.webshop.goals import goal_count
from ragen.envs.webshop.index import K1, B, Index, build, opened, stored_length
from ragen.envs.webshop.stock import Sources, stock_of
from ragen.tools.search import STOP_WORDS

WORDS = st.sampled_from(["shoe", "shoes", "red", "blue", "running", "easy", "the", "8.5", "t-shirt", "women's", "lamp"])
TEXTS = st.lists(st.lists(WORDS, max_size=30).map(" ".join), min_size=1, max_size=40)


def data(name):
    root = Path(os.environ.get("RAGEN_DATA", Path(__file__).parents[2].parent / "shared" / "data"))
    path = root / "webshop" / name
    if not path.exists():
        pytest.skip(f"{path} is absent (set RAGEN_DATA)")
    return path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Running shoes, EASY to clean", ["run", "shoe", "easi", "clean"]),
        ("the women's dress and men’s shoes", ["women", "dress", "men", "shoe"]),
        ("3.5 inch 1,000 pcs a.b.c u:v", ["3.5", "inch", "1,000", "pc", "a.b.c", "u:v"]),
        ("size:8 end. 5' don't", ["size", "8", "end", "5", "don't"]),
        ("wi-fi & blu_ray/tv __ +", ["wi", "fi", "blu_rai", "tv"]),
        ("漢字 café", ["漢", "字", "café"]),
        ("relational conditional generalizations oscillators", ["relat", "condit", "gener", "oscil"]),
        ("is of it", []),
    ],
)
def test_tokens_are_those_of_lucenes_english_analysis(text, expected):
    assert terms(text) == expected


def test_there_are_lucenes_33_stop_words_and_long_tokens_are_cut():
    assert len(STOP_WORDS) == 33
    assert [len(term) for term in terms("x" * 600)] == [255, 255, 90]


def test_lengths_are_kept_in_lucenes_steps():
    """SmallFloat.byte4ToInt(intToByte4(n)) of Lucene, by its definition: 24 exact values, then 3 bits after the first."""
    assert [stored_length(n) for n in range(40)] == list(range(40))
    assert [stored_length(n) for n in (41, 42, 55, 56, 59, 60, 87, 88, 103, 104, 1000)] == [
        40, 42, 54, 56, 56, 60, 84, 88, 96, 104, 984,
    ]  # fmt: skip
    kept = sorted({stored_length(n) for n in range(100_000)})
    assert all(stored_length(n) == n for n in kept)


def brute_force(texts, query, limit):
    documents = [Counter(terms(text)) for text in texts]
    lengths = [sum(counts.values()) for counts in documents]
    mean = max(sum(lengths) / len(lengths), 1)
    wanted = terms(query)
    frequency = {term: sum(term in counts for counts in documents) for term in wanted}
    scores = {}
    for number, counts in enumerate(documents):
        norm = K1 * (1 - B + B * stored_length(lengths[number]) / mean)
        total = 0.0
        for term in wanted:
            if counts[term]:
                idf = math.log(1 + (len(documents) - frequency[term] + 0.5) / (frequency[term] + 0.5))
                total += idf * counts[term] / (counts[term] + norm)
        if any(counts[term] for term in wanted):
            scores[number] = total
    return sorted(scores, key=lambda n: (-round(scores[n], 4), n))[:limit], scores


@given(TEXTS, st.lists(WORDS, max_size=8).map(" ".join), st.integers(1, 12))
def test_results_are_those_of_the_formula(texts, query, limit):
    found = build(texts).search(query, limit)
    _, scores = brute_force(texts, query, limit)
    assert len(found) == len(set(found)) == min(limit, len(scores))
    assert set(found) <= set(scores)
    best = sorted(scores.values(), reverse=True)[: len(found)]
    np.testing.assert_allclose([scores[n] for n in found], best, atol=1e-4)
    for one, two in pairwise(found):
        assert texts[one] != texts[two] or one < two


@pytest.mark.parametrize(("first", "span"), [(70, 200), (1000, 5000), (5000, 5000)])
def test_results_stay_those_of_the_formula_where_terms_are_dropped_early(first, span, monkeypatch):
    """Many documents, of few words each: after the first span the search stops scanning before the common terms."""
    monkeypatch.setattr(index_module, "FIRST", first)
    monkeypatch.setattr(index_module, "SPAN", span)
    rng = np.random.default_rng(0)
    vocabulary = [f"word{n}" for n in range(300)]
    weights = 1 / np.arange(1, 301)
    texts = [
        " ".join(rng.choice(vocabulary, size=rng.integers(5, 40), p=weights / weights.sum()).tolist()) for _ in range(3000)
    ]
    index = build(texts)
    for _ in range(40):
        query = " ".join(rng.choice(vocabulary, size=8, p=weights / weights.sum()).tolist())
        expected, scores = brute_force(texts, query, 50)
        found = index.search(query, 50)
        np.testing.assert_allclose([scores[n] for n in found], [scores[n] for n in expected], atol=1e-4)


@given(TEXTS, st.lists(WORDS, max_size=12).map(" ".join), st.integers(1, 12), st.integers(1, 9))
def test_results_and_the_order_of_equal_ones_do_not_depend_on_spans(texts, query, limit, span):
    index = build([*texts, *texts])  # each text twice: equal scores, in two spans
    whole = index.search(query, limit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_module, "FIRST", span)
        patch.setattr(index_module, "SPAN", span)
        assert index.search(query, limit) == whole


def test_repeated_terms_with_nearly_equal_weights_are_ranked_exactly_in_any_spans(monkeypatch):
    """Two terms in all of 12 documents, weights a few roundings apart; against sums in float64."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        steps = rng.integers(-3, 4, size=(2, 12)).astype(np.float32)
        weights = rng.uniform(0.1, 4, size=(2, 1)).astype(np.float32) * (1 + steps * np.float32(2**-23))
        counts = rng.integers(1, 10, size=2)
        total = (counts[:, None] * weights.astype(np.float64)).sum(0)
        hashes = np.array([index_module._hash("lamp"), index_module._hash("shoe")], np.uint64)
        order = np.argsort(hashes)
        documents = np.tile(np.arange(12, dtype=np.int32), 2)
        starts, largest = np.array([0, 12, 24]), weights.max(1)
        index = Index(np.array(12), hashes[order], order, starts, documents, weights.flatten(), largest)
        query = "lamp " * counts[0] + "shoe " * counts[1]
        monkeypatch.setattr(index_module, "FIRST", 2)
        monkeypatch.setattr(index_module, "SPAN", 2)
        found = index.search(query, 3)
        np.testing.assert_allclose(total[found], np.sort(total)[::-1][:3], rtol=1e-12)


@pytest.mark.parametrize("block", [1, 7, 64])
def test_postings_are_the_same_in_blocks_of_any_length(monkeypatch, block):
    rng = np.random.default_rng(1)
    texts = [
        " ".join(rng.choice(["red", "shoe", "lamp", "of", "blue"], size=rng.integers(0, 6)).tolist()) for _ in range(60)
    ]
    whole = build(texts)
    monkeypatch.setattr(index_module, "BLOCK", block)
    parts = build(texts)
    for name in ("documents", "weights", "starts", "largest"):
        np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))


def test_an_index_of_nothing_and_a_query_of_nothing_find_nothing():
    assert build([]).search("shoe", 5) == []
    assert build(["", "the"]).search("shoe", 5) == []
    index = build(["red shoe", "blue lamp"])
    assert index.search("", 5) == index.search("the of", 5) == index.search("hat", 5) == []
    assert index.search("lamps", 5) == [1]


def test_a_stored_index_is_the_same(tmp_path):
    index = build(["red shoe", "blue lamp shoe", "shoe shoe"])
    index.save(tmp_path)
    again = opened(tmp_path)
    assert again.search("shoe", 9) == index.search("shoe", 9)
    np.testing.assert_array_equal(again.weights, index.weights)


def test_a_term_counts_up_to_65535_times_in_a_document_of_any_length():
    index = build(["shoe " * 70_000, "shoe"])
    assert index.search("shoe", 2) == [0, 1]
    norm = K1 * (1 - B + B * stored_length(70_000) / 35_000.5)
    assert index.weights[0] == pytest.approx(math.log(1.2) * 65_535 / (65_535 + norm), rel=1e-6)


def test_the_ranking_agrees_with_lucenes_on_real_products(ragen_cache):
    """70 instructions over 1,000 products, ranked by Anserini with the same settings."""
    stock = stock_of(Sources(str(data("products_1k.jsonl"))))
    ranked = defaultdict(list)
    for line in data("bm25_rankings.txt").read_text(encoding="utf-8").splitlines():
        topic, _, asin, *_ = line.split()
        ranked[topic].append(asin)
    first, shared = [], []
    for line in data("bm25_topics.tsv").read_text(encoding="utf-8").splitlines():
        topic, query = line.split("\t")
        found = [stock.catalogue[number].asin for number in stock.index.search(query, 50)]
        first.append(found[0] == ranked[topic][0])
        shared.append(len(set(found[:10]) & set(ranked[topic][:10])) / 10)
    assert len(first) == 70
    assert np.mean(first) >= 0.95
    assert np.mean(shared) >= 0.95


def test_the_1000_real_products_give_6910_goals(ragen_cache):
    sources = Sources(str(data("products_1k.jsonl")), str(data("items_ins_v2_1000.json")))
    stock = stock_of(sources)
    assert len(stock.catalogue) == 1000
    assert sum(goal_count(stock.catalogue[int(number)], "synthetic") for number in stock.wanted["synthetic"]) == 6910
    assert (len(stock.wanted["synthetic"]), len(stock.wanted["human"])) == (415, 13)
