"""A two-armed bandit whose arms are told apart by what their names suggest (arXiv 2504.20073, "Bi-Arm Bandit")."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from pydantic import Field, field_validator, model_validator

from ragen.envs.base import OUTER, Environment, EnvSettings, Observation, Step, plain_word
from ragen.envs.registry import EnvPreset, environments
from ragen.episode import LARGEST_REWARD
from ragen.errors import EnvironmentFault
from ragen.seeding import SEED_BITS, derive

TRAIN_PROFESSIONS = (
    ("Teacher", "Engineer"),
    ("Nurse", "Gambler"),
    ("Accountant", "Explorer"),
    ("Postman", "Inventor"),
    ("Clerk", "Entrepreneur"),
    ("Gardener", "Prospector"),
    ("Dentist", "Stuntman"),
    ("Secretary", "Investor"),
    ("Baker", "Actor"),
    ("Judge", "Racer"),
    ("Tailor", "Astronaut"),
    ("Farmer", "Musician"),
)
TEST_PROFESSIONS = (
    ("Librarian", "Trader"),
    ("Cashier", "Speculator"),
    ("Janitor", "Adventurer"),
    ("Pharmacist", "Smuggler"),
    ("Bookkeeper", "Pirate"),
    ("Receptionist", "Novelist"),
    ("Plumber", "Diver"),
    ("Optician", "Boxer"),
)

_THOUGHTS = (
    "{arm} sounds like it pays more than {other}.",
    "The name {arm} suggests good rewards, so I pull {arm}.",
    "{other} or {arm}? I guess {arm} pays better on average.",
    "I compare {arm} and {other}. {arm} seems the better choice.",
    "Names hint at rewards: {arm} looks promising to me.",
    "{other} feels weaker here, so I go with {arm}.",
    "What does {arm} stand for? I expect it to pay well.",
    "Between {other} and {arm}, the second sounds more rewarding.",
    "I think about both names and trust {arm} more.",
    "{arm} may be worth more on average than {other}.",
    "Thinking of {other}, I expect less. I choose {arm}.",
    "My reading of the names is that {arm} wins.",
)


class BanditSettings(EnvSettings):
    """Settings of the bandit: pairs of arm names and what the arms pay."""

    max_turns: int = Field(1, ge=1, le=1, description="policy replies an episode: always 1")
    max_actions: int = Field(1, ge=1, le=1, description="pulls an episode: always 1")
    max_actions_per_turn: int = Field(1, ge=1, le=1, description="pulls a turn: always 1")
    pairs: tuple[tuple[str, str], ...] = Field(
        (("Phoenix", "Dragon"),), min_length=1, description="(low-risk, high-risk) arm names; the instance picks a pair"
    )
    low_reward: float = Field(
        0.15,
        ge=-LARGEST_REWARD,
        le=LARGEST_REWARD,
        description="what the low-risk arm always pays (0.1 in the paper's released code)",
    )
    high_reward: float = Field(
        1.0, ge=-LARGEST_REWARD, le=LARGEST_REWARD, description="what the high-risk arm pays when it pays"
    )
    high_probability: float = Field(0.25, ge=0, le=1, description="how often the high-risk arm pays")

    @field_validator("pairs")
    @classmethod
    def _names(cls, pairs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        for pair in pairs:
            words = [name.strip(OUTER).casefold() for name in pair]
            if not all(words) or words[0] == words[1] or not all(map(plain_word, pair)):
                raise ValueError(
                    f"the arm names {pair!r} must be two different words, printable, without '||', '<', '>' and outer blanks"
                )
        return pairs

    @model_validator(mode="after")
    def _one_best_arm(self) -> "BanditSettings":
        if self.low_reward == self.high_reward * self.high_probability:
            raise ValueError(
                f"both arms pay {self.low_reward} on average, so neither is the better one: change env.low_reward, "
                "env.high_reward or env.high_probability"
            )
        return self


class Bandit(Environment):
    """One pull of one of two named arms: their names suggest which pays more on average.

    - Actions: the two arm names, in an order the instance shuffles.
    - Observation: the two names as a question; after the pull, what it paid.
    - Rewards: the low-risk arm always pays ``low_reward``; the high-risk arm pays ``high_reward`` with probability
      ``high_probability``, else 0.
    - End: after one pull. Success: the pulled arm is the one with the higher mean, whatever it paid.
    - Instances: which pair of names and their order (two prompts a pair); the dynamics seed fixes the payoff.
    """

    settings_class: ClassVar[type[EnvSettings]] = BanditSettings
    settings: BanditSettings

    def __init__(self, settings: BanditSettings | None = None) -> None:
        super().__init__(settings)
        mean = self.settings.high_reward * self.settings.high_probability
        self._best = int(mean > self.settings.low_reward)
        self._pair = self.settings.pairs[0]
        self._arms = self._pair
        self._payoff = 0.0
        self._pulled: str | None = None
        self._ready = False

    @property
    def success(self) -> bool:
        """True once the arm with the higher mean was pulled."""
        return self._pulled == self._pair[self._best]

    def reset(self, *, instance_seed: int, dynamics_seed: int) -> Observation:
        """Choose pair and order by the instance, the high-risk arm's payoff by the dynamics."""
        pairs = self.settings.pairs
        self._pair = pairs[derive(instance_seed, "bandit", "pair") % len(pairs)]
        self._arms = self._pair if derive(instance_seed, "bandit", "order") % 2 else self._pair[::-1]
        pays = derive(dynamics_seed, "bandit", "payoff") < self.settings.high_probability * 2**SEED_BITS
        self._payoff = self.settings.high_reward if pays else 0.0
        self._pulled, self._ready = None, True
        return Observation(self._question())

    def step(self, action: str) -> Step:
        """Pull an arm, which ends the episode; an unknown name pulls nothing."""
        if not self._ready:
            raise EnvironmentFault("the bandit's episode is over (or never began): call reset before step")
        if action not in self._arms:
            info = {"success": False, "action_is_valid": False, "action_is_effective": False}
            return Step(self._question(), 0.0, terminated=False, info=info)
        self._pulled, self._ready = action, False
        reward = self.settings.low_reward if action == self._pair[0] else self._payoff
        info = {"success": self.success, "action_is_valid": True, "action_is_effective": True}
        return Step(f"You pulled {action} and received {reward:g}.", reward, terminated=True, info=info)

    def actions(self) -> tuple[str, ...]:
        """The two arm names in this instance's order."""
        return self._arms

    def instructions(self) -> str:
        """The task; the arms themselves are the actions the prompt lists."""
        if self.settings.wording == "verbose":
            return (
                "You are playing a bandit game. Goal: maximize your reward by choosing which arm to pull.\n"
                "Game rules:\n"
                f"1. There are 2 arms, named {self._arms[0]} and {self._arms[1]}.\n"
                "2. Each arm has its own reward distribution, related to its name.\n"
                "3. Analyze the symbolic meaning of each arm's name to guess how its reward distribution might behave.\n"
                "4. Based on the symbolic meaning of their names, decide which arm is more likely to give higher rewards "
                "on average."
            )
        return "Pull the arm that pays more on average. Rewards relate to the names: reason about what the names suggest."

    def anchor(self) -> str:
        """The question, and what was pulled."""
        return f"{self._question()} {self._pulled or ''}"

    def thought(self, rng: np.random.Generator, actions: Sequence[str]) -> str:
        """A short reasoning for pulling ``actions[0]``; one set of sentences serves both arms: it teaches the format."""
        arm = actions[0]
        other = self._arms[1] if arm == self._arms[0] else self._arms[0]
        return _THOUGHTS[int(rng.integers(len(_THOUGHTS)))].format(arm=arm, other=other)

    def plan(self) -> tuple[str, ...]:
        """The arm with the higher mean."""
        return (self._pair[self._best],)

    def best_success(self) -> float:
        """1.0: the best arm can always be pulled."""
        return 1.0

    def _question(self) -> str:
        return f"{self._arms[0]} or {self._arms[1]}?"


