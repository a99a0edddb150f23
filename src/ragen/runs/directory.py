"""The run directory: everything a run leaves behind, under one path.

``config.yaml`` (resolved), ``provenance.json``, ``metrics.jsonl``, ``trajectories/step-*.jsonl``, ``eval/*.json``,
``checkpoints/step-*/``, ``tensorboard/`` (with the extra).
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from ragen.config import Config, load_config
from ragen.config.yaml_text import dump_yaml
from ragen.envs.locate import label
from ragen.episode import Group, Trajectory
from ragen.errors import CheckpointError, ConfigError
from ragen.registry import nearest
from ragen.runs.checkpoints import Checkpoints
from ragen.runs.disk import clear_disk_errors, write_text
from ragen.runs.events import (
    Advantages,
    StoredTrajectory,
    append_line,
    cut_lines,
    plain,
    read_lines,
    read_trajectories,
    stored_trajectories,
    write_trajectories,
)
from ragen.runs.provenance import provenance
from ragen.runs.tensorboard import TensorBoard, require_tensorboard

_STEP_FILE = re.compile(r"^step-(\d+)\.jsonl?$")
_FREE_SETTINGS = ("steps", "eval", "run")  # a resumed run may change these: what was trained so far does not depend on them


class RunDirectory:
    """One run on disk. ``create`` starts a new one, ``open`` takes an existing one."""

    def __init__(self, path: Path, config: Config) -> None:
        self.path, self.config = path, config
        self.checkpoints = Checkpoints(path / "checkpoints", config.run.keep)
        self._board: TensorBoard | None = None

    @classmethod
    def create(cls, config: Config, path: Path | None = None) -> "RunDirectory":
        """Make the directory ``path`` (None: ``vacant_path``); one that exists and holds something is a CheckpointError."""
        path = path or vacant_path(config)
        with clear_disk_errors("the run directory", path):
            path.mkdir(parents=True, exist_ok=True)
        config = config.model_copy(update={"run": config.run.model_copy(update={"name": path.name})})
        run = cls(path, config)
        write_text(path / "config.yaml", dump_yaml(config.model_dump(mode="json")))
        return run

    @classmethod
    def open(cls, path: str | Path, config: Config | None = None, *, root: str | Path = "runs") -> "RunDirectory":
        """An existing run, by path or by its name under ``root``.

        ``config`` (to go on with changed settings) may differ from the stored one in steps, evaluation and run only.
        """
        found = find_run(path, root)
        stored = load_config(found / "config.yaml")
        if config is not None:
            _check_same(stored, config, found)
        return cls(found, config or stored)

    def write_config(self) -> None:
        """Store the settings again (a resumed run may have more steps)."""
        write_text(self.path / "config.yaml", dump_yaml(self.config.model_dump(mode="json")))

    def write_provenance(self, **facts: Any) -> None:
        """Store versions, machine and seeds with these facts (device, dtype, model …); a resumed run adds to the list."""
        file = self.path / "provenance.json"
        earlier = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []
        write_text(file, json.dumps([*earlier, plain({**provenance(self.config), **facts})], indent=1) + "\n")

    def append_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add the metrics of ``step`` (the number of steps done) to ``metrics.jsonl``; NaN becomes null."""
        append_line(self.path / "metrics.jsonl", {"step": step, **metrics})
        if self.config.run.tensorboard:
            self._board = self._board or TensorBoard(self.path / "tensorboard", step)
            self._board.write(step, metrics)

    def metrics(self) -> list[dict[str, Any]]:
        """All recorded metrics, one mapping a step."""
        return list(read_lines(self.path / "metrics.jsonl"))

    def write_trajectories(
        self, step: int, groups: Sequence[Group], errors: Sequence[Trajectory] = (), advantages: Advantages | None = None
    ) -> None:
        """Store the episodes of ``step``; ``advantages[(group index, member)]`` holds each turn's mean advantage."""
        write_trajectories(self._trajectory_file(step), stored_trajectories(groups, errors, advantages))

    def trajectories(self, step: int | None = None) -> list[StoredTrajectory]:
        """The stored episodes of ``step`` (None: the last one stored)."""
        steps = self.trajectory_steps()
        if not steps:
            raise CheckpointError(f"'{self.path}' holds no trajectories (run.trajectories_every 0, or no step was done)")
        wanted = steps[-1] if step is None else step
        if wanted not in steps:
            raise CheckpointError(f"no trajectories of step {wanted} in '{self.path}'; stored: {_ranges(steps)}")
        return list(read_trajectories(self._trajectory_file(wanted)))

    def trajectory_steps(self) -> list[int]:
        """The steps whose trajectories are stored."""
        return _steps_in(self.path / "trajectories")

    def write_eval(self, name: str, report: Mapping[str, Any]) -> Path:
        """Store an evaluation as ``eval/<name>.json``."""
        path = self.path / "eval" / f"{_checked_name(name, 'evaluation')}.json"
        write_text(path, json.dumps(plain(report), indent=1, ensure_ascii=False) + "\n")
        return path

    def cut_after(self, step: int) -> None:
        """Forget what was recorded after ``step``: a resumed run records it again."""
        cut_lines(self.path / "metrics.jsonl", step)
        for later in [s for s in self.trajectory_steps() if s > step]:
            self._trajectory_file(later).unlink()
        for file in (self.path / "eval").glob("step-*.json"):
            if (number := file.stem.removeprefix("step-")).isdigit() and int(number) > step:
                file.unlink()
        self.checkpoints.drop_after(step)

    def close(self) -> None:
        """Close what is open."""
        if self._board is not None:
            self._board.close()

    def _trajectory_file(self, step: int) -> Path:
        return self.path / "trajectories" / f"step-{step:06d}.jsonl"


