"""Confidence intervals: every reported number carries one, and the method is named."""

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

_NORMAL = NormalDist()
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)


def wilson(successes: float, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson score interval of a proportion: independent trials, one an instance.

    ``successes`` may be a sum of shares, where a trial is a share of successes.
    (p̂ + z²/2n ± z √(p̂(1−p̂)/n + z²/4n²)) / (1 + z²/n). No trial at all gives (0, 1).
    Source: E. B. Wilson, JASA 22 (1927).
    """
    if not 0 <= successes <= n:
        raise ValueError(f"successes must be between 0 and n, got {successes} of {n}")
    if n == 0:
        return 0.0, 1.0
    z = _z(confidence)
    share = successes / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    low = 0.0 if successes == 0 else max(0.0, middle - half)
    return low, 1.0 if successes == n else min(1.0, middle + half)


def mean_interval(values: ArrayLike, confidence: float = 0.95) -> tuple[float, float]:
    """Student's t interval of the mean of independent values (seeds of a run, for example).

    x̄ ± t_{n−1} s/√n, with Bessel's correction in s. One value says nothing about the spread: (−∞, ∞).
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.size == 0:
        raise ValueError("an interval needs at least one value")
    if sample.size == 1:
        return -math.inf, math.inf
    half = t_quantile(confidence, sample.size - 1) * float(sample.std(ddof=1)) / math.sqrt(sample.size)
    return float(sample.mean()) - half, float(sample.mean()) + half


def cluster_bootstrap(
    values: ArrayLike,
    clusters: ArrayLike,
    confidence: float = 0.95,
    *,
    resamples: int = 4000,
    seed: int = 0,
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of ``values`` (n,), resampling whole ``clusters`` (n,) of them.

    Episodes that share an instance (or a seed) are not independent: the C clusters are drawn with replacement, and the
    statistic is the sum of the values drawn over their number. A percentile interval of few clusters is too narrow, so
    the tail is α′/2 = Φ(−√(C/(C−1)) · t_{C−1}) ("expanded percentile", T. Hesterberg, The American Statistician 69, 2015),
    which tends to α/2 as C grows. One cluster says nothing about the spread: (−∞, ∞). The same seed gives the same interval.
    """
    sample = np.asarray(values, dtype=np.float64)
    names, index = np.unique(np.asarray(clusters), return_inverse=True)
    if sample.size == 0 or sample.shape != index.shape:
        raise ValueError(f"values and clusters must be (n,) with n ≥ 1, got {sample.shape} and {index.shape}")
    if names.size == 1:
        return -math.inf, math.inf
    sums, sizes = np.bincount(index, weights=sample), np.bincount(index)
    rng = np.random.Generator(np.random.Philox(key=seed))
    drawn = rng.multinomial(names.size, np.full(names.size, 1 / names.size), size=resamples)
    means: NDArray[np.float64] = (drawn @ sums) / (drawn @ sizes)
    spread = math.sqrt(names.size / (names.size - 1)) * t_quantile(confidence, names.size - 1)
    tail = _NORMAL.cdf(-spread)
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def paired_bootstrap(
    first: ArrayLike,
    second: ArrayLike,
    clusters: ArrayLike | None = None,
    confidence: float = 0.95,
    *,
    resamples: int = 4000,
    seed: int = 0,
) -> tuple[float, float]:
    """Interval of the mean difference ``second`` − ``first`` over pairs (n,) that share an instance.

    Bootstrap of the pairs, or of ``clusters`` (n,) of them, as in ``cluster_bootstrap``.
    """
    one, two = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if one.shape != two.shape:
        raise ValueError(
            f"a paired comparison needs the same instances on both sides, got {one.shape} and {two.shape} values"
        )
    names = np.arange(one.size) if clusters is None else clusters
    return cluster_bootstrap(two - one, names, confidence, resamples=resamples, seed=seed)


def paired_score(wins: float, losses: float, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Score interval of the difference p₂ − p₁ of two proportions over n pairs, ``wins`` and ``losses`` of which differ.

    All δ with |Z(δ)| ≤ z, Z(δ) = (b − c − nδ) / √(n (2q̃ + δ(1 − δ))), b wins and c losses of the second, q̃ the likeliest
    share of losses where the difference is δ: q̃ = (√(B² − 4AC) − B) / 2A, A = 2n, B = (2n − b + c)δ − b − c, C = −cδ(1 − δ).
    At δ = 0 this is McNemar's statistic; without a differing pair the interval is ± z²/(n + z²), never empty.
    ``wins`` and ``losses`` may be sums of shares. No pair at all gives (−1, 1).
    Source: T. Tango, Statistics in Medicine 17 (1998).
    """
    if wins < 0 or losses < 0 or wins + losses > n * (1 + 1e-12):
        raise ValueError(f"wins and losses must be counts of n pairs, got {wins} and {losses} of {n}")
    if n == 0:
        return -1.0, 1.0
    z, middle = _z(confidence), (wins - losses) / n
    low = _edge(lambda delta: _tango(wins, losses, n, delta) > z, -1.0, middle)
    return low, -_edge(lambda delta: _tango(losses, wins, n, delta) > z, -1.0, -middle)


def mcnemar(wins: int, losses: int) -> float:
    """Exact two-sided p of McNemar's test: that ``wins`` and ``losses`` (pairs that differ) are equally likely.

    p = min(1, 2 Σ_{k ≤ min(b, c)} C(b + c, k) / 2^{b + c}). Pairs that do not differ say nothing.
    Source: Q. McNemar, Psychometrika 12 (1947); as a sign test it also holds for shares of several samples.
    """
    total = wins + losses
    ways = sum(math.comb(total, k) for k in range(min(wins, losses) + 1))
    return min(1.0, float(2 * ways / 2**total))


def t_quantile(confidence: float, freedom: int) -> float:
    """The t with P(|T| ≤ t) = ``confidence`` for Student's distribution with ``freedom`` degrees of freedom (≥ 1)."""
    high = _z(confidence)
    while _t_mass(high, freedom) < confidence:
        high *= 2
    low = 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_mass(middle, freedom) < confidence else (low, middle)
    return (low + high) / 2


def _tango(wins: float, losses: float, n: int, delta: float) -> float:
    """Z(δ) of ``paired_score``."""
    a, b, c = 2 * n, (2 * n - wins + losses) * delta - wins - losses, -losses * delta * (1 - delta)
    share = (math.sqrt(max(0.0, b * b - 4 * a * c)) - b) / (2 * a)
    gap, variance = wins - losses - n * delta, n * (2 * share + delta * (1 - delta))
    if variance <= 0:
        return math.copysign(math.inf, gap) if gap else 0.0
    return gap / math.sqrt(variance)


def _edge(outside: Callable[[float], bool], low: float, high: float) -> float:
    """Where ``outside``, true below it, becomes false between ``low`` and ``high``; ``low`` where it is never true."""
    if not outside(low):
        return low
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if outside(middle) else (low, middle)
    return (low + high) / 2


def _t_mass(t: float, freedom: int) -> float:
    """P(|T| ≤ t) = ∫₀^θ cos^{ν−1} / ½ B(½, ν/2), with t = √ν tan θ: a smooth integrand, by Gauss–Legendre."""
    theta = math.atan(t / math.sqrt(freedom))
    area = theta / 2 * float(_WEIGHTS @ np.cos(theta * (_NODES + 1) / 2) ** (freedom - 1))
    log_beta = math.lgamma(0.5) + math.lgamma(freedom / 2) - math.lgamma((freedom + 1) / 2)
    return area / (0.5 * math.exp(log_beta))


def _z(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be in (0, 1), got {confidence}")
    return _NORMAL.inv_cdf(0.5 + confidence / 2)
