"""The environment protocol: text in, text out; an environment never sees a tokenizer."""

import string
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import AfterValidator, Field, field_validator

from ragen.config.settings import Settings
from ragen.envs.facts import Fact
from ragen.tools import Tool

FLAGS = ("success", "action_is_valid", "action_is_effective")  # the bools a step's info may carry
TAGS = ("<think>", "</think>", "<answer>", "</answer>")
MARKS = ("||", *TAGS)  # what a reply is read by (``ragen.text.parser``)
OUTER = string.whitespace + string.punctuation + "“”‘’«»"


def _distinct_words(words: tuple[str, ...]) -> tuple[str, ...]:
    plain = {word.strip(OUTER).casefold() for word in words}
    if len(plain) != len(words) or "" in plain or not all(map(plain_word, words)):
        raise ValueError(
            f"{len(words)} words that differ by more than case and outer punctuation are needed, printable, without '||', "
            "'<', '>' and outer blanks"
        )
    return words


def plain_word(word: str) -> bool:
    """Whether a name can stand in a prompt and a reply: on one line, all of it to be seen, with no mark of a reply."""
    return word.isprintable() and word == word.strip() and not any(mark in word for mark in ("||", "<", ">"))


def action_problem(word: object) -> str | None:
    """Why ``word`` cannot be an action word, one that a reply can name; None where it can."""
    if not isinstance(word, str) or not word.strip():
        return f"an action must be a text that is not blank, got {word!r}"
    if word != word.strip():
        return f"an action must not begin or end with blanks, got {word!r}"
    if mark := next((mark for mark in MARKS if mark in word), None):
        return f"an action must not contain {mark!r}, got {word!r}"
    return None


FourWords = Annotated[tuple[str, str, str, str], AfterValidator(_distinct_words)]  # action words a reply can tell apart


class EnvSettings(Settings):
    """Settings every environment has; an environment's own settings class extends it."""

    max_turns: int = Field(5, ge=1, description="policy replies an episode at most")
    max_actions: int = Field(10, ge=1, description="executed actions an episode at most")
    max_actions_per_turn: int = Field(5, ge=1, description="executed actions a turn at most; further ones are ignored")
    wording: Literal["short", "verbose"] = Field("short", description="prompt wording: short, or in the paper's style")

    @field_validator("max_turns", "max_actions", "max_actions_per_turn")
    @classmethod
    def _at_least_one(cls, budget: int) -> int:
        """Holds for a subclass too that gives only another default: that drops the bound above."""
        if budget < 1:
            raise ValueError("it must be 1 or more")
        return budget


@dataclass(frozen=True, slots=True)
class Observation:
    """What the agent is shown after ``reset``."""

    text: str
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """The answer to one action.

    ``observation`` is the state as it now is: it is shown again after a turn in which nothing was done. ``told`` is what
    this action has to say beside it (why it was refused, what it came to): it is shown once, above the state.
    ``terminated`` (the task itself ended) and ``truncated`` (cut from outside the task) are never one flag. ``info`` may
    carry the bools ``success`` (default: the environment's), ``action_is_valid`` and ``action_is_effective`` (the state
    changed; default: True).
    """

    observation: str
    reward: float
    terminated: bool
    truncated: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)
    told: str = ""

    @property
    def shown(self) -> str:
        """What the agent is shown after this action alone."""
        return "\n".join(filter(None, (self.told, self.observation)))


class Environment(ABC):
    """Base class of environments; one object plays one episode at a time and may be reset again.

    The *instance* seed fixes the initial state and is shared by a group; the *dynamics* seed fixes chance (slips,
    payoffs) and differs between members. ``reset`` and ``step`` never touch global generators.
    """

    settings_class: ClassVar[type[EnvSettings]] = EnvSettings

    def __init__(self, settings: EnvSettings | None = None) -> None:
        self.settings = settings if settings is not None else self.settings_class()

    @property
    @abstractmethod
    def success(self) -> bool:
        """The task's own criterion, at this moment."""

    @abstractmethod
    def reset(self, *, instance_seed: int, dynamics_seed: int) -> Observation:
        """Start an episode."""

    @abstractmethod
    def step(self, action: str) -> Step:
        """Execute one action, given in its canonical spelling: one of ``actions()``, or what ``match`` gave."""

    @abstractmethod
    def actions(self) -> tuple[str, ...]:
        """The actions that are possible now, in canonical spelling; where one takes free text or they are too many to list,
        those that a random player draws from.
        """

    def forms(self) -> tuple[str, ...]:
        """The actions as the first prompt lists them. An environment whose actions differ from state to state, or are too
        many to list, gives their forms here, such as ``click[label]``; where they differ, each observation tells what is
        possible.
        """
        return self.actions()

    def examples(self) -> tuple[str, ...]:
        """The actions a person is shown as examples; fewer than ``actions()`` where some tell what the task hides."""
        return self.actions()

    @abstractmethod
    def instructions(self) -> str:
        """What the task is and what the symbols mean (the prompt adds actions, budgets and format)."""

    def match(self, text: str) -> str | None:
        """The canonical action that ``text`` names, or None. Ignores case, outer white space, punctuation and quotes.

        An action in its own spelling is that action, also where it differs from another by these alone (``+`` and ``-``).
        """
        said, known = text.strip(), self.actions()
        if said in known:
            return said
        word = text.strip(OUTER).casefold()
        return next((a for a in known if word and a.strip(OUTER).casefold() == word), None)

    def problem(self, text: str) -> str:
        """Why ``text`` names no action (where ``match`` gives None), for the agent; empty = the text is only quoted back."""
        del text
        return ""

    def tools(self) -> tuple[Tool, ...] | None:
        """What an agent calls instead of naming action words (see ``ToolEnvironment``); None = actions are words."""
        return None

    def content(self) -> str | None:
        """What identifies the initial state by content, to keep evaluation apart from training; None = exempt."""
        return None

    def facts(self) -> tuple[Fact, ...]:
        """What is so in this state, for the process reward ``state_match``; empty = it cannot be used."""
        return ()

    def anchor(self) -> str | None:
        """What identifies the present state among those of an instance: equal for equal states (what GiGPO compares); None =
        the environment gives no such key, in no state.
        """
        return None

    def thought(self, rng: np.random.Generator, actions: Sequence[str]) -> str:
        """A short varied reasoning text for a demonstration that takes ``actions`` from here."""
        openers = ("I will try", "Let me go", "I choose", "My move is", "Next I take")
        return f"{openers[int(rng.integers(len(openers)))]} {' then '.join(actions)}."

    def plan(self) -> tuple[str, ...] | None:
        """Best next actions from here for one turn (the oracle), or None where there is none."""
        return None

    def best_success(self) -> float | None:
        """The success probability of the best play from the initial state within the budgets, or None if unknown."""
        return None

    def players(self) -> Mapping[str, Callable[["Environment", np.random.Generator], Sequence[str]]]:
        """Named reference players beyond ``random`` and ``optimal``: each returns a turn's actions."""
        return {}
