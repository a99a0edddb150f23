"""StarPO and StarPO-S: collect whole trajectories, keep the uncertain groups, give credit, update (arXiv 2504.20073).

One step is in ``loops/step.py``. What the loop needs is put together in ``loops/opening.py``.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ragen.config.schema import Config
from ragen.envs import Environment
from ragen.errors import RagenError
from ragen.loops.carried import Carried
from ragen.loops.curriculum import stages_without_end
from ragen.loops.guard import Guard, announced, naming_the_checkpoint, roll_back
from ragen.loops.opening import open_session
from ragen.loops.plan import plan_session, with_environment
from ragen.loops.result import TrainResult, evaluated, finished, stored_report
from ragen.loops.run_evaluations import evaluate_all
from ragen.loops.session import Session
from ragen.loops.step import train_step
from ragen.rollout.runner import EnvironmentFactory
from ragen.runs.directory import RunDirectory, claimed_place
from ragen.runs.interrupt import INTERRUPTED, Interrupt, StepAbandoned
from ragen.runs.listener import Listener, Silent
from ragen.runs.resume import left_behind, resumed, taken_up
from ragen.runs.summary import DONE, FAILED
from ragen.wording import counted


def train(
    config: Config,
    *,
    env: type[Environment] | EnvironmentFactory | None = None,
    listener: Listener | None = None,
    resume: Path | None = None,
    label: str | None = None,
) -> TrainResult:
    """Run training, or go on with the run directory ``resume``; ``label`` begins the name of a run that has none.

    The steps of a resumed run equal those of an unbroken one bit for bit, on the CPU with the same number of threads.
    Evaluations that were due and are missing are made up. Ctrl-C finishes the step (a second one abandons it), saves, and
    says how to go on.
    """
    listener = listener or Silent()
    config = with_environment(config, env)
    if resume is None:
        with claimed_place(config, label) as place, _telling(place, listener):
            return _run(open_session(plan_session(config, env=env), place, listener), listener)
    with resumed(resume, config) as point, _telling(point.run.path, listener):
        done = finished(point)
        if done is None:
            listener.on_message(taken_up(point))
            plan = plan_session(point.run.config, env=env, resumed=True)
            return _run(open_session(plan, point.run.path, listener, point), listener)
        listener.on_end(done)
        return done


@contextmanager
def _telling(place: Path, listener: Listener) -> Iterator[None]:
    """Where Ctrl-C gives a run up (in the warm-up, or for the third time), say what is left of it."""
    try:
        yield
    except KeyboardInterrupt as stop:
        if not stop.args:  # else it tells itself what is left
            listener.on_message(left_behind(place))
        raise


def _run(session: Session, listener: Listener) -> TrainResult:
    with Interrupt(listener.on_message) as interrupt:
        try:
            with _ending(session.run):
                result = _steps(session, listener, interrupt)
                session.run.write_end(result.stopped)
        finally:
            session.workers.close()
            session.run.close()
    listener.on_end(result)
    return result


@contextmanager
def _ending(run: RunDirectory) -> Iterator[None]:
    """Store in the run directory that it failed, and why, or was given up. An error of the disk must not hide the cause."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        with suppress(RagenError):
            run.write_end(INTERRUPTED if isinstance(error, KeyboardInterrupt) else f"{FAILED}: {error}")
        raise


def _steps(session: Session, listener: Listener, interrupt: Interrupt) -> TrainResult:
    config, run, done = session.config, session.run, session.start
    before = evaluate_all(session, "before", 0, listener, interrupt) if done == 0 else stored_report(run, "before", 0)
    if _evaluation_due(config, done):
        evaluate_all(session, f"step-{done}", done, listener, interrupt)
    history: dict[int, Mapping[str, float]] = {}
    guard, carried, reason = Guard(session), session.carried, ""
    if done < config.steps:
        for message in (*stages_without_end(config), *announced(config, run.checkpoints.regular_steps(), done)):
            listener.on_message(message)
        listener.on_phase("train", config.steps - done)
    while done < config.steps and not interrupt():
        try:
            with naming_the_checkpoint(run, done + 1):
                step = train_step(session, done, carried, interrupt)
        except StepAbandoned:
            break
        done += 1
        verdict = guard.look(done, step.metrics)
        carried, history[done] = step.carried, {**step.metrics, **verdict.metrics}
        record(session, done, history[done], (*step.messages, *verdict.messages), listener)
        if verdict.back_to is not None:
            session = roll_back(session, verdict.back_to, guard.signals, listener)
            done, carried, guard = session.start, session.carried, Guard(session)
            history = {made: metrics for made, metrics in history.items() if made <= done}
            continue
        if reason := verdict.stop or flat_reason(config, carried):
            break
        if done < config.steps and config.run.checkpoint_every and done % config.run.checkpoint_every == 0:
            session.checkpoint(done, carried)
        if _evaluation_due(config, done):
            evaluate_all(session, f"step-{done}", done, listener, interrupt)
            listener.on_phase("train", config.steps - done)
    if done not in run.checkpoints.steps():
        session.checkpoint(done, carried)
    after = evaluate_all(session, "after", done, listener, interrupt) if config.steps else before
    if interrupt() and (done < config.steps or not evaluated(run, done)):
        reason = INTERRUPTED
    reason = reason or DONE
    made = tuple(history.values())
    return TrainResult(run.path, done, config.steps, reason, before, after, made, guard.signals, run.rollbacks(), guard.flat)


def record(s: Session, step: int, metrics: Mapping[str, float], messages: Sequence[str], listener: Listener) -> None:
    """Store and show what a step came to."""
    s.run.append_metrics(step, metrics)
    listener.on_step(step, metrics)
    for message in messages:
        listener.on_message(message)


def flat_reason(config: Config, carried: Carried) -> str:
    """Why a run ends whose groups were all flat for too long; "" for one that goes on."""
    if carried.flat_in_row < config.filter.max_flat_steps:
        return ""
    return f"stopped: every group was flat {counted(carried.flat_in_row, 'step')} in a row, nothing is left to learn from"


def _evaluation_due(config: Config, done: int) -> bool:
    return config.eval.every > 0 and 0 < done < config.steps and done % config.eval.every == 0
