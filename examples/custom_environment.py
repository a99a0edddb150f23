"""An environment of your own in one file: find a number. Run it: ``python examples/custom_environment.py``.

The class is all that training needs; see docs/environments.md for what each method means.
"""

import ragen
from ragen.envs import check_environment
from ragen.seeding import derive


class GuessSettings(ragen.EnvSettings):
    """Three turns of one guess each."""

    max_turns: int = 3
    max_actions: int = 3
    max_actions_per_turn: int = 1


class GuessNumber(ragen.Environment):
    """Find one of seven numbers; after each guess you are told where it lies. Reward 1 when found."""

    settings_class = GuessSettings

    def reset(self, *, instance_seed: int, dynamics_seed: int) -> ragen.Observation:
        self.first = self.low = 10 + derive(instance_seed, "guess", "range") % 80
        self.high = self.low + 6
        self.number = self.low + derive(instance_seed, "guess", "number") % 7
        self.found = False
        return ragen.Observation(self.state())

    def step(self, action: str) -> ragen.Step:
        guess, before = int(action), (self.low, self.high)
        self.found = guess == self.number
        self.low = max(self.low, guess + (guess < self.number)) if guess <= self.number else self.low
        self.high = min(self.high, guess - (guess > self.number)) if guess >= self.number else self.high
        info = {"success": self.found, "action_is_valid": True, "action_is_effective": before != (self.low, self.high)}
        return ragen.Step(self.state(), float(self.found), terminated=self.found, info=info)

    def state(self) -> str:
        return f"It is {self.low}." if self.found else f"It lies from {self.low} to {self.high}."

    @property
    def success(self) -> bool:
        return self.found

    def actions(self) -> tuple[str, ...]:
        return tuple(str(self.first + i) for i in range(7))

    def instructions(self) -> str:
        return "Find the hidden number. Guess one number a turn."

    def content(self) -> str:
        return f"{self.first} {self.number}"  # evaluation instances are kept out of training by this text

    def plan(self) -> tuple[str, ...]:
        return (str((self.low + self.high) // 2),)  # optional: best play, shown beside the agent


if __name__ == "__main__":
    print("contract:", check_environment(GuessNumber) or "holds")
    result = ragen.train("bandit-starpo-s-grpo-tiny", {"steps": 30}, env=GuessNumber)
    print(f"success {result.before.success:.2f} → {result.after.success:.2f}; look: ragen show {result.run}")
