"""The planner: exact against brute force, gymnasium's table and played episodes."""

from functools import cache
from itertools import product

import gymnasium
import numpy as np
import pytest

from ragen.envs import environment_factory
from ragen.envs.frozen_lake import FrozenLake
from ragen.envs.frozen_lake.maps import make_lake
from ragen.envs.frozen_lake.planning import Planner
from ragen.envs.frozen_lake.rules import Lake


def lake_of(seed: int, size: int = 4, corners: bool = False) -> Lake:
    return make_lake(seed, size=size, frozen=0.8, corners=corners, blind_failure=False, tries=1000)


def brute_force(lake: Lake, success_rate: float, limit: int, start: int, turns: int, actions: int) -> float:
    """max over all blocks, outcome by outcome from gymnasium's table: no matrices, no shared code."""
    table = gymnasium.make("FrozenLake-v1", desc=list(lake.rows()), success_rate=success_rate).unwrapped.P

    def after(cell: int, block: tuple[int, ...], turns: int, actions: int) -> float:
        if not block:
            return best(cell, turns, actions)
        total = 0.0
        for probability, target, reward, over in table[cell][block[0]]:
            total += probability * (reward if over else after(target, block[1:], turns, actions))
        return total

    @cache
    def best(cell: int, turns: int, actions: int) -> float:
        if turns == 0 or actions == 0:
            return 0.0
        return max(
            after(cell, block, turns - 1, actions - length)
            for length in range(1, min(limit, actions) + 1)
            for block in product(range(4), repeat=length)
        )

    return best(start, turns, actions)


@pytest.mark.parametrize("success_rate", [1.0, 2 / 3, 1 / 3, 0.0])
@pytest.mark.parametrize(("limit", "turns", "actions"), [(1, 3, 3), (2, 2, 3), (3, 2, 4), (2, 3, 4), (3, 1, 3)])
def test_values_equal_brute_force(success_rate: float, limit: int, turns: int, actions: int) -> None:
    for seed in range(3):
        lake = lake_of(seed, size=3)
        planner = Planner(lake, success_rate, limit)
        expected = brute_force(lake, success_rate, limit, lake.start, turns, actions)
        assert planner.value(lake.start, turns, actions) == pytest.approx(expected, abs=1e-12)


def test_open_loop_inside_a_turn_by_hand() -> None:
    """A corridor S F G over a row of holes, s = 1/2: Right advances with 1/2, slips into a hole with 1/4, stays with 1/4.

    Two actions in one turn win with 1/4; a third one adds the two orders with one stay, 2 · 1/4 · 1/4.
    """
    lake = Lake.from_rows(("SFG", "HHH", "HHH"))
    planner = Planner(lake, 0.5, 3)
    assert planner.value(lake.start, 1, 2) == pytest.approx(0.25)
    assert planner.value(lake.start, 1, 3) == pytest.approx(0.25 + 2 * 0.25 * 0.25)
    assert planner.block(lake.start, 1, 3) == (2, 2, 2)
    assert planner.block(lake.start, 0, 3) == planner.block(lake.start, 1, 0) == ()


def test_of_equally_good_plays_the_one_with_the_fewest_turns_and_actions_is_followed() -> None:
    lake = Lake.from_rows(("SFFF", "HHHF", "FFGF", "FFFF"))  # 6 moves: right 3, down 2, left 1
    planner = Planner(lake, 1.0, 5)
    first = planner.block(lake.start, 5, 10)
    assert planner.value(lake.start, 1, 10) == 0.0
    assert planner.value(lake.start, 2, 6) == 1.0
    assert first == (2,)  # then five in the second and last turn
    assert len(planner.block(1, 4, 9)) == 5


def test_seeing_results_between_actions_never_hurts_and_helps_somewhere() -> None:
    gains = []
    for seed in range(30):
        lake = lake_of(seed)
        closed = Planner(lake, 1 / 3, 1).value(lake.start, 10, 10)
        blocks = Planner(lake, 1 / 3, 5).value(lake.start, 5, 10)
        blind = Planner(lake, 1 / 3, 5).value(lake.start, 2, 10)
        assert closed >= blocks - 1e-12 >= blind - 2e-12
        gains.append(blocks - blind)
    assert max(gains) > 0.01


