"""FrozenLake and its presets."""

from typing import Any

from ragen.envs.frozen_lake.env import FrozenLake, FrozenLakeSettings
from ragen.envs.registry import EnvPreset, environments


def _register(name: str, about: str, **overrides: Any) -> None:
    environments.register(name)(EnvPreset(FrozenLake, about, overrides))


_register("frozen_lake", "cross a slippery 4 × 4 lake (a move goes the intended way 1/3 of the time), random start and goal")
_register("frozen_lake-slip23", "the maps of frozen_lake, moves go the intended way 2/3 of the time", success_rate=2 / 3)
_register("frozen_lake-slip08", "the maps of frozen_lake, moves go the intended way 80 % of the time", success_rate=0.8)
_register("frozen_lake-det", "the maps of frozen_lake, without slipping", success_rate=1.0)
_register("frozen_lake-corners", "start top left, goal bottom right (best play wins about 10 %)", corners=True)
_register("frozen_lake-6", "a slippery 6 × 6 lake", size=6)
_register("frozen_lake-8", "a slippery 8 × 8 lake", size=8)
_register("frozen_lake-coords", "the maps of frozen_lake, with the coordinates of player, goal and holes", hint="coords")
_register("frozen_lake-symbols", "the maps of frozen_lake, drawn with other symbols", symbols="A.#@x!")
_register(
    "frozen_lake-offset",
    "the maps of frozen_lake without slipping; the observation tells where the goal lies (a help the paper does not give)",
    hint="offset",
    success_rate=1.0,
)
_register(
    "frozen_lake-blindfail",
    "held-out test maps without slipping on which heading straight for the goal always ends in a hole",
    require_blind_failure=True,
    success_rate=1.0,
)
_register(
    "frozen_lake-offset-blindfail",
    "the maps of frozen_lake-blindfail, with the help of frozen_lake-offset",
    require_blind_failure=True,
    hint="offset",
    success_rate=1.0,
)

__all__ = ["FrozenLake", "FrozenLakeSettings"]
