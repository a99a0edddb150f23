"""Goals: instructions, option combinations, price caps, and which goal a number means."""

from collections import Counter
from itertools import product as combinations

import pytest
from tests.webshop_products import PLAIN, product, shop_with

from ragen.envs.webshop.catalogue import Wish
from ragen.envs.webshop.goals import CAPS, goal_count, goal_of, price_cap
from ragen.envs.webshop.synthetic import SORTS, make_catalogue

ALONE = {"price": 2000.0}  # no cap


def test_synthetic_goals_are_all_combinations_in_the_order_of_the_option_names():
    many = product(options=(("size", ("s", "m")), ("color", ("red", "blue", "tan"))), **ALONE)
    assert goal_count(many, "synthetic") == 6
    values = [goal_of(many, "synthetic", number).options for number in range(6)]
    assert values == list(combinations(("red", "blue", "tan"), ("s", "m")))
    assert goal_of(many, "synthetic", 3).instruction == f"{PLAIN.instruction} with color: blue, and size: m"


def test_a_product_without_options_has_one_goal_and_one_without_instruction_none():
    assert goal_count(product(options=()), "synthetic") == 1
    assert goal_of(product(options=(), **ALONE), "synthetic", 0).instruction == PLAIN.instruction
    assert goal_count(product(instruction=""), "synthetic") == 0
    assert goal_count(product(instruction_attributes=()), "synthetic") == 0


def test_a_goal_asks_for_the_instructions_attributes_and_a_price():
    goal = goal_of(PLAIN, "synthetic", 1)
    assert goal.attributes == ("machine wash", "long sleeve")
    assert goal.options == ("red", "large")
    assert goal.cap in (40.0, 50.0, 60.0)
    assert goal.instruction == (
        "Find me machine wash hoodies with long sleeve with color: red, and size: large, "
        f"and price lower than {goal.cap:.2f} dollars"
    )


@pytest.mark.parametrize(
    ("price", "caps"),
    [
        (25.0, {40, 50, 60}),  # of 30 40 50 60 the larger of two is never the first
        (30.0, {50, 60, 70}),  # 30 is not above 30
        (0.0, {20, 30, 40}),
        (955.0, {970, 980, 990}),
        (965.0, {980, 990}),  # 970 980 990
        (975.0, {990}),
        (985.0, {None}),  # only 990 is above
        (990.0, {None}),
    ],
)
def test_caps_are_the_larger_of_two_of_the_next_four_tens(price, caps):
    found = Counter(price_cap(product(asin=f"B{n}", price=price), 0) for n in range(300))
    assert set(found) == caps
    assert max(CAPS) == 990
    if len(caps) == 3 and price < 960:  # two different of four: the larger is the 2nd, 3rd, 4th in 1, 2, 3 of 6 cases
        low, middle, high = (found[cap] / 300 for cap in sorted(caps))
        assert (low, middle, high) == pytest.approx((1 / 6, 2 / 6, 3 / 6), abs=0.1)


def test_a_cap_belongs_to_the_product_and_does_not_depend_on_what_was_drawn_before():
    assert len({goal_of(PLAIN, "synthetic", number).cap for number in range(6)}) == 1
    assert price_cap(PLAIN, 0) == price_cap(product(title="Other"), 0)


def test_human_goals_are_what_people_wrote():
    wishes = tuple(Wish(f"i want {n}", ("long sleeve",), ("red",)) for n in range(30))
    wished = product(wishes=wishes)
    assert goal_count(wished, "human") == 30
    goals = [goal_of(wished, "human", number) for number in range(30)]
    assert goals[4].instruction == f"i want 4, and price lower than {goals[4].cap:.2f} dollars"
    assert (goals[4].attributes, goals[4].options) == (("long sleeve",), ("red",))
    assert len({goal.cap for goal in goals}) == 3  # each instruction has a draw of its own


def test_c17_numbers_meet_each_product_in_turn_and_then_its_next_goal():
    shop = shop_with([PLAIN, product(asin="B2", instruction=""), product(asin="B3", options=())])
    met = [(shop.goal("synthetic", number).product.asin, shop.goal("synthetic", number).options) for number in range(4)]
    assert met == [
        ("B000000001", ("red", "small")),
        ("B3", ()),
        ("B000000001", ("red", "large")),
        ("B3", ()),
    ]
    every = {shop.goal("synthetic", number).options for number in range(0, 12, 2)}
    assert len(every) == 6
    assert shop.goal("synthetic", 2**62).product.asin == "B000000001"


def test_the_made_up_catalogue_is_large_varied_and_the_same_each_time():
    products = make_catalogue(1000, 0)
    assert products == make_catalogue(1000, 0)
    assert products[:100] == make_catalogue(100, 0)
    assert products != make_catalogue(1000, 1)
    assert len({each.asin for each in products}) == 1000
    assert all(len(each.asin) == 10 and each.asin.isalnum() for each in products)
    assert len({each.title for each in products}) > 990
    assert {each.query for each in products} == {sort.query for sort in SORTS}
    assert len({each.category for each in products}) == 6
    assert len({value for each in products for _, values in each.options for value in values}) > 50
    assert min(each.price for each in products) < 10 < 200 < max(each.price for each in products)
    assert all(goal_count(each, "synthetic") >= 2 for each in products)
    assert all(set(each.instruction_attributes) <= set(each.attributes) for each in products)
