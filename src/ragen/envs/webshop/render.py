"""A page as text: the original's strings, or a short form for small models."""

from collections.abc import Iterable, Iterator
from typing import Literal

from ragen.envs.webshop.catalogue import Product
from ragen.envs.webshop.engine import BACK, BUY, NEXT, PREVIOUS, SUBPAGES, Page
from ragen.envs.webshop.reward import Score
from ragen.envs.webshop.text import shortened

Form = Literal["full", "compact"]
SEPARATOR = " [SEP] "
TITLE, PROSE = 70, 400  # characters of a title and of a sub-page in the compact form
NOTHING = "Nothing here."


def full(page: Page, instruction: str, *, show_chosen: bool) -> str:
    """The strings the original shows, joined by ``[SEP]``, and a line with the labels.

    ``show_chosen`` adds the chosen options, which the original's text leaves out.
    """
    if page.kind == "search":
        return SEPARATOR.join(("WebShop", "Instruction:", instruction, "Search")) + "\nPossible: search[words]"
    parts = ["Instruction:", instruction, BACK]
    if page.kind == "results":
        parts += [f"Page {page.number} (Total results: {page.total})", *_labels(page, PREVIOUS, NEXT)]
        parts += [text for label, product in page.results for text in (label, product.title, product.price_tag)]
    elif page.kind == "item" and page.product:
        parts += [PREVIOUS, *_option_strings(page)]
        if show_chosen and page.chosen:
            parts.append(f"Chosen: {_chosen(page)}")
        parts += [page.product.title, f"Price: {page.product.price_tag}", f"Rating: {page.product.rating}"]
        parts += [*SUBPAGES, BUY]
    elif page.product:
        parts += [PREVIOUS, *_prose(page, page.product)]
    return f"{SEPARATOR.join(parts)}\nClickable: {_bracketed(page.links)}"


def compact(page: Page, *, show_chosen: bool) -> str:
    """What matters, a line each; what can be clicked stands in square brackets, which no product's text has."""
    if page.kind == "search":
        return "Search page."
    if page.kind == "results":
        lines = [f"Page {page.number}, {page.total} results. {_bracketed(_labels(page, BACK, PREVIOUS, NEXT))}"]
        lines += [f"[{label}] {shortened(product.title, TITLE)}, {product.price_tag}" for label, product in page.results]
    elif page.kind == "item" and page.product:
        chosen = dict(page.chosen) if show_chosen else {}
        lines = [f"{shortened(page.product.title, TITLE)}, {page.product.price_tag}"]
        for name, choices in page.options:
            told = f" ({chosen[name]} chosen)" if name in chosen else ""
            lines.append(f"{name}{told}: {_bracketed(choice.label for choice in choices)}")
        lines.append(_bracketed((*SUBPAGES, BUY, BACK, PREVIOUS)))
    else:
        text = " ".join(_prose(page, page.product)) if page.product else NOTHING
        lines = [shortened(text, PROSE), _bracketed(page.links)]
    return "\n".join(lines)


def receipt(page: Page, score: Score) -> str:
    """The last page: what was bought, and what it scored for which parts of the request."""
    title = page.product.title if page.product else ""
    options = f" ({_chosen(page)})" if page.chosen else ""
    met = score.attributes + score.options + score.price
    return (
        f"Thank you for shopping with us! You bought {title}{options}.\n"
        f"Score (0 to 1): {score.reward:.3g} = {score.kind:g} for the kind of product × {met} of {score.asked} conditions "
        f"({score.attributes} attributes, {score.options} options, price {'met' if score.price else 'not met'})"
    )


def _prose(page: Page, product: Product) -> tuple[str, ...]:
    if page.kind == "description":
        return (product.description or NOTHING,)
    return (product.bullets if page.kind == "features" else product.reviews) or (NOTHING,)


def _option_strings(page: Page) -> Iterator[str]:
    for name, choices in page.options:
        yield name
        yield from (choice.label for choice in choices)


def _chosen(page: Page) -> str:
    return ", ".join(f"{name}: {value}" for name, value in page.chosen)


def _labels(page: Page, *wanted: str) -> list[str]:
    return [label for label in wanted if label in page.links]


def _bracketed(labels: Iterable[str]) -> str:
    return " ".join(f"[{label}]" for label in labels)
