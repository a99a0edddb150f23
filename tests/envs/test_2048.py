"""2048: sliding against a second implementation, tiles by the dynamics, rewards and ends, and a player that is good."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.envs import environment_factory
from ragen.envs.game_2048 import Game2048
from ragen.envs.game_2048.rules import Board, best_push, push, pushes, slide, with_tile
from ragen.errors import ConfigError, EnvironmentFault
from ragen.rollout.demonstrations import play, players_of, random_player
from ragen.rollout.runner import EpisodeSpec

boards = st.lists(st.sampled_from([0, 0, 2, 2, 4, 8, 16, 32]), min_size=16, max_size=16).map(tuple)


@pytest.mark.parametrize(
    ("row", "moved", "points"),
    [
        ((0, 0, 0, 2), (2, 0, 0, 0), 0),
        ((2, 2, 0, 0), (4, 0, 0, 0), 4),
        ((2, 0, 0, 2), (4, 0, 0, 0), 4),
        ((2, 2, 2, 0), (4, 2, 0, 0), 4),
        ((2, 2, 2, 2), (4, 4, 0, 0), 8),
        ((4, 2, 2, 0), (4, 4, 0, 0), 4),
        ((4, 2, 4, 2), (4, 2, 4, 2), 0),
        ((8, 8, 16, 16), (16, 32, 0, 0), 48),
    ],
)
def test_rows_by_hand(row: tuple[int, ...], moved: tuple[int, ...], points: int) -> None:
    assert slide(row) == (moved, points)


def slow_left(grid: "np.ndarray[tuple[int, ...], np.dtype[np.int64]]") -> int:
    """Tiles walk one cell at a time; a tile that was made does not merge again."""
    points = 0
    for row in grid:
        made: set[int] = set()
        for start in range(1, 4):
            at = start
            while at > 0 and row[at]:
                if row[at - 1] == 0:
                    row[at - 1], row[at] = row[at], 0
                    at -= 1
                elif row[at - 1] == row[at] and at - 1 not in made:
                    row[at - 1], row[at] = 2 * row[at], 0
                    points += int(row[at - 1])
                    made.add(at - 1)
                    break
                else:
                    break
    return points


@given(boards, st.integers(0, 3))
def test_pushes_are_those_of_a_second_implementation(board: Board, direction: int) -> None:
    turns = {0: 0, 1: 2, 2: 1, 3: 3}[direction]  # quarter turns that make the push one to the left
    grid = np.rot90(np.array(board).reshape(4, 4), turns).copy()
    points = slow_left(grid)
    moved, gained = push(board, direction)
    assert moved == tuple(np.rot90(grid, -turns).reshape(-1).tolist())
    assert gained == points
    assert sum(moved) == sum(board)
    assert (direction in pushes(board)) == (moved != board)


@given(boards.filter(lambda board: 0 in board), st.floats(0, 1, exclude_max=True), st.floats(0, 1, exclude_max=True))
def test_a_tile_comes_to_an_empty_cell(board: Board, place: float, kind: float) -> None:
    after = with_tile(board, place, kind)
    (cell,) = [cell for cell in range(16) if after[cell] != board[cell]]
    assert (board[cell], after[cell]) == (0, 4 if kind < 0.1 else 2)


def test_new_tiles_are_everywhere_alike_and_a_tenth_of_them_fours() -> None:
    rng = np.random.default_rng(0)
    drawn = [with_tile((0,) * 16, rng.random(), rng.random()) for _ in range(16_000)]
    counts = np.sum(np.array(drawn) > 0, axis=0)
    assert abs(counts - 1000).max() < 5 * 1000**0.5
    assert abs(sum(4 in board for board in drawn) - 1600) < 5 * (16_000 * 0.09) ** 0.5


def started(board: Board, **settings: int) -> Game2048:
    env = environment_factory({"name": "2048", **settings})()
    assert isinstance(env, Game2048)
    env.reset(instance_seed=0, dynamics_seed=0)
    env._board = board
    return env


def test_a_push_pays_its_merges_as_a_share_of_the_goal() -> None:
    env = started((2, 2, 4, 4, *(0,) * 12))
    step = env.step("Left")
    assert step.observation.split("\n")[0].split()[:2] == ["4", "8"]
    assert step.reward == pytest.approx(12 / 32)
    assert sum(1 for tile in env._board if tile) == 3


def test_a_push_that_moves_nothing_brings_no_tile() -> None:
    board = (2, 4, 0, 0, *(0,) * 12)
    env = started(board)
    step = env.step("Left")
    assert (step.reward, step.info["action_is_effective"], env._board) == (0.0, False, board)
    assert env.step("Push").info["action_is_valid"] is False


def test_the_goal_wins_and_a_full_board_loses() -> None:
    env = started((16, 16, *(0,) * 14))
    step = env.step("Left")
    assert (step.terminated, env.success, step.reward) == (True, True, 1.0)
    with pytest.raises(EnvironmentFault, match="after the end"):
        env.step("Left")
    full = started((2, 4, 2, 4, 4, 2, 4, 2, 2, 4, 2, 4, 4, 2, 16, 16), goal=64)
    step = full.step("Left")  # one cell gets free, and the new 2 or 4 there merges with nothing, or it goes on
    assert step.terminated == (not pushes(full._board))
    stuck = (2, 4, 2, 4, 4, 2, 4, 2, 2, 4, 2, 4, 4, 2, 4, 8)
    assert pushes(stuck) == []
    assert best_push(stuck) is None


def test_members_share_the_start_and_differ_in_their_tiles() -> None:
    make = environment_factory({"name": "2048"})
    seen = set()
    for dynamics in range(5):
        env = make()
        first = env.reset(instance_seed=3, dynamics_seed=dynamics).text
        seen.add((first, env.step("Left").observation, env.step("Down").observation))
    assert len({first for first, _, _ in seen}) == 1
    assert len(seen) == 5


def test_the_player_is_far_better_than_chance() -> None:
    make = environment_factory({"name": "2048"})
    env = make()
    env.reset(instance_seed=0, dynamics_seed=0)
    expectimax = players_of(env)["expectimax"]
    specs = [EpisodeSpec("2048", n, 0, n, n, n) for n in range(12)]
    assert sum(play(spec, make, expectimax)[0] for spec in specs) == 12
    assert sum(play(spec, make, random_player)[0] for spec in specs) < 9


def test_the_goal_is_a_power_of_two() -> None:
    with pytest.raises(ConfigError, match="it must be a power of 2"):
        environment_factory({"name": "2048", "goal": 48})
