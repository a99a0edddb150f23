"""Shops over HTTP: a visitor without a browser, and a run with stored episodes."""

import http.client
import threading
from contextlib import contextmanager
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.webshop_products import ENTRY, public_record, written

from ragen.cli.shop import shop_of
from ragen.config import load_config
from ragen.envs import environment_factory
from ragen.episode import Group
from ragen.rollout.demonstrations import demonstrate, demonstration_specs, optimal_player, random_player
from ragen.rollout.runner import Rules
from ragen.runs.directory import RunDirectory
from ragen.shop.play import Episodes
from ragen.shop.record import Records
from ragen.shop.server import PlayServer, ReplayServer
from ragen.text.chat import ChatRenderer

EVIL = [
    "<script>alert(1)</script>", "\"><img src=x onerror=alert(2)>", "' onclick='alert(3)", "javascript:alert(4)",
    "</button></form><form action=//evil>", "</style><style>*{display:none}", "&lt;b&gt;&amp;", "a\u061cb \u202ec \x00d",
    "</pre></textarea><!--", "{{STYLE}} %s {0}",
]  # fmt: skip


class Parsed(HTMLParser):
    """Elements of a page with their attributes, and the text of those with an id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self._open: list[str | None] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("input", "link", "meta"):
            self._open.append(dict(attrs).get("id"))

    def handle_endtag(self, tag: str) -> None:
        self._open.pop()

    def handle_data(self, data: str) -> None:
        for name in filter(None, self._open):
            self.texts[name] = self.texts.get(name, "") + data

    def all(self, tag: str, **attributes: str) -> list[dict[str, str | None]]:
        return [have for kind, have in self.elements if kind == tag and attributes.items() <= have.items()]

    @property
    def labels(self) -> list[str | None]:
        """What can be clicked."""
        return [button["value"] for button in self.all("button", name="click") if "disabled" not in button]


class Visitor:
    """Asks a server without a browser, and follows where it leads."""

    def __init__(self, server: Any) -> None:
        self.host = f"localhost:{server.server_address[1]}"
        self.at, self.status, self.headers, self.text = "/", 0, {}, ""

    def ask(self, method: str, path: str, body: str | bytes | None = None, **headers: str) -> int:
        connection = http.client.HTTPConnection(self.host)
        connection.request(method, path, body, {"Host": self.host, **headers})
        answer = connection.getresponse()
        self.text, self.status, self.headers, self.at = answer.read().decode(), answer.status, answer.headers, path
        connection.close()
        return self.status

    def get(self, path: str) -> Parsed:
        self.ask("GET", path)
        return self._followed()

    def post(self, path: str, **fields: Any) -> Parsed:
        self.ask("POST", path, urlencode(fields))
        return self._followed()

    def _followed(self) -> Parsed:
        if self.status == 303:
            self.ask("GET", self.headers["Location"])
        return Parsed(self.text)


@contextmanager
def serving(server: Any) -> Any:
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def shopping() -> Any:
    """``with shopping(setting=…) as server``: a shop to play in."""

    def open_shop(kept: int = 64, **settings: Any) -> Any:
        spec = {"name": "webshop", **settings}
        return serving(PlayServer(Episodes(lambda: shop_of(spec), kept), 0, 0))

    return open_shop


@pytest.fixture
def evil(tmp_path: Any, ragen_cache: Any) -> dict[str, str]:
    """Settings of a shop whose every text would like to be markup."""
    records, entries = [], {}
    for number, text in enumerate(EVIL):
        options = {text: [{"value": each} for each in EVIL]}
        asin = f"B{number}"
        records.append(
            public_record(asin=asin, name=f"hoodie {text}", full_description=text, customization_options=options)
            | {"small_description": EVIL, "query": text, "Reviews": EVIL, "Rating": text, "pricing": f"$1{number}.00"}
        )
        entries[asin] = ENTRY | {"instruction": f"hoodie {text}", "instruction_attributes": [text, "machine wash"]}
    return {
        "products": written(tmp_path / "products.json", records),
        "attributes": written(tmp_path / "attributes.json", entries),
    }


@pytest.fixture
def make_run(tmp_path: Any, chatml_tokenizer: Any) -> Any:
    """``make_run(setting=…)``: a run with a stored step of two groups, the oracle's and a random player's episodes."""

    def make(**settings: Any) -> RunDirectory:
        words = ["--run.root", str(tmp_path / "runs"), "--run.name", "shop", "--rollout.groups", "2"]
        words += [word for key, value in settings.items() for word in (f"--env.{key}", str(value))]
        run = RunDirectory.create(load_config("webshop-starpo-s-grpo-small", words))
        run.write_provenance(device="cpu", dtype="float32", threads=1, step=0)
        run.checkpoints.save(1, chatml_tokenizer.save_pretrained)
        env = environment_factory(run.config.env)
        specs = demonstration_specs("webshop", seed=1, count=2)
        renderer, rules = ChatRenderer(chatml_tokenizer), Rules(2000, 200_000)
        played = [
            demonstrate(spec, env, renderer, rules, who)
            for spec, who in zip(specs, (optimal_player, random_player), strict=True)
        ]
        run.write_trajectories(1, [Group(number, (each,)) for number, each in enumerate(played)])
        return run

    return make


@pytest.fixture
def replaying() -> Any:
    """``with replaying(run) as server``: the episodes of its last step."""

    def open_run(run: RunDirectory, **settings: Any) -> Any:
        env = shop_of({**run.config.env, **settings})
        return serving(ReplayServer(Records(env, run.trajectories(), "a run"), 0))

    return open_run
