"""Warm-up: supervised fine-tuning on demonstrations, made by the environment or read from a file of conversations.

Cached by content: model files, demonstration tokens and settings; the same warm-up is never run twice.
"""

import gc
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from ragen.cache import cache_dir, is_made, made_once
from ragen.config.schema import MADE_DATA, Config
from ragen.episode import Segment
from ragen.errors import ConfigError, EnvironmentFault
from ragen.loops.compose import Agent, World, build_agent, build_rules
from ragen.loops.conversations import conversation_rows, stored_conversations
from ragen.loops.demonstrations import demonstrated
from ragen.loops.fine_tune import fine_tune
from ragen.models.allocator import trim
from ragen.models.resolve import resolve_model
from ragen.rollout.demonstrations import demonstration_specs, optimal_player, random_player
from ragen.runs.listener import Listener
from ragen.wording import counted

VERSION = 1  # raise it when the same settings would give other weights


def starting_model(config: Config, world: World, held_out: frozenset[str], listener: Listener) -> Path:
    """The directory RL starts from: the model itself, or the model after its warm-up (made now unless cached)."""
    path = resolve_model(config.model.name)
    if config.warmup.data != "none":
        path = warm_up(config, world, held_out, path, listener)
        gc.collect()  # modules and optimiser refer to each other: else their memory stays until some later collection
        trim()
    return path


def warm_up(config: Config, world: World, held_out: frozenset[str], path: Path, listener: Listener) -> Path:
    """Fine-tune the model at ``path`` on demonstrations; returns a plain Hugging Face directory."""
    conversations = stored_conversations(config.warmup.data, listener)  # what is wrong with a file must not wait for a model
    agent = build_agent(path, config.model, config.rollout)
    if conversations is not None:
        rows = conversation_rows(config, world, held_out, agent, conversations, listener)
    else:
        rows, faults = demonstration_rows(config, world, held_out, agent)
        if faults:
            count = config.warmup.demonstrations
            listener.on_message(
                f"warm-up: {len(faults)} of {counted(count, 'demonstration')} failed, left out; the first: {faults[0]}"
            )
    target = cache_dir() / "warmups" / _key(config, path, agent, rows)
    if is_made(target):
        listener.on_message(f"warm-up: found in the cache ({target.name})")
        return target
    unfinished = target.with_name(f".{target.name}.unfinished")
    return made_once(target, lambda folder: fine_tune(config, agent, rows, folder, unfinished, listener))


def demonstration_rows(
    config: Config, world: World, held_out: frozenset[str], agent: Agent
) -> tuple[list[Segment], list[str]]:
    """Segments of all sound demonstrations, and what the failed ones said; the evaluation set's instances are left out.

    Raises:
        EnvironmentFault: every demonstration failed.
        ConfigError: every one is an instance of the evaluation set.
    """
    player = optimal_player if config.warmup.data == "oracle" else random_player
    specs = demonstration_specs(world.name, seed=config.seed, count=config.warmup.demonstrations)
    rows, faults = demonstrated(specs, player, world, held_out, agent, build_rules(config.rollout, agent.max_context))
    if not rows and faults:
        raise EnvironmentFault(f"every demonstration of '{world.name}' failed; the first said: {faults[0]}")
    if not rows:
        raise ConfigError(
            f"each of {counted(config.warmup.demonstrations, 'demonstration')} of '{world.name}' is an instance of the "
            "evaluation set: lower eval.episodes, raise warmup.demonstrations, or choose settings with more different "
            "instances"
        )
    return rows, faults


def _key(config: Config, path: Path, agent: Agent, rows: Sequence[Segment]) -> str:
    digest = hashlib.blake2b(digest_size=12)
    for file in sorted(path.glob("*.safetensors")) + sorted(path.glob("config.json")):
        digest.update(f"{file.name} {_hash(file)}".encode())
    for row in rows:
        digest.update(row.token_ids.tobytes() + row.mask.tobytes())
    data = config.warmup.data
    source = {"data": data} if data in MADE_DATA else {"data": _hash(Path(data)), "demonstrations": len(rows)}
    run = {"seed": config.seed, "betas": config.optim.betas, "version": VERSION}
    settings = config.warmup.model_dump() | source | run
    digest.update(json.dumps(settings, sort_keys=True).encode() + str(agent.dtype).encode())
    return digest.hexdigest()


def _hash(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "blake2b").hexdigest()
