"""The servers of `ragen shop`: one plays, one replays. An address names an episode and a page of it."""

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from urllib.parse import parse_qs, urlsplit

from ragen.envs.webshop.engine import plain_query
from ragen.localserver import PLAIN, LocalHandler, LocalServer
from ragen.shop import documents
from ragen.shop.html import Html
from ragen.shop.play import Episodes
from ragen.shop.record import Records

LONGEST_FORM = 1 << 16  # bytes
DIGITS = 20  # of a number in an address: those of a 64-bit seed
HEADERS: Mapping[str, str] = MappingProxyType(
    {"Content-Security-Policy": documents.policy(), "Referrer-Policy": "same-origin"}
)
LATE = "late"  # the query of an address to which a click from an earlier page leads
LOST = "This episode is not kept (any more), or has no such page."


class PlayServer(LocalServer):
    """Serves ``episodes`` to a person, beginning with goal number ``goal``."""

    def __init__(self, episodes: Episodes, goal: int, port: int) -> None:
        self.episodes, self.goal = episodes, goal
        super().__init__(port, _Play)


class ReplayServer(LocalServer):
    """Serves stored episodes."""

    def __init__(self, records: Records, port: int) -> None:
        self.records = records
        super().__init__(port, _Replay)


class _Pages(LocalHandler):
    def page(self, made: Html, status: HTTPStatus = HTTPStatus.OK) -> None:
        """Send a page."""
        self.answer(status, made.encode(), "text/html; charset=utf-8", HEADERS)

    def lost(self) -> None:
        """Say that there is no such page."""
        self.page(documents.missing(LOST), HTTPStatus.NOT_FOUND)

    def lead(self, place: str) -> None:
        """Send the browser to another page of this server."""
        self.answer(HTTPStatus.SEE_OTHER, b"", PLAIN, {"Location": place})


class _Play(_Pages):
    server: PlayServer

    def get(self) -> None:
        """The start, or a page of an episode."""
        url = urlsplit(self.path)
        if url.path == "/":
            text = parse_qs(url.query).get("goal", [""])[0]
            asked = _number(text)
            goal = self.server.goal if asked is None else asked
            self.page(documents.start(goal, self.server.episodes.goal(goal), no_goal=text if asked is None else ""))
            return
        name, at = _place(url.path)
        episode = self.server.episodes.find(name)
        if episode is None or at is None or at >= len(episode.sights):
            self.lost()
        else:
            self.page(documents.played(name, episode, at, late=url.query == LATE))

    def do_POST(self) -> None:  # noqa: N802 (the base class's kind of name)
        """Begin an episode, or play an action; to no other site's forms."""
        if not self.named() or not self._own_form():
            return
        form = self._form()
        if form is None:
            self.answer(HTTPStatus.BAD_REQUEST, b"this is no form of this server\n", PLAIN)
        elif self.path == "/new":
            goal = _number(form.get("goal", ""))
            self.lead("/" if goal is None else f"/{self.server.episodes.begin(goal)}/0")
        else:
            self._act(form)

    def _act(self, form: Mapping[str, str]) -> None:
        name, at = _place(self.path)
        action = f"search[{plain_query(form['search'])}]" if "search" in form else f"click[{form.get('click', '')}]"
        episode = None if at is None else self.server.episodes.find(name)
        if at is None or episode is None:
            self.lost()
            return
        late = at < len(episode.sights) - 1
        self.server.episodes.act(name, at, action)
        self.lead(f"/{name}/{len(episode.sights) - 1}{f'?{LATE}' if late else ''}")

    def _own_form(self) -> bool:
        """Whether no other site sent the form: a browser tells where it comes from."""
        origin = self.headers.get("Origin")
        if origin is None or origin == f"http://{self.headers['Host']}":
            return True
        self.answer(HTTPStatus.FORBIDDEN, b"this form comes from another site\n", PLAIN)
        return False

    def _form(self) -> dict[str, str] | None:
        """The fields that were sent, or None for what is no form."""
        length = _number(self.headers.get("Content-Length", ""))
        if length is None or length > LONGEST_FORM:
            return None
        try:
            fields = parse_qs(self.rfile.read(length).decode(), keep_blank_values=True, max_num_fields=4)
        except (ValueError, OSError):
            return None
        return {name: values[0] for name, values in fields.items()}


class _Replay(_Pages):
    server: ReplayServer

    def get(self) -> None:
        """The list of episodes, or a page of one."""
        path, records = urlsplit(self.path).path, self.server.records
        if path == "/" and len(records.items) == 1:
            self.lead("/0/0")
            return
        if path == "/":
            self.page(documents.listed(records))
            return
        name, at = _place(path)
        place = _number(name)
        if place is None or at is None or place >= len(records.items) or at > len(records.items[place].trajectory.turns):
            self.lost()
        else:
            self.page(documents.replayed(records, place, at))


def _place(path: str) -> tuple[str, int | None]:
    """Episode and page of an address ``/EPISODE/PAGE``."""
    name, _, at = path.removeprefix("/").partition("/")
    return name, _number(at)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= DIGITS else None
