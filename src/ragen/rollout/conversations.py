"""Conversations as training rows: through the renderer that shows the policy its prompts, the replies alone on the mask."""

from typing import Any

from ragen.episode import Completion, EndReason, StopReason, Trajectory, Turn
from ragen.samplers.draw import decode
from ragen.text.chat import ChatRenderer
from ragen.text.conversations import Conversation
from ragen.text.parser import THINK


def conversation_trajectory(
    conversation: Conversation, renderer: ChatRenderer, tokenizer: Any, vocabulary: str
) -> tuple[Trajectory, int]:
    """The conversation as an episode that only grew (one segment), and how many replies have their stored ids.

    A reply has the ids stored with it where they belong to this ``vocabulary``, spell its text, and hold no control token
    but at their end; else its text is encoded as a demonstration's is, with the end-of-turn token behind it.

    Raises:
        ValueError: the prompt ends with ``<think>`` and a reply does not begin with it.
        TemplateError: there are several turns, and the template rewrites history.
    """
    turns: list[Turn] = []
    exact = 0
    for k, (message, reply) in enumerate(conversation.turns):
        text = reply
        if renderer.opens_thinking:
            if not reply.startswith(THINK):
                raise ValueError(
                    f"reply {k + 1} begins with {reply[:20]!r}, but a prompt of this run ends with {THINK}: begin each "
                    f"reply with {THINK}, or set rollout.force_think or rollout.thinking to false"
                )
            text = reply.removeprefix(THINK)
        stored = conversation.reply_ids[k] if conversation.reply_ids and conversation.tokenizer == vocabulary else ()
        usable = bool(stored) and _spells(stored, text, renderer, tokenizer)
        ids = stored if usable else renderer.reply_ids(text)
        exact += usable
        zeros = (0.0,) * len(ids)
        completion = Completion(ids, zeros, zeros, text, StopReason.END)
        prompt = renderer.extend(turns[-1].completion, message) if turns else renderer.open(message)
        turns.append(Turn(prompt, k > 0, completion, message, actions=(), valid=True, reward=0.0))
    seed = conversation.instance_seed or 0
    trajectory = Trajectory(conversation.env, seed, 0, tuple(turns), EndReason.TERMINATED, success=False, policy_version=-1)
    return trajectory, exact


def _spells(ids: tuple[int, ...], text: str, renderer: ChatRenderer, tokenizer: Any) -> bool:
    """Whether the ids are of this vocabulary, a policy's reply (control tokens nowhere but at the end), and this text."""
    inner = ids[:-1] if ids[-1] in renderer.end_ids else ids
    return max(ids) < len(tokenizer) and not renderer.control_ids.intersection(inner) and decode(tokenizer, ids) == text
