"""What a run's page says before any trajectory is opened: facts, evaluations, time, curves, events, stored steps."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ragen.config.schema import Config
from ragen.config.yaml_text import dump_yaml
from ragen.envs.locate import shown
from ragen.metrics.evaluation import EvalReport
from ragen.report.curves import columns
from ragen.report.drawing import drawing_of
from ragen.runs.directory import RunDirectory
from ragen.runs.evaluations import read_report
from ragen.runs.lock import writer
from ragen.runs.summary import ending, eval_points, groups_a_step, method_name, signals
from ragen.wording import at_temperature, counted

Fact = tuple[str, str]
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Event:
    """What happened at a step: a signal of the Echo-Trap detector ("warning", "spike", "collapse") or a rollback."""

    step: int
    kind: str
    about: str


@dataclass(frozen=True, slots=True)
class Score:
    """A success rate with its 95 % interval; ``who`` is the agent after so many steps, or a reference player beside it."""

    who: str
    success: float
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation. ``scores[0]`` is the agent's; ``own`` says that it is on the run's own environment."""

    name: str
    step: int
    env: str
    own: bool
    about: str
    method: str
    scores: tuple[Score, ...]
    total_return: float | None
    return_interval: tuple[float, float] | None
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class Overview:
    """A run, or a kept evaluation, as the page shows it. ``steps`` are those whose trajectories are stored, each with its
    file's version; an evaluation is one step, 0, in which nothing ``trains``. ``tokens``: whether ids are known at all.
    """

    name: str
    label: str
    running: bool
    status: str
    done: int
    planned: int
    facts: tuple[Fact, ...]
    settings: str
    notes: tuple[str, ...]
    evaluations: tuple[Evaluation, ...]
    times: tuple[tuple[str, float], ...]
    events: tuple[Event, ...]
    curve_steps: tuple[int, ...]
    curves: Mapping[str, Sequence[float | None]]
    steps: tuple[tuple[int, int], ...]
    groups_a_step: int | None
    drawing: Mapping[str, Any]
    trains: bool = True
    tokens: bool = True


def overview(run: RunDirectory) -> Overview:
    """Read it from the run directory, also of a run that goes on. Raises CheckpointError for damaged files."""
    rows, config = run.metrics(), run.config
    reports = run.evaluations()
    own = {point.name for point in eval_points(run)}
    evaluations = tuple(_stored_evaluation(name, report, run, own=name in own) for name, report in _by_time(reports))
    return Overview(
        name=run.path.resolve().name,
        label=f"{shown(str(config.env.get('name')))} · {method_name(config)} · {config.model.name} · seed {config.seed}",
        running=writer(run.path) is not None,
        status=ending(run, rows),
        done=int(rows[-1]["step"]) if rows else 0,
        planned=config.steps,
        facts=(*_setting_facts(config), *_origin_facts(run.starts())),
        settings=dump_yaml(config.model_dump(mode="json")),
        notes=tuple(dict.fromkeys(_notes(run, reports))),
        evaluations=evaluations,
        times=tuple(times(rows, reports)),
        events=tuple(sorted(_events(run, rows), key=lambda event: event.step)),
        curve_steps=tuple(int(row["step"]) for row in rows),
        curves=columns(rows),
        steps=tuple(_stored_steps(run)),
        groups_a_step=groups_a_step(config),
        drawing=drawing_told(config.env),
    )


def drawing_told(env: Mapping[str, Any]) -> dict[str, Any]:
    """What the page must know to draw the environment of a section ``env``."""
    drawing = drawing_of(env)
    return {"kind": drawing.kind, "facts": drawing.facts}


