"""Environments that misbehave, in a file as a user has it: worker processes load it by its path."""

import os
import signal
import sys
import time
from typing import Any

from ragen.envs import Environment, EnvSettings, Observation, Step


class Stairs(Environment):
    """Climb ``instance_seed % 5 + 3`` stairs; nothing is left to chance."""

    def __init__(self, settings: EnvSettings | None = None) -> None:
        super().__init__(settings or EnvSettings(max_turns=4, max_actions=8, max_actions_per_turn=2))
        self.height = self.goal = self.steps = 0
        self.dynamics = 0

    @property
    def success(self) -> bool:
        return self.height >= self.goal

    def reset(self, *, instance_seed: int, dynamics_seed: int) -> Observation:
        self.goal, self.height, self.steps = instance_seed % 5 + 3, 0, 0
        self.dynamics = dynamics_seed
        return Observation(f"Stair 0 of {self.goal}.")

    def step(self, action: str) -> Step:
        self.steps += 1
        self.misbehave()
        self.height += {"Up": 1, "Down": -1}[action]
        info: dict[str, Any] = {"success": self.success, "action_is_valid": True, "action_is_effective": True}
        return Step(f"Stair {self.height} of {self.goal}.", float(self.height), terminated=self.success, info=info)

    def misbehave(self) -> None: ...

    def actions(self) -> tuple[str, ...]:
        return ("Up", "Down")

    def instructions(self) -> str:
        return "Climb the stairs."

    def content(self) -> str | None:
        return f"stairs {self.goal}"

    def anchor(self) -> str | None:
        return str(self.height)

    @property
    def chosen(self) -> bool:
        """Whether this is the third step of an episode with dynamics seed 13."""
        return self.dynamics == 13 and self.steps == 3


class Raises(Stairs):
    def misbehave(self) -> None:
        if self.chosen:
            raise RuntimeError("the stairs broke")


class Stalls(Stairs):
    def misbehave(self) -> None:
        if self.chosen:
            time.sleep(600)


class Crashes(Stairs):
    def misbehave(self) -> None:
        if self.chosen:
            os._exit(7)


class Killed(Stairs):
    def misbehave(self) -> None:
        if self.chosen:
            os.kill(os.getpid(), signal.SIGKILL)


class Trails(Stairs):
    def misbehave(self) -> None:
        if self.chosen:
            os.write(int(sys.argv[1]), b"\x00\x00\x10\x00half an answer")  # of 4096 bytes
            time.sleep(600)


class Leaves(Stairs):
    def misbehave(self) -> None:
        if self.chosen:
            sys.exit(3)


class Lumbers(Stairs):
    """Takes longer the later it was made, so answers come in another order than questions."""

    def misbehave(self) -> None:
        time.sleep(0.02 * (7 - self.dynamics % 8))


class Drifts(Crashes):
    """Plays otherwise the second time in a process: it cannot be played again elsewhere."""

    def step(self, action: str) -> Step:
        step = super().step(action)
        return Step(f"{step.observation} Process {os.getpid()}.", step.reward, terminated=step.terminated, info=step.info)


class Unsendable(Stairs):
    def step(self, action: str) -> Step:
        step = super().step(action)
        info = {"open": lambda: 1} if self.chosen else {}
        return Step(step.observation, step.reward, terminated=step.terminated, info=info)


class Modules(Stairs):
    """Says which process it lives in, and whether torch is there."""

    def reset(self, *, instance_seed: int, dynamics_seed: int) -> Observation:
        super().reset(instance_seed=instance_seed, dynamics_seed=dynamics_seed)
        heavy = [name for name in ("torch", "transformers") if name in sys.modules]
        return Observation(f"process {os.getpid()} {heavy}")


class StallsAtOnce(Stairs):
    def reset(self, *, instance_seed: int, dynamics_seed: int) -> Observation:
        if os.environ.get("STALL"):
            print("stalling", flush=True)
            time.sleep(600)
        return super().reset(instance_seed=instance_seed, dynamics_seed=dynamics_seed)


def make_stairs() -> Environment:
    return Stairs()
