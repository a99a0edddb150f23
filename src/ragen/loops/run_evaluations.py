"""The evaluations of a training run: made where they are due and not stored yet, so that none is lost to an interruption."""

import time

from ragen.loops.compose import World
from ragen.loops.evaluate import evaluate_agent
from ragen.loops.result import stored_report
from ragen.loops.session import Session
from ragen.metrics.evaluation import EvalReport
from ragen.models.allocator import trim
from ragen.runs.interrupt import Interrupt, StepAbandoned
from ragen.runs.listener import Listener


def evaluate_all(s: Session, name: str, step: int, listener: Listener, interrupt: Interrupt) -> EvalReport | None:
    """Evaluate on the run's own environment and on ``eval.also`` what is not stored yet; returns the report of the first.

    None where none was made: ``eval.episodes`` is 0, or a stop was asked for.
    """
    if s.config.eval.episodes == 0 or interrupt():
        return None
    reports: list[EvalReport] = []
    try:
        with interrupt.abandonable("evaluation"):
            for world in (s.world, *s.others):
                label = name if world is s.world else f"{name}-{world.name}"
                reports.append(stored_report(s.run, label, step) or _evaluate(s, world, label, step, listener))
    except StepAbandoned:
        s.agent.sampler.release()
    return reports[0] if reports else None


def _evaluate(s: Session, world: World, name: str, step: int, listener: Listener) -> EvalReport:
    listener.on_phase(f"evaluate {name}", s.config.eval.episodes * s.config.eval.samples)
    started = time.perf_counter()
    report, _ = evaluate_agent(
        s.agent, world, s.config, label=s.run.path.name, progress=listener.on_progress, workers=s.workers
    )
    trim()
    s.run.write_eval(name, step, {"seconds": time.perf_counter() - started, **report.to_dict()})
    listener.on_eval(name, report)
    return report
