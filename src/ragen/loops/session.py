"""What a training run is made of: put together from its config once, before the first step."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from ragen.algos.advantages import AdvantageEstimator, running_mean
from ragen.algos.credit import Credit
from ragen.algos.kl import kl_estimate
from ragen.config.schema import Config
from ragen.envs.workers import Workers
from ragen.learn.batch import Batch
from ragen.learn.checkpoint import load_state, save_state
from ragen.learn.imitation import Imitation
from ragen.learn.loss_settings import LossSettings
from ragen.learn.optimizer import Optimizer
from ragen.learn.policy import Policy
from ragen.learn.preferences import Preferences
from ragen.learn.reference import Reference
from ragen.learn.stats import UpdateStats
from ragen.learn.update import update
from ragen.loops.carried import Carried, read_carried
from ragen.loops.compose import Agent, World
from ragen.loops.demonstrations import mixed_in
from ragen.rollout.runner import Rules
from ragen.runs.directory import RunDirectory
from ragen.runs.resume import write_settings
from ragen.seeding import derive


@dataclass(frozen=True, slots=True)
class Session:
    """The parts of a run. ``held_out`` are content keys of evaluation instances; ``others`` further evaluation worlds;
    ``stages`` the worlds of a curriculum, before the run's own.

    ``config`` is the run's, changed by its rollbacks; ``start`` is the number of steps already done, ``carried`` what the
    last of them handed on.
    """

    config: Config
    run: RunDirectory
    world: World
    stages: tuple[World, ...]
    others: tuple[World, ...]
    agent: Agent
    policy: Policy
    optimizer: Optimizer
    reference: Reference | None
    estimator: AdvantageEstimator
    rules: Rules
    workers: Workers
    held_out: frozenset[str]
    start: int
    carried: Carried

    def credit(self, batch: Batch, reference: Tensor | None, carried: Carried) -> tuple[Credit, Carried]:
        """Advantages and value targets of a batch, and what the next step needs; takes a KL term off the reward."""
        config = self.config
        budget = config.optim.microbatch_tokens
        rewards = batch.rewards
        if reference is not None and config.loss.kl_in == "reward":
            own = self.policy.logprobs(batch, budget)
            rewards = rewards - config.loss.kl_coef * kl_estimate(own, reference, config.loss.kl_estimator, batch.mask)
        arrays = {
            "rewards": rewards,
            "mask": batch.mask,
            "turn_ids": batch.turn_ids,
            "trajectory": batch.trajectory,
            "group": batch.group,
            "truncated": batch.truncated,
            "anchors": batch.anchors,
            "baseline": torch.tensor(carried.mean_return, dtype=torch.float64),
        }
        if "values" in self.estimator.needs:
            arrays["values"] = self.policy.values(batch, budget)
        credit = self.estimator(arrays, config.advantage.model_dump())
        if "baseline" in self.estimator.needs:
            before = carried.return_sum, carried.return_weight
            decay = config.advantage.baseline_decay
            total, weight = running_mean(*before, rewards, batch.mask, batch.trajectory, decay=decay)
            carried = replace(carried, return_sum=total, return_weight=weight)
        return credit, carried

    def reference_logprobs(self, batch: Batch) -> Tensor | None:
        """The reference's log-probabilities (R, T), where there is a reference."""
        return None if self.reference is None else self.reference.logprobs(batch, self.config.optim.microbatch_tokens)

    def imitation(self, step: int) -> Imitation | None:
        """The demonstrations that the update of this training step mixes in, if any."""
        if step < self.config.optim.critic_warmup_steps:
            return None
        return mixed_in(self.config, self.world, self.held_out, self.agent, self.rules, step)

    def update(
        self,
        batch: Batch,
        credit: Credit,
        reference: Tensor | None,
        weights: Tensor,
        imitation: Imitation | None,
        recorded: Tensor | None,
        step: int,
    ) -> UpdateStats:
        """The update of training step ``step`` (from 0).

        ``weights`` (M,) are those of the trajectories; ``recorded`` (R,) marks the rows of older policies.
        """
        optim = self.config.optim
        return update(
            self.policy,
            self.optimizer,
            batch,
            credit,
            loss=loss_settings(self.config),
            trajectories=optim.trajectories,
            microbatch_tokens=optim.microbatch_tokens,
            seed=derive(self.config.seed, "train", "update", step),
            online_k=optim.online_k,
            trajectory_weights=weights,
            reference=reference,
            imitation=imitation,
            recorded=recorded,
            critic_only=step < optim.critic_warmup_steps,
        )

    def checkpoint(self, step: int, carried: Carried) -> Path:
        """Commit the state after ``step`` steps."""
        extra = {"step": step, "carried": carried.record()}

        def write(folder: Path) -> None:
            save_state(folder, self.policy, self.optimizer, self.agent.tokenizer, extra)
            carried.write_replay(folder)
            write_settings(folder, self.run.config)

        return self.run.checkpoints.save(step, write)

    def returned_to(self, step: int, rollbacks: int) -> "Session":
        """The session after ``step`` steps, with the settings that so many rollbacks leave; what came later is removed.

        A kill at any moment leaves a checkpoint to go on from: a later one, from which the run comes to the same rollback
        again, or this one, which then knows of it.
        """
        config = after_rollbacks(self.run.config, rollbacks)
        optimizer = build_optimizer(self.policy, config)
        checkpoint = self.run.checkpoints.path(step)
        carried = replace(read_carried(checkpoint, step), rollbacks=rollbacks)
        load_state(checkpoint, self.policy, optimizer)
        session = replace(self, config=config, optimizer=optimizer, start=step, carried=carried)
        self.run.checkpoints.drop_after(step)
        session.checkpoint(step, carried)
        self.run.cut_after(step)
        self.agent.sampler.load(self.policy.model.state_dict(), version=step)
        return session


