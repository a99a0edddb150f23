"""What an endpoint's answer says: its JSON read into a reply, in one defined way for every form it can have.

| the answer | what it is |
|---|---|
| text, ended by the model | a reply; any finish reason not named below counts as an end |
| finish reason ``length`` | a reply, cut where it ended (no text at all: an empty one) |
| a refusal | a reply, the refusal's own words (they hold no answer) |
| text ``""`` | an empty reply |
| text ``null`` beside reasoning | an empty reply after its thinking |
| text ``null`` and nothing else, tool calls alone, no choices, no JSON object, an error | no reply: asked again, then lost |
| finish reason ``content_filter``, ``abort``, ``error`` … | no reply: asked again, then lost |

*Reasoning* that is told apart from the text (``reasoning_content`` or ``reasoning``) is the reply's thinking: in thinking
mode the reply reads ``<think>reasoning</think>text``, unless the text closes a thinking of its own, and without the closing
tag where nothing but reasoning was sampled before the limit. ``</think>`` inside the reasoning is left out.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ragen.episode import Completion, StopReason
from ragen.samplers.chat import ChatReply, Usage, cut_at
from ragen.text.parser import END_THINK, THINK

LENGTH = ("length", "max_tokens")
BROKEN_OFF = ("content_filter", "abort", "aborted", "error", "cancelled", "insufficient_system_resource")
MOST_TOKENS = 10**12  # of one answer; a larger count is none, and might not even be a float
ENDED = ("stop", "eos", "eos_token", "end_turn", "stop_sequence", "tool_calls", "function_call", None)


class NoReply(Exception):
    """The answer holds nothing that the model could be judged by; the message says what it is instead."""


def read_usage(body: Any) -> Usage:
    """The tokens that an answer says it cost; ``untold`` where it does not say both what was sent and what was sampled."""
    told = body.get("usage") if isinstance(body, Mapping) else None
    if not isinstance(told, Mapping):
        return Usage(untold=1)
    prompt, completion = _part(told, "prompt_tokens_details"), _part(told, "completion_tokens_details")
    sent, sampled = _count(told, "prompt_tokens"), _count(told, "completion_tokens")
    return Usage(
        prompt_tokens=sent or 0,
        cached_tokens=_count(prompt, "cached_tokens") or 0,
        completion_tokens=sampled or 0,
        reasoning_tokens=_count(completion, "reasoning_tokens") or 0,
        untold=int(sent is None or sampled is None),
    )


def read_reply(body: Any, *, thinking: bool, stops: Sequence[str]) -> ChatReply:
    """The reply in an answer, cut behind the first of ``stops`` in it; raises NoReply where there is none."""
    if not isinstance(body, Mapping):
        raise NoReply("the answer is not a JSON object")
    if body.get("error"):
        raise NoReply(f"the answer is an error: {str(body['error'])[:200]}")
    choices = body.get("choices")
    if not isinstance(choices, Sequence) or not choices or not isinstance(choices[0], Mapping):
        raise NoReply("the answer has no choices")
    message, finish = _part(choices[0], "message"), choices[0].get("finish_reason")
    if finish in BROKEN_OFF:
        raise NoReply(f"the reply was broken off (finish reason '{finish}')")
    cut = finish in LENGTH
    reasoning = _text(message.get("reasoning_content")) or _text(message.get("reasoning")) or ""
    text, notes = _content(message, reasoning, cut=cut)
    text, thought = (_joined(reasoning, text, cut=cut), True) if _is_apart(reasoning, text, thinking) else (text, False)
    stopped = cut_at(text, stops)
    notes += ["cut"] * cut + ["reasoning apart"] * thought
    notes += [f"finish reason {str(finish)[:40]!r}"] * (not cut and finish not in ENDED)
    stop = StopReason.STOP_STRING if stopped is not None else StopReason.LENGTH if cut else StopReason.END
    tokens = read_usage(body).completion_tokens
    final = text if stopped is None else stopped
    return ChatReply(Completion((), (), (), final, stop, untold_tokens=tokens), tuple(notes))


def _content(message: Mapping[str, Any], reasoning: str, *, cut: bool) -> tuple[str, list[str]]:
    """The text of a message and what is to be noted of it."""
    text, refusal = _text(message.get("content")), _text(message.get("refusal"))
    if refusal:
        return text or refusal, ["refusal"]
    if text is None and not cut and not reasoning:
        calls = message.get("tool_calls") or message.get("function_call")
        raise NoReply("the answer is tool calls without text" if calls else "the answer's text is null")
    if not text and not cut and message.get("tool_calls"):
        raise NoReply("the answer is tool calls without text")
    return text or "", [] if text and text.strip() else ["empty"]


def _is_apart(reasoning: str, text: str, thinking: bool) -> bool:
    return thinking and bool(reasoning) and END_THINK not in text


def _joined(reasoning: str, text: str, *, cut: bool) -> str:
    thought = THINK + reasoning.replace(END_THINK, "")
    return thought if cut and not text else thought + END_THINK + text


def _text(value: Any) -> str | None:
    """Text, also where it comes as a list of text parts; None where there is none."""
    if isinstance(value, str):
        return value
    if not isinstance(value, Sequence):
        return None
    parts = [part.get("text") for part in value if isinstance(part, Mapping)]
    texts = [part for part in parts if isinstance(part, str)]
    return "".join(texts) if texts else None


def _part(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = values.get(name)
    return found if isinstance(found, Mapping) else {}


def _count(values: Mapping[str, Any], name: str) -> int | None:
    """A number of tokens; None for what cannot be one."""
    found = values.get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= MOST_TOKENS else None
