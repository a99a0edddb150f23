"""The run directory: everything a run leaves behind, under one path.

``config.yaml`` (resolved), ``provenance.json``, ``metrics.jsonl``, ``trajectories/step-*.jsonl``, ``eval/*.json``,
``checkpoints/step-*/``, ``rollbacks/`` (what the Echo-Trap detector's rollbacks gave up), ``ended.json`` (why it ended),
``trackers.json`` and a folder for each tracker that keeps its files there (``run.trackers``); ``.lock`` while a process
writes.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from difflib import get_close_matches
from itertools import count
from pathlib import Path
from typing import Any

from ragen.config import Config, load_config
from ragen.config.settings import leaves
from ragen.config.yaml_text import dump_yaml, parse_yaml
from ragen.envs.locate import label as short_name
from ragen.episode import Group, Trajectory
from ragen.errors import CheckpointError, ConfigError
from ragen.registry import FEW, likeliest
from ragen.runs.checkpoints import Checkpoints
from ragen.runs.disk import clean_temporary, clear_disk_errors, read_json, write_text
from ragen.runs.events import (
    Advantages,
    StoredTrajectory,
    append_line,
    cut_lines,
    plain,
    read_steps,
    read_trajectories,
    stored_trajectories,
    to_line,
    write_trajectories,
)
from ragen.runs.interrupt import INTERRUPTED
from ragen.runs.lock import LOCK, locked, writer
from ragen.runs.provenance import provenance
from ragen.runs.trackers import TRAINING, Point, Trackers, evaluation_point
from ragen.wording import counted

ELSEWHERE = "run.root names another place"  # advice where the disk refuses
_STEP_FILE = re.compile(r"^step-(\d+)\.jsonl?$")


class RunDirectory:
    """One run on disk. ``create`` starts a new one, ``open`` takes an existing one."""

    def __init__(self, path: Path, config: Config) -> None:
        self.path, self.config = path, config
        every = config.run.checkpoint_every if config.echo_trap.action == "rollback" else 1
        self.checkpoints = Checkpoints(path / "checkpoints", config.run.keep, every)
        settings = dict(leaves(config.model_dump(mode="json")))
        self._trackers = Trackers(config.run.trackers, path, settings, lambda: len(self.rollbacks()))

    @classmethod
    def create(cls, config: Config, path: Path | None = None) -> "RunDirectory":
        """Begin a run in ``path`` (None: ``make_place``); one that exists and holds something is a CheckpointError."""
        path = path or make_place(config)
        _check_vacant(path)
        run = cls(path, config.model_copy(update={"run": config.run.model_copy(update={"name": path.name})}))
        run.write_config()
        return run

    @classmethod
    def open(cls, path: str | Path, *, root: str | Path = "runs") -> "RunDirectory":
        """An existing run, by path or by its name under ``root``."""
        found = find_run(path, root)
        return cls(found, stored_config(found))

    def write_config(self) -> None:
        """Store the settings (again: a resumed run may have more steps)."""
        write_text(self.path / "config.yaml", dump_yaml(self.config.model_dump(mode="json")))

    def write_provenance(self, **facts: Any) -> None:
        """Store versions, machine and seeds with these facts (device, dtype, model …); a resumed run adds to the list."""
        starts = [*self.starts(), plain({**provenance(self.config), **facts})]
        write_text(self.path / "provenance.json", json.dumps(starts, indent=1) + "\n")

    def starts(self) -> list[Any]:
        """Where the run comes from: one entry a start."""
        file = self.path / "provenance.json"
        advice = "it only tells where the run comes from, move it away to go on"
        found = read_json(file, advice) if file.is_file() else []
        if not isinstance(found, list):
            raise CheckpointError(f"'{file}' does not hold a list: {advice}")
        return found

    def append_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add the metrics of ``step`` (the number of steps done) to ``metrics.jsonl``; NaN becomes null."""
        append_line(self.path / "metrics.jsonl", {"step": step, **metrics})
        self._trackers.tell(Point(TRAINING, step, metrics), self._points)

    def metrics(self) -> list[dict[str, Any]]:
        """All recorded metrics, one mapping a step."""
        return read_steps(self.path / "metrics.jsonl")

    def write_trajectories(
        self, step: int, groups: Sequence[Group], errors: Sequence[Trajectory] = (), advantages: Advantages | None = None
    ) -> None:
        """Store the episodes of ``step``; ``advantages[(group index, member)]`` holds each turn's mean advantage."""
        write_trajectories(self.trajectory_file(step), stored_trajectories(groups, errors, advantages))

    def trajectories(self, step: int | None = None) -> list[StoredTrajectory]:
        """The stored episodes of ``step`` (None: the last one stored)."""
        steps = self.trajectory_steps()
        if not steps:
            raise CheckpointError(f"'{self.path}' holds no trajectories (run.trajectories_every 0, or no step was done)")
        wanted = steps[-1] if step is None else step
        if wanted not in steps:
            raise CheckpointError(f"no trajectories of step {wanted} in '{self.path}'; stored: {_ranges(steps)}")
        return list(read_trajectories(self.trajectory_file(wanted)))

    def trajectory_steps(self) -> list[int]:
        """The steps whose trajectories are stored."""
        return _steps_in(self.path / "trajectories")

    def write_eval(self, name: str, step: int, report: Mapping[str, Any]) -> Path:
        """Store an evaluation made after ``step`` steps as ``eval/<name>.json``."""
        path = self._eval_file(checked_name(name, "evaluation"))
        stored = plain({"step": step, **report})
        write_text(path, json.dumps(stored, indent=1, ensure_ascii=False) + "\n")
        self._trackers.tell(evaluation_point(name, stored), self._points)
        return path

    def evaluations(self) -> dict[str, dict[str, Any]]:
        """The stored evaluations by name; each tells after which ``step`` it was made."""
        return {path.stem: _read_eval(path) for path in sorted((self.path / "eval").glob("*.json"))}

    def write_rollback(self, number: int, event: Mapping[str, Any], abandoned: Sequence[Mapping[str, Any]]) -> None:
        """Store what happened at a rollback, and the metrics of the steps that it gives up."""
        folder = self.path / "rollbacks"
        write_text(folder / f"rollback-{number}.jsonl", "".join(map(to_line, abandoned)))
        write_text(folder / f"rollback-{number}.json", json.dumps(plain(event), indent=1) + "\n")

    def rollbacks(self) -> tuple[tuple[int, int], ...]:
        """From which step to which the run was returned, in order. Raises CheckpointError for a damaged file."""
        advice = "it only tells of a rollback, move it away to go on"
        events = [read_json(file, advice) for file in (self.path / "rollbacks").glob("rollback-*.json")]
        try:
            numbered = sorted((int(e["rollback"]), int(e["at_step"]), int(e["to_step"])) for e in events)
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"'{self.path / 'rollbacks'}' holds a damaged file ({error!r}): {advice}") from None
        return tuple((at, to) for _, at, to in numbered)

    def write_end(self, reason: str) -> None:
        """Store why the run ended; going on forgets it."""
        write_text(self._end_file, json.dumps({"reason": reason}, ensure_ascii=False) + "\n")

    def end(self) -> str | None:
        """Why the run ended; None while it goes on, and for one that was killed. A damaged file is a CheckpointError."""
        advice = "it only tells why the run ended, move it away to go on"
        if not self._end_file.is_file():
            return None
        stored = read_json(self._end_file, advice)
        if not isinstance(stored, dict) or not isinstance(stored.get("reason"), str):
            raise CheckpointError(f"'{self._end_file}' does not tell a reason: {advice}")
        return str(stored["reason"])

    def check(self, done: int) -> None:
        """Read what going on after ``done`` steps needs; raises CheckpointError where a file is damaged or lacks steps."""
        if lost := self._lost(done, f"'{self.path / 'metrics.jsonl'}'"):
            raise CheckpointError(
                f"{lost}, and going on would leave curves and warnings without them. Put the file back from a copy, or "
                f"start a new run from the weights: ragen train {self.path}/config.yaml --run.name OTHER "
                f"--model {self.checkpoints.path(done)} --warmup.data none"
            )
        self.starts()
        self.evaluations()
        self.rollbacks()

    def lost_metrics(self) -> str:
        """What to say of a run whose metrics lack steps that its last checkpoint holds; empty where they lack none."""
        return self._lost(max(self.checkpoints.steps(), default=0), "metrics.jsonl")

    def _lost(self, done: int, file: str) -> str:
        recorded = {row["step"] for row in self.metrics()}
        missing = [step for step in range(1, done + 1) if step not in recorded]
        if not missing:
            return ""
        return (
            f"{file} lacks {len(missing)} of the {counted(done, 'step')} done ({_ranges(missing)}): it was emptied, cut or "
            "moved away"
        )

    def cut_after(self, step: int) -> None:
        """Forget what was recorded after ``step``: a resumed run records it again.

        An evaluation made "after" the run was, where the run goes on, one after ``step``: it is kept under that name.
        """
        self._trackers.cut_after(step)
        with clear_disk_errors("the run directory", self.path, ELSEWHERE):
            clean_temporary(self.path)
            self._end_file.unlink(missing_ok=True)
            cut_lines(self.path / "metrics.jsonl", step)
            for later in [s for s in self.trajectory_steps() if s > step]:
                self.trajectory_file(later).unlink()
            for name, made in ((name, report["step"]) for name, report in self.evaluations().items()):
                if made > step:
                    self._eval_file(name).unlink()
                elif name.startswith("after") and made < self.config.steps:
                    self._eval_file(name).replace(self._eval_file(f"step-{made}{name.removeprefix('after')}"))
            self.checkpoints.tidy(step)

    def settle(self, step: int, reason: str) -> None:
        """Tidy a run that has nothing left to do after ``step``: a kill may have come before its files were all in order.

        The ``reason`` is stored where the run did not come to tell one.
        """
        with clear_disk_errors("the run directory", self.path):
            clean_temporary(self.path)
        self.checkpoints.tidy(step)
        if self.end() in (None, INTERRUPTED):
            self.write_end(reason)

    def close(self) -> None:
        """Close what is open."""
        self._trackers.close()

    def _points(self) -> Iterator[Point]:
        """All that a tracker may be told of the run so far."""
        for row in self.metrics():
            yield Point(TRAINING, row["step"], {name: value for name, value in row.items() if name != "step"})
        for name, report in self.evaluations().items():
            yield evaluation_point(name, report)

    @property
    def _end_file(self) -> Path:
        return self.path / "ended.json"

    def _eval_file(self, name: str) -> Path:
        return self.path / "eval" / f"{name}.json"

    def trajectory_file(self, step: int) -> Path:
        """Where the trajectories of ``step`` are stored, if they are."""
        return self.path / "trajectories" / f"step-{step:06d}.jsonl"


