"""What a training step hands to the next besides weights and optimiser."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from ragen.episode import Group
from ragen.errors import CheckpointError
from ragen.learn.checkpoint import stored_extra
from ragen.runs.events import read_trajectories, stored_trajectories, write_trajectories
from ragen.wording import counted

REPLAY = "replay.jsonl"


@dataclass(frozen=True, slots=True)
class Carried:
    """Stored in every checkpoint (as JSON, groups as trajectories), so that a resumed run goes on as an unbroken one would.

    ``flat_in_row``: how many of the last steps had only flat groups. ``rollbacks``: how often the run has returned to an
    earlier checkpoint because of the Echo Trap. ``return_sum`` and ``return_weight``: their ratio is the running mean of the
    returns trained on (`reinforce`). ``drawn``: groups begun so far, numbered from 0.
    Pool of instances: ``cursor``, places walked past; ``streaks``, for each instance its flat groups in a row (empty: none).
    Curriculum: ``advanced``, for each stage that is over the groups begun by its end; ``successes`` of the present stage's
    last steps. ``replay``: groups that may be trained on again, oldest first.
    """

    flat_in_row: int = 0
    rollbacks: int = 0
    return_sum: float = 0.0
    return_weight: float = 0.0
    drawn: int = 0
    cursor: int = 0
    streaks: tuple[int, ...] = ()
    advanced: tuple[int, ...] = ()
    successes: tuple[float, ...] = ()
    replay: tuple[Group, ...] = ()

    @property
    def mean_return(self) -> float:
        """The running mean; 0 before there is one."""
        return self.return_sum / self.return_weight if self.return_weight else 0.0

    @property
    def stage(self) -> int:
        """The stage of the curriculum, from 0; behind the last one the run's own settings hold."""
        return len(self.advanced)

    def spans(self) -> list[range]:
        """The numbers of the groups begun in each stage so far."""
        return [range(start, end) for start, end in pairwise((0, *self.advanced, self.drawn))]

    def record(self) -> dict[str, Any]:
        """All but the groups, as JSON holds it; of these the number."""
        return {field.name: getattr(self, field.name) for field in fields(self)} | {"replay": len(self.replay)}

    @classmethod
    def restored(cls, record: Mapping[str, Any], replay: Sequence[Group] = ()) -> "Carried":
        """From what ``record`` gave, and the groups; raises ValueError where a part is missing."""
        names = [field.name for field in fields(cls)]
        missing = [name for name in names if name not in record]
        if missing:
            raise ValueError(f"it lacks {', '.join(missing)}")
        if record["replay"] != len(replay):
            raise ValueError(f"it names {counted(record['replay'], 'group')} to replay and holds {len(replay)}")
        values: dict[str, Any] = {name: _frozen(record[name]) for name in names}
        return cls(**values | {"replay": tuple(replay)})

    def write_replay(self, folder: Path) -> None:
        """Put the groups into a checkpoint."""
        if self.replay:
            write_trajectories(folder / REPLAY, stored_trajectories(self.replay))


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def read_carried(checkpoint: Path, step: int) -> Carried:
    """What the step that ended in ``checkpoint`` handed on; raises CheckpointError where that cannot be told."""
    extra = stored_extra(checkpoint)
    if extra.get("step") != step:
        raise CheckpointError(f"checkpoint {checkpoint} does not say after which step it was written; use an earlier one")
    stored = read_trajectories(checkpoint / REPLAY)
    groups = [
        Group(int(index or 0), tuple(item.trajectory for item in items))
        for index, items in groupby(stored, key=lambda item: item.group)
    ]
    try:
        return Carried.restored(extra["carried"], groups)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"checkpoint {checkpoint} does not hold what a step hands to the next ({error}); use an earlier one"
        ) from None
