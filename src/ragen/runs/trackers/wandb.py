"""Weights & Biases (extra ``wandb``): offline into the run directory, unless ``WANDB_MODE=online`` asks for more."""

import os
from collections.abc import Mapping
from typing import Any

from ragen.errors import ConfigError
from ragen.runs.trackers.base import TrackedRun, Tracker, not_installed, trackers

STEP = "step"


@trackers.register("wandb")
class WeightsAndBiases(Tracker):
    """A run of the project ``$WANDB_PROJECT`` (else ``ragen``).

    Of the machine and the process it is told nothing: no command line, code, git remote, console text or environment.
    """

    @classmethod
    def require(cls) -> None:
        """Wandb must be installed, and know a key where it is to go online."""
        if _mode() == "online" and not _wandb().login(prompt=False, verify=False):
            raise ConfigError(
                "WANDB_MODE is 'online', but wandb knows no API key: run `wandb login`, or unset WANDB_MODE to log offline "
                "into the run directory (`wandb sync` sends it later)"
            )
        _wandb()

    def open(self, run: TrackedRun) -> None:
        """Begin the wandb run ``run.id``, or go on with it."""
        wandb = _wandb()
        silent = wandb.Settings(
            silent=True,
            console="off",
            save_code=False,
            disable_git=True,
            symlink=False,
            x_disable_meta=True,
            x_disable_stats=True,
            x_disable_machine_info=True,
            x_save_requirements=False,
        )
        run.folder.mkdir(parents=True, exist_ok=True)  # wandb would go to a temporary directory without it
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or "ragen",
            dir=str(run.folder.parent),
            id=run.id,
            name=run.name,
            mode=_mode(),
            resume="allow" if run.resumed else None,
            reinit="create_new",
            config=dict(run.settings),
            settings=silent,
        )
        # the axis of every curve; wandb's own step numbers rows, see log
        self._run.define_metric(STEP, hidden=True)
        self._run.define_metric("*", step_metric=STEP)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Queue the numbers; a process of wandb's own writes and sends them.

        wandb takes a row whose number falls for an old one and drops it, and numbers from 0 again where an offline run goes
        on: so a row's number is made from the step, and an evaluation comes after the step it was made after.
        """
        evaluation = all(name.startswith("eval/") for name in metrics)
        self._run.log({**metrics, STEP: step}, step=2 * step + evaluation)

    def close(self) -> None:
        """Wait until they are written."""
        self._run.finish()


def _mode() -> str:
    mode = os.environ.get("WANDB_MODE", "")
    return mode if mode in ("online", "disabled") else "offline"


def _wandb() -> Any:
    try:
        import wandb
    except ImportError:
        raise not_installed("wandb", "wandb") from None
    return wandb
