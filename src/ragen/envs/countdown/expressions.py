"""Expressions of whole numbers: read without being run, valued exactly, and searched for exhaustively."""

import ast
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import combinations

import numpy as np

from ragen.errors import ConfigError
from ragen.seeding import derive, generator

LONGEST = 120  # characters of an expression, blanks left out: with or without them it is one or none
TRIES = 500  # instances drawn at most until one fits
SIGNS = str.maketrans({"×": "*", "÷": "/", "−": "-", "–": "-"})
OPERATORS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}


def parsed(text: str) -> ast.expr | None:
    """The tree of an expression of whole numbers, ``+ - * /`` and brackets; None for any other text.

    Nothing is evaluated, and long or deep text is not looked at.
    """
    plain = _without_value(text.strip().strip("`'\"“”.,;:!?").translate(SIGNS))
    if len("".join(plain.split())) > LONGEST or not re.fullmatch(r"[\d+\-*/()\s]+", plain, re.ASCII):
        return None
    try:
        tree = ast.parse(" ".join(plain.split()), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if all(map(_allowed, _nodes(tree))) else None


def _without_value(text: str) -> str:
    """A text without the ``= value`` behind it; linear in its length, whatever blanks a policy writes."""
    expression, equals, worth = text.rpartition("=")
    return expression.rstrip() if equals and re.fullmatch(r"[\d./\s-]*", worth) else text


def _nodes(tree: ast.expr) -> Iterator[ast.AST]:
    return (node for node in ast.walk(tree) if not isinstance(node, ast.operator | ast.expr_context))


def _allowed(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        return type(node.op) in OPERATORS
    return isinstance(node, ast.Constant) and type(node.value) is int


def spelled(tree: ast.expr) -> str:
    """An expression in one spelling: single blanks around signs, no bracket that is not needed."""
    return ast.unparse(tree)


def leaves(tree: ast.expr) -> list[int]:
    """The numbers of an expression, as often as they stand there."""
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, int)]


def value(tree: ast.expr) -> Fraction | None:
    """The exact value; None where something is divided by 0."""
    if isinstance(tree, ast.Constant):
        return Fraction(int(str(tree.value)))
    if not isinstance(tree, ast.BinOp):
        return None
    left, right = value(tree.left), value(tree.right)
    if left is None or right is None:
        return None
    return _applied(OPERATORS[type(tree.op)], left, right)


def _applied(sign: str, left: Fraction, right: Fraction) -> Fraction | None:
    if sign == "/":
        return left / right if right else None
    return left + right if sign == "+" else left - right if sign == "-" else left * right


@lru_cache(maxsize=4096)
def solve(numbers: tuple[int, ...], target: Fraction) -> str | None:
    """An expression of *all* these numbers (each 1 or more) whose value is the target; None if there is none.

    Exhaustive, from the last operation backwards: the numbers are parted in two, the smaller part takes each value b that it
    can have, and the larger one must have the x with x + b, x − b, b − x, x · b, x / b or b / x equal to the target.
    """
    if len(numbers) == 1:
        return str(numbers[0]) if numbers[0] == target else None
    for large, small in _partings(numbers):
        for b, second in _values(small).items():
            for x, form in _wanted(b, target):
                first = solve(large, x) if x is not None else _not_zero(large)
                if first is not None:
                    return form.format(first, second)
    return None


def _wanted(b: Fraction, target: Fraction) -> Iterator[tuple[Fraction | None, str]]:
    """Each value that gives the target together with ``b``, and how; None = any but 0."""
    yield from ((target - b, "({0} + {1})"), (target + b, "({0} - {1})"), (b - target, "({1} - {0})"))
    if b:
        yield from ((target / b, "({0} * {1})"), (target * b, "({0} / {1})"))
        if target:
            yield b / target, "({1} / {0})"
    elif not target:
        yield from ((None, "({0} * {1})"), (Fraction(0), "({0} * {1})"))


def _not_zero(numbers: tuple[int, ...]) -> str:
    return f"({' + '.join(map(str, numbers))})"


def _values(numbers: tuple[int, ...]) -> dict[Fraction, str]:
    """Every value that one or two numbers can have, with an expression."""
    if len(numbers) == 1:
        return {Fraction(numbers[0]): str(numbers[0])}
    made: dict[Fraction, str] = {}
    for first, second in (numbers, numbers[::-1]):
        for sign in "+-*/":
            worth = _applied(sign, Fraction(first), Fraction(second))
            if worth is not None:
                made.setdefault(worth, f"({first} {sign} {second})")
    return made


def _partings(numbers: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Each way to part up to five numbers in a larger (or equal) part and one of one or two."""
    count = len(numbers)
    for mask in range(1, 2**count - 1):
        small = tuple(number for place, number in enumerate(numbers) if mask >> place & 1)
        large = tuple(number for place, number in enumerate(numbers) if not mask >> place & 1)
        if len(small) <= min(2, len(large)):
            yield large, small


def make_instance(seed: int, count: int, largest: int, least: int, greatest: int) -> tuple[tuple[int, ...], int]:
    """Numbers and a target in [``least``, ``greatest``] that needs most of them: no part of three or fewer reaches it.

    A random expression is drawn until its value fits; ConfigError after TRIES.
    """
    rng = generator(derive(seed, "countdown", "instance"))
    for _ in range(TRIES):
        numbers = tuple(int(number) for number in rng.integers(1, largest + 1, size=count))
        target = _drawn_value(numbers, rng)
        if target is None or target.denominator != 1 or not least <= target <= greatest:
            continue
        parts = (part for size in range(1, min(3, count - 1) + 1) for part in combinations(numbers, size))
        if all(solve(part, target) is None for part in parts):
            return numbers, int(target)
    raise ConfigError(
        f"countdown: in {TRIES} draws of env.numbers {count} up to env.largest {largest} no target from env.least_target "
        f"{least} to env.greatest_target {greatest} could not be had with fewer: widen the range of targets"
    )


def _drawn_value(numbers: Sequence[int], rng: np.random.Generator) -> Fraction | None:
    """The value of a random expression of all the numbers: two values at a time become one."""
    values = [Fraction(number) for number in numbers]
    while len(values) > 1:
        first = values.pop(int(rng.integers(len(values))))
        second = values.pop(int(rng.integers(len(values))))
        worth = _applied("+-*/"[int(rng.integers(4))], first, second)
        if worth is None:
            return None
        values.append(worth)
    return values[0]
