"""What the page says of an evaluation that was kept: who played what, what came out, and its episodes as one step."""

from collections.abc import Iterator
from contextlib import suppress

from ragen.config.yaml_text import dump_yaml
from ragen.envs.locate import shown
from ragen.metrics.evaluation import EvalReport
from ragen.report.overview import Fact, Overview, drawing_told, evaluation_told
from ragen.runs.evaluations import EPISODES, EvaluationDirectory
from ragen.runs.lock import writer
from ragen.runs.tokens import has_ids
from ragen.wording import at_temperature, counted

STEP = 0  # the one step that the episodes of an evaluation are


def evaluation_overview(evaluation: EvaluationDirectory) -> Overview:
    """Read it from the directory, also of an evaluation that is not finished. Raises CheckpointError for damaged files."""
    config, report = evaluation.config, evaluation.report()
    done = len(evaluation.played())
    running = writer(evaluation.path) is not None
    told = () if report is None else (evaluation_told("evaluation", report, step=STEP, own=True),)
    return Overview(
        name=evaluation.path.resolve().name,
        label=f"{shown(str(config['env'].get('name')))} · evaluation of {evaluation.player}",
        running=running,
        status=_status(done, evaluation.planned, finished=report is not None, running=running),
        done=done,
        planned=evaluation.planned,
        facts=tuple(_facts(evaluation, report)),
        settings=dump_yaml(config),
        notes=() if report is None else report.notes,
        evaluations=told,
        times=(),
        events=(),
        curve_steps=(),
        curves={},
        steps=tuple(_step(evaluation)) if done else (),
        groups_a_step=None,
        drawing=drawing_told(config["env"]),
        trains=False,
        tokens=has_ids(evaluation),
    )


def _status(done: int, planned: int, *, finished: bool, running: bool) -> str:
    episodes = f"{done} of {counted(planned, 'episode')}"
    if running:
        return f"running ({episodes} so far)"
    return f"{episodes} played" if finished else f"not finished ({episodes}): repeat its command to go on"


def _facts(evaluation: EvaluationDirectory, report: EvalReport | None) -> Iterator[Fact]:
    config = evaluation.config
    asked, rollout = config["eval"], config["rollout"]
    yield "task", shown(str(config["env"].get("name")))
    yield "model", evaluation.player
    if "model" in config:
        yield "weights", f"{config['model']['weights']} ({config['model']['dtype']})"
    instances, samples = counted(asked["episodes"], "instance"), counted(asked["samples"], "sample")
    yield "instances", f"{instances} × {samples}, seed {asked['seed']}"
    budget = f"at most {counted(rollout['max_new_tokens'], 'token')} a turn"
    yield "sampling", f"{at_temperature(report.temperature if report else asked['temperature'])}, {budget}"
    for name, value in (report.endpoint if report else {}).items():
        if isinstance(value, int | float) and value:
            yield name.replace("_", " "), f"{value:,}"


def _step(evaluation: EvaluationDirectory) -> Iterator[tuple[int, int]]:
    """The one step, with a number that changes where its file is written again (microseconds)."""
    with suppress(FileNotFoundError):
        yield STEP, (evaluation.path / EPISODES).stat().st_mtime_ns // 1000
