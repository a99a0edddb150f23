"""BM25 over the products' texts, exact, in plain arrays that may lie in memory or in memory-mapped files."""

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragen.envs.webshop.analysis import TermNumbers, terms

K1, B = 0.9, 0.4
BLOCK = 1 << 22  # postings sorted at a time
FIRST, SPAN = 1 << 12, 1 << 16  # documents scored at a time, first and then: a bound is found in few, the cache holds many
DEAR = 8  # postings that are added in the time in which one document is looked up
SLACK = 1e-9  # more than rounding adds to a score
MOST = (1 << 16) - 1  # times that a term counts in a document
Floats = NDArray[np.float32]
Floats64 = NDArray[np.float64]
Integers = NDArray[np.int64]
Postings = tuple[int, NDArray[np.int32], Floats]  # of a term: its count in the query, documents, weights


@dataclass(frozen=True, slots=True)
class Index:
    """Postings by term.

    ``terms[i]`` is the number of the term with hash ``hashes[i]`` (64 bits of BLAKE2b, ascending). Term *t* has the
    postings ``starts[t]`` to ``starts[t + 1]``: ``documents`` in ascending order and the ``weights`` they gain, of which
    ``largest[t]`` is the greatest. ``size`` (an array without axes) counts the documents.
    """

    size: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    terms: Integers
    starts: Integers
    documents: NDArray[np.int32]
    weights: Floats
    largest: Floats

    def search(self, query: str, limit: int) -> list[int]:
        """The ``limit`` ≥ 1 best documents for a query, best first; equal scores in order of their numbers.

        score(q, d) = Σ_{t ∈ q} idf(t) · f / (f + k₁ · (1 − b + b · |d| / mean |d|)), a repeated term counting each time.
        Documents that hold none of the terms are no result. The best ``limit`` are exact: documents are scored a span at a
        time, terms by the most they can add, and what cannot reach the ``limit``-th best of the spans before is left out
        (MaxScore, Turtle and Flood 1995).
        """
        found = [(count * float(self.largest[t]), count, t) for t, count in Counter(self._numbers(query)).items()]
        found.sort(reverse=True)
        left = np.cumsum([0.0, *(most for most, _, _ in reversed(found))])[::-1]  # the most that terms from here on add
        lists = [(count, *self._postings(term)) for _, count, term in found]
        edges = np.array([0, *range(FIRST, int(self.size), SPAN), self.size], np.int32)
        cuts = [np.searchsorted(documents, edges) for _, documents, _ in lists]
        best, scores = np.empty(0, np.int32), np.empty(0)
        for number, (start, end) in enumerate(pairwise(edges.tolist())):
            parts = [slice(cut[number], cut[number + 1]) for cut in cuts]
            span = [
                (count, documents[part], weights[part])
                for (count, documents, weights), part in zip(lists, parts, strict=True)
            ]
            least = float(scores[-1]) if len(scores) == limit else 0.0
            more, gained = _scored(span, left, range(start, end), least)
            best, scores = np.append(best, more), np.append(scores, gained)
            if len(scores) > limit:  # sorting is dear
                high = scores >= np.partition(scores, -limit)[-limit]
                best, scores = best[high], scores[high]
            order = np.lexsort((best, -scores))[:limit]
            best, scores = best[order], scores[order]
        return [int(document) for document in best]

    def _postings(self, term: int) -> tuple[NDArray[np.int32], Floats]:
        begin, end = int(self.starts[term]), int(self.starts[term + 1])
        return np.asarray(self.documents[begin:end]), np.asarray(self.weights[begin:end])

    def _numbers(self, query: str) -> list[int]:
        wanted = np.array([_hash(term) for term in terms(query)], np.uint64)
        places = np.searchsorted(self.hashes, wanted)
        known = [at for at, key in zip(places, wanted, strict=True) if at < len(self.hashes) and self.hashes[at] == key]
        return [int(self.terms[at]) for at in known]

    def save(self, folder: Path) -> None:
        """Write each array as a file of ``folder``."""
        for field in fields(self):
            np.save(folder / f"{field.name}.npy", getattr(self, field.name))


def opened(folder: Path) -> Index:
    """The index that ``save`` wrote, memory-mapped."""
    return Index(*(np.load(folder / f"{field.name}.npy", mmap_mode="r") for field in fields(Index)))


