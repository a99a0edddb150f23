"""The gymnasium wrapper, on gymnasium's own environments."""

import sys
from typing import Any

import gymnasium
import numpy as np
import pytest

from ragen.envs import EnvSettings, check_environment
from ragen.envs.gym_wrapper import GymEnvironment
from ragen.errors import ConfigError, EnvironmentFault

LAKE = ["SFFF", "FHFH", "FFFH", "HFFG"]
WORDS = {"Left": 0, "Down": 1, "Right": 2, "Up": 3}


def show(env: Any, observation: Any) -> str:
    cells = ["_" if letter in b"SF" else letter.decode() for letter in env.unwrapped.desc.ravel()]
    cells[int(observation)] = "P"
    return "\n".join("".join(cells[i : i + 4]) for i in range(0, 16, 4))


def lake(slippery: bool = True, **changes: Any) -> GymEnvironment:
    values: dict[str, Any] = {
        "make": lambda: gymnasium.make("FrozenLake-v1", desc=LAKE, is_slippery=slippery, max_episode_steps=6),
        "actions": WORDS,
        "render": show,
        "instructions": "Walk from the top left to G.",
        "success": lambda total, terminated, info: terminated and total > 0,
        **changes,
    }
    return GymEnvironment(**values)


def taxi() -> GymEnvironment:
    return GymEnvironment(
        "Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3",
        actions={"South": 0, "North": 1, "East": 2, "West": 3, "Pick up": 4, "Drop off": 5},
        render=lambda env, observation: str(list(env.unwrapped.decode(int(observation)))),
        instructions="Bring the passenger to the destination. The state is row, column, passenger, destination.",
        success=lambda total, terminated, info: terminated,
        content=lambda env, observation: str(observation),
        settings=EnvSettings(max_actions=20),
    )


def test_a_wrapped_environment_keeps_the_contract() -> None:
    assert check_environment(lake, single_instance=True) == []
    assert check_environment(taxi) == []


def test_words_do_what_the_table_says_and_the_goal_is_success() -> None:
    env = lake(slippery=False)
    assert env.reset(instance_seed=0, dynamics_seed=0).text == "P___\n_H_H\n___H\nH__G"
    steps = [env.step(word) for word in ("Down", "Down", "Right", "Down", "Right")]
    assert steps[0].observation == "____\nPH_H\n___H\nH__G"
    assert not any(step.terminated for step in steps)
    last = env.step("Right")
    assert (last.reward, last.terminated, env.success, last.info["success"]) == (1.0, True, True, True)
    with pytest.raises(EnvironmentFault, match="call reset"):
        env.step("Left")


def test_terminated_and_truncated_stay_apart() -> None:
    env = lake(slippery=False)
    env.reset(instance_seed=0, dynamics_seed=0)
    steps = [env.step("Up") for _ in range(6)]
    assert [step.truncated for step in steps] == [False] * 5 + [True]
    assert not steps[-1].terminated
    assert not any(step.info["action_is_effective"] for step in steps)
    env.reset(instance_seed=0, dynamics_seed=0)
    env.step("Right")
    fall = env.step("Down")
    assert (fall.terminated, fall.truncated, env.success) == (True, False, False)


def test_the_dynamics_seed_fixes_chance_and_the_instance_seed_the_start() -> None:
    def path(dynamics: int) -> list[str]:
        env = lake()
        env.reset(instance_seed=3, dynamics_seed=dynamics)
        return [env.step("Left").observation for _ in range(3)]

    assert path(1) == path(1)
    assert len({tuple(path(dynamics)) for dynamics in range(12)}) > 3
    starts = [taxi().reset(instance_seed=seed, dynamics_seed=0).text for seed in range(20)]
    assert len(set(starts)) > 10


def test_slips_of_a_wrapped_lake_have_gymnasiums_frequencies() -> None:
    env, n, down = lake(), 3000, 0
    for dynamics in range(n):
        env.reset(instance_seed=0, dynamics_seed=dynamics)
        down += env.step("Down").observation.startswith("____\nP")
    assert abs(down / n - 1 / 3) < 4 * np.sqrt(2 / 9 / n)


def test_an_unknown_word_changes_nothing() -> None:
    env = lake()
    first = env.reset(instance_seed=0, dynamics_seed=0)
    step = env.step("jump")
    assert (step.observation, step.reward, step.info["action_is_valid"]) == (first.text, 0.0, False)


def test_a_missing_gymnasium_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ConfigError, match=r"'FrozenLake-v1' needs gymnasium.*pip install .*\[gymnasium\]'"):
        lake(make="FrozenLake-v1")


def test_an_unknown_id_and_an_empty_table_are_refused() -> None:
    with pytest.raises(ConfigError, match="gymnasium cannot make 'FrozenPond-v1'"):
        lake(make="FrozenPond-v1")
    with pytest.raises(ConfigError, match="the action table is empty"):
        lake(actions={})
