"""A model by the name a person gives: a run, one of its checkpoints, or any model."""

from pathlib import Path

from ragen.config.schema import Config
from ragen.errors import ConfigError, ModelError, reason
from ragen.models.hub import require_model
from ragen.models.names import MADE, local_model
from ragen.runs.directory import RunDirectory, likely_runs


def find_model(model: str | Path, root: str | Path = "runs") -> tuple[Path, Config | None]:
    """The directory of a model's files, and the config of its run where it is a run, its checkpoints, or one of them.

    Of a run it is the newest complete checkpoint. Raises ModelError that tells what the name could have been.
    """
    path = checked_path("the model", model)
    check_model(model, root)  # what can be nothing needs no torch to be refused
    if (found := _of_a_run(path, Path(root))) is not None:
        return found
    from ragen.models.resolve import resolve_model

    try:
        return resolve_model(str(model)), None
    except ModelError as error:
        if model in MADE:
            raise
        raise _neither(error, path, Path(root)) from None


def known_model(model: str | Path, root: str | Path = "runs") -> Config | None:
    """The config that ``find_model`` gives, without loading torch: nothing is made, and of a hub's model little fetched.

    Raises what ``find_model`` raises for a name that stands for nothing, here and on the hub.
    """
    check_model(model, root)
    if (found := _of_a_run(Path(model), Path(root))) is not None:
        return found[1]
    try:
        require_model(str(model))
    except ModelError as error:
        raise _neither(error, Path(model), Path(root)) from None
    return None


def check_model(model: str | Path, root: str | Path = "runs") -> None:
    """Raise ModelError for a name that can be no run and no model, without loading torch or asking the hub."""
    path, runs = checked_path("the model", model), Path(root)
    try:
        is_folder = path.is_dir()
        is_model = is_folder and (path / "config.json").is_file()
        beside_runs = path.parent != Path() and (path.parent == runs or any(path.parent.glob("*/config.yaml")))
    except (OSError, ValueError) as error:  # no name of a file, or one that may not be looked at
        raise ModelError(f"the model '{model}' cannot be read: {reason(error)}") from None
    if is_model or _run_at(path, runs) is not None:
        return
    if is_folder:
        raise ModelError(
            f"'{model}' is a directory without a model (no config.json); nor is it a run: {likely_runs(path, runs)}"
        )
    try:
        local_model(str(model))
    except ModelError as error:
        raise _neither(error, path, runs) from None
    if beside_runs:  # 'runs/NAME' reads like a name of the hub
        raise ModelError(f"model '{model}' is not a directory; nor is it a run: {likely_runs(path, runs)}")


def checked_path(what: str, value: object) -> Path:
    """The path that names ``what``; ConfigError for what can be none."""
    if not isinstance(value, str | Path) or not str(value).strip():
        raise ConfigError(f"{what} is {value!r}: give the path or the name of a run or model, such as 'runs/NAME'")
    return Path(value)


def _of_a_run(path: Path, root: Path) -> tuple[Path, Config] | None:
    """The model and the config of the run that ``path`` is, whose checkpoints it holds, or one of whose it is."""
    if (home := _run_at(path, root)) is not None:
        run = RunDirectory.open(home)
        return run.checkpoints.latest(), run.config
    home = _run_of_checkpoint(path)
    return None if home is None else (path, RunDirectory.open(home).config)


def _run_at(path: Path, root: Path) -> Path | None:
    """The run that ``path`` is or whose checkpoints it holds, by itself or under ``root``."""
    for folder in (path, root / path):
        home = folder.parent if folder.name == "checkpoints" else folder
        if (home / "config.yaml").is_file():
            return home
    return None


def _run_of_checkpoint(path: Path) -> Path | None:
    home = path.parent.parent
    return home if (path / "config.json").is_file() and (home / "config.yaml").is_file() else None


def _neither(error: ModelError, path: Path, root: Path) -> ModelError:
    return ModelError(f"{error}; nor is it a run: {likely_runs(path, root)}")
