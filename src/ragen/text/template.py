"""What a chat template writes around messages, found by rendering marked messages and proved on more of them.

With tools the template describes them in its beginning, and what follows a reply is a message of the role ``tool``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ragen.errors import TemplateError
from ragen.text.parser import parse_reply
from ragen.tools import Tool
from ragen.tools.call import Call, CallError, read_call

Clean = Callable[[str], str]
CLEANERS: tuple[Clean, ...] = (str, str.strip, str.lstrip, str.rstrip)  # what templates do to a message's outer blanks
SYSTEM, USERS = "SYSTEMzq", ("MESSAGE1zq", "MESSAGE2zq", "MESSAGE3zq")  # marks: texts no template contains
REPLIES = (  # {t} and {a} are marks; each form is one that some template rewrites
    "{a}",
    "<think>{t}</think><answer>{a}</answer>",
    "<think>\n{t}\n</think>\n\n<answer>{a}</answer>",
    "{t}</think>{a}",
    " \n<think> {t} </think> {a}\n ",
)
CALLING = (  # and with tools
    '<think>{t}</think>\n<tool_call>\n{{"name": "{a}", "arguments": {{}}}}\n</tool_call>',
    '{t}<tool_call>{{"name": "{a}", "arguments": {{}}}}</tool_call>\n<tool_call>\n{{}}\n</tool_call>',
)
PROBE = Call("zq_tool", {"text": 'a < b & "c" é'})


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A template's literal pieces: ``before system after_system user to_reply reply between later to_later reply …``.

    A ``later`` message is the user's again, and ``to_later`` as ``to_reply``; with tools it is a tool's answer.
    Without a system message ``system`` and ``after_system`` are empty. ``to_reply`` ends with the generation prompt.
    ``close`` follows the last reply of a finished conversation. ``clean`` and ``clean_system`` are what happens to the
    outer blanks of a user message and of a system message, ``clean_later`` to those of a later one. ``between`` means
    something only where ``why_single`` is empty; else that says how history is rewritten.
    """

    before: str
    system: str
    after_system: str
    to_reply: str
    between: str
    close: str
    clean: Clean
    clean_system: Clean
    to_later: str
    clean_later: Clean
    why_single: str


class _RewritesError(Exception):
    """The template shows history otherwise than it was."""


def read_template(tokenizer: Any, system: str | None, tools: Sequence[Tool] = ()) -> ChatTemplate:
    """Derive the pieces and prove them on conversations of one to three turns.

    Proved: each render is exactly the pieces and the messages in order, so a conversation of k turns is a prefix of the
    one with k + 1, with thinking in every reply. Only outer blanks of a reply are free: some templates trim them, and we
    keep what was sampled. With ``tools``: that the template names them, that a call it writes is one that ``parse_reply``
    reads, and the same growth with tools' answers.

    Raises:
        TemplateError: there is no template, not even one turn can be rendered, or it has no tool calls of our form.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise TemplateError(
            "the tokenizer has no chat template, so there is no way to mark who speaks: choose an instruct model, or put a "
            "chat_template.jinja into the model's directory"
        )
    chat = _Chat(tokenizer, None if system is None else SYSTEM, tuple(tools))
    before, to_reply, clean = _surroundings(lambda text: chat.render([text], []), USERS[0], "a user message")
    opening, after, clean_system = before, "", CLEANERS[0]
    if system is not None:
        one_turn: Clean = lambda text: _Chat(tokenizer, text, chat.tools).render([USERS[0]], [])  # noqa: E731
        before, rest, clean_system = _surroundings(one_turn, SYSTEM, "the system message")
        after, _ = _cut(rest, USERS[0], "a user message")
    to_later, clean_later = _tool_answers(chat, opening) if tools else (to_reply, clean)
    growth = _Growth(chat, opening, (to_reply, to_later, to_later), (clean, clean_later, clean_later))
    try:
        between, why = _prove_growth(growth), ""
    except _RewritesError as problem:
        between, why = "", str(problem)
    shown = "" if system is None else clean_system(system)
    close = _close(chat)
    return ChatTemplate(before, shown, after, to_reply, between, close, clean, clean_system, to_later, clean_later, why)


@dataclass(frozen=True, slots=True)
class _Chat:
    tokenizer: Any
    system: str | None
    tools: tuple[Tool, ...]

    @property
    def later(self) -> str:
        """The role of the messages that follow replies."""
        return "tool" if self.tools else "user"

    def render(self, users: Sequence[str], replies: Sequence[str]) -> str:
        """The template's text; it ends with the generation prompt if a user message is unanswered."""
        messages: list[dict[str, Any]] = []
        for i, user in enumerate(users):
            messages.append({"role": self.later if i else "user", "content": user})
            messages.extend({"role": "assistant", "content": reply} for reply in replies[i : i + 1])
        return self.rendered(messages, prompt=len(users) > len(replies))

    def rendered(self, messages: Sequence[dict[str, Any]], *, prompt: bool) -> str:
        """The template's text of these messages behind the system message, if there is one."""
        messages = [*([] if self.system is None else [{"role": "system", "content": self.system}]), *messages]
        tools = {"tools": [tool.schema for tool in self.tools]} if self.tools else {}
        try:
            return str(self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt, **tools))
        except Exception as error:  # a template is a program: it raises what it likes
            hint = "" if self.system is None else "; if it knows no system role, leave the system message out"
            roles = " + ".join(message["role"] for message in messages)
            raise TemplateError(
                f"the chat template fails on the messages {roles} ({type(error).__name__}: {error}){hint}"
            ) from error


