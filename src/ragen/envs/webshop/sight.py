"""What a shopper sees at one moment, for those who draw it: a page in a browser, a picture in a report."""

from collections.abc import Iterator
from dataclasses import dataclass

from ragen.envs.webshop.engine import Page
from ragen.envs.webshop.goals import Goal
from ragen.envs.webshop.reward import OptionMatch, Score, has_attribute, matched_options


@dataclass(frozen=True, slots=True)
class Condition:
    """One part of a request (``part`` is attribute, option or price), and whether the purchase meets it."""

    part: str
    wanted: str
    met: bool


@dataclass(frozen=True, slots=True)
class Sight:
    """The page, the goal, and ``text``: what an agent is told of this page.

    ``score`` is None and ``conditions`` are empty before the purchase. Those met are as many as the score counts.
    """

    goal: Goal
    page: Page
    text: str
    score: Score | None = None
    conditions: tuple[Condition, ...] = ()


def conditions(goal: Goal, page: Page, option_match: OptionMatch) -> tuple[Condition, ...]:
    """What the goal asks for, part by part, against what was bought on ``page``; a goal without a cap has its price met."""
    return tuple(_conditions(goal, page, option_match))


def _conditions(goal: Goal, page: Page, option_match: OptionMatch) -> Iterator[Condition]:
    if page.product is None:
        return
    for wanted in goal.attributes:
        yield Condition("attribute", wanted, has_attribute(page.product, wanted))
    chosen = [value for _, value in page.chosen]
    for wanted in goal.options:
        yield Condition("option", wanted, matched_options(chosen, (wanted,), option_match) > 0)
    told = "any" if goal.cap is None else f"at most ${goal.cap:.2f}"
    yield Condition("price", told, goal.cap is None or page.product.price <= goal.cap)
