"""Shopping goals: the instruction, and what the reward looks for in what was bought."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from ragen.envs.webshop.catalogue import Product
from ragen.seeding import derive, generator

Kind = Literal["synthetic", "human"]
CAPS = range(10, 1000, 10)  # dollars
CAP_CHOICES = 4


@dataclass(frozen=True, slots=True)
class Goal:
    """What is to be bought: ``product`` is the one the instruction was made from, ``cap`` the highest price or None.

    ``options`` are the values asked for; their names matter only to the instruction.
    """

    product: Product
    instruction: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    cap: float | None


def goal_count(product: Product, kind: Kind) -> int:
    """How many goals a product gives: a person's instructions, or one for each combination of its option values."""
    if kind == "human":
        return len(product.wishes)
    if not product.instruction or not product.instruction_attributes:
        return 0
    return prod(len(values) for _, values in product.options)


def goal_of(product: Product, kind: Kind, number: int) -> Goal:
    """Goal ``number`` of a product, from 0 to ``goal_count`` − 1.

    The synthetic ones are in the order of ``itertools.product`` over the options by name, the last one changing fastest.
    """
    if kind == "human":
        wish = product.wishes[number]
        cap = price_cap(product, number + 1)
        return Goal(product, wish.text + _cap_text(cap), wish.attributes, wish.options, cap)
    chosen = _combination(product, number)
    asked = f" with {', and '.join(f'{name}: {value}' for name, value in chosen)}" if chosen else ""
    cap = price_cap(product, 0)
    values = tuple(value for _, value in chosen)
    return Goal(product, f"{product.instruction}{asked}{_cap_text(cap)}", product.instruction_attributes, values, cap)


def price_cap(product: Product, number: int) -> float | None:
    """The larger of two different draws out of the first four multiples of 10 (up to 990) above the price.

    None where there are fewer than two. All synthetic goals of a product (number 0) share one draw.
    """
    above = [cap for cap in CAPS if cap > product.price][:CAP_CHOICES]
    if len(above) < 2:
        return None
    draw = generator(derive(int(product.asin, 36), "webshop", "cap", number))
    return float(max(above[int(place)] for place in draw.choice(len(above), size=2, replace=False)))


def _cap_text(cap: float | None) -> str:
    return "" if cap is None else f", and price lower than {cap:.2f} dollars"


def _combination(product: Product, number: int) -> Sequence[tuple[str, str]]:
    chosen = []
    for name, values in sorted(product.options, reverse=True):
        number, place = divmod(number, len(values))
        chosen.append((name, values[place]))
    return chosen[::-1]
