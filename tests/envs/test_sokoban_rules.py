"""Moves and rewards against an independent re-implementation of gym-sokoban's published rules."""

import numpy as np
import pytest

from ragen.envs.sokoban.generator import generate
from ragen.envs.sokoban.levels import level_rows, parse_level
from ragen.envs.sokoban.rules import DOWN, LEFT, RIGHT, UP, move, push_table, reachable, reward, solved
from ragen.envs.sokoban.solver import solve

OFFSETS = {UP: (-1, 0), DOWN: (1, 0), LEFT: (0, -1), RIGHT: (0, 1)}


class GymSokoban:
    """gym-sokoban's rules on its tables: state 0 wall, 1 floor, 2 target, 3 box on target, 4 box off target, 5 player."""

    def __init__(self, rows):
        codes = {"#": 0, " ": 1, ".": 2, "*": 3, "$": 4, "@": 5, "+": 5}
        self.state = np.array([[codes[c] for c in row] for row in rows])
        self.fixed = np.array([[0 if c == "#" else 2 if c in ".*+" else 1 for c in row] for row in rows])
        self.player = np.argwhere(self.state == 5)[0]
        self.on_target = int((self.state == 3).sum())

    def step(self, direction):
        offset = np.array(OFFSETS[direction])
        ahead, beyond = self.player + offset, self.player + 2 * offset
        if self.state[tuple(ahead)] in (3, 4):
            if self.state[tuple(beyond)] in (1, 2):
                self.state[tuple(beyond)] = 3 if self.fixed[tuple(beyond)] == 2 else 4
                self._walk(ahead)
        elif self.state[tuple(ahead)] in (1, 2):
            self._walk(ahead)
        now = int((self.state == 3).sum())
        pay = -0.1
        if now > self.on_target:
            pay += 1.0
        elif now < self.on_target:
            pay -= 1.0
        done = not (self.state == 4).any()
        if done:
            pay += 10.0
        self.on_target = now
        return pay, done

    def _walk(self, to):
        self.state[tuple(self.player)] = self.fixed[tuple(self.player)]
        self.state[tuple(to)] = 5
        self.player = to


@pytest.mark.parametrize(("size", "boxes"), [(6, 1), (8, 2), (9, 3)])
def test_moves_rewards_and_end_equal_gym_sokoban_step_by_step(size, boxes):
    rng = np.random.default_rng(size)
    kinds = set()
    for seed in range(60):
        level = generate(seed, width=size, height=size, boxes=boxes, min_moves=1, max_moves=15)
        board, player, placed = level.board, level.player, level.boxes
        other = GymSokoban(level_rows(level))
        played = rng.integers(4, size=80).tolist() if seed % 2 else solve(board, player, placed)
        for direction in played:
            player, after = move(board, player, placed, direction)
            pay, done = other.step(direction)
            assert reward(board, placed, after) == pytest.approx(pay, abs=1e-12)
            assert solved(board, after) == done
            placed = after
            assert divmod(player, size) == tuple(other.player)
            boxes_there = np.isin(other.state, (3, 4)).ravel()
            assert placed == sum(1 << int(cell) for cell in np.flatnonzero(boxes_there))
            kinds.add(round(pay, 1))
            if done:
                break
    assert {-0.1, 10.9} <= kinds
    assert boxes == 1 or {0.9, -1.1} <= kinds


def rewards_of(rows, directions):
    level = parse_level(rows)
    player, boxes, found = level.player, level.boxes, []
    for direction in directions:
        player, after = move(level.board, player, boxes, direction)
        found.append(reward(level.board, boxes, after))
        boxes = after
    return found


def test_rewards_by_hand():
    # a walk, a blocked move, then one box onto a target, off it, and onto the next one; the other box stays off
    rows = ["#########", "#@ $. . #", "# $     #", "#########"]
    walk, wall, on, off, again = rewards_of(rows, [RIGHT, UP, RIGHT, RIGHT, RIGHT])
    assert (walk, wall) == (-0.1, -0.1)
    assert on == pytest.approx(0.9)
    assert off == pytest.approx(-1.1)
    assert again == pytest.approx(0.9)
    assert rewards_of(["#####", "#@$.#", "#####"], [RIGHT]) == [pytest.approx(10.9)]


def test_a_box_is_not_pushed_into_a_wall_or_a_box_and_never_pulled():
    level = parse_level(["########", "#.@$$ .#", "########"])
    assert move(level.board, level.player, level.boxes, RIGHT) == (level.player, level.boxes)
    level = parse_level(["######", "#.@ $#", "######"])
    beside, boxes = move(level.board, level.player, level.boxes, RIGHT)
    assert move(level.board, beside, boxes, RIGHT) == (beside, boxes)
    assert move(level.board, beside, boxes, LEFT) == (level.player, boxes)


def test_moves_stop_at_the_edge_of_an_open_grid():
    level = parse_level(["@ #", "#$#", "#.#"])
    for direction in (UP, LEFT):
        assert move(level.board, level.player, level.boxes, direction) == (level.player, level.boxes)


def test_push_table_and_dead_squares_by_hand():
    # one target at the right end of a corridor: the leftmost cell leaves the player no room behind the box
    level = parse_level(["#######", "#@$  .#", "#######"])
    row = level.board.pushes[7:14]
    assert row == (-1, -1, 3, 2, 1, 0, -1)
    open_room = parse_level(["######", "#@  .#", "# $  #", "#    #", "######"])
    grid = [open_room.board.pushes[start : start + 6] for start in range(0, 30, 6)]
    assert grid[1] == (-1, -1, 2, 1, 0, -1)
    assert grid[2] == (-1, -1, 3, 2, 1, -1)
    assert grid[3] == (-1, -1, -1, -1, -1, -1)
    assert push_table(open_room.board.near, open_room.board.targets) == open_room.board.pushes


def test_reachable_cells_stop_at_walls_and_boxes():
    level = parse_level(["#######", "#@ $ .#", "#######"])
    assert reachable(level.board.near, level.player, level.boxes) == 0b11 << 8
