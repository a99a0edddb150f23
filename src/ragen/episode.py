"""What happened in an episode, as recorded: ids and log-probabilities are kept, never recovered (law 1).

Shapes: P groups, G members a group, R segments (training rows), T tokens, K turns, V vocabulary.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGEST_REWARD = 1e9  # in size, of one step: sums over an episode and their squares stay far inside float32


class StopReason(StrEnum):
    """Why a reply ended."""

    END = "end"  # the policy sampled an end-of-turn token (it is part of the completion)
    STOP_STRING = "stop_string"  # the text ends with a stop string
    LENGTH = "length"  # the token budget of the reply ran out


class EndReason(StrEnum):
    """Why an episode ended."""

    TERMINATED = "terminated"  # the environment reached an end of its own
    TRUNCATED = "truncated"  # the environment cut the episode (its own time limit)
    BUDGET = "budget"  # turns, actions or sampled tokens ran out
    OVERFLOW = "overflow"  # the next turn would not fit into the context
    ERROR = "error"  # the environment raised: the episode is counted and never trained on


@dataclass(frozen=True, slots=True)
class Completion:
    """One reply: exactly what was sampled.

    ``logprobs`` (nats) are of the distribution actually sampled from (temperature and truncation applied);
    ``entropies`` (nats) are of the full distribution at that temperature. All three have the same length. An endpoint that
    keeps its ids to itself leaves them empty and tells their number alone, ``untold_tokens``.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    entropies: tuple[float, ...]
    text: str
    stop: StopReason
    untold_tokens: int = 0

    @property
    def length(self) -> int:
        """The number of sampled tokens."""
        return len(self.token_ids) + self.untold_tokens

    def __post_init__(self) -> None:
        if not len(self.token_ids) == len(self.logprobs) == len(self.entropies):
            raise ValueError(
                f"a completion needs one log-probability and one entropy a token, got {len(self.token_ids)} ids, "
                f"{len(self.logprobs)} log-probabilities, {len(self.entropies)} entropies"
            )


@dataclass(frozen=True, slots=True)
class Turn:
    """One policy reply and the environment's answer to it.

    ``prompt_ids`` are only the ids *added* before this reply since the last one (header, observation, forced text);
    ``extends`` is False where they start a new segment. ``observation`` is the text the reply answered.
    ``reward`` is the environment's; ``penalty`` (≤ 0) is the rollout's format penalty. ``overlong_penalty`` (≤ 0) and
    ``process_reward`` (≥ 0: a coefficient times ``process_score``, which is in [0, 1], or None without such a reward) are of
    training only and never told to the policy. ``invalid_actions`` counts skipped sub-actions.
    ``anchor`` is the environment's key of the state the turn began in (None: it gives none). ``rounding`` is what the exact
    sum of the turn's rewards has beyond ``reward``, so that a return does not depend on which turns its rewards fell into.
    """

    prompt_ids: tuple[int, ...]
    extends: bool
    completion: Completion
    observation: str
    actions: tuple[str, ...]
    valid: bool
    reward: float
    penalty: float = 0.0
    process_reward: float = 0.0
    overlong_penalty: float = 0.0
    process_score: float | None = None
    invalid_actions: int = 0
    anchor: str | None = None
    info: Mapping[str, Any] = field(default_factory=dict)
    rounding: float = 0.0

    @property
    def parts(self) -> tuple[float, ...]:
        """What the turn adds to the total return: reward (and its rounding), penalty, process reward, overlong penalty."""
        return self.reward, self.rounding, self.penalty, self.process_reward, self.overlong_penalty


@dataclass(frozen=True)
class Trajectory:
    """One episode of one member of a group."""

    env: str
    instance_seed: int
    member: int
    turns: tuple[Turn, ...]
    end: EndReason
    success: bool
    policy_version: int = 0
    error: str = ""

    @cached_property
    def task_return(self) -> float:
        """Sum of the environment's rewards alone; correctly rounded: equal whatever their order and their turns."""
        return math.fsum(part for turn in self.turns for part in (turn.reward, turn.rounding))

    @cached_property
    def total_return(self) -> float:
        """Sum of all parts of all turns (correctly rounded): what filter and advantages use by default."""
        return math.fsum(part for turn in self.turns for part in turn.parts)

    @property
    def has_ids(self) -> bool:
        """Whether the ids of what was sampled are known: of an endpoint's replies they are not."""
        return any(turn.completion.token_ids for turn in self.turns)

    @property
    def sampled_tokens(self) -> int:
        """|τ|: the number of tokens the policy sampled."""
        return sum(turn.completion.length for turn in self.turns)


@dataclass(frozen=True)
class Group:
    """Trajectories that share one initial state (errors are already removed and counted elsewhere)."""

    index: int
    trajectories: tuple[Trajectory, ...]

    def returns(self, *, task: bool = False) -> NDArray[np.float64]:
        """Returns of the members, float64 of shape (G,); ``task=True`` takes the environment's rewards alone."""
        values = [t.task_return if task else t.total_return for t in self.trajectories]
        return np.asarray(values, dtype=np.float64)

    @property
    def return_std(self) -> float:
        """Standard deviation of the total returns (Bessel's correction; 0.0 for a flat or single-member group)."""
        returns = self.returns()
        return 0.0 if returns.size < 2 or returns.max() == returns.min() else float(returns.std(ddof=1))


@dataclass(frozen=True, slots=True)
class Segment:
    """One training row: a stretch of tokens that only ever grew by appending.

    ``mask[t]`` is True where token t was sampled by the policy; ``logprobs`` are the behaviour log-probabilities (0 off
    mask); ``turn_ids`` the turn's number in its trajectory (−1 off mask); ``rewards`` hold the sum of each turn's
    parts on its last sampled token. All arrays have shape (T,).
    """

    token_ids: NDArray[np.int64]
    mask: NDArray[np.bool_]
    logprobs: NDArray[np.float32]
    turn_ids: NDArray[np.int32]
    rewards: NDArray[np.float64]

    def __post_init__(self) -> None:
        shapes = {a.shape for a in (self.token_ids, self.mask, self.logprobs, self.turn_ids, self.rewards)}
        if len(shapes) != 1:
            raise ValueError(f"the arrays of a segment must have one shape, got {sorted(shapes)}")
