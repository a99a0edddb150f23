"""Which tokens and pairs of a batch a preference loss learns from."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ragen.algos.preferences import Pairing, preference_labels, preference_pairs, turn_contents, turn_numbers
from ragen.algos.rule import Rule
from ragen.algos.trajectories import Turns, trajectory_returns
from ragen.learn.batch import Batch

PAIRS = {"trajectory_pairs": "trajectories", "turn_pairs": "turns"}  # a rule's pairs, and the units they are pairs of


@dataclass(frozen=True, slots=True)
class Preferences:
    """How good and bad trajectories (or turns) of a batch are told apart; `ragen.algos.preferences` has the rules.

    ``pairing`` and ``margin`` choose pairs; ``threshold`` of the return makes labels (None: the group's mean).
    """

    pairing: Pairing = "best-worst"
    margin: float = 0.0
    threshold: float | None = None


@dataclass(frozen=True, slots=True)
class Lesson:
    """``trained`` (R, T) bool: the tokens a loss learns from. ``tables`` (R, T) and ``shared`` (other shapes): arrays by the
    names under which rules ask for them.
    """

    trained: Tensor
    tables: Mapping[str, Tensor]
    shared: Mapping[str, Tensor]


def lesson(batch: Batch, rule: Rule, settings: Preferences, *, ratio_unit: str) -> Lesson:
    """What ``rule`` learns from: every sampled token, or those of the trajectories or turns it chooses."""
    needs = set(rule.needs)
    mask, owner = batch.mask, batch.trajectory
    trajectories = owner[:, None].expand(mask.shape)
    turns = turn_numbers(mask, batch.turn_ids, owner) if "turns" in needs or ratio_unit == "turn" else trajectories
    tables = {"trajectories": trajectories, "turns": turns, "units": turns if ratio_unit == "turn" else trajectories}
    trained, shared = mask, {}
    if needs & {"trajectory_pairs", "labels", "chosen"}:
        returns, group = trajectory_returns(batch.rewards, mask, owner, batch.trajectories), _groups(batch)
        if "trajectory_pairs" in needs:
            pairs = preference_pairs(returns, group, pairing=settings.pairing, margin=settings.margin)
            shared["trajectory_pairs"] = pairs
            trained = mask & torch.isin(trajectories, pairs)
        else:
            labels = preference_labels(returns, group, settings.threshold)
            tables["chosen"] = (labels > 0)[trajectories] & mask
            shared["labels"] = labels
            trained = tables["chosen"] if "chosen" in needs else mask & (labels != 0)[trajectories]
    elif "turn_pairs" in needs:
        known = Turns.of(mask, batch.turn_ids, owner)
        values = known.returns_to_go(batch.rewards, gamma=1.0)[known.present]  # in the order of the turns' numbers
        histories, replies = turn_contents(batch.ids, mask, turns, batch.group)
        pairs = preference_pairs(values, histories, pairing=settings.pairing, margin=settings.margin, contents=replies)
        shared["turn_pairs"] = pairs
        trained = mask & torch.isin(turns, pairs)
    return Lesson(trained, tables, shared)


def inside(pairs: Tensor, units: Tensor) -> Tensor:
    """Those of ``pairs`` (Q, 2) whose first unit is among ``units``; both ends of a pair share their mini-batch."""
    return pairs[torch.isin(pairs[:, 0], units)]


def _groups(batch: Batch) -> Tensor:
    """The group of each trajectory (M,); one without a sampled token stands alone: it cannot be learned from."""
    group = torch.zeros(batch.trajectories, dtype=torch.int64)
    group[batch.trajectory] = batch.group
    sampled = torch.zeros(batch.trajectories, dtype=torch.int64).index_add(0, batch.trajectory, batch.mask.sum(1))
    return torch.where(sampled > 0, group, -1 - torch.arange(batch.trajectories))
