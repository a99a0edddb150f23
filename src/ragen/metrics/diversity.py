"""How different the replies of a batch are: the Echo Trap shows as one wording repeated everywhere."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence

_WORD = re.compile(r"\w+|[^\w\s]")


def words(text: str) -> list[str]:
    """Lower-case words, and every other visible character as a word of its own."""
    return _WORD.findall(text.casefold())


def reasoning(reply: str) -> str | None:
    """What a reply says before its first ``</think>`` (without the opener), or None where there is no such tag."""
    thought, tag, _ = reply.partition("</think>")
    return thought.strip().removeprefix("<think>").strip() if tag else None


def distinct_n(texts: Sequence[str], n: int = 2) -> float:
    """Different word n-grams / all word n-grams, counted over the whole batch: 1 = nothing repeats, → 0 = one wording.

    N-grams do not cross texts; NaN where no text has n words. It falls with the number of texts: compare equal batches.
    Source: Li et al., "A Diversity-Promoting Objective Function" (arXiv 1510.03055).
    """
    if n < 1:
        raise ValueError(f"n must be 1 or more, got {n}")
    grams = Counter(gram for text in texts for gram in _ngrams(words(text), n))
    return len(grams) / grams.total() if grams else math.nan


def self_similarity(texts: Sequence[str]) -> float:
    """Mean cosine of the word counts of two replies, over all pairs: 1 = the same words everywhere, 0 = none shared.

    With unit vectors u_i the mean over pairs is (‖Σ u_i‖² − N) / (N (N − 1)), linear in N. Word order is ignored; texts
    without a word are left out; NaN for fewer than two. It does not depend on the number of texts, unlike ``distinct_n``.
    """
    counts = [Counter(words(text)) for text in texts]
    counts = [count for count in counts if count]
    if len(counts) < 2:
        return math.nan
    summed: defaultdict[str, float] = defaultdict(float)
    for count in counts:
        norm = math.sqrt(sum(number * number for number in count.values()))
        for word, number in count.items():
            summed[word] += number / norm
    square = math.fsum(value * value for value in summed.values())
    mean = (square - len(counts)) / (len(counts) * (len(counts) - 1))
    return min(1.0, max(0.0, mean))


def _ngrams(tokens: list[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(tokens[start : start + n]) for start in range(len(tokens) - n + 1)]
