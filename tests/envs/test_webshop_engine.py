"""The shop's pages: where each label leads, paging, options, and labels that must not be mistaken for another."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.webshop_products import numbered, product, shop_with

from ragen.envs.webshop.engine import BACK, BUY, LONGEST_QUERY, NEXT, PREVIOUS, Place, Shop, option_labels, plain_query


@pytest.fixture(scope="module")
def shop():
    return shop_with(numbered(73))


def through(shop, *moves):
    """The page after a search for hoodies and these clicks."""
    place = shop.search("hoodie")
    for label in moves:
        place = shop.page(place).links[label]
    return shop.page(place), place


def test_the_first_page_has_only_the_search_bar(shop):
    page = shop.page(Place())
    assert page.can_search
    assert page.links == {}


def test_results_are_at_most_50_ten_a_page(shop):
    pages, clicks = [], []
    for _ in range(5):
        page, _ = through(shop, *clicks)
        pages.append(page)
        clicks.append(NEXT)
    assert [(page.number, page.total, len(page.results)) for page in pages] == [(n, 50, 10) for n in range(1, 6)]
    assert NEXT not in pages[-1].links
    assert PREVIOUS not in pages[0].links
    assert [label for page in pages for label, _ in page.results] == [f"B{n:09d}" for n in range(50)]
    assert through(shop, NEXT, NEXT, PREVIOUS)[1] == through(shop, NEXT)[1]


@pytest.mark.parametrize("per_page", [1, 7, 50])
def test_pages_of_another_length_show_the_same_results(shop, per_page):
    other, labels = Shop(shop.stock, per_page), []
    place = other.search("hoodie")
    while place is not None:
        page = other.page(place)
        assert 1 <= len(page.results) <= per_page
        labels += [label for label, _ in page.results]
        place = page.links.get(NEXT)
    assert labels == [f"B{n:09d}" for n in range(50)]
    assert page.number == -(-50 // per_page)


def test_the_last_page_of_few_results_is_short_and_none_is_a_page_too():
    shop = shop_with(numbered(11))
    page, _ = through(shop, NEXT)
    assert (page.number, page.total, len(page.results)) == (2, 11, 1)
    assert list(page.links) == [BACK, PREVIOUS, "B000000010"]
    nothing = shop.page(shop.search("zzz"))
    assert (nothing.number, nothing.total, nothing.results) == (1, 0, ())
    assert list(nothing.links) == [BACK]


def test_an_items_labels_are_in_the_order_of_the_page(shop):
    page, _ = through(shop, "B000000003")
    assert list(page.links) == [
        BACK, PREVIOUS, "red", "navy", "small", "large", "xx-large", "Description", "Features", "Reviews", BUY,
    ]  # fmt: skip
    assert page.product.asin == "B000000003"


def test_an_item_leads_back_to_its_page_of_results(shop):
    assert through(shop, NEXT, "B000000012", PREVIOUS)[1] == through(shop, NEXT)[1]


def test_a_second_value_replaces_the_first_and_other_options_stay(shop):
    _, place = through(shop, "B000000000", "large", "red", "navy")
    assert place.chosen == (("color", "navy"), ("size", "large"))
    page, same = through(shop, "B000000000", "large", "red", "navy", "navy")
    assert same == place
    assert [(choice.label, choice.chosen) for choice in page.options[0][1]] == [("red", False), ("navy", True)]


def test_sub_pages_lead_back_with_the_options_kept(shop):
    for label, kind in (("Description", "description"), ("Features", "features"), ("Reviews", "reviews")):
        page, place = through(shop, "B000000000", "red", label)
        assert page.kind == kind
        assert list(page.links) == [BACK, PREVIOUS]
        assert through(shop, "B000000000", "red", label, PREVIOUS)[1] == through(shop, "B000000000", "red")[1]
        assert place.chosen == (("color", "red"),)


def test_back_to_search_forgets_everything_and_a_product_opens_without_options(shop):
    for moves in ((), ("B000000000",), ("B000000000", "red"), ("B000000000", "red", "Reviews")):
        assert through(shop, *moves, BACK)[1] == Place()
    assert through(shop, "B000000000", "red", PREVIOUS, "B000000000")[1].chosen == ()
    assert through(shop, "B000000000", "red", PREVIOUS, "B000000001")[1].chosen == ()


def test_buying_ends_with_product_and_options(shop):
    page, place = through(shop, "B000000004", "red", "small", BUY)
    assert page.kind == place.kind == "done"
    assert page.product.asin == "B000000004"
    assert page.chosen == (("color", "red"), ("size", "small"))


@pytest.mark.parametrize(
    ("options", "labels"),
    [
        ((("color", ("red",)), ("shade", ("red",))), ["red", "shade: red"]),
        ((("a", ("buy now", "description")),), ["a: buy now", "a: description"]),
        ((("a", ("x", "x", "y")),), ["x", "y"]),
        ((("a", ("x", "b: x")), ("b", ("x",))), ["x", "b: x", "b: x (2)"]),
        ((("a", ("< prev", "next >", "back to search")),), ["a: < prev", "a: next >", "a: back to search"]),
    ],
)
def test_a_value_that_is_another_label_is_named_with_its_option(options, labels):
    assert [label for _, values in option_labels(options) for _, label in values] == labels


VALUES = st.lists(st.sampled_from(["red", "buy now", "a: red", "b: red", "a: red (2)", "reviews", "İ", "ı"]), max_size=5)


@given(VALUES, VALUES)
def test_labels_of_a_page_differ_by_more_than_case_whatever_the_options(one, two):
    options = tuple((name, tuple(values)) for name, values in (("a", one), ("b", two)) if values)
    page, _ = through(shop_with([product(options=options)]), "B000000001")
    labels = [label.casefold() for label in page.links]
    assert len(set(labels)) == len(labels)
    assert len(labels) == 6 + sum(len(set(values)) for _, values in options)
    for name, choices in page.options:
        for choice in choices:
            assert page.links[choice.label].chosen == ((name, choice.value),)


@given(st.text(max_size=400))
def test_queries_are_clean_short_and_stay_as_they_are(text):
    query = plain_query(text)
    assert plain_query(query) == query
    assert len(query) <= LONGEST_QUERY