def find_run(path: str | Path, root: str | Path = "runs") -> Path:
    """The directory of a run given by path or by name; raises CheckpointError with the nearest name."""
    for candidate in (Path(path), Path(root) / path):
        with suppress(OSError):  # for example a name that is too long for one
            if (candidate / "config.yaml").is_file():
                return candidate
    raise CheckpointError(f"'{path}' is not a run directory (no config.yaml): {likely_runs(Path(path), Path(root))}")


def being_prepared(path: Path) -> bool:
    """Whether a process holds the directory of a run of which nothing has been written yet."""
    return (path / LOCK).is_file() and not (path / "config.yaml").exists() and writer(path) is not None


def likely_runs(path: Path, root: Path) -> str:
    """What may have been meant: the run around a path, a run in a folder of runs, or the nearest names under ``root``."""
    with suppress(OSError):
        bare = next((folder for folder in (path, root / path) if (folder / "checkpoints").is_dir()), None)
        if bare is not None:
            return f"its config.yaml is gone: copy {bare}/checkpoints/step-…/settings.yaml to {bare}/config.yaml"
        if being_prepared(path) or being_prepared(root / path):
            return "the run is being prepared (model and warm-up), and there is nothing of it to see before that ends"
        if any((folder / LOCK).is_file() and not (folder / "config.yaml").exists() for folder in (path, root / path)):
            return "it was killed before its first step (in the warm-up, of which the cache keeps what is done): begin anew"
        inside = next((parent for parent in path.parents if (parent / "config.yaml").is_file()), None)
        if inside is not None:
            return f"it is inside the run '{inside}': give that"
        if path.is_dir() and (held := _runs_in(path)):
            holds = f"it holds {counted(len(held), 'run')}"
            return f"{holds}: give one of them, such as {path / max(held)} (`ragen runs {path}` lists all)"
    known = _runs_in(root)
    if not known:
        return f"there are no runs in '{root}'" if root.is_dir() else f"there is no directory '{root}' in '{Path.cwd()}'"
    holding = [name for name in likeliest(path.name, known) if path.name.casefold() in name.casefold()]
    close = holding or get_close_matches(path.name, known, n=FEW, cutoff=0.7)
    if close and path.name:
        return "did you mean {}?".format(" or ".join(f"'{each}'" for each in close))
    listing = "`ragen runs`" if root == Path("runs") else f"`ragen runs {root}`"
    return f"the nearest of {len(known)} in all: {', '.join(likeliest(path.name, known))}; {listing} lists all"


