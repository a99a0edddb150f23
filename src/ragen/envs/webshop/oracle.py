"""Shoppers that know the goal: the oracle, which buys the product the goal was made from, and a naive one."""

from itertools import pairwise

from ragen.envs.webshop.engine import BACK, BUY, NEXT, PREVIOUS, Choice, Page, Place, Shop, plain_query
from ragen.envs.webshop.goals import Goal
from ragen.envs.webshop.reward import OptionMatch, matched_options
from ragen.tools.search import STOP_WORDS

Move = tuple[str, str]  # ("search", words) or ("click", label)
LONGEST_WALK = 40  # moves


def instruction_query(goal: Goal) -> str:
    """The instruction without its price, as a search."""
    return plain_query(goal.instruction.rpartition(", and price lower than")[0] or goal.instruction)


def instruction_queries(goal: Goal) -> tuple[str, ...]:
    """Searches made of the instruction: all of it, each of its words that is no stop word, and each two that follow."""
    words = [word.strip(",.!?:;()\"'") for word in instruction_query(goal).split()]
    words = [word for word in words if word and word not in STOP_WORDS]
    pairs = (f"{one} {two}" for one, two in pairwise(words))
    return tuple(dict.fromkeys((instruction_query(goal), *words, *pairs)))


def next_move(shop: Shop, place: Place, goal: Goal, option_match: OptionMatch) -> Move | None:
    """The oracle's move: find the goal's product, choose the options asked for, buy. None after a purchase."""
    if place.kind == "done":
        return None
    if place.kind == "search":
        return "search", _best_query(shop, goal)
    page = shop.page(place)
    if place.kind == "results":
        return "click", _towards(shop, place, page, goal)
    if page.product is None or page.product.asin != goal.product.asin:
        return "click", PREVIOUS if place.kind != "item" or _rank(shop, place.query, goal) >= 0 else BACK
    if place.kind != "item":
        return "click", PREVIOUS
    return "click", _wanted_label(page, goal, option_match) or BUY


def walk(shop: Shop, goal: Goal, option_match: OptionMatch) -> tuple[int, Place]:
    """The number of the oracle's moves from the search page, and where they end."""
    place, moves = Place(), 0
    while (move := next_move(shop, place, goal, option_match)) is not None and moves < LONGEST_WALK:
        place = shop.search(move[1]) if move[0] == "search" else shop.page(place).links[move[1]]
        moves += 1
    return moves, place


def naive_move(page: Page, goal: Goal) -> Move:
    """Search for the instruction, open the first result, buy it as it is."""
    if page.can_search:
        return "search", instruction_query(goal)
    if page.kind == "results":
        return "click", page.results[0][0] if page.results else BACK
    return "click", BUY if page.kind == "item" else PREVIOUS


def _best_query(shop: Shop, goal: Goal) -> str:
    """The instruction if the product is then on the first page of results, else its title if that finds it."""
    queries = (instruction_query(goal), plain_query(goal.product.title))
    ranks = [_rank(shop, query, goal) for query in queries]
    return queries[1] if ranks[1] >= 0 and not 0 <= ranks[0] < shop.per_page else queries[0]


def _rank(shop: Shop, query: str, goal: Goal) -> int:
    """The place of the goal's product among the results, from 0; −1 where it is not found."""
    found = (shop.stock.catalogue[number].asin for number in shop.results(query))
    return next((rank for rank, asin in enumerate(found) if asin == goal.product.asin), -1)


def _towards(shop: Shop, place: Place, page: Page, goal: Goal) -> str:
    if goal.product.asin in page.links:
        return goal.product.asin
    rank = _rank(shop, place.query, goal)
    if rank < 0:
        return BACK
    return NEXT if rank >= place.number * shop.per_page else PREVIOUS


def _wanted_label(page: Page, goal: Goal, option_match: OptionMatch) -> str | None:
    """The label of a value that is asked for and not chosen yet; an equal value before one that only matches.

    A wrong choice is replaced, one that is asked for stays.
    """

    def meets(choice: Choice, *wanted: str) -> bool:
        return matched_options((choice.value,), wanted, option_match) > 0

    rows = [row for _, row in page.options if not any(choice.chosen and meets(choice, *goal.options) for choice in row)]
    for wanted in goal.options:
        if not matched_options([value for _, value in page.chosen], (wanted,), option_match):
            fitting = [choice for row in rows for choice in row if meets(choice, wanted)]
            if fitting:
                return next((choice for choice in fitting if choice.value == wanted), fitting[0]).label
    return None
