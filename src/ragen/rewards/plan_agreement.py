"""Process reward: does the turn do what its reasoning says?"""

from collections.abc import Sequence

from ragen.rewards.base import Reasoning, register_process_reward


@register_process_reward("plan_agreement")
def plan_agreement(reasoning: Reasoning, actions: Sequence[str]) -> float:
    """score = LCS(named, executed) / max(|named|, |executed|), 0 where either is empty.

    LCS is the length of the longest common subsequence. So 1 means that exactly the executed actions were named, in their
    order, and a reasoning that lists further actions to be on the safe side is paid less for each of them. A word that
    happens to be an action ("the goal is 1 left") counts as one named, whatever its sentence means by it.

    The rule is ours; the paper only asks for rewards on the reasoning (RAGEN, arXiv 2504.20073).
    """
    named = reasoning.named
    return common_length(named, actions) / max(len(named), len(actions)) if named and actions else 0.0


def common_length(one: Sequence[str], other: Sequence[str]) -> int:
    """Length of the longest common subsequence of two sequences.

    >>> common_length(["Up", "Left", "Up"], ["Left", "Up", "Up"])
    2
    """
    row = [0] * (len(other) + 1)
    for item in one:
        diagonal = 0
        for j, candidate in enumerate(other, start=1):
            above = row[j]
            row[j] = diagonal + 1 if item == candidate else max(above, row[j - 1])
            diagonal = above
    return row[-1]
