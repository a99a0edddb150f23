"""Checked values out of JSON: each reader takes a field's name and value; its ValueError says what is wrong with which."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

MOST = 10**12  # of a count
LARGEST = 1e100  # of a number: sums and squares of such are finite
ROUNDING = 1e-9  # by which a mean of rates may leave [0, 1]


def wrong(name: str, value: Any, wanted: str) -> ValueError:
    """The error of a field that holds something else than what is wanted."""
    shown = repr(value)
    return ValueError(f"'{name}' is {shown if len(shown) <= 60 else shown[:60] + '…'}: it must be {wanted}")


def text(name: str, value: Any) -> str:
    """A text."""
    if not isinstance(value, str):
        raise wrong(name, value, "a text")
    return value


def whole(name: str, value: Any) -> int:
    """A whole number of any size."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong(name, value, "a whole number")
    return value


def count(name: str, value: Any) -> int:
    """A whole number of things."""
    found = whole(name, value)
    if not 0 <= found <= MOST:
        raise wrong(name, value, "between 0 and 10^12")
    return found


def number(name: str, value: Any) -> float:
    """A finite number."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= LARGEST:
        raise wrong(name, value, "a finite number")
    return float(value)


def amount(name: str, value: Any) -> float:
    """A finite number that is not negative."""
    found = number(name, value)
    if found < 0:
        raise wrong(name, value, "0 or more")
    return found


def rate(name: str, value: Any) -> float:
    """A number in [0, 1]."""
    found = number(name, value)
    if not -ROUNDING <= found <= 1 + ROUNDING:
        raise wrong(name, value, "between 0 and 1")
    return found


def or_nan(read: Callable[[str, Any], float]) -> Callable[[str, Any], float]:
    """The reader of a number for which null, and NaN itself, is NaN."""
    return lambda name, value: math.nan if value is None or value != value else read(name, value)  # noqa: PLR0124 (NaN)


def or_none(read: Callable[[str, Any], float]) -> Callable[[str, Any], float | None]:
    """The reader of a number that may be null."""
    return lambda name, value: None if value is None else read(name, value)


def interval(end: Callable[[str, Any], float]) -> Callable[[str, Any], tuple[float, float]]:
    """The reader of a lower and an upper end, in this order; null is an end that is open."""

    def read(name: str, value: Any) -> tuple[float, float]:
        if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
            raise wrong(name, value, "a lower and an upper end")
        low = -math.inf if value[0] in (None, -math.inf) else end(name, value[0])
        high = math.inf if value[1] in (None, math.inf) else end(name, value[1])
        if low > high:
            raise wrong(name, value, "a lower and an upper end, in this order")
        return low, high

    return read


def row(read: Callable[[str, Any], T]) -> Callable[[str, Any], tuple[T, ...]]:
    """The reader of a list."""

    def read_all(name: str, value: Any) -> tuple[T, ...]:
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise wrong(name, value, "a list")
        return tuple(read(name, each) for each in value)

    return read_all


def samples(read: Callable[[str, Any], T]) -> Callable[[str, Any], tuple[T, ...]]:
    """The reader of an instance's samples: a list that is not empty."""

    def read_some(name: str, value: Any) -> tuple[T, ...]:
        found = row(read)(name, value)
        if not found:
            raise wrong(name, value, "a list of one sample or more")
        return found

    return read_some


def flag(name: str, value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise wrong(name, value, "true or false")
    return value


def mapping(name: str, value: Any) -> Mapping[str, Any]:
    """A JSON object."""
    if not isinstance(value, Mapping):
        raise wrong(name, value, "a JSON object")
    return value
