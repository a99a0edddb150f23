"""The mini-batches of an update: shuffled trajectories, with the weights of their tokens."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ragen.algos.reduce import token_weights
from ragen.learn.batch import Batch
from ragen.learn.loss_settings import LossSettings
from ragen.learn.packing import MicroBatch
from ragen.learn.policy import Policy
from ragen.learn.preferences import PAIRS, Lesson, inside
from ragen.seeding import generator


@dataclass(frozen=True, slots=True)
class MiniBatch:
    """Its micro-batches, the weights (R, T) of its trained tokens, 0 elsewhere, and a rule's arrays of other shapes."""

    micros: list[MicroBatch]
    weights: Tensor
    value_weights: Tensor
    shared: Mapping[str, Tensor]


def minibatches(
    policy: Policy,
    batch: Batch,
    lesson: Lesson,
    loss: LossSettings,
    size: int,
    budget: int,
    seed: int,
    trajectory_weights: Tensor | None = None,
) -> list[MiniBatch]:
    """Mini-batches of ``size`` shuffled trajectories, or of whole shuffled groups where a loss compares pairs; the last,
    partial one counts too. One without a token to learn from is left out. ``budget`` bounds a micro-batch's tokens.
    """
    chunks = (_groups if PAIRS.keys() & lesson.shared.keys() else _trajectories)(batch, size, seed)
    each = None if trajectory_weights is None else trajectory_weights[batch.trajectory]
    made = []
    for chunk in chunks:
        mask = lesson.trained & torch.isin(batch.trajectory, torch.from_numpy(chunk))[:, None]
        micros = policy.plan(batch, mask.any(1).nonzero().flatten().tolist(), budget)
        if micros:
            weights = token_weights(
                mask, batch.trajectory, loss.aggregation, constant=loss.length_constant, trajectory_weights=each
            )
            shared = {
                name: inside(value, lesson.tables[PAIRS[name]][mask]) if name in PAIRS else value
                for name, value in lesson.shared.items()
            }
            made.append(MiniBatch(micros, weights, token_weights(mask, batch.trajectory, "token-mean"), shared))
    return made


def _trajectories(batch: Batch, size: int, seed: int) -> Iterator[NDArray[np.int64]]:
    order = generator(seed).permutation(batch.trajectories)
    for start in range(0, len(order), size):
        yield order[start : start + size]


def _groups(batch: Batch, size: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Whole groups, at most ``size`` trajectories where more than one group fits."""
    members = [np.unique(batch.trajectory[batch.group == g].numpy()) for g in batch.group.unique()]
    chunk: list[NDArray[np.int64]] = []
    for index in generator(seed).permutation(len(members)):
        if chunk and sum(map(len, chunk)) + len(members[index]) > size:
            yield np.concatenate(chunk)
            chunk = []
        chunk.append(members[index])
    if chunk:
        yield np.concatenate(chunk)
