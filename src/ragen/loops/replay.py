"""The replay buffer: groups of older policies that are trained on again, with the log-probabilities recorded at sampling."""

import math
from collections.abc import Sequence

from ragen.config.collection import ReplayConfig
from ragen.episode import Group
from ragen.seeding import derive, generator


def replayed(buffer: Sequence[Group], replay: ReplayConfig, *, fresh: int, step: int, seed: int) -> tuple[Group, ...]:
    """The groups that join ``fresh`` new ones in step ``step``: ⌈ratio · fresh⌉ of those young enough, at most all.

    Drawn without replacement, each with the same chance, by the step's own seed; oldest first. No fresh group, no replay.
    Source: experience replay for RL of language models as in ExGRPO (arXiv 2510.02245). Deviations: uniform choice among
    the live groups that trained (no buckets by success, no choice by entropy), and a PPO clip on π_θ / π_behaviour.
    """
    young = [group for group in buffer if age(group, step) <= replay.max_age]
    count = min(len(young), math.ceil(replay.ratio * fresh))
    chosen = generator(derive(seed, "train", "replay", step)).choice(len(young), count, replace=False) if count else ()
    return tuple(young[i] for i in sorted(int(i) for i in chosen))


def remembered(buffer: Sequence[Group], kept: Sequence[Group], replay: ReplayConfig, *, step: int) -> tuple[Group, ...]:
    """The buffer after step ``step``: its groups and the live ones that trained now, those the next step may use."""
    live = [group for group in kept if group.return_std > 0]
    young = [group for group in (*buffer, *live) if age(group, step + 1) <= replay.max_age]
    return tuple(young[-replay.size :]) if replay.size else ()


def age(group: Group, step: int) -> int:
    """How many training steps lie between the policy that sampled a group and that of step ``step`` (from 0)."""
    return step - group.trajectories[0].policy_version


def replay_metrics(groups: Sequence[Group], kept: Sequence[Group], replay: ReplayConfig, *, step: int) -> dict[str, float]:
    """Number, share of the trained trajectories, and mean age of the replayed groups; nothing without a buffer."""
    if not replay.size:
        return {}
    old, new = (sum(len(group.trajectories) for group in each) for each in (groups, kept))
    metrics = {"replay/groups": float(len(groups)), "replay/share": old / max(1, old + new)}
    return metrics | ({"replay/age": sum(age(group, step) for group in groups) / len(groups)} if groups else {})
