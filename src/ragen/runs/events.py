"""What a run records, as JSON lines: metrics by step, and whole trajectories with exact ids and floats."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from ragen.episode import Completion, EndReason, Group, StopReason, Trajectory, Turn
from ragen.errors import CheckpointError
from ragen.runs.disk import ESCAPE, clear_disk_errors, write_text

Advantages = Mapping[tuple[int, int], Sequence[float]]


@dataclass(frozen=True, slots=True)
class StoredTrajectory:
    """A trajectory with its group's number (None: lost to a fault of the environment) and each turn's mean advantage.

    ``advantages`` is None where the trajectory was not trained on (its group was filtered out).
    """

    group: int | None
    trajectory: Trajectory
    advantages: tuple[float, ...] | None = None

    @property
    def trained(self) -> bool:
        """Whether the update saw it."""
        return self.advantages is not None


def plain(value: Any, around: frozenset[int] = frozenset()) -> Any:
    """A value as JSON can hold it: NumPy numbers as numbers, NaN and infinities as null, the unknown as text.

    So is what contains itself; ``around`` are the ids of what ``value`` lies in.
    """
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if id(value) not in around:
        inside = around | {id(value)}
        if isinstance(value, Mapping):
            return {str(plain(key)): plain(inner, inside) for key, inner in value.items()}
        if isinstance(value, Sequence | AbstractSet):
            return [plain(inner, inside) for inner in value]
    return str(value)


def to_line(record: Mapping[str, Any]) -> str:
    """One record as one line of JSON."""
    return json.dumps(plain(record), ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    """Add a record to a JSON-lines file; it is handed to the system before this returns."""
    with clear_disk_errors(path.name, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8", errors=ESCAPE) as file:
            file.write(to_line(record))


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a JSON-lines file; a half-written last line (the run was killed) is left out."""
    if not path.is_file():
        return
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            if number == len(lines):
                return
            raise CheckpointError(f"'{path}', line {number}, is not JSON: the file was changed or damaged") from None
        if not isinstance(record, dict):
            raise CheckpointError(f"'{path}', line {number}, is not a record: the file was changed or damaged")
        yield record


def read_steps(path: Path) -> list[dict[str, Any]]:
    """The records of a JSON-lines file that has one a step; each names its step."""
    records = list(read_lines(path))
    for number, record in enumerate(records, start=1):
        if not isinstance(record.get("step"), int):
            raise CheckpointError(f"'{path}', record {number}, does not name its step: remove that line to read the rest")
    return records


def cut_lines(path: Path, last_step: int) -> None:
    """Keep the records up to ``last_step`` only (a resumed run makes the later ones again)."""
    if path.is_file():
        write_text(path, "".join(to_line(record) for record in read_steps(path) if record["step"] <= last_step))


def stored_trajectories(
    groups: Sequence[Group], errors: Sequence[Trajectory] = (), advantages: Advantages | None = None
) -> Iterator[StoredTrajectory]:
    """Pair trajectories with their advantages, keyed by (group index, member)."""
    by_member = advantages or {}
    for group in groups:
        for trajectory in group.trajectories:
            values = by_member.get((group.index, trajectory.member))
            yield StoredTrajectory(group.index, trajectory, None if values is None else tuple(float(v) for v in values))
    for trajectory in errors:
        yield StoredTrajectory(None, trajectory)


def write_trajectories(path: Path, stored: Iterator[StoredTrajectory]) -> None:
    """Write one trajectory a line."""
    write_text(path, "".join(to_line(trajectory_record(item)) for item in stored))


def read_trajectories(path: Path) -> Iterator[StoredTrajectory]:
    """Read back what ``write_trajectories`` wrote: ids and floats exactly (a recorded NaN stays NaN)."""
    for record in read_lines(path):
        try:
            yield restored(record)
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"'{path}' does not hold trajectories of this version of RAGEN ({error!r})") from None


def trajectory_record(item: StoredTrajectory) -> dict[str, Any]:
    """A trajectory as it is stored."""
    t = item.trajectory
    return {
        "group": item.group,
        "member": t.member,
        "env": t.env,
        "instance_seed": t.instance_seed,
        "end": t.end,
        "success": t.success,
        "total_return": t.total_return,
        "policy_version": t.policy_version,
        "error": t.error,
        "advantages": item.advantages,
        "turns": [_turn_record(turn) for turn in t.turns],
    }


def _turn_record(turn: Turn) -> dict[str, Any]:
    c = turn.completion
    return {
        "prompt_ids": turn.prompt_ids,
        "extends": turn.extends,
        "observation": turn.observation,
        "token_ids": c.token_ids,
        "logprobs": c.logprobs,
        "entropies": c.entropies,
        "text": c.text,
        "stop": c.stop,
        **({"untold_tokens": c.untold_tokens} if c.untold_tokens else {}),
        "actions": turn.actions,
        "valid": turn.valid,
        "reward": turn.reward,
        **({"rounding": turn.rounding} if turn.rounding else {}),
        "penalty": turn.penalty,
        "process_reward": turn.process_reward,
        "overlong_penalty": turn.overlong_penalty,
        "process_score": turn.process_score,
        "invalid_actions": turn.invalid_actions,
        "anchor": turn.anchor,
        "info": turn.info,
    }


def restored(record: Mapping[str, Any]) -> StoredTrajectory:
    """A trajectory from its record; KeyError, TypeError or ValueError where it is none."""
    trajectory = Trajectory(
        env=record["env"],
        instance_seed=record["instance_seed"],
        member=record["member"],
        turns=tuple(_turn(turn) for turn in record["turns"]),
        end=EndReason(record["end"]),
        success=record["success"],
        policy_version=record["policy_version"],
        error=record["error"],
    )
    values = record["advantages"]
    return StoredTrajectory(record["group"], trajectory, None if values is None else _floats(values))


def _turn(record: Mapping[str, Any]) -> Turn:
    completion = Completion(
        token_ids=tuple(record["token_ids"]),
        logprobs=_floats(record["logprobs"]),
        entropies=_floats(record["entropies"]),
        text=record["text"],
        stop=StopReason(record["stop"]),
        untold_tokens=record.get("untold_tokens", 0),
    )
    return Turn(
        prompt_ids=tuple(record["prompt_ids"]),
        extends=record["extends"],
        completion=completion,
        observation=record["observation"],
        actions=tuple(record["actions"]),
        valid=record["valid"],
        reward=_float(record["reward"]),
        penalty=_float(record["penalty"]),
        process_reward=_float(record["process_reward"]),
        overlong_penalty=_float(record["overlong_penalty"]),
        process_score=record["process_score"],
        invalid_actions=record["invalid_actions"],
        anchor=record["anchor"],
        info=record["info"],
        rounding=_float(record.get("rounding", 0.0)),
    )


def _float(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _floats(values: Sequence[float | None]) -> tuple[float, ...]:
    return tuple(_float(value) for value in values)
