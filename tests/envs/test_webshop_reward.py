"""The reward of a purchase, rule by rule, in numbers worked out by hand."""

import pytest
from tests.webshop_products import PLAIN, product

from ragen.envs.webshop.goals import Goal
from ragen.envs.webshop.nouns import nouns
from ragen.envs.webshop.reward import has_attribute, matched_options, plain_color, score, type_reward

GOAL = Goal(PLAIN, "…", ("machine wash", "long sleeve"), ("red", "large"), 30.0)


def test_all_as_asked_is_worth_1():
    full = score(GOAL, PLAIN, ["red", "large"], "exact")
    assert (full.reward, full.full) == (1.0, True)
    assert (full.kind, full.attributes, full.options, full.price, full.asked) == (1.0, 2, 2, True, 5)


@pytest.mark.parametrize(
    ("bought", "chosen", "reward"),
    [
        (PLAIN, [], 3 / 5),  # both attributes and the price
        (PLAIN, ["red"], 4 / 5),
        (PLAIN, ["navy", "large"], 4 / 5),
        (product(price=30.0), ["red", "large"], 1.0),  # the cap itself is allowed
        (product(price=30.01), ["red", "large"], 4 / 5),
        (product(attributes=()), ["red", "large"], 4 / 5),  # "machine wash" stands in a bullet, "long sleeve" nowhere
        (product(attributes=(), bullets=(), price=99.0), [], 0.0),
    ],
)
def test_each_condition_counts_one_of_five(bought, chosen, reward):
    found = score(GOAL, bought, chosen, "exact")
    assert found.reward == pytest.approx(reward)
    assert found.full == (reward == 1.0)


def test_a_goal_without_cap_has_its_price_condition_met():
    goal = Goal(PLAIN, "…", ("machine wash",), (), None)
    assert score(goal, product(price=5000.0), [], "exact").reward == 1.0


def test_attributes_match_by_token_set_ratio_or_within_a_text():
    own = product(attributes=("wash by machine",), title="T", bullets=("With LONG Sleeve", "b"), description="Slim fit.")
    assert has_attribute(own, "machine wash")  # its words are a subset: 100
    assert has_attribute(own, "Machine-Wash")  # punctuation and case do not count
    assert has_attribute(own, "long sleeve")  # in a bullet
    assert has_attribute(own, "slim fit")  # in the description
    assert not has_attribute(own, "sleeve b c")
    assert not has_attribute(product(attributes=("hand wash",), bullets=()), "machine wash")  # ratio 57


def test_large_is_xx_large_only_for_the_fuzzy_rule():
    assert matched_options(["xx-large"], ["large"], "exact") == 0
    assert matched_options(["xx-large"], ["large"], "fuzzy") == 1
    assert matched_options(["large"], ["large"], "exact") == matched_options(["large"], ["large"], "fuzzy") == 1
    assert matched_options(["small"], ["large"], "fuzzy") == 0


def test_colors_are_compared_by_their_plain_name_under_both_rules():
    for rule in ("exact", "fuzzy"):
        assert matched_options(["dark brown"], ["Brown | Leather"], rule) == 1
        assert matched_options(["brown"], ["black"], rule) == 0
    assert plain_color("standard twin") == "standard twin"  # no "tan" in it
    assert plain_color("Navy-Blue") == "blue"  # the first in the list, not in the text


def test_one_chosen_value_may_meet_two_asked_for_and_a_wrong_one_does_no_harm():
    assert matched_options(["red", "odd"], ["red", "dark red"], "exact") == 2
    assert matched_options([], ["red"], "exact") == 0


# nouns of the goal's title: acme, cotton, hoodie, sweatshirt
@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"query": "other", "path": ("x",), "title": "Bolt Hoodie"}, 1.0),  # 1 of 4 is more than .2
        ({"query": "hoodies", "path": ("x",), "title": "Bolt Anorak"}, 0.0),  # same search words, but no noun shared
        ({"query": "other", "path": PLAIN.path, "title": "Bolt Anorak"}, 0.0),
    ],
)
def test_the_kind_of_product_by_shared_nouns(changes, kind):
    assert nouns(PLAIN.title) == ("acme", "cotton", "hoodie", "sweatshirt")
    assert type_reward(PLAIN, product(**changes)) == kind


LONG = "Acme Hoodie Sweatshirt Jacket Parka"  # five nouns: one shared is a share of exactly .2


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"query": "other", "path": ("x",)}, 0.5),  # .2 is not more than .2
        ({"query": "hoodies", "path": ("x",)}, 1.0),
        ({"query": "other", "path": ("Clothing", "Women", "Hoodies")}, 1.0),  # two levels shared
        ({"query": "other", "path": ("Clothing", "Women", "Socks")}, 0.5),
    ],
)
def test_at_a_share_of_a_fifth_the_categories_decide(changes, kind):
    assert type_reward(product(title=LONG), product(title="Acme Socks", **changes)) == kind


def test_below_a_tenth_the_kind_is_worth_a_tenth_whatever_the_category():
    eleven = "Acme Hoodie Sweatshirt Jacket Parka Coat Vest Scarf Glove Sock Belt"
    assert len(nouns(eleven)) == 11
    assert type_reward(product(title=eleven), product(title="Acme")) == 0.1
    assert type_reward(product(title=f"{eleven[: -len(' Belt')]}"), product(title="Acme")) == 1.0  # 1 of 10 is not below


def test_a_title_without_nouns_counts_as_a_share_of_a_fifth():
    bare = product(title="Black 12 XL")
    assert nouns(bare.title) == ()
    assert type_reward(bare, product(title="Anything")) == 1.0  # same search words
    assert type_reward(bare, product(title="Anything", query="other", path=())) == 0.5


def test_the_kind_multiplies_the_rest():
    other = product(title="Acme Socks", query="other", path=("x",))
    goal = Goal(product(title=LONG), "…", GOAL.attributes, GOAL.options, 30.0)
    assert score(goal, other, ["red"], "exact").reward == pytest.approx(0.5 * 4 / 5)


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Women's 100% Cotton T-Shirts, Size XL, 3 Pack", ("women's", "cotton", "shirts", "size", "pack")),
        ("Stainless Steel Water Bottle - 500ml, Leakproof, Reusable", ("steel", "water", "bottle")),
        ("Solid Wood Coffee Table with Adjustable Drawer", ("solid", "wood", "coffee", "table", "drawer")),
        ("Quickly and Easily Washable Black Curtains for the Living Room", ("curtains", "living", "room")),
    ],
)
def test_nouns_of_real_looking_titles(title, expected):
    assert nouns(title) == expected
