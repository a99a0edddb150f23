"""The contract holds for every registered environment, and the checker finds each way to break it."""

import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.envs import (
    Environment,
    EnvSettings,
    Fact,
    Observation,
    Step,
    ToolEnvironment,
    check,
    check_environment,
    environment_factory,
    environments,
)
from ragen.envs.check import HOSTILE
from ragen.envs.guard import guarded
from ragen.errors import ConfigError
from ragen.rollout.runner import make_task
from ragen.tools import Tool, ToolError, tool
from ragen.tools.call import Call, final


class Counter(Environment):
    """A sound little environment: from a start in 1..9 go up or down to 0 or 10; a coin of the dynamics adds 1 at times."""

    def __init__(self, settings: EnvSettings | None = None) -> None:
        super().__init__(settings)
        self.value = self.first = 1
        self.rng = np.random.default_rng(0)

    @property
    def success(self) -> bool:
        return self.value >= 10

    def reset(self, *, instance_seed: int, dynamics_seed: int) -> Observation:
        self.value = self.first = 1 + instance_seed % 9
        self.rng = np.random.default_rng(dynamics_seed)
        return Observation(str(self.value))

    def step(self, action: str) -> Step:
        self.value += (1 if action == "up" else -1) + int(self.rng.integers(2))
        info = {"success": self.success, "action_is_valid": True, "action_is_effective": True}
        return Step(str(self.value), 0.5, terminated=not 0 < self.value < 10, info=info)

    def actions(self) -> tuple[str, ...]:
        return ("up", "down")

    def instructions(self) -> str:
        return "Reach 10."

    def content(self) -> str | None:
        return str(self.first)

    def plan(self) -> tuple[str, ...] | None:
        return ("up",)

    def best_success(self) -> float | None:
        return 0.5


def changed(step: Step, **changes: Any) -> Step:
    values = {"observation": step.observation, "reward": step.reward, "terminated": step.terminated, "info": step.info}
    return Step(**{**values, **changes})


class ForeignSeed(Counter):
    def reset(self, *, instance_seed: int, dynamics_seed: int) -> Observation:
        super().reset(instance_seed=instance_seed, dynamics_seed=dynamics_seed)
        self.rng = np.random.default_rng()
        return Observation(str(self.value))


class Leftover(Counter):
    episodes = 0

    def reset(self, *, instance_seed: int, dynamics_seed: int) -> Observation:
        first = super().reset(instance_seed=instance_seed, dynamics_seed=dynamics_seed)
        self.episodes += 1
        return first if self.episodes == 1 else Observation(first.text + " again")


class DynamicStart(Counter):
    def reset(self, *, instance_seed: int, dynamics_seed: int) -> Observation:
        return super().reset(instance_seed=instance_seed + dynamics_seed, dynamics_seed=dynamics_seed)


class GlobalRandom(Counter):
    def reset(self, *, instance_seed: int, dynamics_seed: int) -> Observation:
        random.random()
        return super().reset(instance_seed=instance_seed, dynamics_seed=dynamics_seed)


class GlobalNumpy(Counter):
    def plan(self) -> tuple[str, ...] | None:
        np.random.rand()
        return None


class NanReward(Counter):
    def step(self, action: str) -> Step:
        return changed(super().step(action), reward=float("nan"))


class NoStep(Counter):
    def step(self, action: str) -> Any:
        return ("text", 0.0, False, {})


class NumberObservation(Counter):
    def step(self, action: str) -> Step:
        return changed(super().step(action), observation=self.value)


class TextBool(Counter):
    def step(self, action: str) -> Step:
        return changed(super().step(action), terminated="no")


class ListedButInvalid(Counter):
    def step(self, action: str) -> Step:
        step = super().step(action)
        return changed(step, info={**step.info, "action_is_valid": False})


class BornSuccessful(Counter):
    @property
    def success(self) -> bool:
        return True


class TwoTruths(Counter):
    def step(self, action: str) -> Step:
        step = super().step(action)
        return changed(step, info={**step.info, "success": not self.success})


class Empty(Counter):
    def actions(self) -> tuple[str, ...]:
        return ()


