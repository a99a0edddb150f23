"""MLflow (extra ``mlflow``): an SQLite file in the run directory, unless ``MLFLOW_TRACKING_URI`` names another store."""

import logging
import os
import time
from collections.abc import Mapping
from typing import Any

from ragen.runs.trackers.base import TrackedRun, Tracker, not_installed, trackers

EXPERIMENT = "ragen"
TAG = "ragen_id"
LONGEST = 500  # characters of a parameter: what every MLflow store takes


@trackers.register("mlflow")
class MLflow(Tracker):
    """A run of the experiment ``$MLFLOW_EXPERIMENT_NAME`` (else ``ragen``), found again by its tag ``ragen_id``."""

    @classmethod
    def require(cls) -> None:
        """MLflow must be installed."""
        _mlflow()

    def open(self, run: TrackedRun) -> None:
        """Begin the MLflow run, or go on with it."""
        mlflow = _mlflow()
        for talkative in ("alembic", "mlflow.store.db.utils"):  # they tell of each version of each table
            logging.getLogger(talkative).setLevel(logging.WARNING)
        run.folder.mkdir(parents=True, exist_ok=True)
        store = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{run.folder.resolve() / 'mlflow.db'}"
        self._client = mlflow.MlflowClient(tracking_uri=store)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
        found = self._client.get_experiment_by_name(name)
        experiment = found.experiment_id if found else self._create(name, run)
        known = self._client.search_runs([experiment], f"tags.{TAG} = '{run.id}'") if run.resumed else []
        if known:
            self._id = known[0].info.run_id
            self._client.set_terminated(self._id, "RUNNING")
            return
        self._id = self._client.create_run(experiment, run_name=run.name, tags={TAG: run.id}).info.run_id
        for key, value in run.settings.items():
            self._client.log_param(self._id, key, str(value)[:LONGEST])

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add the numbers in one transaction."""
        now, metric = int(time.time() * 1000), _mlflow().entities.Metric
        self._client.log_batch(self._id, [metric(name, value, now, step) for name, value in metrics.items()])

    def close(self) -> None:
        """Mark the run as finished."""
        self._client.set_terminated(self._id)

    def _create(self, name: str, run: TrackedRun) -> str:
        place = None if os.environ.get("MLFLOW_TRACKING_URI") else (run.folder.resolve() / "artifacts").as_uri()
        return str(self._client.create_experiment(name, artifact_location=place))


def _mlflow() -> Any:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when it is imported: else it reports on its use
    try:
        import mlflow
        import sqlalchemy  # noqa: F401 (mlflow-skinny lacks it, and with it the store)
    except ImportError:
        raise not_installed("mlflow", "MLflow") from None
    return mlflow
