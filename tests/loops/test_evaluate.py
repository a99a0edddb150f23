"""Reference players beside an evaluation."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from tests.loops.conftest import OneWord

from ragen.envs import Environment, Observation
from ragen.errors import EnvironmentFault
from ragen.loops.compose import World
from ragen.loops.evaluate import notes, score_players
from ragen.rollout.instances import evaluation_specs


def stumble(env: Environment, rng: np.random.Generator) -> Sequence[str]:
    if env.seed % 4 == 0:
        raise EnvironmentFault("no way from here")
    return ["yes"]


class Stumbling(OneWord):
    """A player of it fails in the instances whose seed 4 divides."""

    seed = 1

    def reset(self, *, instance_seed: int, dynamics_seed: int) -> Observation:
        self.seed = instance_seed
        return Observation("Ready.")

    def players(self) -> Mapping[str, Callable[[Environment, np.random.Generator], Sequence[str]]]:
        return {"stumbling": stumble}


def test_the_episodes_in_which_a_player_fails_are_told():
    specs = evaluation_specs("stumbling", episodes=40, samples=1, seed=3)
    failing = sum(spec.instance_seed % 4 == 0 for spec in specs)
    assert 0 < failing < 40
    world = World("stumbling", {}, Stumbling, {})
    scores = score_players(world, specs)
    assert {name: score.lost for name, score in scores.items()} == {"random": 0, "stumbling": failing}
    said = notes(world, (), scores)
    assert [note for note in said if "player" in note] == [
        f"lost to errors: {failing} of the episodes of the player 'stumbling', in none of its numbers"
    ]
