"""WebShop as a text environment (Yao et al. 2022, arXiv 2207.01206), written anew from its rules."""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal, cast

import numpy as np
from pydantic import Field, model_validator

from ragen.envs.base import OUTER, Environment, EnvSettings, Observation, Step
from ragen.envs.registry import EnvPreset, environments
from ragen.envs.webshop.engine import PER_PAGE, RESULTS, Page, Place, open_shop, plain_query
from ragen.envs.webshop.goals import Goal, Kind
from ragen.envs.webshop.oracle import Move, instruction_queries, naive_move, next_move, walk
from ragen.envs.webshop.render import Form, compact, full, receipt
from ragen.envs.webshop.reward import OptionMatch, Score, score
from ragen.envs.webshop.sight import Sight, conditions
from ragen.envs.webshop.stock import Sources
from ragen.envs.webshop.text import shortened
from ragen.errors import ConfigError, EnvironmentFault

FORMS = ("search[words]", "click[label]")
THOUGHT = 32  # characters of an action that a thought repeats
AROUND = OUTER.replace("[", "").replace("]", "")  # what may stand around an action
OPENERS = ("I will", "Next:", "Let me", "My choice:", "So now", "I go on with", "The next step is")


class WebShopSettings(EnvSettings):
    """Settings of ``WebShop``; only the files, the catalogue and ``goals`` change which goal an instance seed means."""

    max_turns: int = Field(9, ge=1, description="policy replies an episode at most")
    max_actions: int = Field(9, ge=1, description="executed actions an episode at most")
    max_actions_per_turn: int = Field(1, ge=1, le=1, description="actions a turn: always 1, what follows is not seen yet")
    products: str = Field("", description="products file (items_shuffle_*.json, or a product a line); empty = made-up ones")
    attributes: str = Field("", description="attributes and instructions file of the products (items_ins_v2_*.json)")
    human_goals: str = Field("", description="file of people's instructions (items_human_ins.json); with env.goals human")
    catalogue_size: int = Field(1000, ge=1, le=1_000_000, description="made-up products; not beside env.products")
    catalogue_seed: int = Field(0, ge=0, description="another seed makes up another catalogue")
    goals: Kind = Field("synthetic", description="instructions made from the products' attributes and options, or people's")
    reward: Literal["graded", "exact"] = Field("graded", description="the score of the purchase, or 1 only for a full score")
    option_match: OptionMatch = Field("exact", description="equal option values, or the original's token-set ratio above 85")
    observation: Form = Field("full", description="the original's strings joined by [SEP], or a short form for small models")
    results_per_page: int = Field(PER_PAGE, ge=1, le=RESULTS, description="products on a page of results")
    show_chosen: bool = Field(True, description="show the options chosen so far (the original's text does not)")

    @model_validator(mode="after")
    def _files(self) -> "WebShopSettings":
        beside = "attributes" if self.attributes else "human_goals" if self.human_goals else ""
        if beside and not self.products:
            raise ValueError(f"env.{beside} is '{getattr(self, beside)}', but env.products is empty: name the products file")
        if self.goals == "human" and not self.products:
            raise ValueError(
                "env.goals is 'human', but the made-up catalogue has no instructions of people: name env.products and "
                "env.human_goals, or take env.goals synthetic"
            )
        made_up = [
            key for key in ("catalogue_size", "catalogue_seed") if getattr(self, key) != type(self).model_fields[key].default
        ]
        if made_up and self.products:
            raise ValueError(
                f"env.{made_up[0]} is {getattr(self, made_up[0])} and means made-up products, but env.products is "
                f"'{self.products}': leave one of the two out"
            )
        if self.human_goals and self.goals != "human":
            raise ValueError(
                f"env.human_goals is '{self.human_goals}', but env.goals is '{self.goals}', which asks for none of them: "
                "take env.goals human, or leave env.human_goals out"
            )
        return self


