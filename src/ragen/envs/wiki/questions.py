"""Sentences of an article with one year, number or name left out."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ragen.envs.numbers import read_answer
from ragen.tools.search import Document

Kind = Literal["year", "number", "name"]
KINDS: tuple[Kind, ...] = ("year", "number", "name")
GAP = "____"
SENTENCE_END = re.compile(r"(?<=[a-z0-9)\"”][.!?])\s+(?=[A-Z\"“])")
WORDS_LEAST, WORDS_MOST = 8, 40
AROUND = 30  # characters on either side by which a gap is found again
PATTERNS: dict[Kind, re.Pattern[str]] = {
    "year": re.compile(r"(?<![\w.,–/-])(?:1[0-9]|20)\d\d(?![\w–/-]|[.,]\d)"),
    "number": re.compile(r"(?<![\w.,–/$£€-])(?:\d{1,3}(?:,\d{3})+|\d{1,3}|[3-9]\d{3}|\d{5,})(?:\.\d+)?(?![\w–/-]|[.,]\d)"),
    "name": re.compile(r"(?<![\w.'’-])(?<!^)[A-Z][a-zà-ÿ]+(?: [A-Z][a-zà-ÿ]+)+(?![\w'’-])"),
}
ARTICLES = re.compile(r"\b(?:a|an|the)\b")


@dataclass(frozen=True, slots=True)
class Cloze:
    """A sentence with a gap, and what stood in it."""

    title: str
    text: str
    answer: str
    kind: Kind


def clozes(document: Document, kinds: Sequence[Kind]) -> tuple[Cloze, ...]:
    """Every gap of an article: in sentences of 8 to 40 words, of something that stands in it once, and not in the title."""
    found = []
    for sentence in SENTENCE_END.split(document.text):
        if not WORDS_LEAST <= len(sentence.split()) <= WORDS_MOST or GAP in sentence:
            continue
        for kind in kinds:
            for match in PATTERNS[kind].finditer(sentence):
                answer = match[0]
                readable = kind == "name" or read_answer(answer) is not None  # else whatever names no number would be right
                if readable and sentence.count(answer) == 1 and answer not in document.title:
                    text = f"{sentence[: match.start()]}{GAP}{sentence[match.end() :]}"
                    found.append(Cloze(document.title, text, answer, kind))
    return tuple(found)


def is_right(answer: str, cloze: Cloze) -> bool:
    """Whether an answer fills the gap: the same number, or the same name but for case, articles and punctuation.

    A number may come with words around it (``read_answer``), a name may not.
    """
    if cloze.kind == "name":
        return plain(answer) == plain(cloze.answer)
    return read_answer(answer) == read_answer(cloze.answer)


def plain(text: str) -> str:
    """A text as SQuAD compares it (Rajpurkar et al. 2016): no case, punctuation, articles and doubled blanks.

    >>> plain("The  Eiffel-Tower.")
    'eiffel tower'
    """
    words = re.sub(r"[^\w\s]|_", " ", text.casefold())
    return " ".join(ARTICLES.sub(" ", words).split())


def read_gap(text: str, article: str) -> str:
    """What stands in an article between what stands around the gap; empty where that is not there."""
    before, _, after = text.partition(GAP)
    found = re.search(f"{re.escape(before[-AROUND:])}(.{{1,60}}?){re.escape(after[:AROUND])}", article)
    return found[1] if found else ""
