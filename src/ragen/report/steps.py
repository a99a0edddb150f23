"""One step's trajectories for the page: columns to list and filter them by, and their texts and tokens."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ragen.episode import EndReason, Segment, Trajectory
from ragen.metrics.evaluation import rate_interval
from ragen.metrics.intervals import cluster_bootstrap
from ragen.report.anomalies import ANOMALOUS, flags
from ragen.report.drawing import Drawing
from ragen.rollout.segments import segments
from ragen.runs.events import StoredTrajectory
from ragen.runs.tokens import Decode, Pieces
from ragen.runs.view import spans
from ragen.seeding import derive, generator

SAMPLE = 16  # trajectories of a step, at least, whose tokens are kept
ENDS = tuple(EndReason)
PARTS = ("reward", "penalty", "process_reward", "overlong_penalty")
UNIT = 10_000  # log-probabilities and entropies are whole numbers of 1e-4 nats


@dataclass(frozen=True, slots=True)
class PackedStep:
    """``index``: columns of one value a trajectory, and intervals of the step's means; ``body``: one record a trajectory."""

    index: dict[str, Any]
    body: list[dict[str, Any]]


class Packer:
    """Makes the steps of one run: ``seed`` chooses the sample, ``decode`` gives ids their text, ``drawing`` states."""

    def __init__(self, decode: Decode, drawing: Drawing, seed: int, *, all_tokens: bool = False) -> None:
        self._decode, self._pieces = decode, Pieces(decode)
        self._drawing, self._seed, self._all = drawing, seed, all_tokens

    def pack(self, step: int, stored: Sequence[StoredTrajectory]) -> PackedStep:
        """A step's trajectories, in the order in which they are stored."""
        marks = flags(stored)
        sampled = sample(stored, self._seed, step)
        wanted = (self._all or i in sampled or bool(mark & ANOMALOUS) for i, mark in enumerate(marks))
        detailed = [keep and item.trajectory.has_ids for keep, item in zip(wanted, stored, strict=True)]
        index = {
            "step": step,
            "group": [-1 if item.group is None else item.group for item in stored],
            "member": [item.trajectory.member for item in stored],
            "seed": [str(item.trajectory.instance_seed) for item in stored],
            "success": [int(item.trajectory.success) for item in stored],
            "ret": [_rounded(item.trajectory.total_return) for item in stored],
            "turns": [len(item.trajectory.turns) for item in stored],
            "valid": [sum(turn.valid for turn in item.trajectory.turns) for item in stored],
            "trained": [int(item.trained) for item in stored],
            "end": [ENDS.index(item.trajectory.end) for item in stored],
            "flags": [int(mark) for mark in marks],
            "tokens": [item.trajectory.sampled_tokens for item in stored],
            "detail": [int(kept) for kept in detailed],
            "bands": bands(stored),
        }
        return PackedStep(index, [self._record(item, kept) for item, kept in zip(stored, detailed, strict=True)])

    def _record(self, item: StoredTrajectory, detailed: bool) -> dict[str, Any]:
        t = item.trajectory
        return {
            "env": t.env,
            "error": t.error,
            "version": t.policy_version,
            "task": _rounded(t.task_return),
            "frames": self._drawing.frames(t),
            "turns": [_turn(item, k) for k in range(len(t.turns))],
            "rows": [self._row(t, segment) for segment in segments(t)] if detailed else None,
        }

    def _row(self, trajectory: Trajectory, segment: Segment) -> list[list[Any]]:
        """A training row cut where its mask or turn changes: [turn, ids, text] of context (turn −1), and
        [turn, ids, pieces, log-probabilities, entropies] of a reply, the last two in units of 1e-4 nats.
        """
        row: list[list[Any]] = []
        for span in spans(segment, self._decode):
            if span.trained:
                completion = trajectory.turns[span.turn].completion
                numbers = [[_units(value) for value in values] for values in (completion.logprobs, completion.entropies)]
                row.append([span.turn, list(span.token_ids), self._pieces(span.token_ids), *numbers])
            else:
                row.append([-1, list(span.token_ids), span.text])
        return row


def _turn(item: StoredTrajectory, k: int) -> dict[str, Any]:
    turn = item.trajectory.turns[k]
    values = item.advantages
    return {
        "seen": turn.observation,
        "fresh": not turn.extends,
        "said": turn.completion.text,
        "stop": turn.completion.stop.value,
        "actions": list(turn.actions),
        "valid": turn.valid,
        "skipped": turn.invalid_actions,
        "parts": {name: _rounded(getattr(turn, name)) for name in PARTS if getattr(turn, name) or name == "reward"},
        "score": turn.process_score,
        "adv": None if values is None or k >= len(values) else _rounded(values[k]),
        "next": str(turn.info.get("next_observation", "")),
    }


def sample(stored: Sequence[StoredTrajectory], seed: int, step: int) -> set[int]:
    """The places of the trajectories whose tokens are kept: whole groups in a seeded order until there are ``SAMPLE``.

    Whole groups, so that members can be read side by side. Every group has the same chance.
    """
    by_group: dict[int, list[int]] = {}
    for place, item in enumerate(stored):
        if item.group is not None:
            by_group.setdefault(item.group, []).append(place)
    chosen: set[int] = set()
    groups = sorted(by_group)
    for number in generator(derive(seed, "report", "sample", step)).permutation(len(groups)):
        if len(chosen) >= SAMPLE:
            break
        chosen.update(by_group[groups[number]])
    return chosen


def bands(stored: Sequence[StoredTrajectory]) -> dict[str, list[float] | None]:
    """95 % intervals of the step's success rate and mean return, over its groups; None where nothing can be said.

    The episodes of a group share their initial state: see ``rate_interval`` and ``cluster_bootstrap``.
    """
    by_group: dict[int, list[Trajectory]] = {}
    for item in stored:
        if item.group is not None:
            by_group.setdefault(item.group, []).append(item.trajectory)
    if not by_group:
        return {"rollout/success": None, "rollout/return_mean": None}
    success, _ = rate_interval([[t.success for t in members] for members in by_group.values()])
    returns = [(t.total_return, group) for group, members in by_group.items() for t in members]
    values, clusters = zip(*returns, strict=True)
    return {
        "rollout/success": _interval(success),
        "rollout/return_mean": _interval(cluster_bootstrap(values, clusters)),
    }


def _interval(interval: tuple[float, float]) -> list[float] | None:
    return [round(edge, 5) for edge in interval] if all(map(math.isfinite, interval)) else None


def _rounded(value: float, digits: int = 5) -> float | None:
    return round(value, digits) if math.isfinite(value) else None


def _units(value: float) -> int | None:
    return round(value * UNIT) if math.isfinite(value) else None