class WebShop(Environment):
    """Find and buy what an instruction asks for, in a shop of text pages.

    - Actions: ``search[words]`` on the search page, ``click[label]`` with a label of the page elsewhere. A label that is
      not there is no action.
    - Observation: the page (search, results, item, description, features, reviews) and the labels that can be clicked;
      ``observation: full`` has the original's strings, ``compact`` the same in fewer words, with the goal only in the task.
    - Rewards: with the purchase r_type · (matched attributes + matched options + [price ≤ cap]) / (attributes + options +
      1), from 0 to 1; all other actions 0. Success: a score of 1.
    - End: terminated by Buy Now. It never truncates; the budgets are the rollout's.
    - Instances: the instance seed is the number of the goal; nothing is left to chance.

    Up to 50 results, ``results_per_page`` a page. A second value of an option replaces the first; Back to Search forgets
    all choices, and so does opening a product.
    """

    settings_class: ClassVar[type[EnvSettings]] = WebShopSettings

    def __init__(self, settings: EnvSettings | None = None) -> None:
        super().__init__(settings)
        own = self._own = cast(WebShopSettings, self.settings)
        sources = Sources(own.products, own.attributes, own.human_goals) if own.products else None
        self._shop = open_shop(sources, own.catalogue_size, own.catalogue_seed, own.results_per_page)
        if not len(self._shop.stock.wanted[own.goals]):
            raise ConfigError(_no_goals(own))
        self._goal: Goal | None = None
        self._place = Place()
        self._score: Score | None = None

    @property
    def success(self) -> bool:
        """Whether the purchase scored 1."""
        return self._score is not None and self._score.full

    def reset(self, *, instance_seed: int, dynamics_seed: int) -> Observation:
        """Enter the shop with goal number ``instance_seed``; ``dynamics_seed`` changes nothing."""
        self._goal = self._shop.goal(self._own.goals, instance_seed)
        self._place, self._score = Place(), None
        return Observation(self._render(), {"success": False})

    def step(self, action: str) -> Step:
        """Search or click. Text that is no action of this page changes nothing and pays 0."""
        goal = self._shopping()
        if self._score is not None:
            raise EnvironmentFault("webshop: step() after the end of the episode; call reset() first")
        move = self._move(action)
        if move is None:
            info = {"success": False, "action_is_valid": False, "action_is_effective": False}
            return Step(self._render(), 0.0, terminated=False, info=info)
        before, self._place = self._place, self._following(move)
        pay = 0.0
        if self._place.kind == "done":
            chosen = [value for _, value in self._place.chosen]
            bought = self._shop.stock.catalogue[self._place.product]
            self._score = score(goal, bought, chosen, self._own.option_match)
            pay = float(self._score.full) if self._own.reward == "exact" else self._score.reward
        info = {"success": self.success, "action_is_valid": True, "action_is_effective": self._place != before}
        return Step(self._render(), pay, terminated=self._score is not None, info=info)

    def forms(self) -> tuple[str, ...]:
        """The two kinds of action."""
        return FORMS

    def actions(self) -> tuple[str, ...]:
        """What is possible on this page: a click on each label, or searches made of the instruction."""
        page = self._page()
        if page.can_search:
            return tuple(f"search[{query}]" for query in instruction_queries(self._shopping()))
        return tuple(f"click[{label}]" for label in page.links)

    def match(self, text: str) -> str | None:
        """The action that ``text`` names on this page: case, blanks, outer punctuation and quotes do not count."""
        move = self._move(text)
        return None if move is None else f"{move[0]}[{move[1]}]"

    def instructions(self) -> str:
        """The task, short or in the paper's style, with the goal where the pages do not tell it."""
        if self._own.wording == "verbose":
            text = (
                "You are shopping on a web site. Find a product that meets the instruction, choose its options, and buy it. "
                "On the search page you search for products with search[words]. On any other page you click one of its "
                "labels with click[label]: a product's code opens it, an option's value chooses it, and Buy Now buys it and "
                "ends the episode.\n"
                "Reward: 0 until you buy, then from 0 to 1, by how well the kind of product, its attributes, the chosen "
                "options and the price meet the instruction."
            )
        else:
            text = (
                "WebShop: buy what the instruction asks for, with the right options. search[words] on the search page, then "
                "click[label] with a label in [brackets]: a code opens a product, a value chooses an option, Buy Now ends."
            )
        return f"{text}\nInstruction: {self._shopping().instruction}" if self._own.observation == "compact" else text

    def content(self) -> str | None:
        """The product that the goal was made from: training and evaluation share none."""
        return f"webshop {self._shopping().product.asin}"

    def anchor(self) -> str:
        """The goal and what is to be seen: where an item was found does not count."""
        place = self._place
        found = f"{place.query!r} {place.number}" if place.kind == "results" else f"{place.product} {place.chosen}"
        return f"{self._shopping().instruction!r} {place.kind} {found}"

    def thought(self, rng: np.random.Generator, actions: Sequence[str]) -> str:
        """A short reasoning that names the action (of a longer one its beginning)."""
        verb, _, argument = actions[0].partition("[")
        what = {"search": "search for", "click": "click"}[verb]
        return f"{OPENERS[int(rng.integers(len(OPENERS)))]} {what} {shortened(argument.removesuffix(']'), THOUGHT)}."

    def plan(self) -> tuple[str, ...] | None:
        """The next action towards the goal's own product with the options asked for."""
        move = next_move(self._shop, self._place, self._shopping(), self._own.option_match)
        return None if move is None else (f"{move[0]}[{move[1]}]",)

    def best_success(self) -> float | None:
        """1.0 if the oracle's purchase scores 1 within the budgets, else None: another product might."""
        goal, own = self._shopping(), self._own
        moves, end = walk(self._shop, goal, own.option_match)
        if end.kind != "done" or moves > min(own.max_actions, own.max_turns):
            return None
        bought = self._shop.stock.catalogue[end.product]
        return 1.0 if score(goal, bought, [value for _, value in end.chosen], own.option_match).full else None

    def players(self) -> Mapping[str, Callable[[Environment, np.random.Generator], Sequence[str]]]:
        """``first`` searches for the instruction and buys the first result, without options."""
        return {"first": _first}

    def naive(self) -> tuple[str, ...]:
        """The next action of the shopper who buys the first result."""
        verb, argument = naive_move(self._page(), self._shopping())
        return (f"{verb}[{argument}]",)

    def sight(self) -> Sight:
        """What is to be seen now: the page that the observation tells, as a value."""
        goal, page = self._shopping(), self._page()
        bought = () if self._score is None else conditions(goal, page, self._own.option_match)
        return Sight(goal, page, self._render(), self._score, bought)

    def _shopping(self) -> Goal:
        if self._goal is None:
            raise EnvironmentFault("webshop: no episode has begun; call reset() first")
        return self._goal

    def _page(self) -> Page:
        return self._shop.page(self._place)

    def _move(self, text: str) -> Move | None:
        """The move that a text names on this page."""
        verb, bracket, rest = text.strip(AROUND).partition("[")
        if not bracket or not rest.endswith("]"):
            return None
        page, argument = self._page(), rest[:-1]
        match verb.strip().casefold():
            case "search" if page.can_search and (query := plain_query(argument)):
                return "search", query
            case "click" if label := _label(page, argument):
                return "click", label
        return None

    def _following(self, move: Move) -> Place:
        verb, argument = move
        return self._shop.search(argument) if verb == "search" else self._page().links[argument]

    def _render(self) -> str:
        page = self._page()
        if self._score is not None:
            return receipt(page, self._score)
        if self._own.observation == "compact":
            return compact(page, show_chosen=self._own.show_chosen)
        return full(page, self._shopping().instruction, show_chosen=self._own.show_chosen)