def after_rollbacks(config: Config, rollbacks: int) -> Config:
    """The settings of a run that has been rolled back so often: lower learning rates, another ``filter.value``."""
    if not rollbacks:
        return config
    trap, optim = config.echo_trap, config.optim
    factor = trap.learning_rate_factor**rollbacks
    rates = {
        "learning_rate": optim.learning_rate * factor,
        "critic_learning_rate": optim.critic_learning_rate * factor,
    }
    value = config.filter.value if trap.filter_value is None else trap.filter_value
    return config.model_copy(
        update={
            "optim": optim.model_copy(update=rates),
            "filter": config.filter.model_copy(update={"value": value}),
        }
    )


def build_optimizer(policy: Policy, config: Config) -> Optimizer:
    """The optimiser of these settings."""
    optim = config.optim
    return Optimizer(
        policy,
        learning_rate=optim.learning_rate,
        critic_learning_rate=optim.critic_learning_rate,
        betas=optim.betas,
        weight_decay=optim.weight_decay,
        warmup_steps=optim.warmup_steps,
        grad_clip=optim.grad_clip,
    )


def loss_settings(config: Config) -> LossSettings:
    """The loss part of the config as the update takes it (a KL term in the reward is none in the loss)."""
    loss = config.loss
    as_loss = loss.kl_in == "loss"
    estimator: Literal["k2", "k3"] = "k2" if loss.kl_estimator == "k2" else "k3"
    return LossSettings(
        name=loss.name,
        own=loss.model_dump(),
        aggregation=loss.aggregation,
        length_constant=loss.length_constant,
        ratio_unit=loss.ratio_unit,
        tis_cap=loss.tis_cap,
        preferences=Preferences(loss.pairing, loss.pair_margin, loss.return_threshold),
        entropy_coef=loss.entropy_coef,
        kl_coef=loss.kl_coef if as_loss else 0.0,
        kl_estimator=estimator,
        value_coef=loss.value_coef,
        value_clip=loss.value_clip,
    )