def _register(name: str, about: str, pairs: tuple[tuple[str, str], ...]) -> None:
    environments.register(name)(EnvPreset(Bandit, about, {"pairs": pairs}))


def _reverse(pairs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple((high, low) for low, high in pairs)


_register("bandit", "Two arms: Phoenix (low risk) and Dragon (high risk); 1 turn", (("Phoenix", "Dragon"),))
_register("bandit-rev", "bandit with the names swapped: Dragon (low risk), Phoenix (high risk)", (("Dragon", "Phoenix"),))
_register("bandit-teacher", "Training pair: Teacher (low risk), Engineer (high risk)", (("Teacher", "Engineer"),))
_register("bandit-teacher-rev", "bandit-teacher with the names swapped", (("Engineer", "Teacher"),))
_register(
    "bandit-librarian", "Test pair of bandit-teacher: Librarian (low risk), Trader (high risk)", (("Librarian", "Trader"),)
)
_register("bandit-librarian-rev", "Test pair of bandit-teacher-rev: the names swapped", (("Trader", "Librarian"),))
_register("bandit-professions", "Twelve training pairs of professions", TRAIN_PROFESSIONS)
_register("bandit-professions-rev", "bandit-professions with the names swapped", _reverse(TRAIN_PROFESSIONS))
_register("bandit-professions-test", "Eight other pairs of professions, to test bandit-professions", TEST_PROFESSIONS)
_register("bandit-professions-test-rev", "bandit-professions-test with the names swapped", _reverse(TEST_PROFESSIONS))
