"""What a reply says: the one format rule, used by training, evaluation and metrics alike.

In thinking mode a reply is exactly one ``<think>…</think>`` followed by exactly one ``<answer>…</answer>``:

* The thinking is everything before the first ``</think>``; tags inside it do not count. Its opener may be forced by the
  rollout, written by the policy, or both: an opener in front (after blanks) is dropped, a missing one was forced.
* After the thinking the only tags are one ``<answer>`` and then one ``</answer>``. A missing ``</think>``, a second answer
  (complete or not) or another think tag makes the format invalid.

In no-thinking mode a reply holds exactly one ``<answer>`` and then one ``</answer>``; think tags are plain text.
Where an environment's actions are tool calls (``calls=True``), what follows the thinking is instead either one or several
``<tool_call>{"name": …, "arguments": {…}}</tool_call>``, each closed, or one ``<answer>`` with the final answer; not both.
The actions are then what the calls hold, or the answer as a call.

Tags are matched exactly as written here (case matters, no blanks inside). Other text around them is ignored, also what a
policy writes after its answer. Nothing is parsed as XML, so ``<`` and ``&`` are ordinary characters. All is linear in
the length of the text, and no text raises.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ragen.tools.call import CALL, CALL_TAGS, END_CALL, final

THINK, END_THINK, ANSWER, END_ANSWER = "<think>", "</think>", "<answer>", "</answer>"
TAGS = (THINK, END_THINK, ANSWER, END_ANSWER)
SEPARATOR = "||"
_BETWEEN = re.compile(r"[\s,;|→]+|[-=]>")  # what stands between actions that a thought lists


@dataclass(frozen=True, slots=True)
class Reply:
    """A parsed reply. ``answer`` is None if and only if the format is invalid.

    ``thought`` is the stripped thinking, or None in no-thinking mode or where it was not closed. ``actions`` are the
    answer's raw sub-actions: split on ``||``, outer blanks stripped, empty ones dropped; or the raw tool calls, which then
    are the ``answer`` as well.
    """

    thought: str | None
    answer: str | None
    actions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """What a reply makes the environment do.

    ``actions`` are executed in order; ``invalid`` are the sub-actions that name no action (skipped); ``ignored`` counts
    valid ones beyond the limit. ``valid`` is False for a turn that costs the format penalty.
    """

    actions: tuple[str, ...]
    invalid: tuple[str, ...]
    ignored: int
    valid: bool


def parse_reply(text: str, *, thinking: bool, calls: bool = False) -> Reply:
    """Parse what the policy sampled, with or without a forced ``<think>`` in front (see the module's rules)."""
    thought, tail = None, text
    if thinking:
        before, closed, tail = text.partition(END_THINK)
        if not closed:
            return Reply(None, None, ())
        thought = before.lstrip().removeprefix(THINK).strip()
        if THINK in tail or END_THINK in tail:
            return Reply(thought, None, ())
    if calls and any(tag in tail for tag in CALL_TAGS):
        return _calls(thought, tail)
    answer = _only_answer(tail)
    if answer is None:
        return Reply(thought, None, ())
    if calls:
        return Reply(thought, answer, (final(answer),) if answer else ())
    parts = (part.strip() for part in answer.split(SEPARATOR))
    return Reply(thought, answer, tuple(part for part in parts if part))


def choose_actions(reply: Reply, match: Callable[[str], str | None], limit: int) -> Choice:
    """The actions to execute: the first ``limit`` sub-actions that ``match`` names (canonical spelling).

    Unmatched sub-actions are skipped and listed wherever they stand; the others run in order. The choice is valid if and
    only if the format is valid and at least one sub-action matches. A turn is invalid as a whole: the penalty is due once.
    """
    matched: list[str] = []
    invalid: list[str] = []
    for raw in reply.actions:
        action = match(raw)
        if action is None:
            invalid.append(raw)
        else:
            matched.append(action)
    actions = tuple(matched[: max(limit, 0)])
    return Choice(actions, tuple(invalid), len(matched) - len(actions), reply.answer is not None and bool(matched))


def named_actions(thought: str, words: Sequence[str], match: Callable[[str], str | None]) -> tuple[str, ...]:
    """The actions a thought names, in order and as often as it does, in the spelling that ``match`` gives.

    Pieces end at blanks, commas, semicolons, bars and arrows. Of ``words``, the environment's action words, the longest is
    looked for first, so that one of several words is not taken for one of fewer.
    """
    pieces = [piece for piece in _BETWEEN.split(thought) if piece]
    longest = max((len(word.split()) for word in words), default=1)
    named: list[str] = []
    begin = 0
    while begin < len(pieces):
        ends = range(min(begin + longest, len(pieces)), begin, -1)
        found = next(((end, action) for end in ends if (action := match(" ".join(pieces[begin:end]))) is not None), None)
        if found is not None:
            named.append(found[1])
        begin = begin + 1 if found is None else found[0]
    return tuple(named)


def _calls(thought: str | None, text: str) -> Reply:
    """The calls of a reply that holds a tag of one; invalid unless each is closed before the next and none is an answer."""
    head, *pieces = text.split(CALL)
    closed = END_CALL not in head and all(piece.count(END_CALL) == 1 for piece in pieces)
    if not closed or ANSWER in text or END_ANSWER in text:
        return Reply(thought, None, ())
    raw = tuple(piece.partition(END_CALL)[0].strip() for piece in pieces)
    return Reply(thought, "\n".join(raw), raw)


def _only_answer(text: str) -> str | None:
    """The text between the only ``<answer>`` and the only ``</answer>``, or None."""
    if text.count(ANSWER) != 1 or text.count(END_ANSWER) != 1:
        return None
    begin, end = text.index(ANSWER) + len(ANSWER), text.index(END_ANSWER)
    return text[begin:end].strip() if begin <= end else None
