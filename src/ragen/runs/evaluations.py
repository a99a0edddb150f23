"""The directory of an evaluation that may be stopped and gone on with: what was asked, each episode as it ends, the report.

``config.json`` (what makes the results what they are), ``episodes.jsonl`` (one line an episode that was played, as it came),
``report.json`` (when all are played); ``.lock`` while a process writes.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ragen.episode import EndReason
from ragen.errors import CheckpointError
from ragen.metrics.evaluation import EvalReport
from ragen.runs.directory import checked_name
from ragen.runs.disk import clean_temporary, clear_disk_errors, read_json, write_text
from ragen.runs.events import StoredTrajectory, append_line, plain, read_lines, restored, to_line, trajectory_record
from ragen.runs.lock import locked
from ragen.wording import counted

CONFIG, EPISODES, REPORT = "config.json", "episodes.jsonl", "report.json"
ROOT = "evals"
Place = tuple[int, int]  # instance and sample


@dataclass(frozen=True, slots=True)
class PlayedEpisode:
    """An episode with what its requests cost, what was noted of its replies, and why none came, if so (``failure``)."""

    stored: StoredTrajectory
    usage: Mapping[str, int] = field(default_factory=dict)
    notes: Mapping[str, int] = field(default_factory=dict)
    failure: str = ""

    @property
    def place(self) -> Place:
        """Where it stands in the evaluation."""
        return self.stored.group or 0, self.stored.trajectory.member


class EvaluationDirectory:
    """One evaluation on disk; ``begun`` makes or goes on with one, ``open`` reads one.

    ``config`` tells what was asked: ``env``, ``eval``, ``rollout``, and who played, an ``endpoint`` or a ``model``.
    """

    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        self.path, self.config = path, config

    @classmethod
    def open(cls, path: Path) -> "EvaluationDirectory":
        """The evaluation in ``path``; a damaged one is a CheckpointError."""
        stored = read_json(path / CONFIG, "make the evaluation again, under another --name")
        if not isinstance(stored, dict) or not all(
            isinstance(stored.get(part), dict) for part in ("env", "eval", "rollout")
        ):
            raise CheckpointError(f"'{path / CONFIG}' does not tell what was evaluated: the file was changed or damaged")
        return cls(path, stored)

    @classmethod
    @contextmanager
    def begun(cls, root: str | Path, name: str, config: Mapping[str, Any]) -> Iterator["EvaluationDirectory"]:
        """The directory ``root/name``, held against other processes: a new one, or one begun with the same ``config``
        (or without any episode so far).

        Raises CheckpointError where it was begun with other settings, or holds something else.
        """
        path = Path(root) / checked_name(name, "--name", "evals/")
        with clear_disk_errors("the evaluation", path):
            path.mkdir(parents=True, exist_ok=True)
        with locked(path, "evaluation", "--name"):
            evaluation = cls(path, dict(plain(config)))
            evaluation._begin(evaluation.config)
            yield evaluation

    def _begin(self, config: Mapping[str, Any]) -> None:
        file = self.path / CONFIG
        with clear_disk_errors("the evaluation", self.path):
            clean_temporary(self.path)
        if not file.is_file():
            if any(not inside.name.startswith(".") for inside in self.path.iterdir()):
                raise CheckpointError(f"'{self.path}' holds something that is no evaluation: choose another --name")
            write_text(file, json.dumps(config, indent=1, ensure_ascii=False) + "\n")
            write_text(self.path / EPISODES, "")
            return
        stored = read_json(file, "choose another --name, or move it away")
        differences = list(_differences("", stored, config))
        if differences and next(read_lines(self.path / EPISODES), None) is None:  # a wrong address: nothing was played
            write_text(file, json.dumps(config, indent=1, ensure_ascii=False) + "\n")
        elif differences:
            raise CheckpointError(
                f"'{self.path}' holds an evaluation with other settings ({'; '.join(differences[:3])}): repeat it with the "
                "same ones to go on, or choose another --name"
            )
        records = [to_line(record) for record in read_lines(self.path / EPISODES)]
        write_text(self.path / EPISODES, "".join(records))  # without the half line that a kill may have left

    def episodes(self) -> list[PlayedEpisode]:
        """All that was played, in the order it came; an episode that got no reply may be there again later."""
        return [_episode(record, self.path / EPISODES) for record in read_lines(self.path / EPISODES)]

    def played(self) -> dict[Place, PlayedEpisode]:
        """The last that is stored of each episode, by instance and sample."""
        return {episode.place: episode for episode in sorted(self.episodes(), key=lambda episode: episode.place)}

    def trajectories(self) -> list[StoredTrajectory]:
        """The same for reading: one that was lost, to the environment or for want of a reply, belongs to no group."""
        stored = [episode.stored for episode in self.played().values()]
        return [replace(item, group=None) if item.trajectory.end is EndReason.ERROR else item for item in stored]

    @property
    def planned(self) -> int:
        """How many episodes the whole evaluation has."""
        return int(self.config["eval"]["episodes"]) * int(self.config["eval"]["samples"])

    @property
    def player(self) -> str:
        """Who played, in words."""
        if "model" in self.config:
            return str(self.config["model"]["name"])
        return f"{self.config['endpoint']['model']} at {self.config['endpoint']['url']}"

    def report(self) -> EvalReport | None:
        """The report, or None where the evaluation is not finished."""
        file, advice = self.path / REPORT, "repeat the evaluation's command, which makes it again"
        return read_report(read_json(file, advice), f"'{file}'", advice) if file.is_file() else None

    def add(self, episode: PlayedEpisode) -> None:
        """Store an episode that has just ended."""
        record = trajectory_record(episode.stored)
        append_line(
            self.path / EPISODES,
            {**record, "usage": episode.usage, "notes": episode.notes, "failure": episode.failure},
        )

    @contextmanager
    def telling_what_is_kept(self) -> Iterator[None]:
        """Where Ctrl-C ends an evaluation, KeyboardInterrupt says what is kept and how to go on."""
        try:
            yield
        except KeyboardInterrupt:
            played = {episode.place for episode in self.episodes() if not episode.failure}
            episodes = f"{len(played)} of {counted(self.planned, 'episode')}"
            raise KeyboardInterrupt(
                f"kept in {self.path} are {episodes}; the same command goes on with the others"
            ) from None

    def write_report(self, report: Mapping[str, Any]) -> None:
        """Store the report."""
        write_text(self.path / REPORT, json.dumps(plain(report), indent=1, ensure_ascii=False) + "\n")


def read_report(values: Any, file: str, advice: str) -> EvalReport:
    """The report in what ``file`` holds; CheckpointError that names file and field, and ends in ``advice``."""
    try:
        return EvalReport.from_dict(values)
    except ValueError as error:
        raise CheckpointError(f"{file} is not the report of an evaluation ({error}): {advice}") from None


def is_evaluation(path: Path) -> bool:
    """Whether ``path`` is the directory of an evaluation, or a report in a file of its own."""
    return (path / EPISODES).is_file() or (path.suffix == ".json" and path.is_file())


def find_evaluation(path: str | Path, root: str | Path = ROOT) -> EvaluationDirectory | None:
    """The evaluation given by path, or by its name under ``root``; None where there is none."""
    for candidate in (Path(path), Path(root) / path):
        with suppress(OSError):  # for example a name that is too long for one
            if (candidate / EPISODES).is_file():
                return EvaluationDirectory.open(candidate)
    return None


def default_name(model: str, env: str) -> str:
    """A name out of what is evaluated."""
    return re.sub(r"[^\w.-]", "_", f"{model}-{env}").lstrip(".-_")[:120] or "evaluation"


def _episode(record: Mapping[str, Any], file: Path) -> PlayedEpisode:
    try:
        return PlayedEpisode(restored(record), record["usage"], record["notes"], record["failure"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"'{file}' does not hold episodes of this version of RAGEN ({error!r})") from None


def _differences(path: str, stored: Any, wanted: Any) -> Iterator[str]:
    """Where two JSON values differ, in words."""
    if isinstance(stored, dict) and isinstance(wanted, dict):
        for key in sorted(stored.keys() | wanted.keys()):
            yield from _differences(f"{path}.{key}".lstrip("."), stored.get(key), wanted.get(key))
    elif stored != wanted:
        yield f"{path} was {json.dumps(stored, ensure_ascii=False)}, now {json.dumps(wanted, ensure_ascii=False)}"