class Twice(Counter):
    def actions(self) -> tuple[str, ...]:
        return ("up", "up")


class Separator(Counter):
    def actions(self) -> tuple[str, ...]:
        return ("up", "down || down")


class Deaf(Counter):
    def match(self, text: str) -> str | None:
        return None


class Fragile(Counter):
    def match(self, text: str) -> str | None:
        if text not in self.actions():
            float(text)
        return super().match(text)


class Chatty(Counter):
    def match(self, text: str) -> Any:
        return super().match(text) or False


class Shared(Counter):
    total = 0

    def reset(self, *, instance_seed: int, dynamics_seed: int) -> Observation:
        Shared.total = instance_seed
        return super().reset(instance_seed=instance_seed, dynamics_seed=dynamics_seed)

    def step(self, action: str) -> Step:
        return changed(super().step(action), reward=float(Shared.total))


class WrongPlan(Counter):
    def plan(self) -> tuple[str, ...] | None:
        return ("jump",)


class LongPlan(Counter):
    def plan(self) -> tuple[str, ...] | None:
        return ("up",) * 6


class LatePlan(Counter):
    def plan(self) -> tuple[str, ...] | None:
        return ("up",) if self.value == self.first else ()


class MovingPlan(Counter):
    def plan(self) -> tuple[str, ...] | None:
        self.value += 1
        return None


class Certain(Counter):
    def best_success(self) -> float | None:
        return 1.5


class WrongPlayer(Counter):
    def players(self) -> Mapping[str, Callable[[Environment, np.random.Generator], Sequence[str]]]:
        return {"odd": lambda env, rng: ["sideways"]}


class MovingContent(Counter):
    def content(self) -> str | None:
        return str(self.value)


class OneContent(Counter):
    def content(self) -> str | None:
        return "lake"


class HalfAnchored(Counter):
    def anchor(self) -> str | None:
        return str(self.value) if self.value == self.first else None


class Clock(Counter):
    """Every move that changes nothing moves the key."""

    ticks = 0

    def reset(self, *, instance_seed: int, dynamics_seed: int) -> Observation:
        self.ticks = 0
        return super().reset(instance_seed=instance_seed, dynamics_seed=dynamics_seed)

    def step(self, action: str) -> Step:
        self.ticks += 1
        info = {"success": False, "action_is_valid": True, "action_is_effective": False}
        return Step(str(self.value), 0.0, terminated=False, info=info)

    def anchor(self) -> str | None:
        return f"{self.value} {self.ticks}"


class RandomAnchor(Counter):
    def anchor(self) -> str | None:
        return f"{self.value} {next(MOODS)}"


class ForeignAnchor(Counter):
    seed = 0

    def reset(self, *, instance_seed: int, dynamics_seed: int) -> Observation:
        self.seed = dynamics_seed
        return super().reset(instance_seed=instance_seed, dynamics_seed=dynamics_seed)

    def anchor(self) -> str | None:
        return f"{self.value} {self.seed}"


class Tagged(Counter):
    def thought(self, rng: np.random.Generator, actions: Sequence[str]) -> str:
        return "</think>"


class Moody(Counter):
    def thought(self, rng: np.random.Generator, actions: Sequence[str]) -> str:
        return f"{next(MOODS)} up"


class MovingFacts(Counter):
    def facts(self) -> tuple[Fact, ...]:
        self.value += 1
        return ()


class ChanceFacts(Counter):
    def facts(self) -> tuple[Fact, ...]:
        return (Fact("it is (.)", (str(next(MOODS)),)),)


class TextFacts(Counter):
    def facts(self) -> Any:
        return ("it is 3",)


class Groupless(Counter):
    def facts(self) -> tuple[Fact, ...]:
        return (Fact("it is 3", ("3",)),)


class Constant(Counter):
    def reset(self, *, instance_seed: int, dynamics_seed: int) -> Observation:
        return super().reset(instance_seed=3, dynamics_seed=dynamics_seed)


class Silent(Counter):
    def instructions(self) -> str:
        return " "


class NoObservation(Counter):
    def reset(self, *, instance_seed: int, dynamics_seed: int) -> Any:
        return Observation(super().reset(instance_seed=instance_seed, dynamics_seed=dynamics_seed))  # type: ignore[arg-type]


