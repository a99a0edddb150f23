"""A fixed set of training instances that come back: in which order they are played, and which are passed over."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ragen.seeding import derive, generator


@dataclass(frozen=True, slots=True)
class Draw:
    """``instances`` to play, by number; the walk goes on from ``cursor``; ``skipped`` places were passed over by chance."""

    instances: tuple[int, ...]
    cursor: int
    skipped: int


def draw(
    seed: int, *, cursor: int, count: int, probability: NDArray[np.float64], taken: Collection[int] = frozenset()
) -> Draw:
    """The next ``count`` different instances of the I in a pool, ``probability`` (I,) being the chance to play each.

    The walk over the pool is endless: one permutation after another. At each place a chance of its own, by the place's seed,
    decides whether the instance is played. ``taken`` are not drawn again. Bounded: after 2·I places (which hold every
    instance) the first that were passed over fill what is missing.

    Raises ValueError where fewer than ``count`` instances are left.
    """
    size = len(probability)
    if size - len(taken) < count:
        raise ValueError(f"{count} of {size} instances cannot be drawn with {len(taken)} taken")
    chosen: list[int] = []
    passed: list[int] = []
    position = cursor
    while len(chosen) < count and position < cursor + 2 * size:
        number = _instance_at(seed, size, position)
        if number not in taken and number not in chosen:
            chance = generator(derive(seed, "train", "skip", position)).random()
            (chosen if chance < probability[number] else passed).append(number)
        position += 1
    left = [number for number in dict.fromkeys(passed) if number not in chosen]
    return Draw((*chosen, *left[: count - len(chosen)]), position, len(passed))


def visited(seed: int, size: int, cursor: int) -> Sequence[int]:
    """All instances the walk has come by: those played are among them."""
    return sorted({_instance_at(seed, size, position) for position in range(min(cursor, size))})


def _instance_at(seed: int, size: int, position: int) -> int:
    epoch, place = divmod(position, size)
    return int(_order(seed, size, epoch)[place])


@lru_cache(maxsize=4)
def _order(seed: int, size: int, epoch: int) -> NDArray[np.int64]:
    return generator(derive(seed, "train", "epoch", epoch)).permutation(size)
