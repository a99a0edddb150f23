"""Trackers: TensorBoard, Weights & Biases, MLflow, trackio and those of other packages, told by ``Trackers``."""

from ragen.runs.trackers import mlflow, tensorboard, trackio, wandb  # noqa: F401 (they register themselves)
from ragen.runs.trackers.base import TrackedRun, Tracker, trackers
from ragen.runs.trackers.told import TRAINING, Point, Trackers, evaluation_point, require_trackers

__all__ = ["TRAINING", "Point", "TrackedRun", "Tracker", "Trackers", "evaluation_point", "require_trackers", "trackers"]
