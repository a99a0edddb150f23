"""Any ``gymnasium.Env`` as a text environment: give it a text renderer and a table of actions.

Gymnasium has one seed: ``reset`` is seeded with the instance seed, then the environment's generator is replaced by one of
the dynamics seed, so members of a group share the start and differ in chance. The environment must draw from gymnasium's
``np_random`` for that.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ragen.envs.base import Environment, EnvSettings, Observation, Step
from ragen.errors import ConfigError, EnvironmentFault
from ragen.extras import install_command
from ragen.seeding import derive

Render = Callable[[Any, Any], str]
Success = Callable[[float, bool, Mapping[str, Any]], bool]


class GymEnvironment(Environment):
    """Plays a ``gymnasium.Env`` by words."""

    def __init__(
        self,
        make: Callable[[], Any] | str,
        *,
        actions: Mapping[str, Any],
        render: Render,
        instructions: str,
        success: Success,
        content: Render | None = None,
        settings: EnvSettings | None = None,
    ) -> None:
        """Wrap an environment.

        Arguments:
            make: makes the environment, or its gymnasium id (then the extra 'gymnasium' is needed).
            actions: the table from action words to the environment's actions.
            render: (environment, observation) → the text the agent sees.
            instructions: what the task is and what the text means.
            success: (sum of rewards so far, terminated, the last info) → whether the task is solved.
            content: (environment, observation) → what identifies the initial state; None exempts it from the check that
                evaluation and training share no instance.
            settings: the episode's budgets.
        """
        super().__init__(settings)
        if not actions:
            raise ConfigError("the action table is empty: give at least one word, such as {'Left': 0}")
        self._env = _make_by_id(make) if isinstance(make, str) else make()
        self._table = dict(actions)
        self._render, self._instructions, self._is_success, self._key = render, instructions, success, content
        self._content: str | None = None
        self._text = ""
        self._return = 0.0
        self._success = False
        self._playing = False

    @property
    def success(self) -> bool:
        """The ``success`` rule's verdict after the last step; False at the start."""
        return self._success

    def reset(self, *, instance_seed: int, dynamics_seed: int) -> Observation:
        """Start an episode; see the class's text for the two seeds."""
        observation, _ = self._env.reset(seed=instance_seed)
        rng = np.random.default_rng(derive(dynamics_seed, "gymnasium", "dynamics"))
        self._env.unwrapped.np_random = rng
        self._content = self._key(self._env, observation) if self._key is not None else None
        self._text = self._render(self._env, observation)
        self._return, self._success, self._playing = 0.0, False, True
        return Observation(self._text, {"success": False})

    def step(self, action: str) -> Step:
        """Execute a word of the table; text that is none changes nothing. Effective = the text changed."""
        if not self._playing:
            raise EnvironmentFault("gymnasium environment: step() outside an episode; call reset() first")
        if action not in self._table:
            info = {"success": self._success, "action_is_valid": False, "action_is_effective": False}
            return Step(self._text, 0.0, terminated=False, info=info)
        observation, reward, terminated, truncated, extra = self._env.step(self._table[action])
        before, self._text = self._text, self._render(self._env, observation)
        self._return += float(reward)
        self._success = bool(self._is_success(self._return, bool(terminated), extra))
        self._playing = not (terminated or truncated)
        info = {"success": self._success, "action_is_valid": True, "action_is_effective": self._text != before}
        return Step(self._text, float(reward), terminated=bool(terminated), truncated=bool(truncated), info=info)

    def actions(self) -> tuple[str, ...]:
        """The words of the action table."""
        return tuple(self._table)

    def instructions(self) -> str:
        """The given text."""
        return self._instructions

    def content(self) -> str | None:
        """What ``content`` said of the initial state."""
        return self._content


def _make_by_id(name: str) -> Any:
    try:
        import gymnasium
    except ImportError:
        raise ConfigError(
            f"the environment '{name}' needs gymnasium, which is not installed: {install_command('gymnasium')}"
        ) from None
    try:
        return gymnasium.make(name)
    except gymnasium.error.Error as error:
        raise ConfigError(f"gymnasium cannot make '{name}': {error}") from None