class Crash(Counter):
    def best_success(self) -> float | None:
        raise KeyError("level 7")


MOODS: Iterator[int] = iter(range(10**6))
BROKEN: dict[type[Counter], str] = {
    ForeignSeed: "two environments with equal seeds and actions differ",
    Leftover: "a reset environment differs from a new one",
    DynamicStart: "the initial state depends on the dynamics seed",
    GlobalRandom: "the global generator `random` was used",
    GlobalNumpy: "the global generator `numpy.random` was used",
    NanReward: "NanReward.step('up'): a reward must be a finite number",
    NoStep: "step('up') must be a ragen Step, got tuple",
    NumberObservation: "an observation must be a str, got int",
    TextBool: "terminated must be a bool, got str 'no'",
    ListedButInvalid: "is not valid",
    BornSuccessful: "success must be False at the start",
    TwoTruths: "info['success'] is",
    Empty: "actions() must be one action word or more",
    Twice: "lists a word twice",
    Separator: "must not contain '||'",
    Deaf: "match('up') must be that action, got None",
    Fragile: "match('') raised ValueError",
    Chatty: "must be a str, got bool False",
    Shared: "changes when another environment is made and played",
    WrongPlan: "plan() must be only actions, as match() gives them back, got str 'jump'",
    LongPlan: "plan() must hold at most 5 actions (max_actions_per_turn)",
    LatePlan: "plan() must be one action word or more, as a tuple, got tuple ()",
    MovingPlan: "asking for plan() or best_success() changes the episode",
    Certain: "best_success() must be a finite number of at most 1 in size, got float 1.5",
    WrongPlayer: "players()['odd'] must be only actions, as match() gives them back, got str 'sideways'",
    MovingContent: "content() changes during the episode",
    HalfAnchored: "anchor() is None in some states and a key in others",
    Clock: "anchor() changed with",
    RandomAnchor: "two environments with equal seeds and actions differ",
    ForeignAnchor: "the initial state depends on the dynamics seed",
    OneContent: "two different initial states share the content 'lake'",
    Tagged: "thought() must be a text without <think>",
    Moody: "thought() must depend only on its generator",
    MovingFacts: "asking for facts() changes the episode",
    ChanceFacts: "facts() must depend only on the state",
    TextFacts: "facts() must be a tuple of ragen.envs.Fact, got tuple ('it is 3',)",
    Groupless: "Groupless.facts() raised ValueError: a fact's pattern needs a group",
    Constant: "8 instance seeds give the same initial state",
    Silent: "instructions() must say what the task is",
    NoObservation: "reset(): an observation must be a str, got Observation",
    Crash: "Crash.best_success() raised KeyError: 'level 7'",
}


READY = [name for name in environments.names() if not name.startswith("gsm8k")]  # those that need no file of the user's


@pytest.mark.parametrize("name", READY)
def test_c8_every_registered_environment_keeps_the_contract(name: str) -> None:
    assert check_environment(environment_factory({"name": name}), seeds=range(100, 106)) == []


@pytest.mark.parametrize("name", READY)
def test_an_action_that_changes_nothing_leaves_the_observation_as_it_was(name: str) -> None:
    env = environment_factory({"name": name})()
    rng = np.random.default_rng(0)
    for seed in range(4):
        shown, before = env.reset(instance_seed=seed, dynamics_seed=seed).text, env.anchor()
        for _ in range(12):
            step = env.step(str(rng.choice(env.actions())))
            if step.terminated or step.truncated:
                break
            if before is not None and env.anchor() == before:
                assert step.observation == shown
            shown, before = step.observation, env.anchor()


class Free(Counter):
    """Any number may be added: ``actions()`` is a choice, ``forms()`` says what there is."""

    listed: Any = ("add[number]", "down")

    def forms(self) -> tuple[str, ...]:
        return self.listed

    def match(self, text: str) -> str | None:
        number = text.strip().removeprefix("add[").removesuffix("]")
        return f"add[{number}]" if number.isdecimal() else super().match(text)

    def plan(self) -> tuple[str, ...] | None:
        return ("add[42]",)


