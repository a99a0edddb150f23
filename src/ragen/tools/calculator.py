"""A calculator: arithmetic of exact rationals, read as a syntax tree and never executed as code."""

import ast
import math
import operator
import re
from collections.abc import Callable
from fractions import Fraction

from ragen.tools.function import ToolError, tool

LONGEST = 500  # characters of an expression
LARGEST_BITS = 4096  # of a numerator or denominator: more than any word problem needs, and computed at once
DIGITS = 12  # significant digits of what is no whole number
ALLOWED = "only numbers, + - * / // % **, brackets and the functions are allowed"
# What Python would warn of as it reads it, texts and a keyword right behind a number, is none of that: it is not read, for a
# filter of warnings is the whole process's, other threads' too.
ODD = re.compile(r"""['"\\]|\d[\w.]*?(?:and|else|for|if|in|is|not|or)""")
OTHER_SIGNS = str.maketrans({"×": "*", "÷": "/", "−": "-", "–": "-", "·": "*"})


@tool
def calculator(expression: str) -> str:
    """Evaluate an arithmetic expression.

    Args:
        expression: numbers with + - * / // % ** and brackets, abs, ceil, floor, max, min, round, sqrt; such as (3 + 4) * 2
    """
    return shown(evaluate(expression))


def evaluate(expression: str) -> Fraction:
    """The value of an expression, exact but for roots and broken exponents; ToolError says what is wrong with it.

    Sizes are checked before anything large is computed: ``9**9**9`` is refused at once.
    """
    if len(expression) > LONGEST:
        raise ToolError(f"the expression has {len(expression)} characters: at most {LONGEST} are allowed")
    if ODD.search(expression):
        raise ToolError(ALLOWED)
    try:
        return _value(ast.parse(expression.translate(OTHER_SIGNS).strip(), mode="eval").body)
    except (SyntaxError, ValueError) as error:
        problem = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ToolError(f"this is no arithmetic expression: {problem}") from None
    except (RecursionError, MemoryError):
        raise ToolError("the expression is nested too deeply") from None
    except ZeroDivisionError:
        raise ToolError("division by zero") from None
    except OverflowError:
        raise ToolError("the number is too large") from None


def shown(value: Fraction) -> str:
    """A number as text: whole ones in full, others to 12 significant digits.

    >>> shown(Fraction(3, 8)), shown(Fraction(10, 5)), shown(Fraction(1, 3))
    ('0.375', '2', '0.333333333333')
    """
    if value.denominator == 1:
        return str(value.numerator)
    try:
        return f"{float(value):.{DIGITS}g}"
    except OverflowError:
        return str(round(value))


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        result = float(base) ** float(exponent)
        if isinstance(result, complex):
            raise ToolError("a root of a negative number is not real")
        return Fraction(result)
    bits = max(abs(base.numerator), base.denominator).bit_length()
    if bits > 1 and abs(exponent.numerator) * (bits - 1) > LARGEST_BITS:
        raise ToolError("the number is too large")
    return Fraction(base ** int(exponent))


def _root(value: Fraction) -> Fraction:
    if value < 0:
        raise ToolError("a root of a negative number is not real")
    exact = Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
    return exact if exact * exact == value else Fraction(math.sqrt(value))


def _rounded(value: Fraction, digits: Fraction = Fraction(0)) -> Fraction:
    if digits.denominator != 1 or abs(digits) > LARGEST_BITS // 8:
        raise ToolError("round takes a whole number of digits")
    return Fraction(round(value, int(digits)))


BINARY: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction | int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
UNARY: dict[type[ast.unaryop], Callable[[Fraction], Fraction]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
FUNCTIONS: dict[str, tuple[Callable[..., Fraction | int], int, int]] = {  # the function, its least and most arguments
    "abs": (abs, 1, 1),
    "ceil": (math.ceil, 1, 1),
    "floor": (math.floor, 1, 1),
    "max": (lambda *numbers: max(numbers), 1, LONGEST),  # of one number too, which Python's takes for a sequence
    "min": (lambda *numbers: min(numbers), 1, LONGEST),
    "round": (_rounded, 1, 2),
    "sqrt": (_root, 1, 1),
}


def _value(node: ast.expr) -> Fraction:
    """The value of a node; only what is named here is known, so nothing else can be reached."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        value = _number(node.value)
    elif isinstance(node, ast.BinOp) and type(node.op) in BINARY:
        value = Fraction(BINARY[type(node.op)](_value(node.left), _value(node.right)))
    elif isinstance(node, ast.UnaryOp) and type(node.op) in UNARY:
        value = UNARY[type(node.op)](_value(node.operand))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS and not node.keywords:
        function, least, most = FUNCTIONS[node.func.id]
        if not least <= len(node.args) <= most:
            raise ToolError(f"{node.func.id} takes {least if least == most else f'{least} or more'} numbers")
        value = Fraction(function(*(_value(argument) for argument in node.args)))
    else:
        raise ToolError(_unknown(node))
    if max(abs(value.numerator), value.denominator).bit_length() > LARGEST_BITS:
        raise ToolError("the number is too large")
    return value


def _number(value: int | float) -> Fraction:
    """A literal as it is written: 0.1 is one tenth."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ToolError("the number is too large")
    return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)


def _unknown(node: ast.expr) -> str:
    if isinstance(node, ast.Tuple):
        return "write numbers without commas"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitXor):
        return "write powers with **"
    if isinstance(node, ast.Name):
        return f"'{node.id[:40]}' is not a number: there are no variables"
    if isinstance(node, ast.Call):
        return f"the functions are {', '.join(FUNCTIONS)}"
    return ALLOWED
