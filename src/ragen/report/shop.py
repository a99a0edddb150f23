"""A page of WebShop as the report's page gets it: JSON of what is to be seen, drawn by ``assets/shop.js``."""

from typing import Any

from ragen.envs.webshop import WebShop
from ragen.envs.webshop.engine import Page
from ragen.envs.webshop.replay import replay
from ragen.envs.webshop.sight import Sight
from ragen.envs.webshop.text import shortened
from ragen.episode import Trajectory

PROSE = 400  # characters of a text on a sub-page


def frames(env: WebShop, trajectory: Trajectory) -> list[dict[str, Any] | None]:
    """K + 1 pages; None where the shop's page is not the one that was seen (see ``replay``)."""
    turns = trajectory.turns
    seen = replay(env, trajectory)
    actions = [turn.actions[0] if turn.actions else "" for turn in turns] + [""]
    drawn = [frame(sight, action) for sight, action in zip(seen, actions, strict=False)]
    return [*drawn, *[None] * (len(turns) + 1 - len(drawn))]


def frame(sight: Sight, action: str) -> dict[str, Any]:
    """One page; ``next`` is the label that ``action`` clicks there, ``query`` of the search page what it searches."""
    page, product = sight.page, sight.page.product
    verb, _, argument = action.removesuffix("]").partition("[")
    told: dict[str, Any] = {
        "kind": page.kind,
        "goal": sight.goal.instruction,
        "next": argument if verb == "click" else "",
        "labels": list(page.links),
        "query": argument if verb == "search" else page.query,
    }
    if page.kind == "results":
        shown = [[label, each.title, each.price_tag] for label, each in page.results]
        told |= {"number": page.number, "total": page.total, "results": shown}
    if product is not None:
        told |= {"title": product.title, "price": product.price_tag, "rating": product.rating, "prose": _prose(page)}
        told["options"] = [[name, [[c.value, c.label, c.chosen] for c in choices]] for name, choices in page.options]
        told["chosen"] = [list(each) for each in page.chosen]
    if sight.score is not None:
        parts = [[each.part, each.wanted, each.met] for each in sight.conditions]
        told["score"] = {"reward": sight.score.reward, "kind": sight.score.kind, "parts": parts}
    return told


def _prose(page: Page) -> list[str]:
    """The texts of a sub-page."""
    if page.product is None:
        return []
    texts = {"description": (page.product.description,), "features": page.product.bullets, "reviews": page.product.reviews}
    return [shortened(text, PROSE) for text in texts.get(page.kind, ()) if text]
