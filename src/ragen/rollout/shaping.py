"""What training pays beside the task's reward and the format penalty: a process reward and the overlong penalty."""

from collections.abc import Sequence
from dataclasses import dataclass

from ragen.envs.base import Environment
from ragen.rewards import ProcessReward, Reasoning, overlong_penalty
from ragen.text.parser import named_actions


@dataclass(frozen=True, slots=True)
class Shaping:
    """The rules; by default there are none, as in evaluation, demonstrations and play.

    ``process_coef`` scales the scores of ``process``; ``overlong_buffer`` (tokens, 0 = off) and ``overlong_coef`` are those
    of the overlong penalty. None of it is told to the policy: the prompts of training and evaluation are the same.
    """

    process: ProcessReward | None = None
    process_coef: float = 0.0
    overlong_buffer: int = 0
    overlong_coef: float = 0.0

    def reasoning(self, env: Environment, thought: str | None, observation: str) -> Reasoning | None:
        """What the process reward needs of a reply and the state it answers, taken before anything moves; None without one.

        Raises:
            EnvironmentFault: the environment (behind its guard) failed to tell.
        """
        if self.process is None:
            return None
        thought = thought or ""
        facts = env.facts() if self.process.needs_facts else ()
        words = env.actions() if env.tools() is None else ()  # a thought names no calls
        return Reasoning(thought, named_actions(thought, words, env.match), observation, facts)

    def score(self, reasoning: Reasoning | None, actions: Sequence[str], *, valid: bool) -> float | None:
        """The process reward's score in [0, 1]: 0 for a turn without a valid answer; None without a process reward."""
        if self.process is None or reasoning is None:
            return None
        return self.process(reasoning, actions) if valid else 0.0

    def overlong(self, length: int, limit: int) -> float:
        """The penalty (≤ 0) of a reply of ``length`` tokens where ``limit`` are allowed."""
        return self.overlong_coef * overlong_penalty(length, limit=limit, buffer=self.overlong_buffer)