def _runs_in(folder: Path) -> list[str]:
    return [p.name for p in folder.iterdir() if (p / "config.yaml").is_file()] if folder.is_dir() else []


def stored_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """The settings of the run in ``path``, with overrides on top; a file that was emptied or cut is a CheckpointError."""
    file = path / "config.yaml"
    with clear_disk_errors("config.yaml", file):
        values = parse_yaml(file.read_text(encoding="utf-8", errors="replace"), str(file))
    lacking = [key for key in Config.model_fields if not isinstance(values, dict) or key not in values]
    if lacking:
        raise CheckpointError(
            f"'{file}' lacks {', '.join(lacking)}: it was emptied or cut. Each checkpoint holds the settings it was trained "
            f"with: copy {path}/checkpoints/step-…/settings.yaml over it"
        )
    return load_config(file, overrides)


def default_name(label: str, seed: int) -> str:
    """A run's name out of what it does (a preset's name), its seed and the time."""
    return re.sub(r"[^\w.-]", "_", f"{label}-seed{seed}-{datetime.now().astimezone():%Y%m%d-%H%M%S}")


@contextmanager
def claimed_place(config: Config, label: str | None = None) -> Iterator[Path]:
    """A place for a new run, held against other processes; it goes again where nothing was put into it."""
    root = Path(config.run.root)
    with clear_disk_errors("the run directory", root, ELSEWHERE):
        root_is_new = not root.exists()
    path = make_place(config, label)
    try:
        with locked(path):
            _check_vacant(path)  # another process may have come in between
            yield path
    finally:
        with suppress(OSError):
            path.rmdir()
            if root_is_new:
                root.rmdir()


