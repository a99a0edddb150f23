"""Whatever an environment does wrong, in any method: a fault that names class and method, and costs that episode only."""

import json
from collections import UserDict
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ragen.envs import Environment, EnvSettings, Observation, Step, guard
from ragen.envs.base import MARKS
from ragen.envs.guard import Guarded, guarded, made
from ragen.episode import Completion, EndReason, StopReason
from ragen.errors import EnvironmentFault
from ragen.rewards import process_rewards
from ragen.rollout.contexts import TokenContext
from ragen.rollout.demonstrations import demonstrate, optimal_player, play, random_player
from ragen.rollout.instances import check_start, content_of, evaluation_specs, started
from ragen.rollout.runner import EpisodeRunner, Rules
from ragen.rollout.shaping import Shaping
from ragen.seeding import generator
from ragen.text.chat import ChatRenderer
from ragen.text.parser import SEPARATOR, TAGS

GO = "<think>x</think><answer>go</answer>"


def raises(*_: Any, **__: Any) -> Any:
    raise KeyError("lost")


def leaves(*_: Any, **__: Any) -> Any:
    raise SystemExit(0)


class Faulty(Environment):
    """Two turns; ``wrong`` replaces what the method ``part`` gives, on instances with an odd seed (all, if ``always``)."""

    def __init__(self, part: str = "", wrong: Callable[..., Any] = raises, *, always: bool = True) -> None:
        super().__init__(EnvSettings(max_turns=2, max_actions=2, max_actions_per_turn=1))
        self.part, self.wrong, self.always = part, wrong, always
        self.seed = 0

    def _give(self, part: str, right: Any, *arguments: Any) -> Any:
        wrong = part == self.part and (self.always or self.seed % 2)
        return self.wrong(*arguments) if wrong else right

    @property
    def success(self) -> bool:
        return self._give("success", right=False)

    def reset(self, *, instance_seed: int, dynamics_seed: int) -> Observation:
        self.seed = instance_seed
        return self._give("reset", Observation("Where?"))

    def step(self, action: str) -> Step:
        return self._give("step", Step("There.", 0.5, terminated=False))

    def actions(self) -> tuple[str, ...]:
        return self._give("actions", ("go", "stay"))

    def instructions(self) -> str:
        return self._give("instructions", "Walk.")

    def match(self, text: str) -> str | None:
        return self._give("match", text if text in ("go", "stay") else None, text)

    def content(self) -> str | None:
        return self._give("content", "a place")

    def facts(self) -> Any:
        return self._give("facts", ())

    def anchor(self) -> str | None:
        return self._give("anchor", "here")

    def thought(self, rng: np.random.Generator, actions: Any) -> str:
        return self._give("thought", "Hm.")

    def plan(self) -> tuple[str, ...] | None:
        return self._give("plan", ("go",))

    def best_success(self) -> float | None:
        return self._give("best_success", 0.5)

    def players(self) -> Any:
        return self._give("players", {"goer": lambda env, rng: env._give("player", ["go"])})


def answer(value: Any) -> Callable[..., Any]:
    return lambda *_: value


def step(**changes: Any) -> Callable[..., Any]:
    return answer(Step(**({"observation": "x", "reward": 0.0, "terminated": False} | changes)))


REWARDS: tuple[Any, ...] = (
    float("nan"),
    float("inf"),
    1e308,
    -1e308,
    2e9,
    10**400,
    "1",
    "",
    None,
    True,
    np.bool_(1),
    [1.0],
    1j,
)
FLAGS: tuple[Any, ...] = ("no", "", None, 0, 1, 1.0, [], np.float32(1))
WORDS: tuple[Any, ...] = (
    None,
    "",
    (),
    [],
    "go",
    ("",),
    (" ",),
    ("go ",),
    (1,),
    (None,),
    np.array(["go", "stay"]),
    3,
    *((f"a{mark}b",) for mark in MARKS),
)
TEXTS: tuple[Any, ...] = (None, 1, b"x", ["x"], {})


class Unreadable(UserDict[str, Any]):
    """A mapping that breaks when it is read."""

    def __getitem__(self, key: str) -> Any:
        raise ZeroDivisionError(key)


