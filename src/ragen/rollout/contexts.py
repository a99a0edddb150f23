"""What a turn sees. A context grows by appending ids; dropping history starts a new segment (law 1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ragen.episode import Completion
from ragen.errors import TemplateError
from ragen.text.chat import ChatRenderer


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


class Context:
    """The ids of the current segment.

    ``ids`` is the whole segment, ``added`` what was appended for the coming reply, ``extends`` False where a new segment
    begins, ``shown`` the message that ends it.
    """

    def __init__(self, renderer: ChatRenderer, policy: ContextPolicy) -> None:
        if policy.kind != "single" and not renderer.multi_turn:
            raise TemplateError(
                f"this chat template cannot grow by appending: {renderer.why_single}. "
                "Set rollout.context to 'single' (one segment a turn) or use a model whose template keeps history"
            )
        self._renderer, self._policy = renderer, policy
        self._history: list[_Exchange] = []
        self._in_segment = 0
        self.ids: tuple[int, ...] = ()
        self.added: tuple[int, ...] = ()
        self.extends = False
        self.shown = ""
        self._fresh = ""

    def show(self, message: str, *, fresh: str) -> None:
        """Add the message of the coming turn; ``fresh`` tells the same state without any history."""
        self._fresh = fresh
        if not self._history or self._policy.kind == "single":
            self._restart(fresh, ())
        elif self._policy.kind == "window" and self._in_segment > self._policy.window:
            self._restart(message, self._history[-self._policy.window :])
        else:
            self.added = self._renderer.extend(self._history[-1].completion, message)
            self.ids, self.extends, self.shown = self.ids + self.added, True, message

    def replied(self, completion: Completion) -> None:
        """Append exactly the sampled ids."""
        self.ids += completion.token_ids
        self._history.append(_Exchange(self.shown, self._fresh, completion))
        self._in_segment += 1

    def _restart(self, message: str, kept: Sequence[_Exchange]) -> None:
        """Begin a segment: the kept turns (their sampled ids as they were) are context, then the new message."""
        ids: tuple[int, ...] = ()
        for i, exchange in enumerate(kept):
            ids += (
                self._renderer.extend(kept[i - 1].completion, exchange.message) if i else self._renderer.open(exchange.fresh)
            )
            ids += exchange.completion.token_ids
        ids += self._renderer.extend(kept[-1].completion, message) if kept else self._renderer.open(message)
        self.ids, self.added, self.extends, self.shown = ids, ids, False, message
        self._in_segment = len(kept)
