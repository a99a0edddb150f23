"""What sampling and updating cost on this machine, beside what its matrix products would allow."""

import random
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ragen.algos.credit import Credit
from ragen.envs import Environment
from ragen.episode import Segment
from ragen.errors import ConfigError
from ragen.learn.batch import Batch, collate_segments
from ragen.learn.loss_settings import LossSettings
from ragen.learn.optimizer import Optimizer
from ragen.learn.policy import Policy
from ragen.learn.update import update
from ragen.models.allocator import trim
from ragen.models.load import load_model, load_tokenizer, read_config
from ragen.samplers.base import Request, SamplingParams
from ragen.samplers.hf import HFSampler

SQUARE = 1024
ENV_STEPS = 5_000

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Seconds of one training step: of sampling each turn (the first pays for the weights' copies), and of the update.

    ``sampled`` tokens were drawn in all; ``processed`` entered the update, shared prefixes once.
    """

    sampling: tuple[float, ...]
    update: float
    sampled: int
    processed: int

    @property
    def total(self) -> float:
        """Seconds of the whole step."""
        return sum(self.sampling) + self.update


class StepBench:
    """A model that takes training steps on made-up conversations: its own sampler and learner, no environment.

    Replies have exactly as many tokens as asked, so steps of one shape do the same work. Credit is group-relative: by
    ``score`` of a reply's text, or random.
    """

    def __init__(self, path: Path, *, device: torch.device, dtype: torch.dtype, microbatch_tokens: int = 1024) -> None:
        model = load_model(path, device=device)
        self._tokens = load_tokenizer(path)
        self._sampler = HFSampler(model, self._tokens, end_ids=frozenset(), dtype=dtype)
        self._policy = Policy(model, dtype=dtype, pad_id=0)
        self._optimizer = Optimizer(self._policy, learning_rate=1e-6)
        self._budget = microbatch_tokens
        self._steps = 0
        head: int = model.get_output_embeddings().weight.numel()
        unique: int = sum(parameter.numel() for parameter in model.parameters())
        tied = model.get_input_embeddings().weight is model.get_output_embeddings().weight
        self.head_weights, self.body_weights = head, unique - head * (1 if tied else 2)
        self.vocabulary = int(model.get_input_embeddings().weight.shape[0])

    def prompts(self, groups: int, length: int) -> list[Ids]:
        """Random ids, another prompt a group."""
        drawn = np.random.default_rng(0).integers(10, self.vocabulary, size=(groups, length))
        return [tuple(row) for row in drawn.tolist()]

    def step(
        self,
        prompts: Sequence[Ids],
        members: int,
        new: int,
        *,
        turns: int = 1,
        between: int = 40,
        score: Callable[[str], float] | None = None,
    ) -> StepTimes:
        """Sample ``members`` conversations a prompt, ``turns`` replies of ``new`` tokens each with ``between`` given tokens
        before every one but the first, and make one optimiser step over all of them.
        """
        rng = np.random.default_rng(self._steps)
        start = [prompt for prompt in prompts for _ in range(members)]
        rows, masks = list(start), [np.zeros(len(prompt), bool) for prompt in start]
        texts = [""] * len(rows)
        sampling = []
        for turn in range(turns):
            if turn:
                given = tuple(rng.integers(10, self.vocabulary, size=between).tolist())
                rows = [row + given for row in rows]
                masks = [np.append(mask, np.zeros(between, bool)) for mask in masks]
            begun = time.perf_counter()
            seed = (self._steps * turns + turn) * len(rows)
            requests = [Request(i, row, seed + i, new) for i, row in enumerate(rows)]
            replies = self._sampler.generate(requests, SamplingParams())
            sampling.append(time.perf_counter() - begun)
            rows = [row + reply.token_ids for row, reply in zip(rows, replies, strict=True)]
            masks = [np.append(mask, np.ones(len(r.token_ids), bool)) for mask, r in zip(masks, replies, strict=True)]
            texts = [text + reply.text for text, reply in zip(texts, replies, strict=True)]
        begun = time.perf_counter()
        self._sampler.release()
        batch = collate_segments([_segment(row, mask) for row, mask in zip(rows, masks, strict=True)], pad_id=0)
        rewards = [float(rng.normal()) for _ in texts] if score is None else [score(text) for text in texts]
        processed = self._update(batch, _group_relative(rewards, members))
        return StepTimes(tuple(sampling), time.perf_counter() - begun, sum(int(m.sum()) for m in masks), processed)

    def _update(self, batch: Batch, advantages: Tensor) -> int:
        credit = Credit(torch.where(batch.mask, advantages[:, None], 0.0), None)
        rows = list(range(len(batch.lengths)))
        micros = self._policy.plan(batch, rows, self._budget)
        update(
            self._policy,
            self._optimizer,
            batch,
            credit,
            loss=LossSettings(),
            trajectories=len(rows),
            microbatch_tokens=self._budget,
            seed=self._steps,
        )
        self._steps += 1
        self._sampler.load({}, version=self._steps)
        trim()
        return sum(len(micro.real) for micro in micros)

    def sampling_operations(self, sampled: int, prompts: int) -> float:
        """Operations of the products: two a weight and token; ``prompts`` tokens need no logits. Attention not counted."""
        return 2.0 * (self.body_weights * (sampled + prompts) + self.head_weights * sampled)

    def update_operations(self, sampled: int, processed: int) -> float:
        """Operations of the products, forward and backward: six a weight and token, logits of sampled tokens only."""
        return 6.0 * (self.body_weights * processed + self.head_weights * sampled)


def check_length(path: Path, tokens: int) -> None:
    """Raise ConfigError where a conversation of so many tokens is longer than the model's context."""
    context: int | None = getattr(read_config(path).get_text_config(), "max_position_embeddings", None)
    if context is not None and tokens > context:
        raise ConfigError(
            f"a conversation of {tokens} tokens does not fit into the model's context of {context}: "
            "ask for a shorter prompt, fewer new tokens or fewer turns"
        )


def product_rate(dtype: torch.dtype, device: torch.device) -> float:
    """Operations a second of a 1,024³ matrix product, median of 30."""
    x = torch.ones(SQUARE, SQUARE, dtype=dtype, device=device)

    def seconds() -> float:
        begun = time.perf_counter()
        torch.mm(x, x)
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
        return time.perf_counter() - begun

    return 2 * SQUARE**3 / median([seconds() for _ in range(30)])


def environment_step(env: Environment, steps: int = ENV_STEPS) -> float:
    """Mean seconds of a random step, resets not counted."""
    draw, spent = random.Random(0), 0.0
    env.reset(instance_seed=0, dynamics_seed=0)
    for number in range(steps):
        word = draw.choice(env.actions())
        begun = time.perf_counter()
        step = env.step(word)
        spent += time.perf_counter() - begun
        if step.terminated or step.truncated:
            env.reset(instance_seed=number % 50, dynamics_seed=number)
    return spent / steps


def peak_memory() -> int:
    """The largest resident memory of this process so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _segment(row: Ids, mask: NDArray[np.bool_]) -> Segment:
    zeros = np.zeros(len(row))
    return Segment(np.asarray(row), mask, zeros.astype(np.float32), np.where(mask, 0, -1).astype(np.int32), zeros)


def _group_relative(rewards: Sequence[float], members: int) -> Tensor:
    table = torch.tensor(rewards).view(-1, members)
    spread = table.std(1, keepdim=True, correction=0)
    return ((table - table.mean(1, keepdim=True)) / (spread + 1e-4)).flatten()
