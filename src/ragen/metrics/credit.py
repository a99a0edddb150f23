"""What the advantages of a batch are like."""

import torch
from torch import Tensor

from ragen.algos.groups import numbered, sizes
from ragen.algos.trajectories import Episodes, Turns


def credit_metrics(advantages: Tensor, mask: Tensor) -> dict[str, float]:
    """Mean, standard deviation (Bessel's correction) and share of exact zeros of advantages (R, T) over the mask.

    Without a sampled token there is none of them, with one no standard deviation.
    """
    inside = advantages.cpu()[mask.cpu()].to(torch.float64)
    found = {"credit/advantage_mean": inside.mean(), "credit/zero": (inside == 0).to(torch.float64).mean()}
    if len(inside) > 1:
        found["credit/advantage_std"] = inside.std(correction=1)
    return {name: float(value) for name, value in found.items()} if len(inside) else {}


def shared_states(anchors: Tensor, mask: Tensor, turn_ids: Tensor, trajectory: Tensor, group: Tensor) -> float:
    """Share of turns that began in a state (``anchors`` ≥ 0) in which another turn of the group began; 0 without turns.

    Shapes: ``anchors``, ``mask``, ``turn_ids`` (R, T); ``trajectory``, ``group`` (R,).
    """
    turns, episodes = Turns.of(mask, turn_ids, trajectory), Episodes.of(torch.zeros(mask.shape), mask, trajectory)
    owner, turn = turns.present.nonzero(as_tuple=True)
    states = anchors.cpu()[turns.rows[owner, turn], turns.columns[owner, turn]]
    known = states >= 0
    number = numbered(episodes.of_rows(group)[owner][known], states[known])
    return float((sizes(number)[number] > 1).sum()) / max(1, len(states))
