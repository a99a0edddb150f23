"""What can be clicked on a page: buttons for a person, or marks of what the agent clicked."""

from dataclasses import dataclass

from ragen.envs.webshop.engine import LONGEST_QUERY
from ragen.shop.html import Child, Html, joined, tag


@dataclass(frozen=True, slots=True)
class Buttons:
    """Submit buttons of the form around the page; without ``live`` they cannot be pressed."""

    live: bool

    def label(self, label: str, *shown: Child, style: str = "button", chosen: bool | None = None) -> Html:
        """A button."""
        pressed = None if chosen is None else "true" if chosen else "false"
        return tag("button", *shown, name="click", value=label, class_=style, aria_pressed=pressed, disabled=not self.live)

    def search(self) -> Html:
        """A field and its button."""
        off = not self.live
        box = tag(
            "input",
            type="search",
            name="search",
            aria_label="Search",
            maxlength=LONGEST_QUERY,
            autocomplete="off",
            required=True,
            autofocus=self.live,
            disabled=off,
        )
        return tag("p", box, " ", tag("button", "Search", disabled=off), class_="searchbox")


@dataclass(frozen=True, slots=True)
class Marks:
    """Labels as they stood, with the one marked that ``action`` (``click[label]`` or ``search[words]``) names."""

    action: str

    def label(self, label: str, *shown: Child, style: str = "button", chosen: bool | None = None) -> Html:
        """A label."""
        clicked = self.action == f"click[{label}]"
        names = f"{style}{' chosen' if chosen else ''}{' clicked' if clicked else ''}"
        sign = tag("span", "✓ ", aria_label="chosen: ") if chosen else None
        return tag("span", joined(sign, *shown), class_=names, title="clicked next" if clicked else None)

    def search(self) -> Html:
        """The words that are searched for."""
        words = self.action.removeprefix("search[").removesuffix("]") if self.action.startswith("search[") else ""
        marked = " clicked" if words else ""
        return tag(
            "p", tag("span", words, class_="field"), " ", tag("span", "Search", class_=f"button{marked}"), class_="searchbox"
        )