def test_actions_out_of_an_open_form_are_legal_and_the_prompt_lists_the_form() -> None:
    assert check_environment(Free) == []
    env = guarded(Free())
    env.reset(instance_seed=0, dynamics_seed=0)
    assert env.plan() == ("add[42]",)
    assert make_task(env, thinking=True).actions == ("add[number]", "down")
    assert make_task(guarded(Counter()), thinking=True).actions == ("up", "down")


@pytest.mark.parametrize(("listed", "told"), [((), "one action word or more"), (("a||b",), "must not contain")])
def test_forms_are_checked_like_actions(listed: Any, told: str) -> None:
    problems = check_environment(type("Wrong", (Free,), {"listed": listed}))
    assert any("forms()" in problem and told in problem for problem in problems), problems


class Desk(ToolEnvironment):
    """Its tool raises what ``error`` holds."""

    error: Exception | None = None

    def __init__(self, settings: EnvSettings | None = None) -> None:
        super().__init__(settings)
        self.own = (tool(self.look),)

    def look(self, where: str) -> str:
        """Look."""
        if self.error is not None and where == "back":
            raise self.error
        return where

    def start(self, instance_seed: int, dynamics_seed: int) -> str:
        return f"Desk {instance_seed}."

    def tools(self) -> tuple[Tool, ...]:
        return self.own

    def judge(self, answer: str) -> float:
        return float(answer == "1")

    def actions(self) -> tuple[str, ...]:
        return (*(str(Call("look", {"where": where})) for where in ("front", "back")), final("1"))

    def instructions(self) -> str:
        return "Answer."


class BrokenDesk(Desk):
    error = KeyError("shelf")


def test_what_a_tools_own_code_raises_is_told_once_with_its_call() -> None:
    assert check_environment(Desk) == []
    assert check_environment(type("Shut", (Desk,), {"error": ToolError("it is shut")})) == []
    (problem,) = check_environment(BrokenDesk)
    assert re.search(r"^the tool 'look' raised KeyError: 'shelf' \(test_env_contract\.py, line \d+\)", problem)
    assert 'in the listed call {"name": "look", "arguments": {"where": "back"}}: mend it, or raise ToolError' in problem


def test_a_fault_found_again_is_counted() -> None:
    def nothing() -> Environment:
        raise ConfigError("no file")

    (problem,) = check_environment(nothing)
    assert re.fullmatch(r"instructions: raised ConfigError: no file \(\d+ times\)", problem)
    problems = check_environment(BornSuccessful)
    assert [each for each in problems if "at the start" in each] == [
        "success must be False at the start, got True (instance seed 0) (8 times)"
    ]


def test_steps_that_are_slow_each_time_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = {"now": 0.0, "steps": 0}

    class Waiting(Counter):
        def step(self, action: str) -> Step:
            clock["now"] += 1.5
            clock["steps"] += 1
            return super().step(action)

    class HeldUpOnce(Counter):
        def step(self, action: str) -> Step:
            clock["steps"] += 1
            clock["now"] += 2.0 * (clock["steps"] == 1)
            return super().step(action)

    monkeypatch.setattr(check, "perf_counter", lambda: clock["now"])
    monkeypatch.setattr(check, "CHECKS", (check._slow_steps,))
    (problem,) = check_environment(Waiting)
    assert re.match(
        r"step\('(up|down)'\) took 1\.5 s, and \d+ steps took 1 s or more: every rollout waits for them", problem
    )
    clock["steps"] = 0
    assert check_environment(HeldUpOnce) == []


class Wordless(Counter):
    """Its steps tell nothing beside: success is the environment's, actions are valid and change the state."""

    def step(self, action: str) -> Step:
        return changed(super().step(action), info={})


def test_a_step_need_not_carry_info() -> None:
    assert check_environment(Wordless) == []


def test_a_sound_environment_passes_and_its_thoughts_name_the_action() -> None:
    assert check_environment(Counter) == []
    assert "up" in Counter().thought(np.random.default_rng(0), ["up"])


