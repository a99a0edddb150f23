"""What a process reward is, and where process rewards are found by name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ragen.envs.facts import Fact
from ragen.errors import ConfigError
from ragen.registry import Registry


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A reply's reasoning in the state it answers, before anything moved.

    ``thought`` is the text without tags, ``named`` the actions it names (canonical spelling, in order, as often as named),
    ``observation`` the environment's text, ``facts`` what was so in the state (empty unless the rule needs them).
    """

    thought: str
    named: tuple[str, ...]
    observation: str
    facts: tuple[Fact, ...] = ()


Rule = Callable[[Reasoning, Sequence[str]], float]


@dataclass(frozen=True, slots=True)
class ProcessReward:
    """A registered rule: a pure function of a reasoning and the actions that were executed, to a score in [0, 1]."""

    name: str
    compute: Rule
    needs_facts: bool

    def __call__(self, reasoning: Reasoning, actions: Sequence[str]) -> float:
        """The score; ConfigError where the rule leaves [0, 1]."""
        score = float(self.compute(reasoning, actions))
        if not 0 <= score <= 1:
            raise ConfigError(
                f"process reward '{self.name}' gave {score}: a score must be in [0, 1] (reward.coef scales it)"
            )
        return score


process_rewards: Registry[ProcessReward] = Registry(
    "process reward", plural="process_rewards", fits=lambda part: isinstance(part, ProcessReward)
)


def register_process_reward(name: str, *, needs_facts: bool = False) -> Callable[[Rule], Rule]:
    """Decorator that registers a function as a process reward; ``needs_facts`` asks for ``Environment.facts``."""

    def add(compute: Rule) -> Rule:
        process_rewards.register(name)(ProcessReward(name, compute, needs_facts))
        return compute

    return add
