"""HTML from values: whatever is not ``Html`` is escaped, so no text of a product or a reply becomes markup."""

from html import escape
from typing import TypeAlias

from ragen.wording import printable

_WITHOUT_END = ("input", "link", "meta")


class Html(str):
    """Text that is HTML already; only this module and the page's own assets make it."""

    __slots__ = ()


Child: TypeAlias = "str | int | list[Html] | None"


def tag(name: str, /, *children: Child, **attributes: str | int | bool | None) -> Html:
    """An element. An attribute that is None or False is left out, a final ``_`` of its name dropped (``class_``).

    >>> tag("p", "a < b", tag("b", "!"), class_="note", title='"', hidden=True)
    '<p class="note" title="&quot;" hidden>a &lt; b<b>!</b></p>'
    """
    told = "".join(_attribute(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items())
    start = f"<{name}{told}>"
    return Html(start if name in _WITHOUT_END else f"{start}{joined(*children)}</{name}>")


def joined(*children: Child) -> Html:
    """Children one after the other; None is left out, characters that are not seen are spelled out."""
    parts = [part for child in children for part in (child if isinstance(child, list) else [child])]
    return Html("".join(part if isinstance(part, Html) else _text(part) for part in parts if part is not None))


def _attribute(name: str, value: str | int | bool | None) -> str:
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'  # as it is: a form sends it back


def _text(value: str | int) -> str:
    return escape(printable(str(value)))
