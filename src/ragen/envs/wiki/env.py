"""Search questions as an environment: a sentence with a gap, a search over articles, what fills the gap as the answer."""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal, cast

import numpy as np
from pydantic import Field, field_validator

from ragen.envs.base import Environment, EnvSettings
from ragen.envs.registry import EnvPreset, environments
from ragen.envs.tool_environment import ToolEnvironment, ToolSettings
from ragen.envs.wiki.corpus import asked_documents, documents_by_title, load_index
from ragen.envs.wiki.questions import GAP, KINDS, Cloze, Kind, clozes, is_right, read_gap
from ragen.errors import ConfigError, EnvironmentFault
from ragen.seeding import derive
from ragen.tools import Tool, ToolError, tool
from ragen.tools.call import Call, final, is_final
from ragen.tools.search import Document, snippet

GUESSES = 6  # things of another article that the random player may answer
SEEKING = ("I look for it.", "A search may find it.", "I search for the article.", "Let me find the passage.")
FOUND = ("The article says it.", "It stands in the article.", "That fills the gap.", "This is what is missing.")


class WikiSettings(ToolSettings):
    """Settings of ``Wiki``."""

    file: str = Field("", description="articles: JSON (lines) with title and text; empty = 400 made-up articles")
    kinds: tuple[Kind, ...] = Field(KINDS, min_length=1, description="what gaps hold: year, number, name (of several words)")
    tell_title: bool = Field(True, description="the question names its article; without that it is harder")
    tools: Literal["search", "none"] = Field("search", description="what may be called; none = only the answer")
    results: int = Field(3, ge=1, le=20, description="articles that a search shows at most")
    snippet: int = Field(200, ge=20, le=2000, description="characters of each that it shows at most")

    @field_validator("kinds")
    @classmethod
    def _once(cls, kinds: tuple[Kind, ...]) -> tuple[Kind, ...]:
        if len(set(kinds)) < len(kinds):
            raise ValueError("each may be named once")
        return kinds


