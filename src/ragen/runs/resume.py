"""Going on with a run: checked in full before a model is loaded or a file is touched."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ragen.config import Config, load_config
from ragen.config.settings import leaves
from ragen.config.yaml_text import dump_yaml
from ragen.errors import CheckpointError, ConfigError
from ragen.runs.directory import RunDirectory
from ragen.runs.disk import write_text
from ragen.runs.lock import locked
from ragen.wording import counted

# a resumed run may change these sections and settings: what was trained so far does not depend on them
FREE_SETTINGS = (
    *("steps", "plugins", "eval", "diagnostics", "echo_trap.action", "echo_trap.max_rollbacks", "run"),
    *("rollout.env_workers", "rollout.env_mode", "rollout.env_timeout_s"),
)
SETTINGS = "settings.yaml"


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Where a run goes on: its directory with the settings from now on, a checkpoint, its step and its settings."""

    run: RunDirectory
    checkpoint: Path
    step: int
    trained: Config


def write_settings(folder: Path, config: Config) -> None:
    """Put the settings of a run beside its weights: what was trained cannot be told from a file that may be edited since."""
    write_text(folder / SETTINGS, dump_yaml(config.model_dump(mode="json")))


def left_behind(path: Path) -> str:
    """What is there of a run that was given up in the middle, and what to type next."""
    checkpoints = RunDirectory.open(path).checkpoints if (path / "config.yaml").is_file() else None
    if checkpoints is None:
        return "given up before the run began: nothing of it is kept but a finished warm-up; the same command starts again"
    if checkpoints.steps():
        return f"given up; go on from the last checkpoint: ragen train --resume {path}"
    return (
        f"given up before the first checkpoint: '{path}' can be looked at, not gone on with; begin anew with the same "
        "command (where it names the run by --run.name, with another name)"
    )


def taken_up(point: ResumePoint) -> str:
    """From where a run goes on, and which of its steps that makes again."""
    lost = [row["step"] for row in point.run.metrics() if row["step"] > point.step]
    again = f"; steps {min(lost)} to {max(lost)} were done after it and are done again" if lost else ""
    return f"going on from the checkpoint after step {point.step}{again}"


@contextmanager
def resumed(path: str | Path, config: Config) -> Iterator[ResumePoint]:
    """The newest whole checkpoint of the run at ``path`` (or of this name), held against other processes.

    Raises CheckpointError where ``config`` contradicts what was trained, asks for fewer steps than are done or for another
    place, and where files that going on needs are damaged.
    """
    run = RunDirectory.open(path)
    with locked(run.path):
        checkpoint = run.checkpoints.latest()
        step, trained = run.checkpoints.step_of(checkpoint), _trained_settings(checkpoint)
        run = RunDirectory(run.path, _in_place(run, config))
        _check_same(trained, run.config, run.path)
        if run.config.steps < step:
            raise CheckpointError(
                f"'{run.path}' has done {counted(step, 'step')}, and steps is {run.config.steps}: give --steps {step} or "
                f"more, or evaluate it as it is (ragen eval {run.path})"
            )
        run.check(step)
        yield ResumePoint(run, checkpoint, step, trained)


def _trained_settings(checkpoint: Path) -> Config:
    try:
        return load_config(checkpoint / SETTINGS)
    except ConfigError as error:
        raise CheckpointError(
            f"checkpoint '{checkpoint}' does not tell the settings it was trained with ({error}): it is of an earlier "
            "version; start a new run from it (--model PATH --warmup.data none)"
        ) from None


def _in_place(run: RunDirectory, config: Config) -> Config:
    """The settings with the run's own place; another place in them is an error, for a run is not moved by going on."""
    stored, asked = run.config.run, config.run
    if asked.name not in ("", stored.name, run.path.name):
        raise CheckpointError(_elsewhere(run.path, "name", asked.name))
    default = type(asked).model_fields["root"].default
    if asked.root not in (stored.root, default) and Path(asked.root).resolve() != run.path.resolve().parent:
        raise CheckpointError(_elsewhere(run.path, "root", asked.root))
    return config.model_copy(update={"run": asked.model_copy(update={"name": stored.name, "root": stored.root})})


def _elsewhere(path: Path, key: str, value: str) -> str:
    return (
        f"run.{key} is '{value}', but '{path}' goes on where it lies: leave --run.{key} out, or copy the directory "
        "and resume the copy"
    )


def _check_same(trained: Config, config: Config, path: Path) -> None:
    other = differences(trained, config, free=FREE_SETTINGS)
    if other:
        raise CheckpointError(
            f"'{path}' was trained with {'; '.join(other)}: a resumed run may only change {', '.join(FREE_SETTINGS)}; "
            "start a new run for other settings (its config.yaml must not be edited either)"
        )


def differences(old: Config, new: Config, *, free: Sequence[str]) -> list[str]:
    """Each setting that differs, as ``key = OLD, not NEW``; the sections (or single settings) in ``free`` may."""
    before, after = (dict(leaves(config.model_dump(mode="json"))) for config in (old, new))
    return [
        f"{key} = {before.get(key)}, not {after.get(key)}"
        for key in before | after
        if key not in free and key.partition(".")[0] not in free and before.get(key) != after.get(key)
    ]