class Builder:
    """Collects documents one by one; 6 bytes a distinct term and document are kept."""

    def __init__(self) -> None:
        self._numbers = TermNumbers()
        self._terms = array("i")
        self._counts = array("H")
        self._distinct = array("i")  # distinct terms of each document
        self._lengths = array("q")

    def add(self, text: str) -> None:
        """Index one more document; documents are numbered from 0 in the order they come."""
        numbers = self._numbers.of(text)
        counts = Counter(numbers)
        self._terms.extend(counts.keys())
        self._counts.extend(counts.values() if len(numbers) <= MOST else (min(count, MOST) for count in counts.values()))
        self._distinct.append(len(counts))
        self._lengths.append(len(numbers))

    def index(self) -> Index:
        """The index of all documents so far."""
        term, count = np.frombuffer(self._terms, np.int32), np.frombuffer(self._counts, np.uint16)
        hashes = np.array([_hash(word) for word in self._numbers.known], np.uint64)
        frequencies = np.zeros(len(hashes), np.int64)
        for block in _blocks(len(term)):
            frequencies += np.bincount(term[block], minlength=len(hashes))
        starts = np.concatenate([[0], np.cumsum(frequencies)]).astype(np.int64)
        size = np.array(len(self._lengths))
        idf = np.log1p((size - frequencies + 0.5) / (frequencies + 0.5)).astype(np.float32)
        documents, weights = self._sorted(term, count, starts, idf)
        largest = np.maximum.reduceat(weights, starts[:-1]) if len(hashes) else np.empty(0, np.float32)
        order = np.argsort(hashes)
        return Index(size, hashes[order], order, starts, documents, weights, largest)

    def _sorted(
        self, term: NDArray[np.int32], count: NDArray[np.uint16], starts: Integers, idf: Floats
    ) -> tuple[NDArray[np.int32], Floats]:
        """Documents and weights by term: a counting sort, a block at a time, so that it needs little beside its result."""
        ends = np.cumsum(np.frombuffer(self._distinct, np.int32), dtype=np.int64)
        norms = _norms(np.frombuffer(self._lengths, np.int64))
        documents, weights = np.empty(len(term), np.int32), np.empty(len(term), np.float32)
        following = starts[:-1].copy()
        for block in _blocks(len(term)):
            order = np.argsort(term[block], kind="stable")
            terms_, docs = term[block][order], _owners(ends, block)[order]
            distinct, first, repeats = np.unique(terms_, return_index=True, return_counts=True)
            place = np.repeat(following[distinct] - first, repeats) + np.arange(len(terms_))
            frequency = count[block][order].astype(np.float32)
            documents[place] = docs
            weights[place] = idf[terms_] * frequency / (frequency + norms[docs])
            following[distinct] += repeats
        return documents, weights


def _blocks(length: int) -> Iterator[slice]:
    return (slice(begin, min(begin + BLOCK, length)) for begin in range(0, length, BLOCK))


def _owners(ends: Integers, block: slice) -> Integers:
    """The document of each posting of a block, where document d has those up to ``ends[d]``."""
    first, last = np.searchsorted(ends, [block.start, block.stop - 1], side="right")
    numbers = np.arange(first, last + 1)
    until = np.minimum(ends[numbers], block.stop)
    return np.repeat(numbers, np.diff(until, prepend=block.start))


def build(texts: Iterable[str]) -> Index:
    """The index of some texts."""
    builder = Builder()
    for text in texts:
        builder.add(text)
    return builder.index()


def _norms(lengths: Integers) -> Floats:
    """k₁ · (1 − b + b · |d| / mean |d|), with |d| in the steps in which Lucene stores a length."""
    mean = max(float(lengths.mean()), 1.0) if len(lengths) else 1.0
    distinct, place = np.unique(lengths, return_inverse=True)
    stored = np.array([stored_length(int(length)) for length in distinct], np.float64)
    norms = K1 * (1 - B + B * stored / mean)
    return np.asarray(norms[place], np.float32)


def stored_length(length: int) -> int:
    """What Lucene keeps of a document's length in one byte (SmallFloat's byte4): exact up to 40, then 4 leading bits.

    >>> [stored_length(n) for n in (7, 40, 41, 100, 225)]
    [7, 40, 40, 96, 216]
    """
    exact = 24
    if length < exact:
        return length
    rest = length - exact
    shift = max(rest.bit_length() - 4, 0)
    return exact + (rest >> shift << shift)


def _hash(term: str) -> int:
    return int.from_bytes(hashlib.blake2b(term.encode(errors="replace"), digest_size=8).digest(), "little")


def _scored(span: Sequence[Postings], left: Floats64, numbers: range, least: float) -> tuple[NDArray[np.int32], Floats64]:
    """Documents of a span of ``numbers`` and their scores: all that hold a term and may reach ``least``.

    ``span`` has the postings of each term with its count in the query; terms from the i-th on add ``left[i]`` at most. Those
    that cannot make up ``least`` together are looked up only for documents of the terms before them that still can.
    """
    gathered, taken = np.zeros(len(numbers)), 0
    while taken < len(span) and least <= left[taken] + SLACK:
        count, documents, weights = span[taken]
        gathered[documents - numbers.start] += _times(count, weights)
        taken += 1
    places = np.flatnonzero(gathered > max(least - left[taken] - SLACK, 0.0))
    for number in range(taken, len(span)):
        count, documents, weights = span[number]
        if len(documents) < DEAR * len(places):
            gathered[documents - numbers.start] += _times(count, weights)
        else:
            gathered[places] += _times(count, _looked_up((places + numbers.start).astype(np.int32), documents, weights))
        places = places[gathered[places] + left[number + 1] >= least - SLACK]
    return (places + numbers.start).astype(np.int32), gathered[places]


def _times(count: int, weights: Floats) -> Floats | Floats64:
    """A repeated term's weights: exact in float64, where a product in float32 could exceed the most that was reckoned."""
    return weights if count == 1 else weights * np.float64(count)


def _looked_up(seen: NDArray[np.int32], documents: NDArray[np.int32], weights: Floats) -> Floats:
    """The weights of the documents ``seen`` in one posting list, 0 where they are not in it."""
    place = np.minimum(np.searchsorted(documents, seen), len(documents) - 1)
    return np.where(documents[place] == seen, weights[place], np.float32(0.0))
