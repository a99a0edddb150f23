"""GRESO: which training instances to pass over, told by how often their groups were flat (arXiv 2506.02177)."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray


def play_probability(streaks: Sequence[int], *, explore: float, least: float) -> NDArray[np.float64]:
    """p(i) = max( explore^{zᵢ}, least ), float64 (I,): the chance to play an instance whose last zᵢ groups were all flat.

    ``explore`` in (0, 1] is the paper's base exploration probability p_e (1 plays everything).
    Source: GRESO (arXiv 2506.02177), the probabilistic filter p_f(i) = 1 − p_e^{zᵢ}. Deviations: one constant
    p_e (the paper has two, for instances always solved and never solved, and adjusts them towards a target share of flat
    groups); ``least`` bounds p from below, so that an instance is seen again however long it was flat.
    """
    return np.maximum(explore ** np.asarray(streaks, dtype=np.float64), least)


def flat_streaks(streaks: Sequence[int], flat: Mapping[int, bool]) -> tuple[int, ...]:
    """zᵢ after a step, by the instances played in it: one more for a flat one, 0 for one that was not, else unchanged."""
    return tuple((z + 1 if flat[i] else 0) if i in flat else z for i, z in enumerate(streaks))
