"""The interface of message samplers: messages in, text out. They can be evaluated and never trained."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from ragen.episode import Completion
from ragen.errors import RagenError


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One reply to ask for: ``seed`` for endpoints that take one; ``temperature`` 0 means greedy."""

    messages: tuple[Message, ...]
    seed: int
    max_new_tokens: int
    temperature: float
    stop_strings: tuple[str, ...] = ()
    thinking: bool = True


@dataclass(slots=True)
class Usage:
    """What replies cost: counts of HTTP requests, and tokens as the endpoint tells them.

    ``completion_tokens`` include ``reasoning_tokens``; ``prompt_tokens`` include ``cached_tokens``. ``untold`` counts
    answers that tell no token count.
    """

    requests: int = 0
    retries: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    untold: int = 0

    def __iadd__(self, other: "Usage") -> "Usage":
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self


class EndpointFailure(RagenError):
    """An endpoint gave no reply, however often it was asked. It costs this episode only and is no answer of the model."""


class ContextOverflow(Exception):
    """The endpoint says that the conversation does not fit into the model's context."""


@dataclass(frozen=True, slots=True)
class ChatReply:
    """A reply with what is to be counted of it: ``notes`` such as "refusal" or "empty"."""

    completion: Completion
    notes: tuple[str, ...] = field(default=())


class ChatSampler(Protocol):
    """A sampler that only evaluates: it tells text, not ids."""

    async def reply(self, request: ChatRequest, usage: Usage) -> ChatReply:
        """One reply; what it cost is added to ``usage``, also where there is none.

        Raises:
            EndpointFailure: no reply could be had.
            ContextOverflow: the conversation is too long.
            ConfigError: no request can succeed (wrong key, unknown model).
        """
        ...

    async def close(self) -> None:
        """Let go of the connections."""
        ...


def cut_at(text: str, stops: Sequence[str]) -> str | None:
    """``text`` up to the end of the stop string that ends first in it, as a local sampler leaves it; None without any."""
    ends = [text.index(stop) + len(stop) for stop in stops if stop in text]
    return text[: min(ends)] if ends else None
