"""A page of the shop as HTML. What can be clicked is left to ``Controls``: buttons of a form, or what an agent clicked."""

from collections.abc import Iterator
from typing import Protocol

from ragen.envs.webshop.catalogue import Product
from ragen.envs.webshop.engine import BACK, BUY, NEXT, PREVIOUS, SUBPAGES, Choice, Page
from ragen.envs.webshop.sight import Condition, Sight
from ragen.shop.html import Child, Html, joined, tag

NOTHING = "Nothing here."


class Controls(Protocol):
    """How a page's labels and its search box are shown."""

    def label(self, label: str, *shown: Child, style: str = "button", chosen: bool | None = None) -> Html:
        """A label that can be clicked, shown as ``shown``; ``chosen`` tells whether an option's value is."""
        ...

    def search(self) -> Html:
        """The search box."""
        ...


def shop_page(sight: Sight, controls: Controls) -> Html:
    """The instruction and the page."""
    page = sight.page
    return tag(
        "section",
        tag("p", tag("b", "Instruction: "), sight.goal.instruction, class_="goal"),
        tag("nav", [controls.label(label, label) for label in (BACK, PREVIOUS, NEXT) if label in page.links]),
        [*_content(sight, controls)],
        class_=f"page {page.kind}",
        aria_label=f"Shop: {page.kind}",
    )


def _content(sight: Sight, controls: Controls) -> Iterator[Html]:
    page, product = sight.page, sight.page.product
    if page.can_search:
        yield controls.search()
    elif page.kind == "results":
        yield from _results(page, controls)
    elif product and page.kind == "item":
        yield from _item(page, product, controls)
    elif product and page.kind == "done":
        yield from _purchase(sight, product)
    elif product:
        yield from _prose(page, product)


def _results(page: Page, controls: Controls) -> Iterator[Html]:
    yield tag("p", f"Page {page.number}, {page.total} results for ", tag("q", page.query), class_="note")
    cards = [
        tag(
            "li",
            controls.label(label, product.title, style="title"),
            tag("span", product.price_tag, class_="price"),
            tag("code", label),
        )
        for label, product in page.results
    ]
    yield (tag("ul", cards, class_="cards") if cards else tag("p", "Nothing was found."))


def _item(page: Page, product: Product, controls: Controls) -> Iterator[Html]:
    yield _heading(product)
    for name, choices in page.options:
        yield tag("fieldset", tag("legend", name), [_value(choice, controls) for choice in choices])
    yield tag("nav", [controls.label(label, label) for label in SUBPAGES])
    yield tag("p", controls.label(BUY, BUY, style="buy"))


def _value(choice: Choice, controls: Controls) -> Html:
    return controls.label(choice.label, choice.value, style="value", chosen=choice.chosen)


def _heading(product: Product) -> Html:
    told = tag("span", product.price_tag, class_="price")
    return joined(tag("h2", product.title), tag("p", told, f" · rating {product.rating} · ", tag("code", product.asin)))


def _prose(page: Page, product: Product) -> Iterator[Html]:
    yield _heading(product)
    yield tag("h3", page.kind.capitalize())
    if page.kind == "description":
        yield tag("p", product.description or NOTHING)
    else:
        told = product.bullets if page.kind == "features" else product.reviews
        yield tag("ul", [tag("li", text) for text in told]) if told else tag("p", NOTHING)


def _purchase(sight: Sight, product: Product) -> Iterator[Html]:
    chosen = ", ".join(f"{name}: {value}" for name, value in sight.page.chosen)
    yield tag("h2", "Thank you for shopping with us!")
    yield tag("p", "You bought ", tag("b", product.title), f" ({chosen})" if chosen else None, f", {product.price_tag}.")
    score = sight.score
    if score is None:
        return
    met = score.attributes + score.options + score.price
    yield tag("p", tag("strong", f"Score {score.reward:.3g}", id="score"), " of 1", class_="score")
    yield tag("p", f"= {score.kind:g} for the kind of product × {met} of {score.asked} conditions met", class_="note")
    yield tag("table", [_condition(each) for each in sight.conditions])


def _condition(condition: Condition) -> Html:
    sign, style = ("✓ met", "met") if condition.met else ("✗ not met", "missed")
    return tag("tr", tag("th", condition.part, scope="row"), tag("td", condition.wanted), tag("td", sign, class_=style))
