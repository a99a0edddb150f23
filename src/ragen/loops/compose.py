"""The composition root: config goes in, plain components come out (law 5)."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ragen.config.schema import Config, ModelConfig, RewardConfig, RolloutConfig
from ragen.envs import Environment, find_environment
from ragen.envs.workers import InTurn, Pool, Workers
from ragen.errors import ConfigError
from ragen.models.checks import check_vocabulary
from ragen.models.device import choose_device, choose_dtype
from ragen.models.load import load_model, load_tokenizer
from ragen.modules import load_plugins
from ragen.rewards import process_rewards
from ragen.rollout.contexts import ContextPolicy
from ragen.rollout.instances import check_start, started
from ragen.rollout.runner import EnvironmentFactory, Rules
from ragen.rollout.shaping import Shaping
from ragen.samplers.base import SamplingParams
from ragen.samplers.hf import HFSampler
from ragen.text.chat import ChatRenderer

FORCED_THINK = "<think>"


@dataclass(frozen=True, slots=True)
class World:
    """An environment to act in: its name, its settings as told in reports, how to make one, and the config's ``env``."""

    name: str
    settings: Mapping[str, Any]
    make: EnvironmentFactory
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Agent:
    """A model that can act: module, tokenizer, renderer and sampler share one set of weights."""

    path: Path
    model: Any
    tokenizer: Any
    renderer: ChatRenderer
    sampler: HFSampler
    dtype: torch.dtype
    device: torch.device
    max_context: int


def build_world(spec: Mapping[str, Any], env: type[Environment] | EnvironmentFactory | None = None) -> World:
    """The environment of a config's ``env`` section, or the caller's own class or factory, tried once before anything long.

    Raises ConfigError for what cannot be made, EnvironmentFault for what breaks the contract from the start.
    """
    found = find_environment(spec, env)
    check_start(found.make)
    return World(found.name, found.settings.model_dump(), found.make, found.spec)


def world_of(config: Config, env: type[Environment] | EnvironmentFactory | None = None) -> World:
    """The environment of a run's settings, once its plugins are loaded: one of them may register it."""
    load_plugins(config.plugins)
    return build_world(config.env, env)


def build_workers(config: Config) -> Workers:
    """Who does the environments' work; started when there is some. Whoever asks for it closes it."""
    rollout = config.rollout
    if not rollout.env_workers:
        return InTurn()
    return Pool(rollout.env_workers, rollout.env_mode, timeout_s=rollout.env_timeout_s, plugins=config.plugins)


def check_workers(config: Config, worlds: Sequence[World]) -> None:
    """ConfigError where the workers that the settings ask for cannot make one of these worlds' environments."""
    rollout = config.rollout
    if not rollout.env_workers or rollout.env_mode != "process":
        return
    pool = Pool(1, "process", timeout_s=rollout.env_timeout_s, plugins=config.plugins)
    with closing(pool):
        for world in worlds:
            pool.try_out(world.make)


def build_agent(path: Path, model: ModelConfig, rollout: RolloutConfig) -> Agent:
    """Load a model directory and everything that lets it act."""
    device = choose_device(model.device)
    tokenizer = load_tokenizer(path, trust_remote_code=model.trust_remote_code)
    module = load_model(path, device=device, trust_remote_code=model.trust_remote_code)
    parameters = sum(p.numel() for p in module.parameters())
    dtype = choose_dtype(model.dtype, device, parameters=parameters)
    renderer = build_renderer(tokenizer, rollout)
    check_vocabulary(tokenizer, len(module.get_input_embeddings().weight), control_ids(renderer), str(path))
    limit = int(getattr(module.config, "max_position_embeddings", 0) or 2**20)
    wanted = rollout.max_context or limit
    if wanted > limit:
        raise ConfigError(f"rollout.max_context is {wanted}, but the model's context is {limit}: set it to {limit} or less")
    sampler = HFSampler(module, tokenizer, end_ids=renderer.end_ids, dtype=dtype)
    return Agent(path, module, tokenizer, renderer, sampler, dtype, device, wanted)


def build_renderer(tokenizer: Any, rollout: RolloutConfig, system: str | None = None) -> ChatRenderer:
    """The chat renderer, with the forced ``<think>`` opener where the config asks for it."""
    forced = FORCED_THINK if rollout.thinking and rollout.force_think else ""
    return ChatRenderer(tokenizer, forced=forced, system=system)


def control_ids(renderer: ChatRenderer) -> tuple[int, ...]:
    """Ids of the chat template's and the reply format's tokens: a model must have embeddings for them."""
    return renderer.open("") + renderer.reply_ids("<think></think><answer></answer>")


def build_shaping(reward: RewardConfig, world: World) -> Shaping:
    """What training pays beside the task; ConfigError for a process reward that is unknown or cannot work in ``world``."""
    rule = None if reward.process == "none" else process_rewards.get(reward.process)
    if rule is not None and rule.needs_facts and not started(world.make).facts():
        raise ConfigError(
            f"reward.process '{rule.name}' checks the reasoning against the environment's facts(), and '{world.name}' has "
            "none: take an environment with facts (frozen_lake, sokoban, or your own, see docs/environments.md), or another "
            f"process reward ({', '.join(name for name in process_rewards if not process_rewards.get(name).needs_facts)})"
        )
    return Shaping(rule, reward.coef, reward.overlong_buffer, reward.overlong_coef)


def build_rules(rollout: RolloutConfig, max_context: int, shaping: Shaping | None = None) -> Rules:
    """The rollout's rules; ``shaping`` in training only."""
    return Rules(
        max_new_tokens=rollout.max_new_tokens,
        max_context=max_context,
        max_trajectory_tokens=rollout.max_trajectory_tokens,
        thinking=rollout.thinking,
        format_penalty=rollout.format_penalty,
        context=ContextPolicy(rollout.context, rollout.window),
        shaping=shaping or Shaping(),
    )


def training_params(rollout: RolloutConfig) -> SamplingParams:
    """How training samples."""
    return SamplingParams(rollout.temperature, rollout.top_p, rollout.top_k, rollout.min_p, rollout.stop_strings)


def evaluation_params(config: Config) -> SamplingParams:
    """How evaluation samples: at its own temperature, without truncation."""
    return SamplingParams(temperature=config.eval.temperature, stop_strings=config.rollout.stop_strings)
