"""What a chat template writes around messages, found by rendering marked messages and proved on more of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ragen.errors import TemplateError

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


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A template's literal pieces: ``before system after_system user to_reply reply between user to_reply reply …``.

    Without a system message ``system`` and ``after_system`` are empty. ``to_reply`` ends with the generation prompt.
    ``close`` follows the last reply of a finished conversation. ``clean`` and ``clean_system`` are what happens to the
    outer blanks of a user message and of a system message. ``between`` means something only where ``why_single`` is empty;
    else that says how history is rewritten.
    """

    before: str
    system: str
    after_system: str
    to_reply: str
    between: str
    close: str
    clean: Clean
    clean_system: Clean
    why_single: str


class _RewritesError(Exception):
    """The template shows history otherwise than it was."""


def read_template(tokenizer: Any, system: str | None) -> ChatTemplate:
    """Derive the pieces and prove them on conversations of one to three turns.

    Proved: each render is exactly the pieces and the messages in order, so a conversation of k turns is a prefix of the
    one with k + 1, with thinking in every reply. Only outer blanks of a reply are free: some templates trim them, and we
    keep what was sampled.

    Raises:
        TemplateError: there is no template, or not even one turn can be rendered.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise TemplateError(
            "the tokenizer has no chat template, so there is no way to mark who speaks: choose an instruct model, or put a "
            "chat_template.jinja into the model's directory"
        )
    chat = _Chat(tokenizer, None if system is None else SYSTEM)
    before, to_reply, clean = _surroundings(lambda text: chat.render([text], []), USERS[0], "a user message")
    opening, after, clean_system = before, "", CLEANERS[0]
    if system is not None:
        one_turn: Clean = lambda text: _Chat(tokenizer, text).render([USERS[0]], [])  # noqa: E731
        before, rest, clean_system = _surroundings(one_turn, SYSTEM, "the system message")
        after, _ = _cut(rest, USERS[0], "a user message")
    try:
        between, why = _prove_growth(chat, opening, to_reply, clean), ""
    except _RewritesError as problem:
        between, why = "", str(problem)
    shown = "" if system is None else clean_system(system)
    return ChatTemplate(before, shown, after, to_reply, between, _close(chat), clean, clean_system, why)


@dataclass(frozen=True, slots=True)
class _Chat:
    tokenizer: Any
    system: str | None

    def render(self, users: Sequence[str], replies: Sequence[str]) -> str:
        """The template's text; it ends with the generation prompt if a user message is unanswered."""
        messages = [] if self.system is None else [{"role": "system", "content": self.system}]
        for i, user in enumerate(users):
            messages.append({"role": "user", "content": user})
            messages.extend({"role": "assistant", "content": reply} for reply in replies[i : i + 1])
        try:
            prompt = len(users) > len(replies)
            return str(self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt))
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


def _prove_growth(chat: _Chat, opening: str, to_reply: str, clean: Clean) -> str:
    """Return what stands between a reply and the next user message, the same in every conversation tried."""
    between: str | None = None
    users = [clean(f"\n{user} ") for user in USERS]
    for form in REPLIES:
        replies = [form.format(t=f"THOUGHT{i + 1}zq", a=f"ANSWER{i + 1}zq") for i in range(2)]
        for turns in (2, 3):
            try:
                text = chat.render([f"\n{user} " for user in USERS[:turns]], replies[: turns - 1])
            except TemplateError as error:
                raise _RewritesError(str(error)) from error
            chunks = _replies_shown(text, opening, to_reply, users[:turns])
            for reply, chunk in zip(replies, chunks, strict=False):
                if between is None:  # the first form is a bare mark
                    between = chunk.partition(reply)[2]
                body = chunk.removesuffix(between)
                if body + between != chunk or body.strip() != reply.strip():
                    raise _RewritesError(f"the chat template shows the earlier reply {reply!r} as {body!r}")
    return between or ""


def _replies_shown(text: str, opening: str, to_reply: str, users: Sequence[str]) -> list[str]:
    """Each earlier reply as shown, with what follows it up to the next user message."""
    chunks: list[str] = []
    piece = opening
    for i, user in enumerate(users):
        chunk, found, text = text.partition(user)
        if i == 0 and (chunk != opening or not found):
            raise _RewritesError(
                f"the chat template changes its beginning when turns are added: {piece!r} becomes {chunk!r}"
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