class Wiki(ToolEnvironment):
    """Fill the gap in a sentence of an article, with the help of a search.

    - Actions: ``search`` with a ``query`` shows titles and snippets, ``read`` with a ``title`` an article; the final answer.
    - Observation: the sentence, with ``____`` for a year, a number or a name; then what the tools show.
    - Rewards: 1 for what stood in the gap, else 0. A number may come in a sentence, if it names no other one; a name must be
      the whole answer, but for case, articles and punctuation.
    - End: with the answer. It never truncates; the budgets are the rollout's.
    - Instances: the instance seed picks article and gap; nothing is left to chance.

    The oracle searches the sentence and fills the gap. The player ``reader`` does what an agent could: it searches the
    sentence and answers what stands in its place in the best article. ``random`` answers things of another article.
    """

    settings_class: ClassVar[type[EnvSettings]] = WikiSettings

    def __init__(self, settings: EnvSettings | None = None) -> None:
        super().__init__(settings)
        self._own = cast(WikiSettings, self.settings)
        self._index = load_index(self._own.file)
        self._by_title = documents_by_title(self._own.file)
        self._tools = (tool(self.search), tool(self.read)) if self._own.tools == "search" else ()
        self._cloze: Cloze | None = None
        self._other = self._index.documents[0]
        self._asked = asked_documents(self._own.file, self._own.kinds)
        if not self._asked:
            raise ConfigError(
                f"env.kinds is {', '.join(self._own.kinds)}, but no article of {self._own.file!r} has a sentence of 8 to 40 "
                "words with one of those: take other kinds or another file"
            )

    def search(self, query: str) -> str:
        """Find articles by words.

        Args:
            query: words that the article holds
        """
        found = self._index.search(query, self._own.results)
        if not found:
            raise ToolError("nothing was found: try other words")
        return "\n".join(f"{document.title}: {snippet(document, query, self._own.snippet)}" for document in found)

    def read(self, title: str) -> str:
        """Read an article.

        Args:
            title: its title, as the search shows it
        """
        said = " ".join(title.split())
        document = self._by_title.get(said) or self._by_title.get(said.casefold())
        if document is None:
            raise ToolError(f"there is no article '{title[:60]}': search first")
        return document.text

    def start(self, instance_seed: int, dynamics_seed: int) -> str:
        """Pick one of the articles that have gaps, and a gap in it."""
        del dynamics_seed
        document, self._other = (
            self._asked[derive(instance_seed, "wiki", purpose) % len(self._asked)] for purpose in ("article", "other")
        )
        found = clozes(document, self._own.kinds)
        self._cloze = found[derive(instance_seed, "wiki", "gap") % len(found)]
        return self._question()

    def tools(self) -> tuple[Tool, ...]:
        """``search`` and ``read``, unless the settings take them away."""
        return self._tools

    def judge(self, answer: str) -> float:
        """1 for what fills the gap."""
        return float(is_right(answer, self._given()))

    def solution(self) -> str:
        """What stood in the gap."""
        return self._given().answer

    def actions(self) -> tuple[str, ...]:
        """Searches for words of the sentence, the best article, and things of another article as the answer."""
        words = [word for word in self._given().text.split() if word != GAP]
        held = dict.fromkeys(each.answer for each in clozes(self._other, self._own.kinds))
        looks = (_search(" ".join(words[:6])), _search(" ".join(words[-6:])), _read(self._best().title))
        tries = looks if self._tools else ()
        return (*dict.fromkeys(tries), *map(final, list(held)[:GUESSES]))

    def examples(self) -> tuple[str, ...]:
        """Without ``read``, whose title would tell the article, where the question does not name it."""
        hidden = () if self._own.tell_title else (_read(self._best().title),)
        return tuple(action for action in self.actions() if action not in hidden)

    def instructions(self) -> str:
        """The task."""
        if self._own.wording == "verbose":
            looks = " Search the articles, and read one if its snippet does not say it." if self._tools else ""
            return (
                f"You are given a sentence of an article in which {GAP} stands for one thing that was left out.{looks} "
                "Answer what is missing, nothing else."
            )
        return f"Answer what {GAP} stands for in the sentence, nothing else."

    def content(self) -> str | None:
        """The article and the sentence with its gap."""
        return f"{self._given().title}\n{self._given().text}"

    def plan(self) -> tuple[str, ...] | None:
        """A search for the sentence where the budgets allow one, then the answer."""
        last = super().plan()
        may_look = self._tools and self.calls_made == 0 and min(self._own.max_turns, self._own.max_actions) > 1
        return (_search(self._query()),) if last is not None and may_look else last

    def thought(self, rng: np.random.Generator, actions: Sequence[str]) -> str:
        """A few words."""
        words = FOUND if actions and is_final(actions[0]) else SEEKING
        return words[int(rng.integers(len(words)))]

    def players(self) -> Mapping[str, Callable[[Environment, np.random.Generator], Sequence[str]]]:
        """``reader`` answers what stands in the sentence's place in the best article."""
        return {"reader": _reader}

    def looked_up(self) -> str:
        """The answer of the player ``reader``."""
        return read_gap(self._given().text, self._best().text) or "unknown"

    def _best(self) -> Document:
        return (*self._index.search(self._query(), 1), self._index.documents[0])[0]

    def _query(self) -> str:
        title = f"{self._given().title} " if self._own.tell_title else ""
        return f"{title}{self._given().text.replace(GAP, ' ')}"

    def _question(self) -> str:
        cloze = self._given()
        where = f"Article: {cloze.title}\n" if self._own.tell_title else ""
        return f"{where}{cloze.text}"

    def _given(self) -> Cloze:
        if self._cloze is None:
            raise EnvironmentFault("wiki: no episode has begun; call reset() first")
        return self._cloze


def _search(query: str) -> str:
    return str(Call("search", {"query": query}))


def _read(title: str) -> str:
    return str(Call("read", {"title": title}))


def _reader(env: Environment, rng: np.random.Generator) -> Sequence[str]:
    del rng
    if not isinstance(env, Wiki):
        raise EnvironmentFault(f"the player reader plays wiki, not {type(env).__name__}")
    return (final(env.looked_up()),)


environments.register("wiki")(EnvPreset(Wiki, "Gaps in sentences of articles (made up, or of env.file), with a search"))
environments.register("wiki-untitled")(
    EnvPreset(Wiki, "wiki without the article's title in the question", {"tell_title": False})
)
environments.register("wiki-plain")(
    EnvPreset(Wiki, "wiki without a search: one answer", {"tools": "none", "max_turns": 1, "max_actions": 1})
)