@pytest.mark.parametrize("cls", list(BROKEN), ids=lambda cls: cls.__name__)
def test_the_checker_finds(cls: type[Counter]) -> None:
    assert any(BROKEN[cls] in problem for problem in check_environment(cls)), check_environment(cls)


@pytest.mark.parametrize("part", ["reset", "step", "actions", "instructions", "content", "match", "thought"])
def test_the_checker_says_one_fault_once_though_every_check_meets_it(part: str) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise KeyError("lost")

    problems = check_environment(type("Lost", (Counter,), {part: fail}))
    assert len(problems) == (2 if part in ("match", "actions") else 1)  # matching is told with and without its text
    assert all("raised KeyError: 'lost'" in problem for problem in problems)


def test_the_checker_tells_of_a_constructor_that_leaves() -> None:
    def leave(*_: Any) -> None:
        raise SystemExit(0)

    (problem,) = check_environment(type("Leaving", (Counter,), {"__init__": leave}))
    assert "raised SystemExit: 0 (" in problem


def test_c7_a_single_instance_is_allowed_only_when_said() -> None:
    assert check_environment(Constant, single_instance=True) == []


def test_the_checker_leaves_global_generators_alone() -> None:
    before, legacy = random.getstate(), np.random.get_state()[1].copy()
    check_environment(Counter)
    assert random.getstate() == before
    np.testing.assert_array_equal(np.random.get_state()[1], legacy)


@pytest.mark.parametrize("name", READY)
def test_a27_text_of_any_kind_is_answered_never_raised(name: str) -> None:
    env = environment_factory({"name": name})()
    env.reset(instance_seed=1, dynamics_seed=2)
    for text in HOSTILE:
        matched = env.match(text)
        assert matched is None or matched in env.actions()


@given(st.text(max_size=40))
def test_a23_matching_ignores_case_and_outer_marks_only(text: str) -> None:
    env = Counter()
    word = env.match(text)
    assert (word is not None) == (env.match(f" \t'{text}.`") is not None)
    if word is not None:
        assert word in text.casefold()
    assert env.match(f"«{text}up") in (None, "up")


@pytest.mark.parametrize(
    ("text", "action"),
    [("+", "+"), (" - ", "-"), ("a", "a"), ("A", "A"), ("'A'", "a"), ("?", None), ("", None), ("ADD", "add")],
)
def test_a23_an_action_in_its_own_spelling_is_that_action(text: str, action: str | None) -> None:
    class Signs(Counter):
        def actions(self) -> tuple[str, ...]:
            return ("+", "-", "a", "A", "add")

    assert Signs().match(text) == action


@pytest.mark.parametrize(
    ("text", "action"), [("UP", "up"), (" up. ", "up"), ("`Up`", "up"), ("“down”", "down"), ("“uр”", None)]
)
def test_a23_spellings(text: str, action: str | None) -> None:
    assert Counter().match(text) == action
    assert Counter().match(f"move {text}") is None


def test_an_unknown_environment_or_setting_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="unknown environment 'frozen-lake': did you mean 'frozen_lake'"):
        environment_factory({"name": "frozen-lake"})
    with pytest.raises(ConfigError, match=r"unknown setting 'env\.sucess_rate': did you mean 'success_rate'"):
        environment_factory({"name": "frozen_lake", "sucess_rate": 1.0})
    with pytest.raises(ConfigError, match=r"env\.max_turns"):
        environment_factory({"name": "frozen_lake", "max_turns": 0})


SCRIPT = """
import hashlib
from ragen.envs import environment_factory
text = []
for name in ("frozen_lake", "frozen_lake-blindfail", "bandit-professions", "sokoban"):
    env = environment_factory({"name": name})()
    for seed in range(200):
        text.append(env.reset(instance_seed=seed, dynamics_seed=seed).text + env.step(env.actions()[seed % 2]).observation)
print(hashlib.sha256("\\n".join(text).encode()).hexdigest())
"""


def test_c3_maps_and_chance_do_not_depend_on_pythonhashseed() -> None:
    def digest(hash_seed: str) -> str:
        path = [p for p in sys.path if p]
        env = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(path)}
        return subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=True).stdout

    assert digest("0") == digest("1") != ""