def find_run(path: str | Path, root: str | Path = "runs") -> Path:
    """The directory of a run given by path or by name; raises CheckpointError with the nearest name."""
    for candidate in (Path(path), Path(root) / path):
        if (candidate / "config.yaml").is_file():
            return candidate
    here = Path(root)
    known = [p.name for p in here.iterdir() if (p / "config.yaml").is_file()] if here.is_dir() else []
    hint = nearest(str(path), known) if known else f"there are no runs in '{root}'"
    raise CheckpointError(f"'{path}' is not a run directory (no config.yaml): {hint}")


def default_name(label: str, seed: int) -> str:
    """A run's name out of what it does (a preset's name), its seed and the time."""
    return re.sub(r"[^\w.-]", "_", f"{label}-seed{seed}-{datetime.now().astimezone():%Y%m%d-%H%M%S}")


def vacant_path(config: Config) -> Path:
    """Where a new run will lie, checked before anything long begins.

    Raises CheckpointError where ``run.root/run.name`` exists and holds something, ConfigError for a name that is a path.
    """
    if config.run.tensorboard:
        require_tensorboard()
    root = Path(config.run.root)
    if config.run.name:
        path = root / _checked_name(config.run.name, "run.name")
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise CheckpointError(
                f"the run directory '{path}' exists and is not empty: go on with it (--resume {path}), or choose another "
                "name (--run.name)"
            )
        return path
    stamp = default_name(f"{label(str(config.env.get('name', 'env')))}-{config.advantage.name}", config.seed)
    names = (stamp if number == 1 else f"{stamp}-{number}" for number in range(1, 1000))
    return next(root / name for name in names if not (root / name).exists())


def _checked_name(name: str, what: str) -> str:
    """A name that stays inside its directory: letters, digits, dots, dashes and underscores, no dot in front."""
    if not re.fullmatch(r"\w[\w.+=-]{0,199}", name):
        raise ConfigError(f"{what} is {name!r}: use letters, digits, '.', '-' and '_' only (no path); the place is run.root")
    return name


def _check_same(stored: Config, config: Config, path: Path) -> None:
    old, new = stored.model_dump(mode="json"), config.model_dump(mode="json")
    for key in old:
        if key not in _FREE_SETTINGS and old[key] != new[key]:
            raise CheckpointError(
                f"'{path}' was trained with {key} = {old[key]}, not {new[key]}: a resumed run may only change "
                f"{', '.join(_FREE_SETTINGS)}; start a new run for other settings"
            )


def _steps_in(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return sorted(int(match[1]) for path in folder.iterdir() if (match := _STEP_FILE.match(path.name)))


def _ranges(steps: Sequence[int]) -> str:
    return ", ".join(map(str, steps)) if len(steps) <= 12 else f"{steps[0]} … {steps[-1]} ({len(steps)} of them)"
