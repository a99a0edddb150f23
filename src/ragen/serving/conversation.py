"""From messages to the ids a policy sees: the rollout's own path, so a served agent sees what it saw in training."""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from ragen.episode import Completion, StopReason
from ragen.errors import TemplateError
from ragen.samplers.chat import Message
from ragen.serving.protocol import RequestError, too_long
from ragen.text.chat import ChatRenderer
from ragen.text.parser import THINK

REMEMBERED = 4096  # replies


class Conversations:
    """Renders conversations with ``ChatRenderer``: what messages say is text and never becomes a control token.

    A reply that was given here comes back as text; it is continued with the very ids that were sampled (law 1), found by its
    text and the user message before it, of the last ``REMEMBERED`` replies. Any other assistant message is encoded as text.
    """

    def __init__(self, tokenizer: Any, *, forced: str) -> None:
        self.renderer = ChatRenderer(tokenizer, forced=forced)
        self.opener = THINK if self.renderer.opens_thinking else ""  # told in front of a reply, so that it is whole
        try:
            self._with_system, self._no_system = ChatRenderer(tokenizer, forced=forced, system="x"), ""
        except TemplateError as error:
            self._with_system, self._no_system = self.renderer, str(error)
        self._sampled: OrderedDict[bytes, tuple[int, ...]] = OrderedDict()

    def prompt(self, messages: Sequence[Message], max_context: int) -> tuple[int, ...]:
        """The ids before the reply to ``messages`` (as ``read_call`` checked them).

        Raises RequestError where there are none, and as soon as there are more than ``max_context`` with messages left: what
        a request costs is bounded by the context, however many messages it holds.
        """
        system = messages[0].content if messages[0].role == "system" else None
        turns = messages if system is None else messages[1:]
        if system is not None and self._no_system:
            raise RequestError(f"this model takes no system message: {self._no_system}", param="messages")
        renderer = self.renderer if system is None else self._with_system
        if len(turns) > 1 and not renderer.multi_turn:
            raise RequestError(
                f"this model's chat template rewrites history ({renderer.why_single}), so its conversations cannot be "
                "continued: send one user message",
                param="messages",
            )
        ids = list(renderer.open(turns[0].content, system))
        for i in range(1, len(turns), 2):
            if len(ids) > max_context:
                raise too_long(max_context, f"more than {max_context}")
            reply = self._reply_ids(renderer, turns[i - 1].content, turns[i].content)
            zeros = (0.0,) * len(reply)
            ids += reply
            ids += renderer.extend(Completion(reply, zeros, zeros, "", StopReason.END), turns[i + 1].content)
        return tuple(ids)

    def remember(self, message: str, text: str, ids: tuple[int, ...]) -> None:
        """Keep what was sampled in reply to ``message`` and told as ``text``."""
        key = _key(message, text)
        self._sampled[key] = ids
        self._sampled.move_to_end(key)
        while len(self._sampled) > REMEMBERED:
            self._sampled.popitem(last=False)

    def _reply_ids(self, renderer: ChatRenderer, message: str, text: str) -> tuple[int, ...]:
        found = self._sampled.get(_key(message, text))
        return renderer.reply_ids(text.removeprefix(self.opener)) if found is None else found


def _key(message: str, text: str) -> bytes:
    parts = (part.encode("utf-8", "backslashreplace") for part in (message, text))
    return b"".join(hashlib.blake2b(part, digest_size=16).digest() for part in parts)
