"""How a run begins or goes on: its plan in, its parts out."""

from pathlib import Path

import torch

from ragen.algos.advantages import AdvantageEstimator, advantages
from ragen.config.schema import Config
from ragen.learn.checkpoint import load_state
from ragen.learn.lora import Lora
from ragen.learn.optimizer import Optimizer
from ragen.learn.policy import CriticKind, Policy
from ragen.learn.reference import Reference
from ragen.loops.carried import Carried, read_carried
from ragen.loops.compose import Agent, build_agent, build_rules, build_workers
from ragen.loops.loss_checks import needs_reference
from ragen.loops.plan import Plan, check_held_out
from ragen.loops.session import Session, after_rollbacks, build_optimizer
from ragen.loops.warmup import starting_model
from ragen.models.device import choose_device, choose_dtype
from ragen.models.load import load_model
from ragen.models.memory import Activations, ModelSize, check_memory, memory_estimate, model_size
from ragen.models.resolve import resolve_model
from ragen.rollout.instances import check_first_prompt
from ragen.runs.directory import RunDirectory
from ragen.runs.listener import Listener
from ragen.runs.provenance import usable_cores
from ragen.runs.resume import ResumePoint
from ragen.wording import counted

LORA_WIDTH = 30  # in + out widths of a layer's linear maps, in hidden sizes: about what a Llama-type layer has


def open_session(plan: Plan, place: Path, listener: Listener, point: ResumePoint | None = None) -> Session:
    """Load and (where asked) warm up the model, then begin the run in ``place``, or go on with it from ``point``."""
    config, estimator = plan.config, plan.estimator
    start, carried = (0, Carried()) if point is None else (point.step, read_carried(point.checkpoint, point.step))
    if point is not None:
        check_held_out(plan, point.trained, carried, point.step)
    listener.on_start(config, place)
    # adapters and the reference belong to the model RL began with; anything else is whole in the checkpoint
    from_start = point is None or config.model.lora.rank > 0 or needs_reference(config)
    known = None if from_start or point is None else point.checkpoint
    device = choose_device(config.model.device)
    size = model_size(known or resolve_model(config.model.name), trust_remote_code=config.model.trust_remote_code)
    check_memory(memory_needed(size, config, device), device)
    agent = build_agent(known or starting_model(config, plan.world, plan.held_out, listener), config.model, config.rollout)
    _check_first_prompts(plan, agent)
    threads = torch.get_num_threads()
    dtype = str(agent.dtype).removeprefix("torch.")
    listener.on_message(f"device {agent.device} · {dtype} · {threads_told(threads, usable_cores())}")
    policy = _policy(agent, config, estimator)  # puts adapters into the module that the sampler has too
    reference = Reference(policy) if needs_reference(config) else None  # before the checkpoint's weights are put in
    optimizer = build_optimizer(policy, after_rollbacks(config, carried.rollbacks))
    run = RunDirectory.create(config, place) if point is None else _restored(point, policy, optimizer)
    agent.sampler.load(policy.model.state_dict(), version=start)  # after all writes: drops what was computed before
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
        workers=build_workers(config),
        held_out=plan.held_out,
        start=start,
        carried=carried,
    )
    if config.echo_trap.action == "rollback" and not run.checkpoints.steps():
        session.checkpoint(0, carried)  # the earliest to return to
    return session


def threads_told(threads: int, cores: int) -> str:
    """How many threads compute, with a warning where they are more than the cores.

    >>> threads_told(2, 4), threads_told(4, 2)
    ('2 threads', '4 threads on 2 cores wait for one another: set run.threads to 2 or less')
    """
    told = counted(threads, "thread")
    if threads <= cores:
        return told
    return f"{told} on {counted(cores, 'core')} wait for one another: set run.threads to {cores} or less"


def memory_needed(size: ModelSize, config: Config, device: torch.device) -> int:
    """Bytes a run with these settings needs at its peak, roughly: model, separate critic, reference, one micro-batch."""
    rank = config.model.lora.rank
    trainable = min(size.parameters, rank * LORA_WIDTH * size.layers * size.hidden) if rank else size.parameters
    separate = "values" in advantages.get(config.advantage.name).needs and config.optim.critic == "separate"
    return memory_estimate(
        size.parameters,
        choose_dtype(config.model.dtype, device, parameters=size.parameters),
        trainable=trainable,
        critic=size.parameters if separate else 0,
        reference=needs_reference(config) and rank == 0,
        activations=Activations(config.optim.microbatch_tokens, size.hidden, size.layers, size.vocabulary),
    )


def _check_first_prompts(plan: Plan, agent: Agent) -> None:
    """Raise ConfigError where the context holds no first prompt of an environment that the run trains or evaluates on."""
    rules = build_rules(plan.config.rollout, agent.max_context)
    for world in (*plan.stages, plan.world, *(plan.others if plan.config.eval.episodes else ())):
        check_first_prompt(world.name, world.make, agent.renderer, rules)


def _policy(agent: Agent, config: Config, estimator: AdvantageEstimator) -> Policy:
    critic: CriticKind = config.optim.critic if "values" in estimator.needs else "none"
    lora, trust = config.model.lora, config.model.trust_remote_code
    return Policy(
        agent.model,
        dtype=agent.dtype,
        pad_id=agent.tokenizer.pad_token_id,
        critic=critic,
        critic_model=load_model(agent.path, device=agent.device, trust_remote_code=trust) if critic == "separate" else None,
        temperature=config.rollout.temperature,
        lora=Lora(lora.rank, lora.alpha, lora.targets, seed=config.seed) if lora.rank else None,
    )


def _restored(point: ResumePoint, policy: Policy, optimizer: Optimizer) -> RunDirectory:
    load_state(point.checkpoint, policy, optimizer)
    point.run.cut_after(point.step)
    point.run.write_config()
    return point.run
