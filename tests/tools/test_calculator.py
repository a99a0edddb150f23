"""The calculator against Python's own arithmetic, and hostile expressions refused at once."""

import ast
import math
import warnings
from contextlib import suppress
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.tools import ToolError
from ragen.tools.calculator import calculator, evaluate, shown

NUMBERS = st.integers(0, 999).map(str) | st.decimals(0, 99, places=2, allow_nan=False).map(str)


def nested(inner):
    binary = st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner).map(
        lambda p: f"({p[0]} {p[1]} {p[2]})"
    )
    return (
        binary
        | inner.map(lambda text: f"-{text}")
        | inner.map(lambda text: f"abs({text})")
        | st.tuples(inner, inner).map(lambda pair: f"max({pair[0]}, {pair[1]})")
    )


@given(st.recursive(NUMBERS, nested, max_leaves=6))
def test_expressions_have_the_value_of_exact_arithmetic(text):
    names = {"Fraction": Fraction, "abs": abs, "max": max}

    class Exact(ast.NodeTransformer):
        def visit_Constant(self, node):
            return ast.parse(f"Fraction('{ast.get_source_segment(text, node)}')", mode="eval").body

    tree = ast.fix_missing_locations(Exact().visit(ast.parse(text, mode="eval")))
    try:
        expected = eval(compile(tree, "", "eval"), names)
    except ZeroDivisionError:
        with pytest.raises(ToolError, match="division by zero"):
            evaluate(text)
    else:
        assert evaluate(text) == expected


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("(" * 150 + "1" + ")" * 150, "1"),
        ("-" * 499 + "1", "-1"),
        ("0.1 + 0.2", "0.3"),
        ("2 ** 10", "1024"),
        ("2 ** -2", "0.25"),
        ("-2 ** 2", "-4"),
        ("sqrt(16)", "4"),
        ("sqrt(9/4)", "1.5"),
        ("sqrt(2)", f"{math.sqrt(2):.12g}"),
        ("27 ** (1/3)", "3"),
        ("round(2.567, 2)", "2.57"),
        ("round(7/2)", "4"),
        ("ceil(7/2) + floor(7/2)", "7"),
        ("min(3, 1, 2)", "1"),
        ("max(7) + min(2)", "9"),
        ("3 × 4 ÷ 2 − 1", "5"),
        ("7 // 2 + 7 % 2", "4"),
        ("10 ** 20", "1" + "0" * 20),
        ("10 ** 400 + 0.5", "1" + "0" * 400),
    ],
)
def test_values(expression, value):
    assert calculator({"expression": expression}) == value


HOSTILE = [
    "9**9**9",
    "9**9**9**9",
    "(9**999)**999",
    "2**4097",
    "10**-5000",
    "1e999",
    "1e308**99",
    "9" * 501,
    "1+" * 249 + "1" + "**9" * 100,
    "__import__('os').system('x')",
    "().__class__.__bases__",
    "(1).real",
    "open('x')",
    "x",
    "lambda: 1",
    "[1]",
    "{1: 2}",
    "'a' * 99",
    "True + 1",
    "1j",
    "1 if 1 else 2",
    "1if 1else 2",
    "0xfor 1",
    "1.5and 2",
    "12in * 3",
    "'\\d'",
    "[x for x in (1,)]",
    "(x := 3)",
    "max(*[1, 2])",
    "round(1, ndigits=2)",
    "round(1, 10**9)",
    "round(1, 0.5)",
    "abs(1, 2)",
    "max()",
    "1 < 2",
    "1 and 2",
    "~1",
    "1 @ 2",
    "2 ^ 3",
    "1,000 + 1",
    "1/0",
    "0 ** -1",
    "(-8) ** (1/3)",
    "sqrt(-1)",
    "(2**4000)**0.5",
    "",
    " ",
    "1 +",
    "1; 2",
    "\x00",
    "٣ + ₃",
    "f'{1}'",
]


@pytest.mark.parametrize("expression", HOSTILE)
def test_what_is_no_arithmetic_or_too_large_is_an_error_in_words(expression):
    with pytest.raises(ToolError) as caught:
        calculator({"expression": expression})
    assert 0 < len(str(caught.value)) < 200


def test_python_warns_of_nothing_and_no_filter_is_changed_for_it(monkeypatch):
    """Two threads that each set the process's filters and set them back can leave all warnings off for good."""
    with warnings.catch_warnings(record=True) as told, monkeypatch.context() as patch:
        warnings.simplefilter("always")
        patch.setattr(warnings, "catch_warnings", None)
        for expression in HOSTILE:
            with suppress(ToolError):
                evaluate(expression)
    assert told == []


@given(st.text(alphabet="0123456789+-*/%().,e sqrtminax", max_size=60))
def test_any_text_is_a_number_or_an_error(text):
    try:
        value = evaluate(text)
    except ToolError:
        return
    assert isinstance(value, Fraction)
    assert shown(value)