def test_single_actions_equal_finite_horizon_value_iteration_on_gymnasiums_table() -> None:
    for seed in range(10):
        lake = lake_of(seed)
        table = gymnasium.make("FrozenLake-v1", desc=list(lake.rows()), success_rate=1 / 3).unwrapped.P
        values = np.zeros(16)
        for _ in range(10):
            values = np.array(
                [
                    max(sum(p * (r + (not over) * values[t]) for p, t, r, over in table[cell][a]) for a in range(4))
                    for cell in range(16)
                ]
            )
        assert Planner(lake, 1 / 3, 1).value(lake.start, 10, 10) == pytest.approx(values[lake.start], abs=1e-12)


def distance(lake: Lake) -> int:
    reached, steps = {lake.start}, 0
    while lake.goal not in reached:
        steps += 1
        grown = set(reached)
        for cell in reached:
            row, column = divmod(cell, lake.size)
            for r, c in ((row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)):
                if 0 <= r < lake.size and 0 <= c < lake.size and r * lake.size + c not in lake.holes:
                    grown.add(r * lake.size + c)
        reached = grown
    return steps


def test_without_slips_the_value_is_whether_the_shortest_path_fits() -> None:
    for seed in range(40):
        lake = lake_of(seed, size=6)
        planner = Planner(lake, 1.0, 2)
        assert planner.value(lake.start, 3, 10) == float(distance(lake) <= 6)
        assert planner.value(lake.start, 5, 5) == float(distance(lake) <= 5)


def test_corners_with_the_papers_slip_leave_the_best_closed_loop_play_about_ten_percent() -> None:
    values = []
    for seed in range(300):
        lake = lake_of(seed, corners=True)
        values.append(Planner(lake, 1 / 3, 1).value(lake.start, 10, 10))
    assert 0.085 < np.mean(values) < 0.12  # 0.105 ± 0.001 on 3,000 maps


def oracle_success(env: FrozenLake, seed: int, dynamics: int) -> bool:
    env.reset(instance_seed=seed, dynamics_seed=dynamics)
    for _ in range(env.settings.max_turns):
        plan = env.plan()
        if plan is None:
            return False
        assert env.plan() == plan  # asking twice is no turn
        for action in plan:
            if env.step(action).terminated:
                return env.success
    assert env.plan() is None
    return False


@pytest.mark.parametrize(
    ("overrides", "seed"),
    [
        ({}, 0),
        ({"success_rate": 0.8}, 5),
        ({"corners": True, "success_rate": 2 / 3}, 2),
        ({"max_actions": 6, "max_turns": 4, "max_actions_per_turn": 2}, 1),
    ],
)
def test_the_played_plan_wins_as_often_as_best_success_says(overrides: dict[str, object], seed: int) -> None:
    env = environment_factory({"name": "frozen_lake", **overrides})()
    assert isinstance(env, FrozenLake)
    n = 2000
    wins = np.mean([oracle_success(env, seed, dynamics) for dynamics in range(n)])
    best = env.best_success()
    assert best is not None
    assert 0 < best < 1
    assert abs(wins - best) < 4 * np.sqrt(best * (1 - best) / n)


def test_best_success_speaks_of_the_start_whatever_was_played_and_plans_stop_at_the_end() -> None:
    env = environment_factory({"name": "frozen_lake-det"})()
    env.reset(instance_seed=2, dynamics_seed=0)
    plan = env.plan()
    assert plan is not None
    for action in plan:
        step = env.step(action)
    assert step.terminated
    assert env.success
    assert env.plan() is None
    assert env.best_success() == 1.0


def test_an_unplanned_past_counts_the_fewest_turns_it_can_have_taken() -> None:
    env = environment_factory({"name": "frozen_lake", "max_turns": 2, "frozen": 1.0, "size": 6, "success_rate": 1.0})()
    env.reset(instance_seed=0, dynamics_seed=0)
    for action in ("Left", "Right", "Left", "Right", "Left"):
        assert not env.step(action).terminated
    assert env.plan()  # five actions fit into the first turn: one turn is left
    env.reset(instance_seed=0, dynamics_seed=0)
    for action in ("Left", "Right") * 3:
        assert not env.step(action).terminated
    assert env.plan() is None  # six do not: both turns are gone


def test_turns_too_long_to_plan_exactly_are_said_to_be_unknown() -> None:
    env = environment_factory({"name": "frozen_lake", "max_actions_per_turn": 8})()
    env.reset(instance_seed=0, dynamics_seed=0)
    assert env.best_success() is None
    plan = env.plan()
    assert plan is not None
    assert 0 < len(plan) <= 7
