"""What a training run is made of: put together from its config once, before the first step."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from ragen.algos.advantages import AdvantageEstimator, advantages, running_mean
from ragen.algos.credit import Credit
from ragen.algos.kl import kl_estimate
from ragen.config.schema import Config
from ragen.envs import Environment
from ragen.errors import CheckpointError, ConfigError
from ragen.learn.batch import Batch
from ragen.learn.checkpoint import load_state, save_state
from ragen.learn.imitation import Imitation
from ragen.learn.lora import Lora, require_peft
from ragen.learn.loss_settings import LossSettings
from ragen.learn.optimizer import Optimizer
from ragen.learn.policy import CriticKind, Policy
from ragen.learn.preferences import Preferences
from ragen.learn.reference import Reference
from ragen.learn.stats import UpdateStats
from ragen.learn.update import update
from ragen.loops.carried import Carried, read_carried
from ragen.loops.compose import Agent, World, build_agent, build_rules, build_shaping, build_world
from ragen.loops.demonstrations import check_oracle, mixed_in, mixed_specs
from ragen.loops.loss_checks import check_loss, needs_reference
from ragen.loops.requirements import check_rule
from ragen.loops.warmup import starting_model
from ragen.models.device import choose_device, choose_dtype
from ragen.models.load import load_model
from ragen.models.memory import Activations, check_memory, memory_estimate, model_size
from ragen.models.resolve import resolve_model
from ragen.rollout.instances import contents, evaluation_specs, training_specs
from ragen.rollout.pool import visited
from ragen.rollout.runner import EnvironmentFactory, Rules
from ragen.rollout.shaping import Shaping
from ragen.runs.directory import RunDirectory
from ragen.runs.listener import Listener
from ragen.runs.resume import ResumePoint, write_settings
from ragen.seeding import derive

LORA_WIDTH = 30  # in + out widths of a layer's linear maps, in hidden sizes: about what a Llama-type layer has


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
        optimizer = _optimizer(self.policy, config)
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


@dataclass(frozen=True, slots=True)
class Plan:
    """What can be known of a run, and refused, before a model is loaded."""

    config: Config
    world: World
    stages: tuple[World, ...]
    others: tuple[World, ...]
    estimator: AdvantageEstimator
    shaping: Shaping
    held_out: frozenset[str]


def with_environment(config: Config, env: type[Environment] | EnvironmentFactory | None) -> Config:
    """The settings with the environment in full: where its class lies, and the settings it was given."""
    return config.model_copy(update={"env": dict(build_world(config.env, env).spec)})


def plan_session(config: Config, *, env: type[Environment] | EnvironmentFactory | None) -> Plan:
    """Check everything that can be checked without a model."""
    if config.run.threads:
        torch.set_num_threads(config.run.threads)
    choose_device(config.model.device)
    if config.model.lora.rank:
        require_peft()
    world = build_world(config.env, env)
    stages = tuple(stage_world(config, number, env) for number in range(len(config.curriculum.stages)))
    others = tuple(build_world({"name": name}) for name in config.eval.also)
    estimator = advantages.get(config.advantage.name)
    check_loss(config)
    check_oracle(config, world)
    check_rule(config, estimator, world.make)
    shaping = build_shaping(config.reward, world)
    return Plan(config, world, stages, others, estimator, shaping, held_out_contents(config, (world, *others)))


def stage_world(config: Config, number: int, env: type[Environment] | EnvironmentFactory | None) -> World:
    """The world of a curriculum's stage ``number`` (from 0): the run's own with the stage's settings on top."""
    try:
        return build_world({**config.env, **config.curriculum.stages[number].env}, env)
    except ConfigError as error:
        raise ConfigError(f"curriculum.stages, stage {number + 1}: {error}") from None


