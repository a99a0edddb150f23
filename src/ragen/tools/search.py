"""Full-text search over a small corpus, in memory: BM25 with English stop words and stemming (PyStemmer)."""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragen.errors import ConfigError

K1, B = 1.2, 0.75  # term saturation and length normalisation, Lucene's defaults
LONGEST_QUERY = 500  # characters of a query that are looked at
WORD = re.compile(r"[^\W_]+")
STOP_WORDS = frozenset(  # Lucene's
    "a an and are as at be but by for if in into is it no not of on or such "  # noqa: SIM905
    "that the their then there these they this to was will with".split()
)
_NOWHERE = (np.array([], np.int64), np.array([], np.float64))


@dataclass(frozen=True, slots=True)
class Document:
    """A text with its title."""

    title: str
    text: str


class SearchIndex:
    """Documents by relevance to a query.

        score(d, q) = Σ_{t ∈ q} idf(t) · f / (f + k1 · (1 − b + b · |d| / mean |d|))
        idf(t)      = ln(1 + (N − n_t + ½) / (n_t + ½))

    over the different terms t of the query; f counts t in title and text of d, |d| its terms, n_t the documents of N that
    hold t (Robertson & Zaragoza 2009, with the idf of Lucene, which is never negative). Equal scores keep the documents'
    order.
    """

    def __init__(self, documents: Sequence[Document]) -> None:
        if not documents:
            raise ConfigError("a search index needs a document at least")
        import Stemmer

        self.documents = tuple(documents)
        self._stemmer: Any = Stemmer.Stemmer("english")
        counts = [Counter(self.terms(f"{each.title}\n{each.text}")) for each in documents]
        lengths = np.array([sum(count.values()) for count in counts], np.float64)
        norms = K1 * (1 - B + B * lengths / max(lengths.mean(), 1.0))
        postings: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for number, count in enumerate(counts):
            for term, times in count.items():
                postings[term].append((number, times))
        self._postings = {term: _weighted(pairs, norms) for term, pairs in postings.items()}

    def terms(self, text: str) -> list[str]:
        """The words of a text that are no stop words, stemmed, in order."""
        words = [word for word in WORD.findall(text.casefold()) if word not in STOP_WORDS]
        return list(self._stemmer.stemWords(words))

    def search(self, query: str, count: int) -> tuple[Document, ...]:
        """The ``count`` best documents that hold a term of the query, best first."""
        scores = np.zeros(len(self.documents))
        for term in dict.fromkeys(self.terms(query[:LONGEST_QUERY])):
            numbers, weights = self._postings.get(term, _NOWHERE)
            scores[numbers] += weights
        best = np.argsort(-scores, kind="stable")[:count]
        return tuple(self.documents[int(number)] for number in best if scores[number] > 0)


def snippet(document: Document, query: str, length: int) -> str:
    """The stretch of the text, of at most ``length`` characters and on one line, that holds most words of the query."""
    words = document.text.split()
    wanted = {_plain(word) for word in query[:LONGEST_QUERY].split()} - {""}
    start, most, begin, size, hits = 0, -1, 0, 0, 0
    for end, word in enumerate(words):
        size += len(word) + 1
        hits += _plain(word) in wanted
        while size > length + 1 and begin < end:
            size -= len(words[begin]) + 1
            hits -= _plain(words[begin]) in wanted
            begin += 1
        if hits > most:
            start, most = begin, hits
    text = " ".join(words[start:])
    shown = text if len(text) <= length else text[: length + 1].rpartition(" ")[0] or text[:length]
    return f"{'… ' if start else ''}{shown}{' …' if len(shown) < len(text) else ''}"


def _weighted(pairs: Sequence[tuple[int, int]], norms: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """A term's documents and what it adds to the score of each, both (n_t,)."""
    numbers, times = (np.array(column) for column in zip(*pairs, strict=True))
    idf = np.log1p((len(norms) - len(pairs) + 0.5) / (len(pairs) + 0.5))
    return numbers, idf * times / (times + norms[numbers])


def _plain(word: str) -> str:
    return word.strip(".,;:!?()[]\"'“”‘’").casefold()