def _cut(text: str, mark: str, what: str) -> tuple[str, str]:
    """The text before and after a mark that must be there once."""
    if text.count(mark) != 1:
        raise TemplateError(
            f"the chat template shows {what} {text.count(mark)} times instead of once, so its text cannot be told from the "
            "message: use another template" + (", or leave the system message out" if mark == SYSTEM else "")
        )
    before, _, after = text.partition(mark)
    return before, after


def _surroundings(render: Clean, mark: str, what: str) -> tuple[str, str, Clean]:
    """What stands before and after a message, and what happens to its outer blanks."""
    before, after = _cut(render(mark), mark, what)
    padded = f" \n {mark}\n\n _<{mark}> &  #\n\n "
    shown = render(padded)
    for clean in CLEANERS:
        if shown == before + clean(padded) + after:
            return before, after, clean
    raise TemplateError(
        f"the chat template changes {what} (shown as {shown!r}), so it cannot be reproduced: use another template"
    )


@dataclass(frozen=True, slots=True)
class _Growth:
    """What a conversation is said to be made of: its opening, and for each message what follows it and what cleans it."""

    chat: _Chat
    opening: str
    tails: tuple[str, ...]
    cleaners: tuple[Clean, ...]


def _tool_answers(chat: _Chat, opening: str) -> tuple[str, Clean]:
    """What follows a tool's answer up to the reply, and what cleans it; TemplateError unless tool calls have our form."""
    if not all(tool.name in opening for tool in chat.tools):
        raise TemplateError("the chat template does not show tools")
    function = {"name": PROBE.name, "arguments": dict(PROBE.arguments)}
    calling = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}
    text = chat.rendered([{"role": "user", "content": USERS[0]}, calling], prompt=False)
    shown = text.removeprefix(f"{opening}{USERS[0]}")
    try:
        calls = [str(read_call(raw)) for raw in parse_reply(shown, thinking=False, calls=True).actions]
    except CallError as error:
        raise TemplateError(f"the chat template writes a tool call as {shown!r}: {error}") from None
    if calls != [str(PROBE)]:
        raise TemplateError(f"the chat template writes a tool call as {shown!r}, not between <tool_call> and </tool_call>")
    answered: Clean = lambda text: chat.render([USERS[0], text], ["ANSWER1zq"])  # noqa: E731
    _, to_later, clean_later = _surroundings(answered, USERS[1], "a tool's answer")
    return to_later, clean_later


def _prove_growth(growth: _Growth) -> str:
    """Return what stands between a reply and the next message, the same in every conversation tried."""
    between: str | None = None
    chat = growth.chat
    users = [clean(f"\n{user} ") for user, clean in zip(USERS, growth.cleaners, strict=True)]
    for form in (*REPLIES, *(CALLING if chat.tools else ())):
        replies = [form.format(t=f"THOUGHT{i + 1}zq", a=f"ANSWER{i + 1}zq") for i in range(2)]
        for turns in (2, 3):
            try:
                text = chat.render([f"\n{user} " for user in USERS[:turns]], replies[: turns - 1])
            except TemplateError as error:
                raise _RewritesError(str(error)) from error
            chunks = _replies_shown(text, growth, users[:turns])
            for reply, chunk in zip(replies, chunks, strict=False):
                if between is None:  # the first form is a bare mark
                    between = chunk.partition(reply)[2]
                body = chunk.removesuffix(between)
                if body + between != chunk or body.strip() != reply.strip():
                    raise _RewritesError(f"the chat template shows the earlier reply {reply!r} as {body!r}")
    return between or ""


def _replies_shown(text: str, growth: _Growth, users: Sequence[str]) -> list[str]:
    """Each earlier reply as shown, with what follows it up to the next message."""
    chunks: list[str] = []
    opening = growth.opening
    for i, (user, to_reply) in enumerate(zip(users, growth.tails, strict=False)):
        chunk, found, text = text.partition(user)
        if i == 0 and (chunk != opening or not found):
            raise _RewritesError(
                f"the chat template changes its beginning when turns are added: {opening!r} becomes {chunk!r}"
            )
        if i > 0 and not found:
            raise _RewritesError("the chat template drops or changes a user message when turns are added")
        if not text.startswith(to_reply):
            raise _RewritesError(f"the chat template changes what introduces a reply: {to_reply!r} becomes {text[:60]!r}")
        text = text[len(to_reply) :]
        if i > 0:
            chunks.append(chunk)
    if text:
        raise _RewritesError(f"the chat template adds {text!r} to the generation prompt when turns are added")
    return chunks


def _close(chat: _Chat) -> str:
    """What follows the last reply, or "" where the template cannot show a finished turn."""
    try:
        return chat.render(USERS[:1], ["ANSWER1zq"]).partition("ANSWER1zq")[2]
    except TemplateError:
        return ""