def _label(page: Page, text: str) -> str | None:
    """The label that a text names: equal but for case and blanks, or else the only one equal but for outer punctuation."""
    said = " ".join(text.split()).casefold()
    names = {label.casefold(): label for label in page.links}
    if said in names:
        return names[said]
    bare = said.strip(OUTER)
    close = [label for name, label in names.items() if bare and name.strip(OUTER) == bare]
    return close[0] if len(close) == 1 else None


def _no_goals(own: WebShopSettings) -> str:
    if own.goals == "human":
        return (
            f"env.goals is 'human', but no product of env.products '{own.products}' has a person's instruction: name "
            "env.human_goals (items_human_ins.json), or take env.goals synthetic"
        )
    return (
        f"env.goals is 'synthetic', but no product of env.products '{own.products}' has an instruction: name env.attributes "
        "(items_ins_v2_*.json, of the same products), or take env.goals human"
    )


def _first(env: Environment, rng: np.random.Generator) -> Sequence[str]:
    del rng
    if not isinstance(env, WebShop):
        raise EnvironmentFault(f"the player 'first' plays webshop, not {type(env).__name__}")
    return env.naive()


environments.register("webshop")(
    EnvPreset(
        WebShop, "find and buy what an instruction asks for, in at most 9 actions (products made up, or of env.products)"
    )
)
environments.register("webshop-15")(
    EnvPreset(WebShop, "webshop with the 15 actions of the original's agents", {"max_turns": 15, "max_actions": 15})
)
