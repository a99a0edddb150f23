"""Watching a run: what the Echo-Trap detector says at each step, and the return to an earlier checkpoint."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from ragen.config.schema import Config
from ragen.errors import CheckpointError, TrainingError
from ragen.loops.session import Session, after_rollbacks
from ragen.metrics.echo_trap import Signals, TrapSettings, flat_steps
from ragen.runs.checkpoints import verify
from ragen.runs.directory import RunDirectory
from ragen.runs.listener import Listener
from ragen.runs.summary import ECHO_TRAP, signals
from ragen.wording import counted

SHOWN = (("success", "rollout/success"), ("valid format", "rollout/valid_format"))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was seen at a step, and what follows: ``stop`` says why the run ends, ``back_to`` is the step to return to."""

    metrics: Mapping[str, float]
    messages: tuple[str, ...] = ()
    stop: str = ""
    back_to: int | None = None


class Guard:
    """Looks at the metrics of every step, beginning with those that a resumed run has on disk."""

    def __init__(self, session: Session) -> None:
        self._run, self._rollbacks = session.run, session.carried.rollbacks
        self._trap = session.config.echo_trap
        self._rows: list[Mapping[str, Any]] = list(session.run.metrics())
        self.signals = self._detect()

    def look(self, step: int, metrics: Mapping[str, float]) -> Verdict:
        """Judge the run with the metrics of ``step`` added. A signal is acted on only at the step that first gives it."""
        self._rows.append({"step": step, **metrics})
        self.signals = self._detect()
        action = self._trap.action
        if action == "off":
            return Verdict({})
        found = self.signals.metrics() | ({"trap/rollbacks": float(self._rollbacks)} if action == "rollback" else {})
        messages = tuple(_messages(self.signals, step, metrics))
        if self.flat == self._trap.window:
            messages += (flat_message(self._trap.window, metrics),)
        if action == "warn" or step not in (self.signals.warning, self.signals.collapsed):
            return Verdict(found, messages)
        why = f"{ECHO_TRAP} at step {step}"
        if action == "rollback" and self._rollbacks >= self._trap.max_rollbacks:
            why += f", after {counted(self._rollbacks, 'rollback')}"
        elif action == "rollback":
            target = self._target(step - 2 * self._trap.window)
            if target is not None:
                return Verdict(found, messages, back_to=target)
            why += ", and no sound checkpoint is from before it"
        return Verdict(found, messages, stop=why)

    @property
    def flat(self) -> int:
        """The last steps in a row that taught hardly anything (``flat_steps``); 0 where the detector is off."""
        return 0 if self._trap.action == "off" else flat_steps(self._rows, TrapSettings(solved=self._trap.solved))

    def _target(self, latest: int) -> int | None:
        """The newest sound checkpoint from before all the windows that gave the signal."""
        for step in reversed([step for step in self._run.checkpoints.regular_steps() if step <= latest]):
            with suppress(CheckpointError):
                return verify(self._run.checkpoints.path(step))
        return None

    def _detect(self) -> Signals:
        return signals(self._run.config, self._rows)


def _messages(signals: Signals, step: int, metrics: Mapping[str, float]) -> Iterator[str]:
    """A line for each signal first given at this step."""
    success = f"success {metrics['rollout/success']:.3f}" if "rollout/success" in metrics else "no success known"
    if signals.warning == step:
        yield f"Echo Trap, early warning at step {step} from {', '.join(signals.fired)} ({success}); docs/collapse.md"
    if signals.spike == step:
        yield f"Echo Trap, spike at step {step}: gradient norm {metrics['update/grad_norm']:.3g}; docs/collapse.md"
    if signals.collapsed == step:
        yield f"Echo Trap, collapse at step {step}: {success}; docs/collapse.md"


def flat_message(steps: int, metrics: Mapping[str, float]) -> str:
    """What is said of ``steps`` steps in a row without any group whose returns differed."""
    told = [f"{name} {metrics[key]:.3f}" for name, key in SHOWN if math.isfinite(metrics.get(key, math.nan))]
    return (
        f"in none of the last {counted(steps, 'step')} did the returns of any group differ ({', '.join(told)}): "
        "there is hardly anything to learn from; docs/collapse.md"
    )


def announced(config: Config, kept: Sequence[int], start: int) -> Iterator[str]:
    """What a run must know that acts on warnings from step ``start`` on: whether one can come, and where it would return to.

    ``kept`` are the steps of the checkpoints there are to return to.
    """
    trap, run = config.echo_trap, config.run
    back = 2 * trap.window
    if trap.action in ("stop", "rollback") and config.steps < back + 2:
        yield f"Echo Trap: no warning can come before step {back + 2} (2 · echo_trap.window + 2), where this run has ended"
    elif trap.action == "rollback":
        first = min(kept, default=None)
        later = [step for step in kept if step != first]
        then = back + min(later, default=(start // run.checkpoint_every + 1) * run.checkpoint_every)
        when = "every warning" if then > config.steps else f"a warning before step {then}"
        does = "stops the run" if first is None else f"returns to step {first}"
        closer = math.ceil((back - 1) / (run.keep - 1))
        remedy = f"; run.checkpoint_every {closer} would keep closer ones" if closer < run.checkpoint_every else ""
        yield (
            f"Echo Trap: a rollback goes to the newest checkpoint at least {counted(back, 'step')} before the warning, one "
            f"is made every {counted(run.checkpoint_every, 'step')}: {when} {does}{remedy}"
        )


def roll_back(s: Session, target: int, signals: Signals, listener: Listener) -> Session:
    """The session as it was after ``target`` steps, with changed settings; what is given up is kept in ``rollbacks/``."""
    number = s.carried.rollbacks + 1
    abandoned = [row for row in s.run.metrics() if row["step"] > target]
    config = after_rollbacks(s.run.config, number)
    rate = config.optim.learning_rate
    changed = {} if config.echo_trap.filter_value is None else {"filter_value": config.filter.value}
    at = abandoned[-1]["step"]
    fired = (signals.fired if signals.warning == at else ()) + (("collapse",) if signals.collapsed == at else ())
    event = {"rollback": number, "at_step": at, "to_step": target, "fired": fired}
    s.run.write_rollback(number, event | {"learning_rate": rate} | changed, abandoned)
    filtered = "".join(f", filter.value {x:g}" for x in changed.values())
    listener.on_message(f"rollback {number}: back to step {target}, learning rate {rate:g}{filtered}")
    listener.on_phase("train", s.config.steps - target)
    return s.returned_to(target, number)


@contextmanager
def naming_the_checkpoint(run: RunDirectory, step: int) -> Iterator[None]:
    """Add to a TrainingError of training step ``step`` from where to begin again."""
    try:
        yield
    except TrainingError as error:
        try:
            path = run.checkpoints.latest()
        except CheckpointError:
            where = "No checkpoint has been written yet: start a new run (run.checkpoint_every sets how often one is)"
        else:
            where = (
                f"A resumed run keeps its settings: start a new one from the last good checkpoint, of step "
                f"{run.checkpoints.step_of(path)}, with --model.name {path} --warmup.data none"
            )
        raise TrainingError(f"training step {step}: {error}. {where}") from error
