"""What a study file says: a question, axes of named values, sizes, outcomes, and the paper's numbers."""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from ragen.config.load import layered, preset_names
from ragen.config.schema import Config
from ragen.config.settings import Settings, validated
from ragen.config.yaml_text import near_file, parse_yaml
from ragen.errors import ConfigError, reason
from ragen.registry import nearest
from ragen.studies.outcomes import parse_outcome

Axis = Mapping[str, Mapping[str, Any]]  # each value's name → the settings it stands for
_OF_A_RUN = {"preset", *Config.model_fields}
_WORD = re.compile(r"\w[\w.-]*")
_NOT_HERE = {  # settings that a study gives its runs itself, and the way to choose them
    "seed": "a study gives each run its own: say which in seeds of the size, or --seeds N",
    "run.name": "a study names each run by what it trains: leave it out",
    "run.root": "a study keeps its runs in one place: leave it out, and give ragen study --root DIR",
}


class Size(Settings):
    """How large a study is run: where its settings come from, which values of the axes, and how many seeds."""

    preset: str = Field(min_length=1, description="a preset or YAML file; {axis} stands for the axis' value")
    settings: dict[str, Any] = Field({}, description="settings of every run at this size")
    axes: dict[str, Axis] = Field({}, description="the values of an axis at this size, with settings of their own")
    seeds: tuple[int, ...] = Field((0, 1, 2, 3, 4), min_length=1, description="a number of seeds, or a list of them")
    note: str = Field("", description="what a reader must know, for example that it was not run")

    @field_validator("seeds", mode="before")
    @classmethod
    def _counted(cls, seeds: Any) -> Any:
        each = seeds if isinstance(seeds, list | tuple) else (seeds,)
        if any(isinstance(seed, bool) for seed in each):
            raise ValueError("true and false are no seeds: give a number of seeds or a list of numbers")
        return tuple(range(seeds)) if isinstance(seeds, int) else seeds

    @field_validator("seeds")
    @classmethod
    def _different(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if min(seeds) < 0 or len(set(seeds)) < len(seeds):
            raise ValueError("give a number of seeds (they are 0, 1, …) or a list of different numbers from 0 up")
        return seeds


class Study(Settings):
    """A grid of runs: every combination of the axes' values, each with every seed."""

    title: str = Field(min_length=1, description="a few words")
    finding: str = Field("", description="the paper's finding it belongs to, such as F3")
    question: str = Field(min_length=1, description="what is asked")
    paper: str = Field("", description="what the paper says")
    settings: dict[str, Any] = Field({}, description="settings of every run")
    axes: dict[str, Axis] = Field(min_length=1, description="axis → its values → their settings")
    baseline: dict[str, str] = Field({}, description="axis → the value that others are compared with")
    rows: str = Field("", description="the axis with a row of curves for each value")
    outcomes: tuple[str, ...] = Field(min_length=1, description="what is reported (docs/studies.md)")
    numbers: tuple[dict[str, Any], ...] = Field((), description="the paper's numbers: axis values and outcomes")
    sizes: dict[str, Size] = Field(min_length=1, description="size → preset, settings, seeds")
    keep_checkpoints: bool = Field(False, description="keep the checkpoints of finished runs")

    def values(self, axis: str, size: str) -> Axis:
        """The values of an axis at a size, each with the settings it stands for: the axis' own, then the size's."""
        chosen = self.sizes[size].axes.get(axis)
        if chosen is None:
            return self.axes[axis]
        return {name: layered(self.axes[axis][name], more) for name, more in chosen.items()}

    def all_settings(self) -> Iterator[Mapping[str, Any]]:
        """Every mapping of settings in the file."""
        yield self.settings
        for axes in (self.axes, *(size.axes for size in self.sizes.values())):
            yield from (settings for axis in axes.values() for settings in axis.values())
        yield from (size.settings for size in self.sizes.values())


def shipped() -> list[str]:
    """The names of the studies that come with the package."""
    return sorted(file.name.removesuffix(".yaml") for file in _library().iterdir() if file.name.endswith(".yaml"))


def load_study(name: str | Path) -> Study:
    """A study by its name, or out of a YAML file. Raises ConfigError with the nearest name for whatever does not exist."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        try:
            return parse_study(path.read_text(encoding="utf-8"), str(path))
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"cannot read '{path}': {reason(error)}; {near_file(path)}give a study's name or its YAML file"
            ) from None
    if str(name) not in shipped():
        if str(name) in preset_names():
            raise ConfigError(f"'{name}' is a preset, the settings of one run: `ragen train {name}`")
        hint = nearest(str(name), shipped(), "`ragen study list`")
        raise ConfigError(f"unknown study '{name}': {hint} (the name of a file of your own ends in .yaml)")
    return parse_study(_library().joinpath(f"{name}.yaml").read_text(encoding="utf-8"), f"study {name}")


def parse_study(text: str, origin: str) -> Study:
    """The study in a YAML text; ``origin`` names it in errors."""
    values = parse_yaml(text, origin)
    if not isinstance(values, dict):
        raise ConfigError(f"{origin}: a study is a mapping with title, question, axes, outcomes and sizes")
    if not set(Study.model_fields) & set(values) and any(str(key).partition(".")[0] in _OF_A_RUN for key in values):
        raise ConfigError(
            f"{origin} holds the settings of one run, not a study, which has axes and sizes (docs/studies.md): "
            f"`ragen train {shlex.quote(origin)}`"
        )
    try:
        study = validated(Study, _prepared(values))
        _check(study)
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from None
    return study


def _library() -> Any:
    return files("ragen.studies") / "library"


def _prepared(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with axes written out in full and sizes checked one by one, so that an error tells its place."""
    out = dict(values)
    if "axes" in out:
        out["axes"] = _axes(out["axes"], "axes")
    if isinstance(out.get("baseline"), dict):
        out["baseline"] = {str(axis): str(name) for axis, name in out["baseline"].items()}
    if isinstance(out.get("sizes"), dict):
        out["sizes"] = {str(name): _size(name, size) for name, size in out["sizes"].items()}
    return out


def _size(name: Any, size: Any) -> Size:
    if not _WORD.fullmatch(str(name)):
        raise ConfigError(
            f"sizes: {str(name)!r} is no name of a size: files are named by it, so letters, digits, '_', '-', '.'"
        )
    if not isinstance(size, Mapping):
        raise ConfigError(f"sizes.{name} is {size!r}: it is a mapping with a preset, and settings, axes, seeds where needed")
    values = dict(size)
    if "axes" in values:
        values["axes"] = _axes(values["axes"], f"sizes.{name}.axes")
    return validated(Size, values, prefix=f"sizes.{name}.")


def _axes(axes: Any, where: str) -> dict[str, Axis]:
    if not isinstance(axes, Mapping):
        raise ConfigError(f"{where} is {axes!r}: it is a mapping from an axis to its values")
    return {str(name): _axis(values, f"{where}.{name}") for name, values in axes.items()}


def _axis(values: Any, where: str) -> Axis:
    """Names alone (``[ppo, grpo]``), or names with settings (``{ppo: {advantage.name: gae}}``)."""
    if isinstance(values, Sequence) and not isinstance(values, str):
        _different(values, where)
        values = dict.fromkeys(values)
    if not isinstance(values, Mapping) or not values:
        raise ConfigError(f"{where} is {values!r}: it is a list of names, or a mapping from names to settings")
    for name, settings in values.items():
        if not isinstance(name, str | int | float) or not (settings is None or isinstance(settings, Mapping)):
            raise ConfigError(f"{where}.{name} is {settings!r}: a value of an axis is a mapping of settings, or empty")
    _different(values, where)
    return {str(name): dict(settings or {}) for name, settings in values.items()}


def _different(names: Iterable[Any], where: str) -> None:
    twice = [name for name, count in Counter(map(str, names)).items() if count > 1]
    if twice:
        raise ConfigError(f"{where}: '{twice[0]}' stands there twice: leave one out, or give it another name")


def _check(study: Study) -> None:
    """Names that must exist in another place of the file do, and no setting is one that a study gives itself."""
    for settings in study.all_settings():
        _check_settings(layered(settings))
    _different(study.outcomes, "outcomes")
    for axis, value in study.baseline.items():
        _known(axis, study.axes, "baseline", "axis")
        _known(value, study.axes[axis], f"baseline.{axis}", "value")
    if study.rows:
        _known(study.rows, study.axes, "rows", "axis")
    for name, size in study.sizes.items():
        for axis, values in size.axes.items():
            _known(axis, study.axes, f"sizes.{name}.axes", "axis")
            for value in values:
                _known(value, study.axes[axis], f"sizes.{name}.axes.{axis}", "value")
    for outcome in study.outcomes:
        parse_outcome(outcome)
    for row in study.numbers:
        for key, value in row.items():
            _known(key, [*study.axes, *study.outcomes], "numbers", "axis or outcome")
            if key in study.axes:
                _known(str(value), study.axes[key], f"numbers: {key}", "value")


def _check_settings(settings: Mapping[str, Any]) -> None:
    for key, way in _NOT_HERE.items():
        section, _, name = key.rpartition(".")
        inner = settings.get(section) if section else settings
        if isinstance(inner, Mapping) and name in inner:
            raise ConfigError(f"setting '{key}' is {inner[name]!r}: {way}")


def _known(name: str, known: Any, where: str, what: str) -> None:
    if name not in known:
        raise ConfigError(f"{where}: there is no {what} '{name}': {nearest(name, list(known))}")
