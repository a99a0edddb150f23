"""Trajectory → training rows: exactly the ids the sampler saw and sampled, nothing rendered again (law 1)."""

import math

import numpy as np

from ragen.episode import Segment, Trajectory, Turn


def segments(trajectory: Trajectory) -> tuple[Segment, ...]:
    """Return the rows of one trajectory, in turn order; a turn with ``extends=False`` starts a new row.

    Only sampled ids are on the mask (a sampled end-of-turn id too; forced text, headers and observations never). The sum
    of a turn's parts (reward, penalties, process reward) lies on its last sampled token. A turn that sampled nothing gives
    it to the last token sampled before it (in an earlier row if need be), or, before any was sampled, to the first one
    after it, so the sum over all rows is always ``trajectory.total_return``.

    Raises:
        ValueError: the trajectory has turns but not one sampled token, so no token could carry its rewards.
    """
    if trajectory.turns and not trajectory.sampled_tokens:
        raise ValueError(
            f"trajectory of '{trajectory.env}' (instance seed {trajectory.instance_seed}, member {trajectory.member}) has "
            f"{len(trajectory.turns)} turns but no sampled token: it cannot be trained on; leave it out and count it"
        )
    if not trajectory.turns:
        return ()
    rewards = _token_rewards(trajectory.turns)
    starts = [k for k, turn in enumerate(trajectory.turns) if k == 0 or not turn.extends]
    ends = [*starts[1:], len(trajectory.turns)]
    return tuple(_segment(trajectory.turns, rewards, start, end) for start, end in zip(starts, ends, strict=True))


def _token_rewards(turns: tuple[Turn, ...]) -> list[float]:
    """The reward on the last sampled token of each turn (0 for a turn that sampled nothing), shape (K,)."""
    placed = [0.0] * len(turns)
    last: int | None = None
    waiting = 0.0
    for k, turn in enumerate(turns):
        reward = math.fsum(turn.parts)
        if turn.completion.token_ids:
            placed[k] += reward + waiting
            last, waiting = k, 0.0
        elif last is not None:
            placed[last] += reward
        else:
            waiting += reward
    return placed


def _segment(turns: tuple[Turn, ...], rewards: list[float], start: int, end: int) -> Segment:
    ids: list[int] = []
    mask: list[bool] = []
    logprobs: list[float] = []
    turn_ids: list[int] = []
    token_rewards: list[float] = []
    for k in range(start, end):
        given, sampled = turns[k].prompt_ids, turns[k].completion.token_ids
        ids += [*given, *sampled]
        mask += [False] * len(given) + [True] * len(sampled)
        logprobs += [0.0] * len(given) + list(turns[k].completion.logprobs)
        turn_ids += [-1] * len(given) + [k] * len(sampled)
        token_rewards += [0.0] * (len(given) + len(sampled))
        if sampled:
            token_rewards[-1] = rewards[k]
    return Segment(
        token_ids=np.asarray(ids, dtype=np.int64),
        mask=np.asarray(mask, dtype=np.bool_),
        logprobs=np.asarray(logprobs, dtype=np.float32),
        turn_ids=np.asarray(turn_ids, dtype=np.int32),
        rewards=np.asarray(token_rewards, dtype=np.float64),
    )
