"""Where a study's runs and reports lie, and in which state each run is.

``root/runs/NAME/`` a run's directory, shared by all studies with that run; ``root/logs/NAME.yaml`` its settings,
``NAME.log`` what it printed, ``NAME.spent`` the seconds of its starts that did not finish it and, while a study works on it,
``NAME.lock``; ``root/STUDY-SIZE.md`` and so on the reports. A run that is done has a ``done.json``.
"""

import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from ragen.config import Config, load_config
from ragen.config.yaml_text import dump_yaml
from ragen.errors import CheckpointError
from ragen.filelock import acquire, release
from ragen.metrics.evaluation import EvalReport
from ragen.runs.checkpoints import Checkpoints
from ragen.runs.directory import RunDirectory
from ragen.runs.disk import clear_disk_errors, read_json, write_text
from ragen.runs.lock import locked
from ragen.runs.resume import differences
from ragen.studies.grid import PLACE, ROLLED_BACK, StudyRun
from ragen.studies.outcomes import Record

State = Literal["new", "begun", "busy", "done"]
DONE = "done.json"
STORED = 4  # how often a run stores its trajectories
SAVED = 4  # and how often a checkpoint


class Place:
    """The folder that holds the runs of studies."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.runs, self.logs = root / "runs", root / "logs"
        self._claims: dict[str, int] = {}

    def path(self, run: StudyRun) -> Path:
        """The run's directory."""
        return self.runs / run.name

    def log(self, run: StudyRun) -> Path:
        """What the run printed."""
        return self.logs / f"{run.name}.log"

    def state(self, run: StudyRun) -> State:
        """How far a run is: not begun, begun (to be gone on with), in another process' hands, or done.

        Raises CheckpointError where its directory holds a run with other settings.
        """
        path = self.path(run)
        begun = (path / "config.yaml").is_file()
        if begun:
            self._check_same(run)
            if (path / DONE).is_file():
                return "done"
        if self._claimed_elsewhere(run):
            return "busy"
        if not begun:
            return "new"
        try:
            with locked(path):
                return "begun"
        except CheckpointError:
            return "busy"

    def _check_same(self, run: StudyRun) -> None:
        path = self.path(run)
        other = differences(load_config(path / "config.yaml"), run.config, free=(PLACE,))
        if other:
            raise CheckpointError(
                f"'{path}' was run with {'; '.join(other)}: its config.yaml was changed, or a default of RAGEN was. Move "
                "the directory away (mv) and it is run again, or give the study the old value"
            )

    def claim(self, run: StudyRun) -> bool:
        """Hold a run against other studies from before its start to after its end; False where another process has it.

        The run's own lock does not do: the process that trains takes it, later than the decision to start it is made.
        """
        file = self._claim_file(run)
        with clear_disk_errors("the claim of a run", file):
            file.parent.mkdir(parents=True, exist_ok=True)
            handle = acquire(file, wait=False)
        if handle is not None:
            self._claims[run.name] = handle
        return handle is not None

    def release(self, run: StudyRun) -> None:
        """Let go of a run that was claimed."""
        handle = self._claims.pop(run.name, None)
        if handle is not None:
            release(self._claim_file(run), handle)

    def _claim_file(self, run: StudyRun) -> Path:
        return self.logs / f"{run.name}.lock"

    def _claimed_elsewhere(self, run: StudyRun) -> bool:
        file = self._claim_file(run)
        if run.name in self._claims or not file.is_file():
            return False
        with clear_disk_errors("the claim of a run", file):
            handle = acquire(file, wait=False)
        if handle is not None:
            release(file, handle)
        return handle is None

    def prepare(self, run: StudyRun, threads: int) -> list[str]:
        """The words after ``ragen train`` that start the run, or go on with it.

        The run is claimed, and its state, "new" or "begun", was read since. One that was stopped before its first checkpoint
        left nothing to go on with: it begins anew.
        """
        path = self.path(run)
        if (path / "config.yaml").is_file():
            with locked(path):
                try:
                    Checkpoints(path / "checkpoints").latest()
                except CheckpointError:
                    shutil.rmtree(path)
                else:
                    return ["--resume", str(path)]
        settings = self.logs / f"{run.name}.yaml"
        write_text(settings, dump_yaml(self._kept_here(run.config, run.name, threads).model_dump(mode="json")))
        return [str(settings)]

    def _kept_here(self, config: Config, name: str, threads: int) -> Config:
        """The settings with where and how this run is kept: few checkpoints, and a sample of its trajectories.

        What the study sets itself stands, and so do the checkpoints that a rollback returns to.
        """
        few = {
            "keep": 1,
            "checkpoint_every": max(1, config.steps // SAVED),
            "trajectories_every": max(1, config.steps // STORED),
        }
        own = {*config.run.model_fields_set, *(ROLLED_BACK if config.echo_trap.action == "rollback" else ())}
        where = {"root": str(self.runs), "name": name, "threads": config.run.threads or threads}
        section = config.run.model_copy(update={**{key: value for key, value in few.items() if key not in own}, **where})
        return config.model_copy(update={"run": section})

    def leave(self, run: StudyRun, seconds: float) -> None:
        """Remember how long a start took that did not finish its run."""
        write_text(self._spent_file(run), json.dumps({"seconds": self._spent(run) + seconds}) + "\n")

    def finish(self, run: StudyRun, seconds: float, *, keep_checkpoints: bool) -> None:
        """Mark a run as done, with the seconds of all its starts, ``seconds`` those of the last; then, so that a kill in
        between loses no run, its checkpoints go unless they are wanted.
        """
        write_text(self.path(run) / DONE, json.dumps({"seconds": round(self._spent(run) + seconds, 1)}) + "\n")
        self._spent_file(run).unlink(missing_ok=True)
        if not keep_checkpoints:
            shutil.rmtree(self.path(run) / "checkpoints", ignore_errors=True)

    def _spent_file(self, run: StudyRun) -> Path:
        return self.logs / f"{run.name}.spent"

    def _spent(self, run: StudyRun) -> float:
        """Seconds of the starts that were left; 0 where none was, or its file is damaged."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            return float(json.loads(self._spent_file(run).read_text(encoding="utf-8"))["seconds"])
        return 0.0

    def steps_done(self, run: StudyRun) -> int:
        """How many steps the run has recorded."""
        try:
            return (self.path(run) / "metrics.jsonl").read_bytes().count(b"\n")
        except OSError:
            return 0

    def record(self, run: StudyRun) -> Record:
        """What a run that is done recorded. Raises CheckpointError for a damaged file."""
        opened = RunDirectory(self.path(run), run.config)
        reports = {}
        for name, values in opened.evaluations().items():
            try:
                reports[name] = EvalReport.from_dict(values)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise CheckpointError(f"eval/{name}.json of '{opened.path}' is damaged ({error!r})") from None
        env = next((report.env for name, report in reports.items() if name == "before"), "")
        return Record(env, tuple(opened.metrics()), reports)

    def origin(self, run: StudyRun) -> Mapping[str, Any]:
        """Where a run that is done comes from: its last start's versions, machine and commit, and ``seconds`` in all."""
        starts = RunDirectory(self.path(run), run.config).starts()
        done = read_json(self.path(run) / DONE, "remove it, and `ragen study run` makes it again")
        return {**(starts[-1] if starts else {}), "seconds": done["seconds"]}