BAD = [
    *((part, raises) for part in ("success", "reset", "step", "actions", "instructions", "match", "content", "thought")),
    *((part, leaves) for part in ("reset", "step", "plan")),
    *((part, raises) for part in ("anchor", "plan", "best_success", "players", "player", "facts")),
    *(("success", answer(flag)) for flag in (*FLAGS, lambda: True)),
    *(("step", step(reward=reward)) for reward in REWARDS),
    *(("step", step(terminated=flag)) for flag in FLAGS),
    *(("step", step(truncated=flag)) for flag in FLAGS),
    *(("step", step(observation=text)) for text in TEXTS),
    *(("step", step(told=text)) for text in TEXTS),
    *(("step", step(info=info)) for info in (None, [], "x", 3, {"action_is_effective": np.zeros(2)}, {"success": "no"})),
    ("step", step(info=Unreadable(x=1))),
    *(("facts", answer(value)) for value in (None, "x", ("x",), 3)),
    *(("step", answer(value)) for value in (None, ("x", 0.0, False, {}), {}, "x")),
    *(("reset", answer(value)) for value in (None, "x", ("x", {}), *(Observation(text) for text in TEXTS))),
    *(("actions", answer(words)) for words in WORDS),
    *(("plan", answer(words)) for words in (*WORDS[1:], ("fly",))),
    *(("player", answer(words)) for words in (*WORDS[1:], ("fly",))),
    *(("instructions", answer(text)) for text in TEXTS),
    *(("match", answer(text)) for text in TEXTS[1:]),
    *(("content", answer(text)) for text in TEXTS[1:]),
    *(("anchor", answer(text)) for text in TEXTS[1:]),
    *(("thought", answer(text)) for text in (*TEXTS, *TAGS)),
    *(("best_success", answer(value)) for value in (7.0, -0.1, float("nan"), "1", True)),
    *(("players", answer(value)) for value in (None, [], {"x": 3})),
]


def touch(env: Guarded, part: str) -> None:
    """Call what ``part`` answers for."""
    env.reset(instance_seed=1, dynamics_seed=0)
    calls: dict[str, Callable[[], Any]] = {
        "success": lambda: env.success,
        "step": lambda: env.step("go"),
        "match": lambda: env.match("go"),
        "thought": lambda: env.thought(generator(0), ["go"]),
        "player": lambda: env.players()["goer"](env, generator(0)),
        "reset": lambda: None,
    }
    calls.get(part, getattr(env, part, None))()  # type: ignore[misc]


@pytest.mark.parametrize(("part", "wrong"), BAD)
def test_a_wrong_answer_is_a_fault_that_names_class_and_method(part: str, wrong: Callable[..., Any]) -> None:
    with pytest.raises(EnvironmentFault, match=rf"^Faulty\.{'players' if part == 'player' else part}"):
        touch(guarded(Faulty(part, wrong)), part)


@pytest.mark.parametrize(("part", "wrong"), BAD)
def test_it_costs_that_episode_only_wherever_it_is_met(part: str, wrong: Callable[..., Any], chatml_tokenizer: Any) -> None:
    def make() -> Faulty:
        return Faulty(part, wrong, always=False)

    shaping = Shaping(process_rewards.get("state_match"))
    renderer, rules = ChatRenderer(chatml_tokenizer), Rules(100, 10_000, shaping=shaping)
    specs = evaluation_specs("f", episodes=6, samples=1, seed=0)
    assert {spec.instance_seed % 2 for spec in specs} == {0, 1}
    for spec in specs:
        runner = EpisodeRunner(spec, make(), TokenContext(renderer, rules.context), rules)
        while runner.end is None:
            runner.apply(Completion((1,), (0.0,), (0.0,), GO, StopReason.END))
        sound = spec.instance_seed % 2 == 0
        met = part not in ("plan", "thought", "best_success", "players", "player")
        assert (runner.end is EndReason.ERROR) is (not sound and met)
        content_of(make, spec.instance_seed)
        demonstration = demonstrate(spec, make, renderer, rules, optimal_player)
        if sound:
            assert not demonstration.error
            assert play(spec, make, random_player) == (False, 1.0)
    assert started(make).instructions() == "Walk."
    check_start(make)


@pytest.mark.parametrize(("part", "wrong"), BAD)
def test_what_is_always_wrong_is_found_at_the_start(part: str, wrong: Callable[..., Any]) -> None:
    if part == "match":  # what replies hold is not known before there are some
        return
    with pytest.raises(EnvironmentFault, match=rf"^Faulty\.{'players' if part == 'player' else part}"):
        check_start(lambda: Faulty(part, wrong))


