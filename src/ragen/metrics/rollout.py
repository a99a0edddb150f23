"""What a batch of episodes looks like. A metric without data is NaN here and left out of ``rollout_metrics``; it is never 0.

Success is the task's own criterion as recorded, whatever ended the episode. Episodes lost to an error are in no mean.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from ragen.algos.filters import group_stats
from ragen.episode import Group, StopReason, Trajectory, Turn
from ragen.metrics.diversity import distinct_n, reasoning, self_similarity, words


def success_rate(trajectories: Sequence[Trajectory]) -> float:
    """Share of trajectories whose task was solved."""
    return _mean(t.success for t in trajectories)


def return_mean(trajectories: Sequence[Trajectory]) -> float:
    """Mean total return (all rewards and penalties) of a trajectory."""
    return _mean(t.total_return for t in trajectories)


def return_max(trajectories: Sequence[Trajectory]) -> float:
    """Largest total return."""
    return max((t.total_return for t in trajectories), default=math.nan)


def task_return_mean(trajectories: Sequence[Trajectory]) -> float:
    """Mean task return (the environment's rewards alone) of a trajectory."""
    return _mean(t.task_return for t in trajectories)


def return_std(groups: Sequence[Group]) -> float:
    """In-group standard deviation of the total return (Bessel's correction), mean over groups; flat groups count as 0."""
    return _mean(group_stats([g.returns() for g in groups]).std)


def return_std_min(groups: Sequence[Group]) -> float:
    """Smallest in-group standard deviation of the total return."""
    return min(group_stats([g.returns() for g in groups]).std.tolist(), default=math.nan)


def return_std_max(groups: Sequence[Group]) -> float:
    """Largest in-group standard deviation of the total return."""
    return max(group_stats([g.returns() for g in groups]).std.tolist(), default=math.nan)


def flat_share(groups: Sequence[Group]) -> float:
    """Share of groups whose members all have the same total return (max = min): no group-relative signal."""
    return _mean(group_stats([g.returns() for g in groups]).flat)


def valid_format_rate(trajectories: Sequence[Trajectory]) -> float:
    """Share of turns with a valid answer (right format and at least one valid action)."""
    return _mean(turn.valid for turn in _turns(trajectories))


def process_score_mean(trajectories: Sequence[Trajectory]) -> float:
    """Mean score (in [0, 1], before its coefficient) of the process reward a turn; NaN without a process reward."""
    return _mean(turn.process_score for turn in _turns(trajectories) if turn.process_score is not None)


def process_reward_mean(trajectories: Sequence[Trajectory]) -> float:
    """Mean process reward (score times its coefficient) of a turn; NaN without a process reward."""
    return _mean(turn.process_reward for turn in _turns(trajectories) if turn.process_score is not None)


def overlong_penalty_mean(trajectories: Sequence[Trajectory]) -> float:
    """Mean overlong penalty (≤ 0) of a turn."""
    return _mean(turn.overlong_penalty for turn in _turns(trajectories))


def truncated_turns(trajectories: Sequence[Trajectory]) -> int:
    """Number of turns whose reply was cut by its token budget; such a turn may or may not be valid as well."""
    return sum(turn.completion.stop is StopReason.LENGTH for turn in _turns(trajectories))


def effective_action_rate(trajectories: Sequence[Trajectory]) -> float:
    """Executed actions that changed the state / all executed actions (``effective_actions`` in each turn's info)."""
    turns = _turns(trajectories)
    executed = sum(len(turn.actions) for turn in turns)
    return sum(int(turn.info.get("effective_actions", 0)) for turn in turns) / executed if executed else math.nan


def turns_mean(trajectories: Sequence[Trajectory]) -> float:
    """Mean number of turns a trajectory."""
    return _mean(len(t.turns) for t in trajectories)


def actions_mean(trajectories: Sequence[Trajectory]) -> float:
    """Mean number of executed actions a trajectory."""
    return _mean(sum(len(turn.actions) for turn in t.turns) for t in trajectories)


def response_tokens(trajectories: Sequence[Trajectory]) -> float:
    """Mean number of sampled tokens a turn."""
    return _mean(len(turn.completion.token_ids) for turn in _turns(trajectories))


def sampled_tokens(trajectories: Sequence[Trajectory]) -> int:
    """Number of sampled tokens."""
    return sum(t.sampled_tokens for t in trajectories)


def think_words(trajectories: Sequence[Trajectory]) -> float:
    """Mean number of words (and lone punctuation marks) before ``</think>`` a turn; replies without the tag are left out."""
    thoughts = (reasoning(turn.completion.text) for turn in _turns(trajectories))
    return _mean(len(words(thought)) for thought in thoughts if thought is not None)


def token_entropy(trajectories: Sequence[Trajectory]) -> float:
    """Mean entropy (nats) of the sampling distribution over all sampled tokens."""
    return _mean(entropy for turn in _turns(trajectories) for entropy in turn.completion.entropies)


def entropy_spread(trajectories: Sequence[Trajectory]) -> float:
    """Standard deviation over turns of a reply's mean token entropy (nats), around the mean over turns, without correction.

    0 = all replies are equally sure. A mean entropy that some certain and some wandering replies share shows here.
    """
    sampled = [turn.completion.entropies for turn in _turns(trajectories) if turn.completion.entropies]
    return float(np.std([np.mean(entropies) for entropies in sampled])) if sampled else math.nan


def common_reply(trajectories: Sequence[Trajectory]) -> float:
    """Share of turns that give the reply most often given, letter for letter but for outer space; 1 = one reply only."""
    counts = Counter(turn.completion.text.strip() for turn in _turns(trajectories))
    return max(counts.values()) / counts.total() if counts else math.nan


def solved_groups(groups: Sequence[Group]) -> float:
    """Share of groups in which at least one member succeeds: pass@k with k = the group's size."""
    return _mean(any(t.success for t in group.trajectories) for group in groups)


def pass_at_k(samples: int, successes: int, k: int) -> float:
    """Chance that at least one of k samples succeeds, 1 − C(n−c, k) / C(n, k): unbiased, from c successes in n ≥ k samples.

    Average it over instances. Source: Chen et al., "Evaluating Large Language Models Trained on Code" (arXiv 2107.03374).
    """
    if not 0 <= successes <= samples or not 1 <= k <= samples:
        raise ValueError(f"pass@k needs 0 ≤ successes ≤ samples and 1 ≤ k ≤ samples, got {successes} of {samples}, k = {k}")
    return 1 - math.comb(samples - successes, k) / math.comb(samples, k)


def by_environment(groups: Sequence[Group]) -> dict[str, tuple[Group, ...]]:
    """Groups by the name of their environment, so that each environment's means are over its own episodes only."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        if group.trajectories:
            found.setdefault(group.trajectories[0].env, []).append(group)
    return {name: tuple(members) for name, members in found.items()}


def rollout_metrics(groups: Sequence[Group], errors: int = 0) -> dict[str, float]:
    """All metrics of one collected batch by their logged names (``METRICS`` defines them).

    ``groups`` hold the sound episodes, ``errors`` is the number lost to faults: counted, in no mean. A metric without data
    (for example the effective actions of a batch in which none was executed) is left out.
    """
    groups = [g for g in groups if g.trajectories]
    trajectories = [t for g in groups for t in g.trajectories]
    replies = [turn.completion.text for turn in _turns(trajectories)]
    said = [reasoning(reply) or reply for reply in replies]
    found: dict[str, float] = {
        "rollout/success": success_rate(trajectories),
        "rollout/solved_groups": solved_groups(groups),
        "rollout/return_mean": return_mean(trajectories),
        "rollout/return_max": return_max(trajectories),
        "rollout/task_return_mean": task_return_mean(trajectories),
        "rollout/return_std": return_std(groups),
        "rollout/return_std_min": return_std_min(groups),
        "rollout/return_std_max": return_std_max(groups),
        "rollout/flat_groups": flat_share(groups),
        "rollout/valid_format": valid_format_rate(trajectories),
        "rollout/process_score_mean": process_score_mean(trajectories),
        "rollout/process_reward_mean": process_reward_mean(trajectories),
        "rollout/overlong_penalty_mean": overlong_penalty_mean(trajectories),
        "rollout/truncated_turns": truncated_turns(trajectories),
        "rollout/effective_actions": effective_action_rate(trajectories),
        "rollout/turns": turns_mean(trajectories),
        "rollout/actions": actions_mean(trajectories),
        "rollout/response_tokens": response_tokens(trajectories),
        "rollout/think_words": think_words(trajectories),
        "rollout/sampled_tokens": sampled_tokens(trajectories),
        "rollout/entropy": token_entropy(trajectories),
        "rollout/entropy_spread": entropy_spread(trajectories),
        "rollout/distinct_2": distinct_n(said, 2),
        "rollout/self_similarity": self_similarity(said),
        "rollout/common_reply": common_reply(trajectories),
        "rollout/errors": errors,
    }
    return {name: float(value) for name, value in found.items() if not math.isnan(value)}


def _turns(trajectories: Sequence[Trajectory]) -> list[Turn]:
    return [turn for t in trajectories for turn in t.turns]


def _mean(values: Iterable[float]) -> float:
    listed = np.fromiter(values, dtype=np.float64)
    return float(listed.mean()) if listed.size else math.nan
