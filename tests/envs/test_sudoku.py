"""Sudoku: one solution each, by brute force too; refusals, rewards, and an oracle that ends in time."""

from itertools import permutations, product

import numpy as np
import pytest

from ragen.envs import environment_factory
from ragen.envs.sudoku import Sudoku
from ragen.envs.sudoku.grids import make_puzzle, peers, solutions
from ragen.errors import ConfigError, EnvironmentFault


def sound(grid: tuple[int, ...], size: int) -> bool:
    """Rows, columns and boxes hold every digit once: written out, apart from the solver."""
    box = {4: 2, 9: 3}[size]
    rows = [grid[r * size : r * size + size] for r in range(size)]
    columns = [tuple(row[c] for row in rows) for c in range(size)]
    boxes = [
        tuple(rows[r + i][c + j] for i in range(box) for j in range(box))
        for r in range(0, size, box)
        for c in range(0, size, box)
    ]
    return all(sorted(unit) == list(range(1, size + 1)) for unit in (*rows, *columns, *boxes))


ALL_4 = [
    grid
    for rows in product(permutations(range(1, 5)), repeat=4)
    if all(len({row[c] for row in rows}) == 4 for c in range(4))
    and sound(grid := tuple(digit for row in rows for digit in row), 4)
]


def test_there_are_288_grids_of_four_and_the_solver_finds_them_all() -> None:
    assert len(ALL_4) == 288
    assert set(solutions((0,) * 16, 4, limit=1000)) == set(ALL_4)


@pytest.mark.parametrize("blanks", [1, 6, 10])
def test_small_puzzles_have_one_solution_by_brute_force(blanks: int) -> None:
    for seed in range(15):
        puzzle, solution = make_puzzle(seed, 4, blanks)
        fitting = [grid for grid in ALL_4 if all(given in (0, digit) for given, digit in zip(puzzle, grid, strict=True))]
        assert fitting == [solution]
        assert puzzle.count(0) == blanks


def test_large_puzzles_have_one_solution() -> None:
    for seed in range(4):
        puzzle, solution = make_puzzle(seed, 9, 40)
        assert sound(solution, 9)
        assert puzzle.count(0) == 40
        assert solutions(puzzle, 9, limit=2) == [solution]
        rng = np.random.default_rng(seed)
        assert solutions(puzzle, 9, limit=2, rng=rng) == [solution]


def test_the_solver_knows_a_published_puzzle() -> None:
    text = "530070000600195000098000060800060003400803001700020006060000280000419005000080079"
    solved = "534678912672195348198342567859761423426853791713924856961537284287419635345286179"
    assert solutions(tuple(map(int, text)), 9, limit=2) == [tuple(map(int, solved))]


def test_peers() -> None:
    assert peers(4)[0] == frozenset({1, 2, 3, 4, 8, 12, 5})
    assert all(len(each) == 20 for each in peers(9))


def started(size: int = 4) -> Sudoku:
    env = environment_factory({"name": "sudoku" if size == 4 else "sudoku-9"})()
    assert isinstance(env, Sudoku)
    env.reset(instance_seed=0, dynamics_seed=0)
    env._given = env._solution = (1, 2, 3, 4, 3, 4, 1, 2, 2, 1, 4, 3, 4, 3, 2, 1)
    env._given = (0, 2, 3, 4, 3, 4, 1, 2, 2, 0, 4, 3, 0, 3, 0, 0)
    env._grid = list(env._given)
    return env


def test_steps_by_hand() -> None:
    env = started()
    assert env.settings.blanks == 6  # rewards are shares of it
    wrong = env.step("4 1 1")  # allowed: column 1 has no 1 yet, nor row 4, nor the box
    assert (wrong.reward, wrong.info["action_is_effective"], wrong.terminated) == (0.0, True, False)
    assert wrong.observation == "_ 2 3 4\n3 4 1 2\n2 _ 4 3\n1 3 _ _"
    refused = env.step("1 1 1")
    assert refused.told == "1 1 1: its row, column or box has a 1 already."
    assert refused.observation == wrong.observation
    assert (refused.reward, refused.info["action_is_effective"]) == (0.0, False)
    given = env.step("1 2 3")
    assert given.told == "1 2 3: that cell is given."
    assert env.step("4 1 4").reward == pytest.approx(1 / 6)
    assert env.step("4 1 4").info["action_is_effective"] is False
    assert env.step("1 1 1").reward == pytest.approx(1 / 6)
    assert env.step("3 2 1").reward == pytest.approx(1 / 6)
    assert env.step("4 4 1").reward == pytest.approx(1 / 6)
    last = env.step("4 3 2")
    assert (last.reward, last.terminated, env.success) == (pytest.approx(1 / 6 + 1), True, True)
    with pytest.raises(EnvironmentFault, match="after the end"):
        env.step("1 1 1")


def test_a_right_digit_that_is_written_over_is_paid_back() -> None:
    env = started()
    assert env.step("4 1 4").reward == pytest.approx(1 / 6)
    assert env.step("4 1 1").reward == pytest.approx(-1 / 6)


@pytest.mark.parametrize(
    ("text", "action"),
    [
        *(("1 3 2", "1 3 2"), ("(1, 3) = 2", "1 3 2"), ("row 1, column 3: 2", "1 3 2"), ("132", None), ("1 3", None)),
        *(("1 3 5", None), ("0 1 1", None), ("1 3 2 4", None), ("1 3 ٢", None), ("", None), ("9" * 100, None)),
    ],
)
def test_how_actions_are_read(text: str, action: str | None) -> None:
    assert started().match(text) == action


@pytest.mark.parametrize("name", ["sudoku", "sudoku-9"])
def test_the_oracle_solves_within_the_budget_also_after_other_moves(name: str) -> None:
    make = environment_factory({"name": name})
    for seed in range(6):
        env = make()
        env.reset(instance_seed=seed, dynamics_seed=0)
        turns = 0
        while not env.success:
            plan = env.plan()
            assert plan is not None
            assert len(plan) <= env.settings.max_actions_per_turn
            for action in plan:
                assert env.step(action).info["action_is_effective"]
            turns += 1
        assert turns <= env.settings.max_turns


def test_settings_without_a_way_to_the_end_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"env\.blanks is 9, but an episode has 8 actions"):
        environment_factory({"name": "sudoku", "blanks": 9, "max_turns": 2})
    with pytest.raises(ConfigError, match=r"a 4 × 4 grid takes at most 12"):
        environment_factory({"name": "sudoku", "blanks": 13, "max_actions": 16})
