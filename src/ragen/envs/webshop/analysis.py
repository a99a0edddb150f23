"""How text becomes search terms: Lucene's English analysis, the one WebShop's search engine indexes with.

A tokenizer after Unicode's word breaks (UAX #29, as Lucene's StandardTokenizer), possessive ``'s`` removed, lower case,
Lucene's 33 English stop words removed, Porter's stemmer (Porter 1980). Words of Thai, Lao and Khmer, which UAX #29 leaves
to a dictionary, stay whole.
"""

import re
from collections.abc import Callable

from ragen.tools.search import STOP_WORDS

LONGEST = 255  # characters of a token; Lucene cuts longer ones
_IDEOGRAPHS = "\u3041-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # each is a word
_words = re.compile(
    rf"[{_IDEOGRAPHS}]"
    rf"|(?:[^\W{_IDEOGRAPHS}]|(?<=[^\W\d_])['’.:·](?=[^\W\d_])|(?<=\d)['’.,;](?=\d)){{1,{LONGEST}}}"
).findall
STOPPED = -1


class Terms(dict[str, str]):
    """From a token in lower case to its search term, empty for one that is none; each distinct token is stemmed once."""

    def __init__(self) -> None:
        from Stemmer import Stemmer

        super().__init__()
        self._stem: Callable[[str], str] = Stemmer("porter").stemWord

    def __missing__(self, token: str) -> str:
        word = token.strip("_")
        word = word[:-2] if word.endswith(("'s", "’s")) else word
        self[token] = term = "" if not word or word in STOP_WORDS else self._stem(word)
        return term


class TermNumbers(dict[str, int]):
    """From a token in lower case to the number of its term, in order of first sight; STOPPED for one that is no term."""

    def __init__(self) -> None:
        super().__init__()
        self._terms = Terms()
        self.known: dict[str, int] = {}

    def __missing__(self, token: str) -> int:
        term = self._terms[token]
        self[token] = number = self.known.setdefault(term, len(self.known)) if term else STOPPED
        return number

    def of(self, text: str) -> list[int]:
        """The numbers of the terms of a text, in order."""
        return [number for number in map(self.__getitem__, _words(text.lower())) if number != STOPPED]


def terms(text: str) -> list[str]:
    """The search terms of a text, in order, repeated as often as they stand there.

    >>> terms("The women's Running-Shoes, size 8.5 (easy clean)")
    ['women', 'run', 'shoe', 'size', '8.5', 'easi', 'clean']
    """
    of = Terms()
    return [term for token in _words(text.lower()) if (term := of[token])]
