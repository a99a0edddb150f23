"""The house rules that a linter does not know: sizes, and no left-overs (law 7)."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
CAPS = {"loops/train.py": 300}


def test_there_is_something_to_check() -> None:
    assert len(SOURCES) > 20


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT / "src")))
def test_files_and_functions_are_small(path: Path) -> None:
    text = path.read_text()
    cap = next((lines for end, lines in CAPS.items() if path.as_posix().endswith(end)), 400)
    assert text.count("\n") <= cap
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 50, f"{node.name} is longer than 50 lines"


@pytest.mark.parametrize("path", [path for path in SOURCES if path.parent.name == "cli"], ids=lambda path: path.stem)
def test_commands_write_through_output_so_that_no_words_reach_a_terminal_raw(path: Path) -> None:
    raw = re.findall(r"\bprint\(|std(?:out|err)\.write\(", path.read_text().replace("console.print(", ""))
    assert not raw or path.stem in ("output", "waiting"), raw


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT / "src")))
def test_nothing_unsafe_or_left_over(path: Path) -> None:
    text = path.read_text()
    for pattern, why in (
        (r"\bpickle\b(?!\w)(?=\.)|torch\.(save|load)\(", "pickle can run code on load (case H7)"),
        (r"yaml\.(load|unsafe_load)\((?!text, Loader=CoreLoader)", "use a safe loader (case H11)"),
        (r"\bTODO\b|\bFIXME\b|\bXXX\b", "left-over marker"),
    ):
        assert not re.search(pattern, text), why
