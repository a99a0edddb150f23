"""Warm-up on a file of conversations: checked in full before a model is loaded, rendered in full before any training."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from ragen.config.schema import MADE_DATA, Config
from ragen.envs import environment_factory, environments
from ragen.episode import Segment
from ragen.errors import ConfigError, TemplateError
from ragen.loops.compose import Agent, World, build_renderer
from ragen.rollout.conversations import conversation_trajectory
from ragen.rollout.instances import PROBES, content_of
from ragen.rollout.runner import EnvironmentFactory
from ragen.rollout.segments import segments
from ragen.runs.listener import Listener
from ragen.text.chat import ChatRenderer
from ragen.text.conversations import Conversation, read_conversations, refuse, vocabulary_digest
from ragen.wording import counted


def stored_conversations(data: str, listener: Listener) -> list[Conversation] | None:
    """The conversations of ``warmup.data``; None where it names no file."""
    if data in MADE_DATA:
        return None
    conversations, empty = read_conversations(Path(data))
    if empty:
        listener.on_message(f"warm-up: {counted(empty, 'row')} without messages (a context window dropped history) left out")
    return conversations


def conversation_rows(
    config: Config,
    world: World,
    held_out: frozenset[str],
    agent: Agent,
    conversations: Sequence[Conversation],
    listener: Listener,
) -> list[Segment]:
    """The training rows, one a conversation; held-out instances and what does not fit into the context are left out.

    Raises:
        ConfigError: conversations cannot be rendered (the first ones are named), or none is left.
    """
    renderers: dict[str | None, ChatRenderer] = {None: agent.renderer}
    vocabulary = vocabulary_digest(agent.tokenizer.get_vocab())
    rows: list[Segment] = []
    faults: list[str] = []
    seen, long, exact, replies = 0, 0, 0, 0
    for conversation in conversations:
        if _held_out(conversation, world, held_out):
            seen += 1
            continue
        try:
            if conversation.system not in renderers:
                renderers[conversation.system] = build_renderer(agent.tokenizer, config.rollout, conversation.system)
            trajectory, as_stored = conversation_trajectory(
                conversation, renderers[conversation.system], agent.tokenizer, vocabulary
            )
        except (ValueError, TemplateError) as error:
            faults.append(f"{conversation.where}: {error}")
            continue
        (row,) = segments(trajectory)
        if len(row.token_ids) > agent.max_context:
            long += 1
            continue
        rows.append(row)
        exact, replies = exact + as_stored, replies + len(trajectory.turns)
    refuse(faults)
    counts = ", ".join(_left_out(seen, long, agent.max_context))
    if not rows:
        raise ConfigError(
            f"of {counted(len(conversations), 'conversation')} of '{config.warmup.data}' none is left: {counts}"
        )
    told = f"warm-up: {counted(len(rows), 'conversation')}, {counted(replies, 'reply', 'replies')}"
    told += f", {exact} of them by their stored token ids"
    listener.on_message(f"{told}; left out: {counts}" if counts else told)
    return rows


def _left_out(seen: int, long: int, limit: int) -> Iterator[str]:
    if seen:
        yield f"{seen} of instances of the evaluation set"
    if long:
        yield f"{long} longer than the context of {limit} tokens (rollout.max_context, or the model's)"


def _held_out(conversation: Conversation, world: World, held_out: frozenset[str]) -> bool:
    """Whether a conversation says that it is of an instance of the evaluation set.

    That may hold instances of other environments (``eval.also``), and variants of one environment show the same instances.
    """
    seed = conversation.instance_seed
    if not held_out or seed is None:
        return False
    return any(content_of(make, seed, tries=PROBES) in held_out for make in _makers(conversation.env, world))


def _makers(env: str, world: World) -> Iterator[EnvironmentFactory]:
    """The environments that an instance of ``env`` may have been played in. Only names are looked up: no file is run."""
    if env == world.name:
        yield world.make
    elif env in environments.names():
        named = environment_factory({"name": env})
        yield named
        if type(named()) is type(world.make()):
            yield world.make