@pytest.mark.parametrize(
    "number", [1, 1.0, np.float32(1), np.float64(1), np.int64(1), np.array(1.0), torch.tensor(1.0), torch.tensor(1)]
)
def test_numbers_and_bools_of_numpy_and_torch_become_plain_ones(number: Any) -> None:
    env = guarded(Faulty("step", step(reward=number, terminated=np.bool_(1), info={"success": np.bool_(0), "x": number})))
    env.reset(instance_seed=0, dynamics_seed=0)
    got = env.step("go")
    assert (got.reward, got.terminated, got.truncated, got.info["success"]) == (1.0, True, False, False)
    assert [type(value) for value in (got.reward, got.terminated, got.info["success"])] == [float, bool, bool]


def test_a_guard_is_put_up_once_and_players_are_given_the_environment_itself() -> None:
    env = guarded(Faulty())
    assert guarded(env) is env
    assert env.players()["goer"](env, generator(0)) == ("go",)


def test_the_marks_no_action_may_hold_are_those_replies_are_read_by() -> None:
    assert set(MARKS) == {SEPARATOR, *TAGS}


def line_of(words: str) -> int:
    """The first line of this file that holds these words."""
    return next(number for number, line in enumerate(Path(__file__).read_text().splitlines(), start=1) if words in line)


def test_a_fault_tells_the_innermost_line_in_the_file_of_the_class() -> None:
    line = line_of('raise KeyError("lost")')
    with pytest.raises(EnvironmentFault) as caught:
        guarded(Faulty("step")).step("go")
    assert str(caught.value) == f"Faulty.step('go') raised KeyError: 'lost' (test_guard.py, line {line})"
    line = line_of("return self.wrong(*arguments) if wrong")
    with pytest.raises(EnvironmentFault) as caught:  # raised elsewhere, called from here
        guarded(Faulty("step", partial(json.loads, "?"))).step("go")
    assert str(caught.value).endswith(f": line 1 column 1 (char 0) (test_guard.py, line {line})")
    foreign = type("Foreign", (Faulty,), {"__module__": "nowhere"})
    with pytest.raises(EnvironmentFault, match=r"^Foreign\.step\('go'\) raised KeyError: 'lost'$"):
        guarded(foreign("step")).step("go")


def test_one_that_cannot_be_made_tells_its_class_and_line() -> None:
    class Portless(Faulty):
        def __init__(self, port: int = 0) -> None:
            super().__init__()
            raise OSError("in use")

    line = line_of('raise OSError("in use")')
    said = f"Portless could not be made: OSError: in use (test_guard.py, line {line})"
    for make in (Portless, lambda: Portless(1)):
        with pytest.raises(EnvironmentFault) as caught:
            made(make).reset(instance_seed=0, dynamics_seed=0)
        assert str(caught.value) == said
    with pytest.raises(EnvironmentFault, match=r"^an environment could not be made: SystemExit: 0$"):
        _ = made(leaves).success


class Unequal(str):
    """A text that breaks where it is compared."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")


class Move(StrEnum):
    """Action words as people may write them."""

    GO = "go"
    STAY = "stay"


@pytest.mark.parametrize(
    ("later", "said"),
    [
        (
            ("go", np.zeros(2)),
            r"^Faulty\.actions\(\): an action must be a text that is not blank, got array\(\[0\., 0\.\]\)$",
        ),
        ((np.zeros(2), "stay"), r"^Faulty\.actions\(\): an action must be a text"),
        (("go", Unequal("stay")), r"^Faulty\.actions\(\) raised ValueError: ambiguous \(test_guard\.py, line \d+\)$"),
        ((Unequal("go"), "stay"), r"^Faulty\.actions\(\) raised ValueError: ambiguous \(test_guard\.py, line \d+\)$"),
        (np.array(["go", "stay"]), r"^Faulty\.actions\(\) must be one action word or more, as a tuple, got ndarray"),
    ],
)
def test_action_words_that_go_wrong_later_are_a_fault_too(later: Any, said: str) -> None:
    inner = Faulty("actions", answer(later), always=False)
    env = guarded(inner)
    assert env.actions() == ("go", "stay")
    env.reset(instance_seed=1, dynamics_seed=0)
    for _ in range(2):
        with pytest.raises(EnvironmentFault, match=said):
            env.actions()
    inner.seed = 0
    assert env.actions() == ("go", "stay")


def test_words_of_an_enumeration_are_action_words() -> None:
    inner = Faulty("actions", answer((Move.GO, Move.STAY)))
    assert guarded(inner).actions() == ("go", "stay")


def test_words_that_were_checked_are_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    env, words = guarded(Faulty("actions", lambda: (*["go", "stay"],))), []  # another tuple each time
    monkeypatch.setattr(guard, "action_problem", words.append)
    for _ in range(3):
        assert env.actions() == ("go", "stay")
    assert words == ["go", "stay"]
