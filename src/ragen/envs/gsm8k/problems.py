"""Word problems from a file, and what counts as the same number."""

import json
import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

from ragen.errors import ConfigError, reason
from ragen.tools.call import harmless

SOURCE = "https://github.com/openai/grade-school-math (grade_school_math/data/train.jsonl and test.jsonl, MIT licence)"
NUMBER = re.compile(r"(?<![\w.,])([-−]?)\s?[$€£]?\s?([-−]?)(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?(?:/(\d+))?(?!\d|[.,]\d)")
CALCULATION = re.compile(r"<<([^<>=]{1,200})=[^<>]{1,100}>>")


@dataclass(frozen=True, slots=True)
class Problem:
    """A question, the lines of its solution (without marks), what it computes, and its answer."""

    question: str
    lines: tuple[str, ...]
    calculations: tuple[str, ...]
    answer: Fraction


def numbers(text: str) -> tuple[Fraction, ...]:
    """The numbers a text names, in order: commas between thousands, currency signs and fractions are read.

    >>> [str(n) for n in numbers("$1,200.50 is 3/4 of it, or -2 m2")]
    ['2401/2', '3/4', '-2']
    """
    found = []
    for outer, inner, whole, decimals, divisor in NUMBER.findall(text):
        value = Fraction(whole.replace(",", "") + decimals)
        if divisor and int(divisor):
            value /= int(divisor)
        found.append(-value if outer or inner else value)
    return tuple(found)


def read_answer(text: str) -> Fraction | None:
    """The one number of an answer; None where it names none, or several.

    Units, currency and words around it do not count, nor does what stands before the last ``=`` or ``####``.

    >>> [str(read_answer(text)) for text in ("18 eggs", "9 * 2 = $18.00", "1,000", "17 or 18", "many")]
    ['18', '18', '1000', 'None', 'None']
    """
    named = numbers(re.split(r"=|####", text)[-1])
    return named[0] if len(named) == 1 else None


@lru_cache(maxsize=8)
def load_problems(path: str) -> tuple[Problem, ...]:
    """The problems of a file of JSON lines with ``question`` and ``answer``; ConfigError names file and line."""
    if not path:
        raise ConfigError(
            f"env.file is not set: GSM8K is no part of this package. Get its files from {SOURCE} and give one: "
            "--env.file train.jsonl"
        )
    try:
        lines = Path(path).expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(f"env.file {path!r} cannot be read ({reason(error)}): get it from {SOURCE}") from None
    problems = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                problems.append(read_problem(json.loads(line)))
            except (ValueError, RecursionError) as error:
                raise ConfigError(
                    f"env.file {path!r}, line {number}: {error}; each line is an object with 'question' and 'answer', the "
                    f"answer ending in '#### NUMBER' (as in {SOURCE})"
                ) from None
    if not problems:
        raise ConfigError(f"env.file {path!r} holds no problem: get it from {SOURCE}")
    return tuple(problems)


def read_problem(record: Any) -> Problem:
    """A problem from its record; ValueError says what is wrong with it."""
    if not isinstance(record, dict):
        raise ValueError("it is no object")
    question, solution = record.get("question"), record.get("answer")
    if not isinstance(question, str) or not question.strip() or not isinstance(solution, str):
        raise ValueError("'question' or 'answer' is missing or no text")
    reasoning, mark, end = solution.rpartition("####")
    answer = read_answer(end)
    if not mark or answer is None:
        raise ValueError("its answer does not end in '#### NUMBER'")
    lines = tuple(filter(None, (harmless(CALCULATION.sub("", line)).strip() for line in reasoning.splitlines())))
    calculations = tuple(calculation.strip() for calculation in CALCULATION.findall(reasoning))
    return Problem(harmless(question.strip()), lines, calculations, answer)
