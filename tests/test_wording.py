"""Numbers and their nouns: one function makes the plural, so that no text says "1 steps"."""

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

from ragen.wording import counted

SRC = Path(__file__).parents[1] / "src" / "ragen"
NOUNS = (
    "batche",
    *("conversation", "demonstration", "episode", "instance", "member", "group", "replie", "request", "row", "run", "seed"),
    *("step", "thread", "trajectorie", "variant"),
)
PLURAL = re.compile(rf"^ (?!and |of )(?:[a-z]+ )?(?:{'|'.join(NOUNS)})s\b")


def plurals_by_hand(source: str) -> list[str]:
    """Texts in which a noun in the plural stands right behind a number that is filled in."""
    found = []
    for node in ast.walk(ast.parse(source)):
        parts = node.values if isinstance(node, ast.JoinedStr) else []
        for value, text in pairwise(parts):
            constant = isinstance(value, ast.FormattedValue) and getattr(value.value, "id", "").isupper()  # never one
            if isinstance(value, ast.FormattedValue) and isinstance(text, ast.Constant) and not constant:
                found += [f"{ast.unparse(value)}{text.value}"] if PLURAL.match(str(text.value)) else []
    return found


@pytest.mark.parametrize("room", ["cli", "runs", "loops", "studies", "report"])
def test_no_plural_is_written_by_hand(room: str) -> None:
    files = sorted((SRC / room).rglob("*.py"))
    assert files
    assert [(file.name, text) for file in files for text in plurals_by_hand(file.read_text(encoding="utf-8"))] == []


def test_the_search_finds_plurals_written_by_hand() -> None:
    assert len(plurals_by_hand("f'{n} steps'; f'all {n} done episodes'; f'{n} replies'; f'{a.b} of {len(c)} runs'")) == 4
    assert plurals_by_hand("f'{counted(n, \"step\")} done'; f'{n} of runs'; f'{WINDOW} steps'; f'{n} and steps'") == []


@pytest.mark.parametrize(("number", "said"), [(0, "0 steps"), (1, "1 step"), (2, "2 steps"), (1000, "1,000 steps")])
def test_a_noun_is_singular_where_the_number_is_one(number: int, said: str) -> None:
    assert counted(number, "step") == said


def test_a_run_of_one_step_is_told_in_the_singular() -> None:
    from ragen.config import load_config
    from ragen.runs.console import start_lines

    told = " ".join(start_lines(load_config("bandit-starpo-s-grpo-tiny", ["--steps", "1"]), None))
    assert "· 1 step " in told
