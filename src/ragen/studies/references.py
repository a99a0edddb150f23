"""Floors and ceilings beside a study's numbers: the environments' reference players on the instances of its evaluations."""

from collections.abc import Iterable

from ragen.metrics.evaluation import EvalReport, PlayerScore
from ragen.studies.outcomes import Record

TITLES = ["environment", "player", "n", "success", "95 %"]


def references(records: Iterable[Record]) -> list[list[str]]:
    """One row an environment and player, titles first; only the titles where no evaluation knows of players.

    Instances are the same in all runs of a study, so a player's score is too, unless variants give it other budgets or
    another difficulty: then the smallest and the largest stand there, without an interval.
    """
    found: dict[tuple[str, str], list[tuple[EvalReport, PlayerScore]]] = {}
    for record in records:
        for report in record.evaluations.values():
            for player, score in report.players.items():
                found.setdefault((report.env, player), []).append((report, score))
    return [TITLES, *(_row(env, player, scores) for (env, player), scores in sorted(found.items()))]


def _row(env: str, player: str, scores: list[tuple[EvalReport, PlayerScore]]) -> list[str]:
    sizes = sorted({report.episodes for report, _ in scores})
    rates = sorted({score.success for _, score in scores})
    n = " or ".join(map(str, sizes))
    if len(rates) > 1 or len(sizes) > 1:
        return [env, player, n, f"{rates[0]:.3f} to {rates[-1]:.3f}, by variant", ""]
    low, high = scores[0][1].interval
    return [env, player, n, f"{rates[0]:.3f}", f"[{low:.3f}, {high:.3f}]"]
