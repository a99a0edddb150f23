"""What an evaluation says: pure data and its computation from recorded episodes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from ragen.episode import Group, Trajectory
from ragen.metrics.intervals import cluster_bootstrap, wilson
from ragen.metrics.rollout import pass_at_k, valid_format_rate

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class PlayerScore:
    """A reference player on the same instances and dynamics: success rate with its 95 % interval, mean task return.

    ``lost`` episodes are in none of them: the player or the environment failed there.
    """

    success: float
    interval: Interval
    task_return: float
    lost: int = 0


@dataclass(frozen=True, slots=True)
class EvalReport:
    """One evaluation. Rates are in [0, 1]; intervals are 95 %; ``method`` names how they were made.

    ``outcomes[i]`` and ``returns[i]`` hold the successes and total returns of instance ``instances[i]`` (one a sample), so
    that evaluations can be compared in pairs. ``endpoint`` tells what an API model's requests were and cost.
    ``temperature`` is NaN where it was left to an endpoint.
    ``ceiling`` is the mean success probability of best play on these instances, where the environment knows it.
    """

    env: str
    settings: Mapping[str, Any]
    model: str
    episodes: int
    samples: int
    temperature: float
    seed: int
    success: float
    success_interval: Interval
    total_return: float
    return_interval: Interval
    task_return: float
    method: str
    valid_format: float
    turns: float
    tokens: float
    errors: int
    pass_at_k: float | None = None
    ceiling: float | None = None
    players: Mapping[str, PlayerScore] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    instances: tuple[int, ...] = ()
    outcomes: tuple[tuple[bool, ...], ...] = ()
    returns: tuple[tuple[float, ...], ...] = ()
    endpoint: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "EvalReport":
        """The report again from what JSON made of ``to_dict``; further keys are left out, a null number is NaN, an interval
        with nulls is the one that says nothing (of one instance): (−∞, ∞).

        ``returns`` and ``endpoint`` may be missing: runs are older than these fields.
        """
        known = {f.name: values[f.name] for f in fields(cls) if f.name in values or f.name not in ("returns", "endpoint")}
        for name, kind in cls.__annotations__.items():
            if name not in known:
                continue
            if known[name] is None and kind is float:
                known[name] = math.nan
            elif kind == Interval:
                low, high = known[name]
                known[name] = (-math.inf if low is None else low, math.inf if high is None else high)
            elif kind in (tuple[str, ...], tuple[int, ...]):
                known[name] = tuple(known[name])
        known["players"] = {
            name: PlayerScore(player["success"], tuple(player["interval"]), player["task_return"], player.get("lost", 0))
            for name, player in known["players"].items()
        }
        for name in ("outcomes", "returns"):
            known[name] = tuple(tuple(row) for row in known.get(name, ()))
        return cls(**known)


def rate_interval(outcomes: Sequence[Sequence[bool]]) -> tuple[Interval, str]:
    """The 95 % interval of a success rate: Wilson over instances, or a bootstrap by instance where several share one.

    Instances that all have the same share of successes leave a bootstrap without width (or one instance without an
    interval): there Wilson counts instances, each with its share, as if the samples of one were all alike.
    """
    shares = [sum(row) / len(row) for row in outcomes]
    if all(len(row) == 1 for row in outcomes):
        return wilson(sum(shares), len(shares)), "Wilson over instances"
    if len(set(shares)) == 1:
        return wilson(shares[0] * len(shares), len(shares)), "Wilson over instances, which do not differ"
    values, clusters = _flatten(outcomes)
    return cluster_bootstrap(values, clusters), "bootstrap clustered by instance"


def evaluation_report(
    groups: Sequence[Group],
    *,
    env: str,
    settings: Mapping[str, Any],
    model: str,
    samples: int,
    temperature: float,
    seed: int,
    errors: int,
    ceiling: float | None = None,
    players: Mapping[str, PlayerScore] | None = None,
    notes: Sequence[str] = (),
    endpoint: Mapping[str, Any] | None = None,
) -> EvalReport:
    """Summarise the episodes of an evaluation; groups are instances, members are samples."""
    played: list[Trajectory] = [t for group in groups for t in group.trajectories]
    outcomes = tuple(tuple(t.success for t in group.trajectories) for group in groups)
    interval, method = rate_interval(outcomes)
    totals = [group.returns().tolist() for group in groups]
    returns, clusters = _flatten(totals)
    return EvalReport(
        env=env,
        settings=settings,
        model=model,
        episodes=len(groups),
        samples=samples,
        temperature=temperature,
        seed=seed,
        success=float(np.mean([t.success for t in played])),
        success_interval=interval,
        total_return=float(returns.mean()),
        return_interval=cluster_bootstrap(returns, clusters),
        task_return=float(np.mean([t.task_return for t in played])),
        method=f"success: {method}; return: bootstrap clustered by instance",
        valid_format=valid_format_rate(played),
        turns=float(np.mean([len(t.turns) for t in played])),
        tokens=float(np.mean([t.sampled_tokens for t in played])),
        errors=errors,
        pass_at_k=_mean_pass_at_k(outcomes, samples) if samples > 1 else None,
        ceiling=ceiling,
        players=players or {},
        notes=tuple(notes),
        instances=tuple(group.trajectories[0].instance_seed for group in groups),
        outcomes=outcomes,
        returns=tuple(tuple(row) for row in totals),
        endpoint=endpoint or {},
    )


def _mean_pass_at_k(outcomes: Sequence[Sequence[bool]], k: int) -> float | None:
    """Over the instances of which no sample was lost: of fewer than k samples pass@k cannot be told. None without any."""
    whole = [pass_at_k(len(row), sum(row), k) for row in outcomes if len(row) >= k]
    return float(np.mean(whole)) if whole else None


def _flatten(rows: Sequence[Sequence[float]]) -> tuple[np.ndarray, np.ndarray]:
    values = np.asarray([value for row in rows for value in row], dtype=np.float64)
    clusters = np.asarray([i for i, row in enumerate(rows) for _ in row], dtype=np.int64)
    return values, clusters
