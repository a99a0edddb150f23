"""The directory of an evaluation that may be stopped and gone on with: what was asked, each episode as it ends, the report.

``config.json`` (what makes the results what they are), ``episodes.jsonl`` (one line an episode that was played, as it came),
``report.json`` (when all are played); ``.lock`` while a process writes.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragen.errors import CheckpointError
from ragen.runs.directory import checked_name
from ragen.runs.disk import clean_temporary, clear_disk_errors, read_json, write_text
from ragen.runs.events import StoredTrajectory, append_line, plain, read_lines, restored, to_line, trajectory_record
from ragen.runs.lock import locked
from ragen.wording import counted

CONFIG, EPISODES, REPORT = "config.json", "episodes.jsonl", "report.json"


@dataclass(frozen=True, slots=True)
class PlayedEpisode:
    """An episode with what its requests cost, what was noted of its replies, and why none came, if so (``failure``)."""

    stored: StoredTrajectory
    usage: Mapping[str, int] = field(default_factory=dict)
    notes: Mapping[str, int] = field(default_factory=dict)
    failure: str = ""

    @property
    def place(self) -> tuple[int, int]:
        """Instance and sample."""
        return self.stored.group or 0, self.stored.trajectory.member


class EvaluationDirectory:
    """One evaluation on disk; ``begun`` makes or reopens it."""

    def __init__(self, path: Path) -> None:
        self.path = path

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
            evaluation = cls(path)
            evaluation._begin(dict(plain(config)))
            yield evaluation

    def _begin(self, config: dict[str, Any]) -> None:
        file = self.path / CONFIG
        with clear_disk_errors("the evaluation", self.path):
            clean_temporary(self.path)
        if not file.is_file():
            if any(not inside.name.startswith(".") for inside in self.path.iterdir()):
                raise CheckpointError(f"'{self.path}' holds something that is no evaluation: choose another --name")
            write_text(file, json.dumps(config, indent=1, ensure_ascii=False) + "\n")
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

    def add(self, episode: PlayedEpisode) -> None:
        """Store an episode that has just ended."""
        record = trajectory_record(episode.stored)
        append_line(
            self.path / EPISODES,
            {**record, "usage": episode.usage, "notes": episode.notes, "failure": episode.failure},
        )

    @contextmanager
    def telling_what_is_kept(self, planned: int) -> Iterator[None]:
        """Where Ctrl-C ends an evaluation of so many episodes, KeyboardInterrupt says what is kept and how to go on."""
        try:
            yield
        except KeyboardInterrupt:
            played = {episode.place for episode in self.episodes() if not episode.failure}
            episodes = f"{len(played)} of {counted(planned, 'episode')}"
            raise KeyboardInterrupt(
                f"kept in {self.path} are {episodes}; the same command goes on with the others"
            ) from None

    def write_report(self, report: Mapping[str, Any]) -> None:
        """Store the report."""
        write_text(self.path / REPORT, json.dumps(plain(report), indent=1, ensure_ascii=False) + "\n")


def is_evaluation(path: Path) -> bool:
    """Whether ``path`` is the directory of an evaluation, or a report in a file of its own."""
    return (path / EPISODES).is_file() or (path.suffix == ".json" and path.is_file())


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
