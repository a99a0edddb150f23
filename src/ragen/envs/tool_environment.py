"""Environments whose actions are tool calls and a final answer."""

from abc import abstractmethod
from typing import ClassVar

from pydantic import Field

from ragen.envs.base import Environment, EnvSettings, Observation, Step
from ragen.errors import EnvironmentFault
from ragen.registry import nearest
from ragen.tools import Tool, ToolError
from ragen.tools.call import FINAL, Call, CallError, bounded, final, final_text, harmless, read_call

SHOWN_NAME = 40  # characters of an unknown tool's name that are told


class ToolSettings(EnvSettings):
    """Settings every environment with tools has; actions are calls and the final answer."""

    max_turns: int = Field(6, ge=1, description="policy replies an episode at most")
    max_actions: int = Field(12, ge=1, description="calls an episode at most, the final answer included")
    max_actions_per_turn: int = Field(4, ge=1, description="calls a turn at most; further ones are not made")
    max_output: int = Field(1000, ge=20, description="characters of a tool's answer at most; the rest is cut, which is told")


class ToolEnvironment(Environment):
    """Base class of environments in which an agent calls tools and then answers.

    An action is a call in canonical spelling, ``{"name": …, "arguments": {…}}``; the final answer is the call of the
    reserved name ``answer``. Subclasses give ``start``, ``tools``, ``judge``, ``actions`` and ``instructions``. What a tool
    does wrong (it raises, it takes too long) is an observation, and so is a call that cannot be made; answers are bounded,
    and their tags defused, so that they forge nothing. An error of RAGEN itself (no sandbox can be built) is none: it is a
    fault, which costs the episode. The same calls must get the same answers in an instance.
    """

    settings_class: ClassVar[type[EnvSettings]] = ToolSettings
    settings: ToolSettings

    def __init__(self, settings: EnvSettings | None = None) -> None:
        super().__init__(settings)
        self._reward: float | None = None
        self._begun = False
        self.calls_made = 0

    @abstractmethod
    def start(self, instance_seed: int, dynamics_seed: int) -> str:
        """Set up the instance; returns the question."""

    @abstractmethod
    def tools(self) -> tuple[Tool, ...]:
        """What the agent may call in every instance; may be empty."""

    @abstractmethod
    def judge(self, answer: str) -> float:
        """The reward of a final answer; 1 or more is a success."""

    @abstractmethod
    def actions(self) -> tuple[str, ...]:
        """Calls and answers that make sense from the first turn on: what the player ``random`` draws from."""

    def solution(self) -> str | None:
        """The right answer, told at the end and given by the oracle; None = it is not known."""
        return None

    @property
    def success(self) -> bool:
        """Whether the right answer was given."""
        return self._reward is not None and self._reward >= 1

    def reset(self, *, instance_seed: int, dynamics_seed: int) -> Observation:
        """Start an episode."""
        self._reward, self.calls_made, self._begun = None, 0, True
        return Observation(self.start(instance_seed, dynamics_seed))

    def step(self, action: str) -> Step:
        """Make a call; a final answer ends the episode."""
        if not self._begun or self._reward is not None:
            raise EnvironmentFault(f"{type(self).__name__}: step() outside an episode; call reset() first")
        try:
            call = self._read(action)
            answer = final_text(call)
        except CallError as error:
            info = {"success": False, "action_is_valid": False, "action_is_effective": False}
            return Step(self._told(f"Error: {error}"), 0.0, terminated=False, info=info)
        if answer is not None:
            return self._end(answer)
        self.calls_made += 1
        try:
            text, fine = self._tool(call.name)(call.arguments), True
        except ToolError as error:
            text, fine = f"Error: {error}", False
        info = {"success": False, "action_is_valid": True, "action_is_effective": fine}
        return Step(self._told(text), 0.0, terminated=False, info=info)

    def match(self, text: str) -> str | None:
        """The call that a text spells, in canonical spelling; None for one that cannot be made."""
        try:
            return str(self._read(text))
        except CallError:
            return None

    def problem(self, text: str) -> str:
        """Why a call cannot be made."""
        try:
            self._read(text)
        except CallError as error:
            return self._told(f"Error: {error}")
        return ""

    def plan(self) -> tuple[str, ...] | None:
        """The right answer at once; None where it is not known, or given."""
        solution = self.solution()
        return None if solution is None or self._reward is not None else (final(solution),)

    def best_success(self) -> float | None:
        """1 where the right answer is known: it can always be given."""
        return None if self.solution() is None else 1.0

    def _end(self, answer: str) -> Step:
        self._reward = float(self.judge(answer))
        solution = self.solution()
        told = "Right." if self.success else f"Not right{f': it is {solution}' if solution is not None else ''}."
        info = {"success": self.success, "action_is_valid": True, "action_is_effective": True}
        return Step(self._told(told), self._reward, terminated=True, info=info)

    def _read(self, text: str) -> Call:
        """A call that can be made; CallError says why it cannot."""
        call = read_call(text)
        if call.name == FINAL:
            return Call(FINAL, {"text": final_text(call)})
        return self._tool(call.name).canonical(call.arguments)

    def _tool(self, name: str) -> Tool:
        known = {tool.name: tool for tool in self.tools()}
        if name not in known:
            hint = nearest(name, list(known)) if known else "there are none here, only answer"
            raise CallError(f"there is no tool '{name[:SHOWN_NAME]}': {hint}")
        return known[name]

    def _told(self, text: str) -> str:
        return harmless(bounded(text, self.settings.max_output))
