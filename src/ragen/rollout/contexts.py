"""What a turn sees. A context grows by appending; dropping history starts a new segment (law 1).

One policy, two materials: token ids (`TokenContext`, which can be trained on) and messages (`MessageContext`, for endpoints
that make the tokens themselves).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from ragen.episode import Completion
from ragen.errors import TemplateError
from ragen.samplers.chat import Message
from ragen.text.chat import ChatRenderer
from ragen.tools import Tool

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ContextPolicy:
    """``full``: the whole history; ``window``: the last ``window`` turns; ``single``: only the current state."""

    kind: Literal["full", "window", "single"] = "full"
    window: int = 3


@dataclass(frozen=True, slots=True)
class _Exchange:
    """A turn as it stands in a context: the message, the same state told as a first message, and the reply."""

    message: str
    fresh: str
    completion: Completion


class Context(ABC, Generic[T]):
    """The current segment as a sequence of parts of one kind.

    ``parts`` is the whole segment, ``added`` what was appended for the coming reply, ``extends`` False where a new segment
    begins, ``shown`` the message that ends it.
    """

    def __init__(self, policy: ContextPolicy) -> None:
        self._policy = policy
        self._history: list[_Exchange] = []
        self._in_segment = 0
        self.parts: tuple[T, ...] = ()
        self.added: tuple[T, ...] = ()
        self.extends = False
        self.shown = ""
        self._fresh = ""

    @property
    @abstractmethod
    def prompt_ids(self) -> tuple[int, ...]:
        """The ids of ``added``; none where only an endpoint knows them."""

    @property
    @abstractmethod
    def tokens(self) -> int:
        """The length of the segment in tokens; 0 where only an endpoint knows it."""

    def offer(self, tools: Sequence[Tool]) -> bool:
        """Say, before the first message, what may be called; whether the context describes it, so that messages need not."""
        del tools
        return False

    @abstractmethod
    def _opening(self, message: str) -> tuple[T, ...]:
        """A new segment up to the reply to its first message."""

    @abstractmethod
    def _following(self, completion: Completion, message: str) -> tuple[T, ...]:
        """What stands between a reply and the next one."""

    @abstractmethod
    def _reply(self, completion: Completion) -> tuple[T, ...]:
        """A reply."""

    def show(self, message: str, *, fresh: str) -> None:
        """Add the message of the coming turn; ``fresh`` tells the same state without any history."""
        self._fresh = fresh
        if not self._history or self._policy.kind == "single":
            self._restart(fresh, ())
        elif self._policy.kind == "window" and self._in_segment > self._policy.window:
            self._restart(message, self._history[-self._policy.window :])
        else:
            self.added = self._following(self._history[-1].completion, message)
            self.parts, self.extends, self.shown = self.parts + self.added, True, message

    def replied(self, completion: Completion) -> None:
        """Append the reply exactly as it was sampled."""
        self.parts += self._reply(completion)
        self._history.append(_Exchange(self.shown, self._fresh, completion))
        self._in_segment += 1

    def _restart(self, message: str, kept: Sequence[_Exchange]) -> None:
        """Begin a segment: the kept turns (their replies as they were) are context, then the new message."""
        parts: tuple[T, ...] = ()
        for i, exchange in enumerate(kept):
            parts += self._following(kept[i - 1].completion, exchange.message) if i else self._opening(exchange.fresh)
            parts += self._reply(exchange.completion)
        parts += self._following(kept[-1].completion, message) if kept else self._opening(message)
        self.parts, self.added, self.extends, self.shown = parts, parts, False, message
        self._in_segment = len(kept)


class TokenContext(Context[int]):
    """The ids a policy sees: the template's and the messages' from ``renderer``, the replies' exactly as sampled."""

    def __init__(self, renderer: ChatRenderer, policy: ContextPolicy) -> None:
        if policy.kind != "single" and not renderer.multi_turn:
            raise TemplateError(
                f"this chat template cannot grow by appending: {renderer.why_single}. "
                "Set rollout.context to 'single' (one segment a turn) or use a model whose template keeps history"
            )
        super().__init__(policy)
        self._renderer = renderer

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        """The ids that were added."""
        return self.added

    @property
    def tokens(self) -> int:
        """The number of ids."""
        return len(self.parts)

    def offer(self, tools: Sequence[Tool]) -> bool:
        """Leave it to the chat template where that has tool calls of our form."""
        self._renderer = self._renderer.with_tools(tools)
        return self._renderer.shows_tools

    def _opening(self, message: str) -> tuple[int, ...]:
        return self._renderer.open(message)

    def _following(self, completion: Completion, message: str) -> tuple[int, ...]:
        return self._renderer.extend(completion, message)

    def _reply(self, completion: Completion) -> tuple[int, ...]:
        return completion.token_ids


class MessageContext(Context[Message]):
    """The messages an endpoint is sent: the user's as they are told, the replies as text, thoughts included."""

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        """None: the endpoint makes them."""
        return ()

    @property
    def tokens(self) -> int:
        """Unknown here: the endpoint refuses a conversation that is too long."""
        return 0

    def _opening(self, message: str) -> tuple[Message, ...]:
        return (Message("user", message),)

    def _following(self, completion: Completion, message: str) -> tuple[Message, ...]:
        del completion
        return (Message("user", message),)

    def _reply(self, completion: Completion) -> tuple[Message, ...]:
        return (Message("assistant", completion.text),)
