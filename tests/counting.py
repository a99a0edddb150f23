"""Counts that tests of collecting and of updating compare with."""

from collections.abc import Sequence

from ragen.episode import Group


def tokens(groups: Sequence[Group]) -> int:
    """All tokens of the trajectories, the prompt that a group shares counted once."""
    total = 0
    for group in groups:
        shared = len(group.trajectories[0].turns[0].prompt_ids)
        lengths = [sum(len(t.prompt_ids) + len(t.completion.token_ids) for t in row.turns) for row in group.trajectories]
        total += shared + sum(length - shared for length in lengths)
    return total
