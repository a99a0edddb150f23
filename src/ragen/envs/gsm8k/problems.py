"""Word problems from a file."""

import json
import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

from ragen.envs.numbers import read_answer
from ragen.errors import ConfigError, reason
from ragen.tools.call import harmless

SOURCE = "https://github.com/openai/grade-school-math (grade_school_math/data/train.jsonl and test.jsonl, MIT licence)"
CALCULATION = re.compile(r"<<([^<>=]{1,200})=[^<>]{1,100}>>")


@dataclass(frozen=True, slots=True)
class Problem:
    """A question, the lines of its solution (without marks), what it computes, and its answer."""

    question: str
    lines: tuple[str, ...]
    calculations: tuple[str, ...]
    answer: Fraction


@lru_cache(maxsize=8)
def load_problems(path: str) -> tuple[Problem, ...]:
    """The problems of a file of JSON lines with ``question`` and ``answer``; ConfigError names file and line."""
    if not path:
        raise ConfigError(
            f"env.file is not set: GSM8K is no part of this package. Get its files from {SOURCE} and give one: "
            "--env.file train.jsonl"
        )
    try:
        lines = Path(path).expanduser().read_text(encoding="utf-8-sig").split("\n")
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
