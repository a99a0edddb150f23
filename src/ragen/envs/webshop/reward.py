"""What a purchase is worth: WebShop's reward (Yao et al. 2022, arXiv 2207.01206, section 3.1 and its released code).

    r = r_type · (Σ matched attributes + Σ matched options + [price ≤ cap]) / (|attributes| + |options| + 1)

A goal without a cap has its price condition met.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ragen.envs.webshop.catalogue import Product
from ragen.envs.webshop.goals import Goal
from ragen.envs.webshop.nouns import nouns

OptionMatch = Literal["exact", "fuzzy"]
THRESHOLD = 85.0  # of a token-set ratio from 0 to 100: above it two texts are the same
_WORD = re.compile(r"[^\W\d_]+")
FULL = 1.0 - 1e-9  # a reward from here on is 1
COLORS = (
    "apricot", "aqua", "azure", "beige", "black", "blue", "blush", "bronze", "brown", "burgundy", "camel", "caramel",
    "champagne", "charcoal", "chocolate", "coffee", "copper", "coral", "cream", "crimson", "cyan", "denim", "emerald",
    "espresso", "fuchsia", "gold", "graphite", "gray", "green", "grey", "indigo", "ivory", "jade", "khaki", "lavender",
    "leopard", "lilac", "lime", "magenta", "mahogany", "maroon", "mauve", "mint", "mocha", "multicolor", "mustard",
    "natural", "navy", "nude", "olive", "orange", "peach", "pewter", "pink", "plum", "purple", "rainbow", "red", "rose",
    "ruby", "rust", "salmon", "sand", "sapphire", "scarlet", "silver", "slate", "tan", "taupe", "teal", "turquoise",
    "violet", "walnut", "white", "wine", "yellow",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Score:
    """A purchase: its reward, and what it is made of (``asked`` counts the price)."""

    reward: float
    kind: float
    attributes: int
    options: int
    price: bool
    asked: int

    @property
    def full(self) -> bool:
        """Whether all was as asked: the reward is 1."""
        return self.reward >= FULL


def score(goal: Goal, product: Product, chosen: Sequence[str], option_match: OptionMatch) -> Score:
    """The score of buying ``product`` with the option values ``chosen``."""
    attributes = sum(has_attribute(product, wanted) for wanted in goal.attributes)
    options = matched_options(chosen, goal.options, option_match)
    price = goal.cap is None or product.price <= goal.cap
    asked = len(goal.attributes) + len(goal.options) + 1
    kind = type_reward(goal.product, product)
    return Score(kind * (attributes + options + price) / asked, kind, attributes, options, price, asked)


def has_attribute(product: Product, wanted: str) -> bool:
    """Whether an attribute of the product has a token-set ratio above 85 with it, or one of its texts holds it."""
    if any(_ratio(own, wanted) > THRESHOLD for own in product.attributes):
        return True
    wanted = wanted.lower()
    texts = (product.title, " ".join(product.bullets), product.description)
    return any(wanted in text.lower() for text in texts)


def matched_options(chosen: Sequence[str], wanted: Sequence[str], option_match: OptionMatch) -> int:
    """How many of the values ``wanted`` one of the ``chosen`` matches, after ``plain_color``.

    ``fuzzy`` is the original's rule, a token-set ratio above 85, by which "large" matches "xx-large"; ``exact`` asks for
    equal texts.
    """
    have = [plain_color(value) for value in chosen]
    return sum(_matches(plain_color(value), have, option_match) for value in wanted)


def _matches(value: str, have: Iterable[str], option_match: OptionMatch) -> bool:
    if option_match == "exact":
        return value in have
    return any(_ratio(own, value) > THRESHOLD for own in have)


def plain_color(value: str) -> str:
    """The first of COLORS that is a word of the value, in the order of that list; the value itself where none is.

    The original also finds a color within a word ("tan" in "standard"), by which values that have nothing to do with
    each other match; its list differs from this one.

    >>> [plain_color(text) for text in ("Dark-Brown finish", "navy blue", "standard", "xx-large")]
    ['brown', 'blue', 'standard', 'xx-large']
    """
    value = value.lower()
    words = set(_WORD.findall(value))
    return next((color for color in COLORS if color in words), value)


def type_reward(goal: Product, bought: Product) -> float:
    """r_type: how much the bought product is of the kind asked for.

    With s the share of the nouns of the goal's title that the bought title has too (0.2 for a title without nouns):
    0 for s = 0; 0.1 for s < 0.1; else 1 where the search words are the same, at least two category levels are shared or
    s > 0.2; else 0.5.
    """
    wanted = nouns(goal.title)
    share = len(set(wanted) & set(nouns(bought.title))) / len(wanted) if wanted else 0.2
    if share == 0:
        return 0.0
    if share < 0.1:
        return 0.1
    same = goal.query == bought.query or len(set(goal.path) & set(bought.path)) >= 2 or share > 0.2
    return 1.0 if same else 0.5


def _ratio(one: str, other: str) -> float:
    from rapidfuzz.fuzz import token_set_ratio
    from rapidfuzz.utils import default_process

    return float(token_set_ratio(one, other, processor=default_process))
