"""Whole pages: the start, a page of a person's episode, the list of an agent's episodes, a page of one of them."""

import base64
import hashlib
from functools import cache
from importlib.resources import files

from ragen.envs.webshop.sight import Sight
from ragen.episode import EndReason, Turn
from ragen.shop.controls import Buttons, Marks
from ragen.shop.html import Child, Html, joined, tag
from ragen.shop.play import Episode
from ragen.shop.record import Recorded, Records
from ragen.shop.view import shop_page


def start(goal: int, first: Sight, *, no_goal: str = "") -> Html:
    """Goal number ``goal`` with a button that begins, and a field for another number; ``no_goal`` was asked for instead."""
    begin = tag(
        "form",
        tag("p", tag("b", "Instruction: "), first.goal.instruction, class_="goal"),
        tag("input", type="hidden", name="goal", value=goal),
        tag("p", tag("button", "Go shopping", class_="buy")),
        method="post",
        action="/new",
    )
    number = tag("input", type="number", name="goal", min=0, value=goal, required=True)
    other = tag("form", tag("label", "Goal ", number), " ", tag("button", "Show"), method="get", action="/")
    wrong = f"There is no goal '{no_goal[:40]}': a goal is a whole number from 0, of at most 20 digits. This is goal {goal}."
    told = tag("p", wrong, class_="missed") if no_goal else None
    return document(f"Goal {goal}", tag("h1", f"WebShop, goal {goal}"), told, begin, other)


def played(name: str, episode: Episode, at: int, *, late: bool = False) -> Html:
    """Page ``at`` of a person's episode; the last one can be clicked until the end. ``late``: a click of before led here."""
    runner, last = episode.runner, len(episode.sights) - 1
    sight, live = episode.sights[at], at == last and runner.end is None
    form = tag("form", shop_page(sight, Buttons(live)), method="post", action=f"/{name}/{at}")
    told: list[Html] = []
    if late and at == last:
        told.append(
            tag("p", "Nothing was done: that click came from an earlier page. The episode stands here.", class_="note")
        )
    if at < last:
        told.append(
            tag("p", "You have gone on from here: ", tag("a", f"to page {last + 1}", href=f"/{name}/{last}"), class_="note")
        )
    elif runner.end is not None:
        told.append(_ending(episode))
    title = f"WebShop, goal {episode.goal} · page {at + 1}"
    head = tag("h1", title, tag("small", f" {runner.actions_used} of {episode.budget} actions used", class_="note"))
    return document(title, head, told, form, _seen_by_agent(sight.text))


def _ending(episode: Episode) -> Html:
    runner = episode.runner
    total = sum(turn.reward for turn in runner.turns)
    why = "bought" if runner.end is EndReason.TERMINATED else f"all {episode.budget} actions are used, nothing was bought"
    again = tag("button", "Again", name="goal", value=episode.goal)
    other = tag("button", "Another goal", name="goal", value=episode.goal + 1)
    told = tag("p", f"The end: {why}. Reward {total:.3g}.", class_="end")
    return tag("form", told, tag("p", again, " ", other), method="post", action="/new")


def listed(records: Records) -> Html:
    """The episodes of a step."""
    names = ("group", "member", "return", "success", "turns", "ended", "")
    rows = [tag("tr", [tag("th", name, scope="col") for name in names])]
    for place, item in enumerate(records.items):
        t = item.trajectory
        link = tag("a", "watch", href=f"/{place}/0")
        told = (
            _group(item.group),
            t.member,
            f"{t.total_return:.4g}",
            "yes" if t.success else "no",
            len(t.turns),
            t.end.value,
        )
        rows.append(tag("tr", [*(tag("td", each) for each in told), tag("td", link)]))
    return document("Episodes", tag("h1", records.about), tag("div", tag("table", rows), class_="scroll"))


def replayed(records: Records, place: int, at: int) -> Html:
    """Page ``at`` of the episode at ``place``, with the agent's reply to it."""
    one = records.recorded(place)
    turns = one.trajectory.turns
    turn = turns[at] if at < len(turns) else None
    action = turn.actions[0] if turn is not None and turn.actions else ""
    shown = shop_page(one.sights[at], Marks(action)) if at < len(one.sights) else _only_text(one, at)
    title = f"group {_group(one.item.group)}, member {one.trajectory.member} · page {at + 1} of {len(turns) + 1}"
    ways = tag(
        "nav",
        _way("prev", "← Previous", f"/{place}/{at - 1}" if at > 0 else None),
        _way("next", "Next →", f"/{place}/{at + 1}" if at < len(turns) else None),
        tag("span", title, class_="note"),
        tag("a", "all episodes", href="/"),
        class_="ways",
    )
    beside = tag("aside", _reply(turn) if turn is not None else _result(one), _seen_by_agent(one.text(at)))
    return document(title, tag("h1", records.about), ways, tag("div", shown, beside, class_="beside"), keys=True)


def _way(rel: str, shown: str, href: str | None) -> Html:
    if href is None:
        return tag("span", shown, class_="button off")
    return tag("a", shown, href=href, rel=rel, class_="button", title="arrow keys")


def _reply(turn: Turn) -> Html:
    actions = [tag("code", action) for action in turn.actions] or [tag("span", "no action")]
    parts = f" · reward {turn.reward:.3g}" + (f", penalty {turn.penalty:.3g}" if turn.penalty else "")
    wrong = None if turn.valid else tag("span", " invalid", class_="missed")
    return tag(
        "section",
        tag("h2", "The agent replies"),
        tag("p", turn.completion.text or "(nothing)", class_="reply"),
        tag("p", actions, wrong, parts, class_="note"),
    )


def _result(one: Recorded) -> Html:
    t = one.trajectory
    told = f"ended: {t.end.value} · return {t.total_return:.4g} · {'success' if t.success else 'no success'}"
    return tag("section", tag("h2", "The end"), tag("p", told), tag("p", t.error, class_="missed") if t.error else None)


def _only_text(one: Recorded, at: int) -> Html:
    why = "The page of this text cannot be shown: this shop has other products or rules than the run's had."
    return tag("section", tag("p", why, class_="note"), tag("pre", one.text(at)))


def _seen_by_agent(text: str) -> Html:
    return tag("details", tag("summary", "The text an agent sees"), tag("pre", text, id="text"))


def _group(number: int | None) -> str:
    return "lost" if number is None else str(number)


def missing(told: str) -> Html:
    """A page that says what is not there."""
    return document("Not here", tag("h1", "Not here"), tag("p", told), tag("p", tag("a", "To the start", href="/")))


def document(title: str, *body: Child, keys: bool = False) -> Html:
    """A page of its own; ``keys`` adds the script that turns pages by arrow keys."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("link", rel="icon", href="data:,"),
        tag("style", _asset("shop.css")),
    )
    script = tag("script", _asset("keys.js")) if keys else None
    return joined(Html("<!doctype html>\n"), tag("html", head, tag("body", tag("main", *body), script), lang="en"))


def policy() -> str:
    """The content security policy of every page: its own style and script by their hashes, forms to this server, no more."""
    style, script = (f"'sha256-{_hash(_asset(name))}'" for name in ("shop.css", "keys.js"))
    return (
        f"default-src 'none'; style-src {style}; script-src {script}; img-src data:; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    )


@cache
def _asset(name: str) -> Html:
    return Html(files("ragen.shop").joinpath("assets", name).read_text(encoding="utf-8"))


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
