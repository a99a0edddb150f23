"""Metrics: pure functions of recorded episodes, intervals, and the definition of every logged name."""

from ragen.metrics.definitions import METRICS

__all__ = ["METRICS"]