def _notes(run: RunDirectory, reports: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """What a reader must know: steps that the curves lack, and what the evaluations say."""
    if lost := run.lost_metrics():
        yield f"{lost}, so curves and times are without them"
    for _, report in _by_time(reports):
        yield from report.get("notes", ())


def _by_time(reports: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    return sorted(reports.items(), key=lambda item: (item[1]["step"], item[0].startswith("after"), item[0]))


def _stored_evaluation(name: str, stored: Mapping[str, Any], run: RunDirectory, *, own: bool) -> Evaluation:
    report = read_report(stored, f"eval/{name}.json of '{run.path}'", "remove it")
    return evaluation_told(name, report, step=int(stored["step"]), own=own)


def evaluation_told(name: str, report: EvalReport, *, step: int, own: bool) -> Evaluation:
    """A report as the page shows it."""
    n = f"n = {report.episodes}" + (f" × {report.samples}" if report.samples > 1 else "")
    players = [Score(who, score.success, _finite(score.interval)) for who, score in report.players.items()]
    ceiling = [Score("best possible", report.ceiling, None)] if report.ceiling is not None else []
    facts = [
        ("valid format", f"{report.valid_format:.3f}"),
        ("turns", f"{report.turns:.2f}"),
        ("tokens", f"{report.tokens:.1f}"),
    ]
    facts += [(f"pass@{report.samples}", f"{report.pass_at_k:.3f}")] if report.pass_at_k is not None else []
    facts += [("lost to errors", str(report.errors))] if report.errors else []
    return Evaluation(
        name=name,
        step=step,
        env=report.env,
        own=own,
        about=f"{n}, {at_temperature(report.temperature)}",
        method=report.method,
        scores=(Score("agent", report.success, _finite(report.success_interval)), *players, *ceiling),
        total_return=report.total_return if math.isfinite(report.total_return) else None,
        return_interval=_finite(report.return_interval),
        facts=tuple(facts),
    )


def _finite(interval: Sequence[float | None]) -> tuple[float, float] | None:
    low, high = interval
    return None if low is None or high is None or not math.isfinite(high - low) else (float(low), float(high))


def times(rows: Rows, reports: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, float]]:
    """Seconds of sampling, update and diagnostics summed over the steps recorded, and of the evaluations stored."""
    parts = (("sampling", "time/rollout_s"), ("update", "time/update_s"), ("diagnostics", "time/diagnostics_s"))
    for label, name in parts:
        if known := [row[name] for row in rows if row.get(name) is not None]:
            yield label, math.fsum(known)
    if told := [report["seconds"] for report in reports.values() if report.get("seconds") is not None]:
        yield "evaluation", math.fsum(told)


def _setting_facts(config: Config) -> Iterator[Fact]:
    env, rollout, optim, chosen = dict(config.env), config.rollout, config.optim, config.filter
    name = shown(str(env.pop("name", "")))
    changed = ", ".join(f"{key} {value}" for key, value in env.items())
    yield "task", f"{name} ({changed})" if changed else name
    lora = f", LoRA rank {config.model.lora.rank}" if config.model.lora.rank else ""
    yield "model", config.model.name + lora
    yield "method", method_name(config)
    groups, members = counted(rollout.groups, "group"), counted(rollout.members, "member")
    yield "batch", f"{groups} × {members} a step, {counted(config.steps, 'step')}"
    yield "filter", "none" if chosen.strategy == "none" else f"{chosen.strategy} {chosen.value:g} by {chosen.metric}"
    clip = f", clip {config.loss.clip_low:g} / {config.loss.clip_high:g}, KL {config.loss.kl_coef:g}"
    yield "loss", config.loss.name + clip
    yield (
        "learning rate",
        f"{optim.learning_rate:g}, {counted(optim.online_k, 'pass', 'passes')}, "
        f"{counted(optim.trajectories, 'trajectory', 'trajectories')} a mini-batch",
    )
    yield "sampling", f"T = {rollout.temperature:g}, at most {counted(rollout.max_new_tokens, 'token')} a turn"
    yield "warm-up", config.warmup.data
    yield "seed", str(config.seed)


def _origin_facts(starts: Sequence[Any]) -> Iterator[Fact]:
    """Machine and versions of the last start."""
    if not starts or not isinstance(starts[-1], dict):
        return
    last = starts[-1]
    if last.get("cpu"):
        memory = f", {last['memory_bytes'] / 1e9:.1f} GB" if isinstance(last.get("memory_bytes"), int) else ""
        cores = f", {counted(last['logical_cores'], 'logical core')}" if isinstance(last.get("logical_cores"), int) else ""
        yield "machine", f"{last['cpu']}{cores}{memory}"
    used = [str(last[key]) for key in ("device", "dtype") if last.get(key)]
    used += [counted(last["threads"], "thread")] if last.get("threads") else []
    if used:
        yield "computed on", ", ".join(used)
    versions = last.get("versions") or {}
    yield "versions", ", ".join([f"Python {last.get('python')}", *(f"{name} {number}" for name, number in versions.items())])
    if git := last.get("git"):
        yield "commit", f"{git.get('commit', '')[:12]}{' with changed files' if git.get('changed_files') else ''}"
    begun = f"{last.get('time')}" + (f" (start {len(starts)}, from step {last.get('step')})" if len(starts) > 1 else "")
    yield "started", begun


def _events(run: RunDirectory, rows: Rows) -> Iterator[Event]:
    seen = signals(run.config, rows)
    if seen.warning is not None:
        yield Event(seen.warning, "warning", f"Echo Trap, early warning from {', '.join(seen.fired)}")
    if seen.spike is not None:
        yield Event(seen.spike, "spike", "Echo Trap, spike of the gradient norm")
    if seen.collapsed is not None:
        yield Event(seen.collapsed, "collapse", "Echo Trap, collapse of the success rate")
    for number, (at, to) in enumerate(run.rollbacks(), start=1):
        yield Event(to, "rollback", f"rollback {number}, from step {at} to step {to}")


def _stored_steps(run: RunDirectory) -> Iterator[tuple[int, int]]:
    """Each with a number that changes where its file is written again (microseconds: exact as a JavaScript number)."""
    for step in run.trajectory_steps():
        with suppress(FileNotFoundError):  # a rollback has just taken it away
            yield step, run.trajectory_file(step).stat().st_mtime_ns // 1000
