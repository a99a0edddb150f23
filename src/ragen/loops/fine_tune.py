"""The warm-up's optimiser steps. What an interruption leaves of them is kept, and gone on from bit for bit."""

import math
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ragen.config.schema import Config
from ragen.episode import Segment
from ragen.errors import CheckpointError
from ragen.learn.batch import Batch, collate_segments
from ragen.learn.checkpoint import load_state, save_state
from ragen.learn.optimizer import Optimizer
from ragen.learn.policy import Policy
from ragen.learn.supervised import supervised_step
from ragen.loops.compose import Agent
from ragen.models.load import save_model
from ragen.runs.checkpoints import Checkpoints
from ragen.runs.interrupt import Interrupt
from ragen.runs.listener import Listener
from ragen.seeding import derive, generator
from ragen.wording import counted

SAVE_EVERY_S = 600.0  # seconds of work, which a kill loses at most beside the batch at hand


def fine_tune(
    config: Config, agent: Agent, rows: Sequence[Segment], folder: Path, unfinished: Path, listener: Listener
) -> None:
    """Train the agent's model on ``rows`` and write it into ``folder``.

    Ctrl-C finishes the batch, keeps what was done in the directory ``unfinished`` and raises KeyboardInterrupt; with the
    same rows and settings the batches after it equal those of an unbroken warm-up. ``unfinished`` is removed at the end.
    """
    settings, pad_id = config.warmup, agent.tokenizer.pad_token_id
    policy = Policy(agent.model, dtype=agent.dtype, pad_id=pad_id)
    optimizer = Optimizer(policy, learning_rate=settings.learning_rate, betas=config.optim.betas, warmup_steps=2)
    total = settings.epochs * math.ceil(len(rows) / settings.batch)
    kept = Checkpoints(unfinished, keep=1)
    done = _restore(kept, policy, optimizer)
    if done:
        said = f"{done} of {counted(total, 'batch', 'batches')}"
        listener.on_message(f"warm-up: goes on after {said}, kept when it was interrupted")
    listener.on_phase("warm-up", total - done)
    losses: list[float] = []
    saved = time.monotonic()
    with Interrupt(listener.on_message, "batch of the warm-up") as interrupt:
        for batch in _batches(config, rows, pad_id, done):
            loss = supervised_step(policy, optimizer, batch, microbatch_tokens=config.optim.microbatch_tokens)
            losses += [] if loss is None else [loss]
            done += 1
            listener.on_progress(1)
            if interrupt() or time.monotonic() - saved >= SAVE_EVERY_S:
                kept.save(done, lambda place: save_state(place, policy, optimizer, agent.tokenizer, {}))
                saved = time.monotonic()
            if interrupt():
                said = f"{done} of {counted(total, 'batch', 'batches')} of the warm-up"
                raise KeyboardInterrupt(f"{said} are done and kept; the same command goes on from there")
    if losses:
        listener.on_message(
            f"warm-up: loss {losses[0]:.3f} → {np.mean(losses[-3:]):.3f} nats a token, {counted(optimizer.steps, 'step')}"
        )
    save_model(agent.model, agent.tokenizer, folder)
    shutil.rmtree(unfinished, ignore_errors=True)


def _batches(config: Config, rows: Sequence[Segment], pad_id: int, done: int) -> Iterator[Batch]:
    """The batches of all epochs after the first ``done``, in the order that the seed gives."""
    settings = config.warmup
    skipped, done = divmod(done, math.ceil(len(rows) / settings.batch))
    for epoch in range(skipped, settings.epochs):
        order = generator(derive(config.seed, "warmup", "order", epoch)).permutation(len(rows))
        for first in range(done * settings.batch, len(order), settings.batch):
            yield collate_segments([rows[i] for i in order[first : first + settings.batch]], pad_id)
        done = 0


def _restore(kept: Checkpoints, policy: Policy, optimizer: Optimizer) -> int:
    """The batches done by an interrupted warm-up, whose state is put back; 0 where there is no whole one."""
    try:
        latest = kept.latest()
    except CheckpointError:
        return 0
    load_state(latest, policy, optimizer)
    return kept.step_of(latest)
