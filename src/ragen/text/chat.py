"""The incremental chat renderer: a conversation grows by appending ids and is never rendered again (law 1).

How text becomes ids:

* A template's own text is parsed for the tokenizer's added tokens (``<|im_start|>`` is one id), and so is the forced text.
* Messages are never parsed: whatever an environment says stays text. Neighbouring texts (the template's, a message, the
  forced text) are encoded as one run, so for benign messages the ids are those of ``tokenizer(rendered text)``.
* What the policy sampled stays as sampled, also where its text would be encoded otherwise.
* A beginning-of-sequence token is there once, if the template writes it or the tokenizer adds it.
* What a template computes (a date) is fixed when the renderer is made.
* The final newline: what a template writes behind the end-of-turn token (ChatML: ``\\n``) belongs to the *next* turn's
  prompt ids. It is never sampled, and a conversation's last reply ends with its end-of-turn token.
* Tools are the template's own where it has tool calls of our form (``with_tools``): it describes them, and what follows a
  reply is a message of the role ``tool``. A tool's answer is a message: never parsed.
"""

import json
from collections.abc import Sequence
from typing import Any

from ragen.episode import Completion
from ragen.errors import TemplateError
from ragen.text.encoding import Encoder, Part
from ragen.text.parser import TAGS, THINK
from ragen.text.template import ChatTemplate, read_template
from ragen.tools import Tool
from ragen.tools.call import CALL_TAGS

PROBE = "zq Which way?\nLeft or Right: 3 + 4.5\n#_P_O"


