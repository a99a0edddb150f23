"""How text becomes search terms: Lucene's English analysis, the one WebShop's search engine indexes with.

A tokenizer after Unicode's word breaks (UAX #29, as Lucene's StandardTokenizer), possessive ``'s`` removed, lower case,
Lucene's 33 English stop words removed, Porter's stemmer (Porter 1980). Words of Thai, Lao and Khmer, which UAX #29 leaves
to a dictionary, stay whole.
"""

import re
from collections.abc import Callable, Iterator

_STOP_WORDS = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to "
    "was will with"
)
STOP_WORDS = frozenset(_STOP_WORDS.split())
LONGEST = 255  # characters of a token; Lucene cuts longer ones
_IDEOGRAPHS = "\u3041-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # each is a word
_WORD = re.compile(
    rf"[{_IDEOGRAPHS}]"
    rf"|(?:[^\W{_IDEOGRAPHS}]|(?<=[^\W\d_])['’.:·](?=[^\W\d_])|(?<=\d)['’.,;](?=\d))+"
)
STOPPED = -1


def _words(text: str) -> Iterator[str]:
    """The tokens of a lower-cased text, without possessive endings."""
    for word in _WORD.findall(text):
        for begin in range(0, len(word), LONGEST):
            part = word[begin : begin + LONGEST].strip("_")
            yield part[:-2] if part[-2:] in {"'s", "’s"} else part


def terms(text: str) -> list[str]:
    """The search terms of a text, in order, repeated as often as they stand there.

    >>> terms("The women's Running-Shoes, size 8.5 (easy clean)")
    ['women', 'run', 'shoe', 'size', '8.5', 'easi', 'clean']
    """
    stem = _stemmer()
    return [stem(word) for word in _words(text.lower()) if word and word not in STOP_WORDS]


class TermNumbers:
    """Numbers for terms, in order of first sight; each distinct word is stemmed once, which is what makes indexing fast."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}
        self._words: dict[str, int] = {}
        self._stem = _stemmer()

    def of(self, text: str) -> list[int]:
        """The numbers of the terms of a text."""
        numbers = []
        for word in _words(text.lower()):
            number = self._words.get(word)
            if number is None:
                number = self._words[word] = self._new(word)
            if number != STOPPED:
                numbers.append(number)
        return numbers

    def _new(self, word: str) -> int:
        if not word or word in STOP_WORDS:
            return STOPPED
        return self.known.setdefault(self._stem(word), len(self.known))


def _stemmer() -> Callable[[str], str]:
    from Stemmer import Stemmer

    stem: Callable[[str], str] = Stemmer("porter").stemWord
    return stem