def open_session(plan: Plan, place: Path, listener: Listener, point: ResumePoint | None = None) -> Session:
    """Load and (where asked) warm up the model, then begin the run in ``place``, or go on with it from ``point``."""
    config, estimator = plan.config, plan.estimator
    start, carried = (0, Carried()) if point is None else (point.step, read_carried(point.checkpoint, point.step))
    if point is not None:
        _check_held_out(plan, point.trained, carried, point.step)
    listener.on_start(config, place)
    # adapters and the reference belong to the model RL began with; anything else is whole in the checkpoint
    from_start = point is None or config.model.lora.rank > 0 or needs_reference(config)
    known = None if from_start or point is None else point.checkpoint
    _check_memory(known or resolve_model(config.model.name), config, estimator)
    agent = build_agent(known or starting_model(config, plan.world, plan.held_out, listener), config.model, config.rollout)
    threads = torch.get_num_threads()
    dtype = str(agent.dtype).removeprefix("torch.")
    listener.on_message(f"device {agent.device} · {dtype} · {threads} thread{'s' if threads > 1 else ''}")
    policy = _policy(agent, config, estimator)
    reference = Reference(policy) if needs_reference(config) else None
    optimizer = _optimizer(policy, after_rollbacks(config, carried.rollbacks))
    run = RunDirectory.create(config, place) if point is None else _restored(point, policy, optimizer)
    agent.sampler.load(policy.model.state_dict(), version=start)
    run.write_provenance(
        device=str(agent.device), dtype=str(agent.dtype), threads=threads, started_from=agent.path.name, step=start
    )
    session = Session(
        config=after_rollbacks(run.config, carried.rollbacks),
        run=run,
        world=plan.world,
        stages=plan.stages,
        others=plan.others,
        agent=agent,
        policy=policy,
        optimizer=optimizer,
        reference=reference,
        estimator=estimator,
        rules=build_rules(config.rollout, agent.max_context, plan.shaping),
        held_out=plan.held_out,
        start=start,
        carried=carried,
    )
    if config.echo_trap.action == "rollback" and not run.checkpoints.steps():
        session.checkpoint(0, carried)  # the earliest to return to
    return session


def held_out_contents(config: Config, worlds: Sequence[World]) -> frozenset[str]:
    """Content keys of the evaluation instances of these worlds: training and warm-up leave them out."""
    if config.eval.episodes == 0:
        return frozenset()
    specs = evaluation_specs("", episodes=config.eval.episodes, samples=1, seed=config.eval.seed)
    return frozenset().union(*(contents(world.make, specs) for world in worlds))


def _check_held_out(plan: Plan, trained: Config, carried: Carried, steps: int) -> None:
    """With other evaluation settings than before, nothing of the ``steps`` done may be among the evaluation instances."""
    if not plan.held_out or trained.eval == plan.config.eval:
        return
    before = held_out_contents(trained, (plan.world, *(build_world({"name": name}) for name in trained.eval.also)))
    pool = visited(trained.seed, trained.rollout.instances, carried.cursor)
    seen: set[str] = set()
    for world, groups in zip((*plan.stages, plan.world), carried.spans(), strict=False):
        instances = (pool if groups else ()) if trained.rollout.instances else groups
        specs = training_specs(
            world.name, world.make, seed=trained.seed, first=0, instances=instances, members=1, held_out=before
        )
        seen |= contents(world.make, specs) & plan.held_out
    shown = [spec for step in range(steps) for spec in mixed_specs(trained, plan.world.name, step)]
    seen |= (contents(plan.world.make, shown) - before) & plan.held_out
    if seen:
        raise CheckpointError(
            f"with eval.episodes {plan.config.eval.episodes}, eval.seed {plan.config.eval.seed} and eval.also "
            f"{list(plan.config.eval.also)} {len(seen)} evaluation instances are among those the run has trained on: keep "
            "the run's own, or evaluate other instances without going on (ragen eval RUN --seed S)"
        )


def _policy(agent: Agent, config: Config, estimator: AdvantageEstimator) -> Policy:
    critic: CriticKind = config.optim.critic if "values" in estimator.needs else "none"
    lora = config.model.lora
    return Policy(
        agent.model,
        dtype=agent.dtype,
        pad_id=agent.tokenizer.pad_token_id,
        critic=critic,
        critic_model=load_model(agent.path, device=agent.device) if critic == "separate" else None,
        temperature=config.rollout.temperature,
        lora=Lora(lora.rank, lora.alpha, lora.targets, seed=config.seed) if lora.rank else None,
    )


def _optimizer(policy: Policy, config: Config) -> Optimizer:
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


def _restored(point: ResumePoint, policy: Policy, optimizer: Optimizer) -> RunDirectory:
    load_state(point.checkpoint, policy, optimizer)
    point.run.cut_after(point.step)
    point.run.write_config()
    return point.run


def _check_memory(path: Path, config: Config, estimator: AdvantageEstimator) -> None:
    size = model_size(path)
    device = choose_device(config.model.device)
    rank = config.model.lora.rank
    trainable = min(size.parameters, rank * LORA_WIDTH * size.layers * size.hidden) if rank else size.parameters
    separate = "values" in estimator.needs and config.optim.critic == "separate"
    needed = memory_estimate(
        size.parameters,
        choose_dtype(config.model.dtype, device, parameters=size.parameters),
        trainable=trainable,
        critic=size.parameters if separate else 0,
        reference=needs_reference(config) and rank == 0,
        activations=Activations(config.optim.microbatch_tokens, size.hidden, size.layers, size.vocabulary),
    )
    check_memory(needed, device)