def make_place(config: Config, label: str | None = None) -> Path:
    """Make the directory of a new run, ``run.root/run.name``; without a name it gets one of its own, from ``label``.

    Raises CheckpointError where it holds something already, ConfigError for a name that is a path.
    """
    root = Path(config.run.root)
    if config.run.name:
        path = root / checked_name(config.run.name, "run.name")
        _check_vacant(path)
        with clear_disk_errors("the run directory", path, ELSEWHERE):
            path.mkdir(parents=True, exist_ok=True)
        return path
    stamp = default_name(label or f"{short_name(str(config.env.get('name', 'env')))}-{config.advantage.name}", config.seed)
    with clear_disk_errors("the run directory", root / stamp, ELSEWHERE):
        root.mkdir(parents=True, exist_ok=True)
        for path in (root / (stamp if number == 1 else f"{stamp}-{number}") for number in count(1)):
            with suppress(FileExistsError):
                path.mkdir()
                break
    return path


def _check_vacant(path: Path) -> None:
    with clear_disk_errors("the run directory", path, ELSEWHERE):
        vacant = not path.exists() or (path.is_dir() and all(inside.name == LOCK for inside in path.iterdir()))
    if not vacant:
        raise CheckpointError(
            f"the run directory '{path}' exists and is not empty: go on with it (--resume {path}), or choose another "
            "name (--run.name)"
        )


def checked_name(name: str, what: str, place: str = "run.root") -> str:
    """A name that stays inside its directory: letters, digits, dots, dashes and underscores, no dot in front."""
    if not re.fullmatch(r"\w[\w.+=-]{0,199}", name):
        raise ConfigError(f"{what} is {name!r}: use letters, digits, '.', '-' and '_' only (no path); the place is {place}")
    return name


def _read_eval(path: Path) -> dict[str, Any]:
    advice = "remove it, and going on makes it again where it can"
    found = read_json(path, advice)
    if not isinstance(found, dict) or not isinstance(found.get("step"), int):
        raise CheckpointError(f"'{path}' is not an evaluation of this version of RAGEN: {advice}")
    return found


def _steps_in(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return sorted(int(match[1]) for path in folder.iterdir() if (match := _STEP_FILE.match(path.name)))


def _ranges(steps: Sequence[int]) -> str:
    return ", ".join(map(str, steps)) if len(steps) <= 12 else f"{steps[0]} … {steps[-1]} ({len(steps)} of them)"
