"""BM25 over the products' texts, exact, in plain arrays that may lie in memory or in memory-mapped files."""

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragen.envs.webshop.analysis import TermNumbers, terms

K1, B = 0.9, 0.4
BLOCK = 1 << 22  # postings sorted at a time
SLACK = 1e-9  # more than rounding adds to a score
MOST = (1 << 16) - 1  # times that a term counts in a document
Floats = NDArray[np.float32]
Integers = NDArray[np.int64]


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
        """The ``limit`` best documents for a query, best first; equal scores in order of their numbers.

        score(q, d) = Σ_{t ∈ q} idf(t) · f / (f + k₁ · (1 − b + b · |d| / mean |d|)), a repeated term counting each time.
        Documents that hold none of the terms are no result. The best ``limit`` are exact: terms are taken by the most they
        can add, and once no document that has not been seen can reach the ``limit``-th best score any more, the rest of
        the postings is only looked up for those seen that still can (MaxScore, Turtle and Flood 1995).
        """
        found = [(count * float(self.largest[t]), count, t) for t, count in Counter(self._numbers(query)).items()]
        found.sort(reverse=True)
        left = np.cumsum([0.0, *(most for most, _, _ in reversed(found))])[::-1]  # the most that terms from here on add
        gathered = np.zeros(int(self.size))
        watched = np.empty(0, np.int32)  # documents of the first terms: their ``limit``-th best is a bound from below
        least, taken = 0.0, 0
        while taken < len(found) and least <= left[taken] + SLACK:
            _, count, term = found[taken]
            documents, weights = self._postings(term)
            gathered[documents] += count * weights
            taken += 1
            if len(watched) < limit:
                watched = np.union1d(watched, documents) if len(watched) else documents
            if len(watched) >= limit and 2 * left[taken] < left[0]:
                least = _nth(gathered[watched], limit)
        seen = np.flatnonzero(gathered > max(least - left[taken] - SLACK, 0.0)).astype(np.int32)
        scores = gathered[seen]
        for place in range(taken, len(found)):
            _, count, term = found[place]
            scores += count * _looked_up(seen, *self._postings(term))
            hopeful = scores + left[place + 1] >= _nth(scores, limit) - SLACK
            seen, scores = seen[hopeful], scores[hopeful]
        best = _best(scores, limit)
        return [int(number) for number in seen[best[np.lexsort((seen[best], -scores[best]))]]][:limit]

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


def _nth(scores: NDArray[np.float64], place: int) -> float:
    return float(np.partition(scores, len(scores) - place)[len(scores) - place])


def _best(scores: NDArray[np.float64], limit: int) -> NDArray[np.intp]:
    """The places of the ``limit`` highest scores and of all that equal the last of them, in no order."""
    return np.flatnonzero(scores >= _nth(scores, limit)) if len(scores) > limit else np.arange(len(scores))


def _looked_up(seen: NDArray[np.int32], documents: NDArray[np.int32], weights: Floats) -> NDArray[np.float64]:
    """The weights of the documents ``seen`` in one posting list, 0 where they are not in it."""
    place = np.minimum(np.searchsorted(documents, seen), len(documents) - 1)
    return np.where(documents[place] == seen, weights[place], 0.0).astype(np.float64)
