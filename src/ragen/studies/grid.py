"""From a study to its runs: every combination of the axes' values with every seed, each with its settings checked."""

import hashlib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from string import Formatter
from typing import Any

from ragen.config import Config, load_config
from ragen.config.load import layered
from ragen.envs import find_environment
from ragen.envs.locate import label
from ragen.errors import ConfigError
from ragen.registry import nearest
from ragen.runs.summary import paper_name
from ragen.studies import ROOT
from ragen.studies.outcomes import parse_outcome
from ragen.studies.schema import Study

PLACE = "run"  # the section that says where and how a run is kept, not what is trained
ROLLED_BACK = ("keep", "checkpoint_every")  # but for these: what a rollback of the Echo-Trap detector returns to


@dataclass(frozen=True, slots=True)
class StudyRun:
    """One run: its settings, and the name of its directory, which is made from them."""

    name: str
    config: Config


@dataclass(frozen=True, slots=True)
class Variant:
    """One combination of the axes' values, with a run a seed, in the order of the plan's seeds."""

    values: Mapping[str, str]
    runs: tuple[StudyRun, ...]

    def __str__(self) -> str:
        return ", ".join(self.values.values())


@dataclass(frozen=True, slots=True)
class Plan:
    """A study at one size, with all its runs."""

    name: str
    size: str
    study: Study
    seeds: tuple[int, ...]
    variants: tuple[Variant, ...]

    def runs(self) -> dict[str, StudyRun]:
        """Every run by the name of its directory."""
        return {run.name: run for variant in self.variants for run in variant.runs}


def plan_study(study: Study, name: str, size: str | None = None, seeds: Sequence[int] | None = None) -> Plan:
    """All runs of ``study`` at ``size`` (None: its first), with these seeds instead of the size's own.

    Raises ConfigError for a size that is not there and for the first combination whose settings are wrong.
    """
    if size is None:
        size = next(iter(study.sizes))
    if size not in study.sizes:
        raise ConfigError(f"study '{name}' has no size '{size}': {nearest(size, list(study.sizes))}")
    chosen = tuple(study.sizes[size].seeds if seeds is None else seeds)
    axes = {axis: study.values(axis, size) for axis in study.axes}
    variants = []
    twins: dict[str, Variant] = {}
    for combination in product(*axes.values()):
        values = dict(zip(axes, combination, strict=True))
        config = _config(study, size, values)
        configs = (config.model_copy(update={"seed": seed}) for seed in chosen)
        variant = Variant(values, tuple(StudyRun(run_name(each), each) for each in configs))
        twin = twins.setdefault(variant.runs[0].name, variant)
        if twin is not variant:
            raise ConfigError(
                f"'{variant}' and '{twin}' of study '{name}', size {size}, have the same settings: give their values "
                "settings that differ (those of the section run do not count)"
            )
        variants.append(variant)
    _check_environments(study, [variant.runs[0].config for variant in variants])
    return Plan(name, size, study, chosen, tuple(variants))


def _config(study: Study, size: str, values: Mapping[str, str]) -> Config:
    """The settings of one combination: the preset's, the study's, the size's, then those of each axis' value in turn."""
    chosen = study.sizes[size]
    layers = (study.settings, chosen.settings, *(study.values(axis, size)[value] for axis, value in values.items()))
    try:
        config = load_config(_filled(chosen.preset, values), *layers)
        found = find_environment(config.env)
        for other in config.eval.also:
            find_environment({"name": other})
        if config.eval.episodes == 0:
            raise ConfigError("eval.episodes is 0, but a study compares evaluations: set it to 1 or more")
    except ConfigError as error:
        told = ", ".join(f"{axis} {value}" for axis, value in values.items())
        raise ConfigError(f"size {size}, {told}: {error}") from None
    return config.model_copy(update={"env": dict(found.spec)})


def _check_environments(study: Study, configs: Sequence[Config]) -> None:
    """Every environment that an outcome asks for is one that some run of the study, at whatever size, is evaluated on."""
    played = {label(name) for config in configs for name in (str(config.env["name"]), *config.eval.also)}
    for settings in study.all_settings():
        played |= set(layered(settings).get("eval", {}).get("also", ()))
    for outcome in map(parse_outcome, study.outcomes):
        if outcome.env and outcome.env not in played:
            raise ConfigError(
                f"outcome '{outcome.name}': no run is evaluated on '{outcome.env}': "
                f"{nearest(outcome.env, sorted(played))} (eval.also adds environments)"
            )


def _filled(preset: str, values: Mapping[str, str]) -> str:
    """The preset's name with the axes' values in it."""
    try:
        parts = list(Formatter().parse(preset))
        wrong = "no conversion or format" if any(form or conversion for _, _, form, conversion in parts) else ""
    except ValueError as error:
        wrong = str(error)
    if wrong:
        raise ConfigError(
            f"preset is {preset!r}: {wrong}; {{AXIS}} stands for the value of an axis ({', '.join(values)}), "
            "{{ and }} for braces"
        )
    for _, field, _, _ in parts:
        if field is not None and field not in values:
            raise ConfigError(f"preset '{preset}': there is no axis '{field}': {nearest(field, list(values))}")
    return "".join(text + ("" if field is None else values[field]) for text, field, _, _ in parts)


def command(plan: Plan, action: str, root: Path = Path(ROOT), workers: int | None = None) -> str:
    """The words that run or report this plan: its size, its seeds where they are not the study's, where it lies, and on how
    many ``workers`` where that was asked for.
    """
    words = ["ragen", "study", action, plan.name, "--size", plan.size]
    if plan.seeds != plan.study.sizes[plan.size].seeds:
        words += ["--seeds", str(len(plan.seeds))]
    if root != Path(ROOT):
        words += ["--root", str(root)]
    if workers is not None:
        words += ["--workers", str(workers)]
    return shlex.join(words)


def run_name(config: Config) -> str:
    """The name of a run's directory, made from its settings: runs that train alike share it, whichever study they are of.

    The digest is of all settings that differ from the schema's defaults, so that a setting added later changes no name.
    The section ``run`` does not count: it says where things are kept and on how many threads; but for the checkpoints where
    the Echo-Trap detector returns to them.
    """
    values = config.model_dump(mode="json", exclude={PLACE}, exclude_defaults=True)
    if config.echo_trap.action == "rollback":
        values[PLACE] = config.run.model_dump(include=set(ROLLED_BACK))
    values["env"] = config.env
    digest = hashlib.blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=5).hexdigest()
    words = (label(str(config.env["name"])), paper_name(config).lower(), config.advantage.name, f"seed{config.seed}", digest)
    return re.sub(r"[^\w.-]", "_", "-".join(words))


def settings_of(plan: Plan) -> dict[str, Any]:
    """What the plan's runs set, by level, for a reader: preset, settings of all runs, and those of each axis' values."""
    size = plan.study.sizes[plan.size]
    return {
        "preset": size.preset,
        "settings": layered(plan.study.settings, size.settings),
        "axes": {axis: dict(plan.study.values(axis, plan.size)) for axis in plan.study.axes},
    }