class ChatRenderer:
    """Turns messages into the ids to append.

    Args:
        tokenizer: a Hugging Face fast tokenizer with a chat template.
        forced: text each reply begins with, given rather than sampled (``<think>``); left out where the template's own
            generation prompt already ends with it.
        system: a system message, or None for none of ours (the template may write its own).
        tools: tools the template is to describe.

    Attributes:
        end_of_turn: the id that closes a reply in this template.
        control_ids: the ids of the tokenizer's special tokens and of ``end_ids``, the format's tags apart.
        end_ids: the ids that end a reply when sampled: ``end_of_turn`` and the tokenizer's end of sequence.
        multi_turn: whether history provably only grows; else ``open`` still works, one turn a segment.
        why_single: the reason where ``multi_turn`` is False.
        shows_tools: whether the template describes tools; else a prompt must.
        opens_thinking: whether a prompt ends with ``<think>`` (forced or the template's own), so replies begin behind it.

    Raises:
        TemplateError: the template is missing or cannot render one turn, text of messages could become control tokens,
            or the ids differ from the tokenizer's own; it has no tool calls of our form, or a tool's description holds a
            control token.
    """

    def __init__(self, tokenizer: Any, *, forced: str = "", system: str | None = None, tools: Sequence[Tool] = ()) -> None:
        template = read_template(tokenizer, system, tools)
        self._source = (tokenizer, forced, system)
        self._tooled: dict[str, ChatRenderer] = {}
        self.shows_tools = bool(tools)
        self._clean, self._clean_later, self._clean_system = template.clean, template.clean_later, template.clean_system
        self._encoder = Encoder(tokenizer)
        self._check_descriptions(tools)
        self._system = template.system
        self._has_system = system is not None
        self._before = self._encoder.parse(template.before)
        self._after_system = self._encoder.parse(template.after_system)
        self._to_reply = self._encoder.parse(template.to_reply)
        self._to_later = self._encoder.parse(template.to_later)
        self._between = self._encoder.parse(template.between)
        given = forced.strip() != "" and template.to_reply.rstrip().endswith(forced.strip())
        self._forced = [] if given else self._encoder.parse(forced)
        self.opens_thinking = (forced.rstrip() or template.to_reply.rstrip()).endswith(THINK)
        self._close = self._encoder.parse(template.close)
        self.why_single = template.why_single
        if not self.why_single and _leading_token(self._between) is None:
            self.why_single = f"the chat template ends a reply with plain text ({template.between!r}), not with a token"
        self.multi_turn = not self.why_single
        eos: int | None = tokenizer.eos_token_id
        self.end_of_turn = self._find_end_of_turn(eos)
        self.end_ids = frozenset({self.end_of_turn} if eos is None else {self.end_of_turn, eos})
        special = {token.id for token in self._encoder.added.values() if token.special}
        self.control_ids = self.end_ids | (special - self._tags())
        self._bos = self._missing_bos(tokenizer)
        pieces = (*self._before, *self._after_system, *self._to_reply, *self._to_later, *self._between, *self._forced)
        self._encoder.check(self.end_ids | {part for part in pieces if isinstance(part, int) and part not in self._tags()})
        self._check_ids(tokenizer, template)

    def with_tools(self, tools: Sequence[Tool]) -> "ChatRenderer":
        """The renderer whose template describes these tools; this one, for prompts that describe them, where it cannot.

        It cannot where its calls have another form than ``parse_reply`` reads, or its history grows only without tools.
        """
        if not tools:
            return self
        key = json.dumps([tool.schema for tool in tools])
        if key not in self._tooled:
            tokenizer, forced, system = self._source
            try:
                own = ChatRenderer(tokenizer, forced=forced, system=system, tools=tools)
            except TemplateError:
                own = self
            grows = own.multi_turn or not self.multi_turn
            self._tooled[key] = own if grows and own.end_ids == self.end_ids else self
        return self._tooled[key]

    def open(self, message: str, system: str | None = None) -> tuple[int, ...]:
        """A new segment: the template's beginning, the user message, the generation prompt and the forced text.

        ``system`` stands in the place of the renderer's own system message; ValueError where that has none.
        """
        if system is not None and not self._has_system:
            raise ValueError("this renderer was made without a system message, so its template has no place for one")
        shown = self._system if system is None else self._clean_system(system)
        return self._opening(shown, message, self._forced)

    def extend(self, completion: Completion, message: str) -> tuple[int, ...]:
        """What to append after the sampled ids: the rest of the reply's end, the message, the prompt for the next reply.

        A reply that did not sample the template's end-of-turn token (cut by length or a stop string, or ended by another
        end token) is closed with it here: it is forced, not sampled, and what was sampled is not changed.

        Raises:
            TemplateError: the template rewrites history (``multi_turn`` is False).
        """
        if not self.multi_turn:
            raise TemplateError(f"{self.why_single}: open a new segment each turn (rollout.context 'single')")
        sampled = completion.token_ids[-1:] == (self.end_of_turn,)
        skip = self._between.index(self.end_of_turn) + 1 if sampled else 0
        parts = [*self._between[skip:], self._clean_later(message), *self._to_later, *self._forced]
        return self._encoder.ids(parts, after=completion.token_ids[-1] if completion.token_ids else None)

    def reply_ids(self, text: str) -> tuple[int, ...]:
        """A demonstration's reply, without the forced text, as ids with the end-of-turn id.

        The text is one run of its own, as a policy would write it after the prompt: it does not merge with the forced
        text. Of the tokenizer's added tokens only the format's tags (``<think>``, ``<tool_call>``, …) are used.
        """
        return (*self._encoder.ids(self._encoder.parse(text, (*TAGS, *CALL_TAGS))), self.end_of_turn)

    def _opening(self, system: str, message: str, forced: list[Part]) -> tuple[int, ...]:
        parts = [*self._before, system, *self._after_system, self._clean(message), *self._to_reply, *forced]
        return self._bos + self._encoder.ids(parts, start=True)

    def _tags(self) -> set[int]:
        """Ids of format tags that the tokenizer has as tokens: a policy samples them, so they control nothing."""
        return {token.id for token in self._encoder.added.values() if token.content in (*TAGS, *CALL_TAGS)}

    def _check_descriptions(self, tools: Sequence[Tool]) -> None:
        """A template parses what it says of tools as its own text: it must not hold a control token."""
        for tool in tools:
            parts = self._encoder.parse(json.dumps(tool.schema, ensure_ascii=False))
            if any(isinstance(part, int) for part in parts):
                raise TemplateError(f"the description of the tool '{tool.name}' holds a token of the chat template")

    def _find_end_of_turn(self, eos: int | None) -> int:
        ends = (_leading_token(self._between if self.multi_turn else []), _leading_token(self._close), eos)
        found = next((end for end in ends if end is not None), None)
        if found is None:
            raise TemplateError(
                "neither the chat template nor the tokenizer has a token that ends a reply: set tokenizer.eos_token"
            )
        return found

    def _missing_bos(self, tokenizer: Any) -> tuple[int, ...]:
        """The beginning-of-sequence id where the tokenizer adds one by itself and the template writes none."""
        bos: int | None = tokenizer.bos_token_id
        if bos is None or bos in self._before or list(tokenizer.encode("a"))[:1] != [bos]:
            return ()
        return (bos,)

    def _check_ids(self, tokenizer: Any, template: ChatTemplate) -> None:
        """Our ids of a benign prompt must be the tokenizer's own."""
        system = PROBE if template.system else ""
        text = "".join((template.before, system, template.after_system, PROBE, template.to_reply))
        ours = self._opening(system, PROBE, [])
        theirs = (*self._bos, *tokenizer.encode(text, add_special_tokens=False))
        if ours != theirs:
            at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
            raise TemplateError(
                f"the ids of {text!r} differ from the tokenizer's own at position {at} ({ours[at : at + 4]} against "
                f"{theirs[at : at + 4]}): this kind of tokenizer is not supported, use its fast (tokenizer.json) form"
            )


def _leading_token(parts: list[Part]) -> int | None:
    """The token a piece begins with, blanks apart."""
    first = next((part for part in parts if isinstance(part, int) or part.strip()), None)
    return first if isinstance(first, int) else None
