"""Conversations from files, to be taught: JSON lines or Parquet, as messages (role, content) or ShareGPT (from, value).

Every row is checked in full; nothing of a row that cannot be taught as it stands is guessed. What may stand in a row beside
the conversation is what ``ragen export`` writes: ``reply_token_ids`` with the ``tokenizer`` they belong to, ``env`` and
``instance_seed``. Other fields are not looked at.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragen.errors import ConfigError, reason
from ragen.extras import install_command

ENDINGS = (".jsonl", ".parquet")
ROLES = {"system": "system", "user": "user", "human": "user", "assistant": "assistant", "gpt": "assistant"}
FORMS = {"messages": ("role", "content"), "conversations": ("from", "value")}
BESIDE = ("system", "tools", "reply_token_ids", "tokenizer", "env", "instance_seed")
SHOWN = 5  # faulty rows told at once


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages and the replies to them, in turn; ``where`` is the file with the line or row.

    ``reply_ids`` are the replies' exact token ids (None: not stored), under the vocabulary ``tokenizer``.
    """

    where: str
    system: str | None
    turns: tuple[tuple[str, str], ...]
    reply_ids: tuple[tuple[int, ...], ...] | None = None
    tokenizer: str = ""
    env: str = ""
    instance_seed: int | None = None


def read_conversations(path: Path) -> tuple[list[Conversation], int]:
    """The conversations of a file, and how many rows were left out because they hold none (``messages`` is null).

    Raises:
        ConfigError: the file cannot be read, holds nothing, or rows are faulty (the first ones are named).
    """
    found: list[Conversation] = []
    faults: list[str] = []
    empty = 0
    for where, record in _records(path):
        try:
            read = parse_conversation(record, where)
        except ValueError as error:
            faults.append(f"{where}: {error}")
            continue
        if read is None:
            empty += 1
        else:
            found.append(read)
    refuse(faults)
    if not found:
        raise ConfigError(f"'{path}' holds no conversation: give a file with one in each line or row (docs/exports.md)")
    return found, empty


def refuse(faults: list[str]) -> None:
    """Raise ConfigError with the first of what is wrong with rows, if anything is."""
    if faults:
        more = [f"… and {len(faults) - SHOWN} more"] if len(faults) > SHOWN else []
        raise ConfigError("\n".join([*faults[:SHOWN], *more]))


def vocabulary_digest(vocabulary: Mapping[str, int]) -> str:
    """A name for what token ids mean: equal for tokenizers that map the same pieces to the same ids."""
    pieces = json.dumps(sorted(vocabulary.items()), separators=(",", ":"))
    return hashlib.blake2b(pieces.encode(), digest_size=8).hexdigest()


def parse_conversation(record: Any, where: str) -> Conversation | None:
    """A row as a conversation; None where its messages are null. Raises ValueError: field, value, what is allowed."""
    if not isinstance(record, Mapping):
        raise ValueError(f'it is {_shown(record)}: a row is an object, {{"messages": [{{"role": …, "content": …}}, …]}}')
    forms = [form for form in FORMS if form in record]
    if len(forms) != 1:
        held = "both" if forms else "none"
        raise ValueError(f"it holds {held} of the fields 'messages' and 'conversations': one of them is what is taught")
    form = forms[0]
    if record[form] is None:
        return None
    if record.get("tools"):
        raise ValueError("it has 'tools': tool calls cannot be taught here; write them into the messages")
    texts = list(_texts(record[form], form))
    system = _system(record, texts, form)
    sampled = record.get("reply_token_ids") is not None  # a reply may then be an end-of-turn token alone
    turns = _turns(texts, form, offset=len(record[form]) - len(texts), empty=sampled)
    seed = record.get("instance_seed")
    return Conversation(
        where,
        system,
        turns,
        reply_ids=_reply_ids(record.get("reply_token_ids"), len(turns)),
        tokenizer=str(record.get("tokenizer") or ""),
        env=str(record.get("env") or ""),
        instance_seed=seed if isinstance(seed, int) else None,
    )


def _texts(messages: Any, form: str) -> Iterator[tuple[str, str]]:
    """Role and text of each message."""
    if not isinstance(messages, list) or not messages:
        raise ValueError(f"{form} is {_shown(messages)}: it must be a list of messages")
    speaker, content = FORMS[form]
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping) or speaker not in message or content not in message:
            raise ValueError(f"{form}[{i}] is {_shown(message)}: it must be an object with '{speaker}' and '{content}'")
        role, text = message[speaker], message[content]
        if not isinstance(role, str) or role not in ROLES:
            raise ValueError(f"{form}[{i}].{speaker} is {_shown(role)}: allowed are {', '.join(ROLES)}")
        if not isinstance(text, str):
            raise ValueError(f"{form}[{i}].{content} is {_shown(text)}: it must be text")
        _check_text(text, f"{form}[{i}].{content}")
        yield ROLES[role], text


def _system(record: Mapping[str, Any], texts: list[tuple[str, str]], form: str) -> str | None:
    """The system message, taken off the front of ``texts`` or out of the field ``system``."""
    beside = record.get("system") or None
    first = texts.pop(0)[1] if texts[0][0] == "system" else None
    if beside is not None and not isinstance(beside, str):
        raise ValueError(f"system is {_shown(beside)}: it must be text")
    if beside is not None and first is not None:
        raise ValueError(f"there are two system messages, 'system' and {form}[0]: keep one")
    if beside is not None:
        _check_text(beside, "system")
    return beside if first is None else first


def _turns(texts: list[tuple[str, str]], form: str, *, offset: int, empty: bool) -> tuple[tuple[str, str], ...]:
    for i, (role, text) in enumerate(texts):
        wanted = ("user", "assistant")[i % 2]
        if role != wanted:
            raise ValueError(
                f"{form}[{i + offset}] is of '{role}' where '{wanted}' has its turn: after a system message, if any, user "
                "and assistant speak in turn, the user first"
            )
        if role == "assistant" and not text and not empty:
            raise ValueError(f"{form}[{i + offset}] is an empty reply: there is nothing to teach")
    if len(texts) % 2 or not texts:
        raise ValueError(f"{form} ends without a reply: the last message must be the assistant's, for replies are taught")
    return tuple((texts[i][1], texts[i + 1][1]) for i in range(0, len(texts), 2))


def _reply_ids(ids: Any, replies: int) -> tuple[tuple[int, ...], ...] | None:
    if ids is None:
        return None
    sound = isinstance(ids, list) and all(
        isinstance(one, list) and one and all(type(token) is int and token >= 0 for token in one) for one in ids
    )
    if not sound or len(ids) != replies:
        raise ValueError(
            f"reply_token_ids is {_shown(ids)}: it must be {replies} lists of token ids, one a reply; without it the text "
            "is taught"
        )
    return tuple(tuple(one) for one in ids)


def _check_text(text: str, field: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"{field} holds a lone surrogate at character {error.start}: that is no text") from None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _records(path: Path) -> Iterable[tuple[str, Any]]:
    try:
        return list(_parquet_rows(path) if path.suffix == ".parquet" else _json_lines(path))
    except (OSError, ValueError) as error:  # a name with a NUL is a ValueError
        raise ConfigError(
            f"cannot read '{path}': {reason(error)}; give a file of conversations (.jsonl or .parquet), or set warmup.data "
            "to none, format or oracle"
        ) from None


def _json_lines(path: Path) -> Iterator[tuple[str, Any]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            where = f"'{path}', line {number}"
            try:
                if text := line.decode("utf-8-sig" if number == 1 else "utf-8").strip():
                    yield where, json.loads(text)
            except UnicodeDecodeError as error:
                raise ConfigError(f"{where}: byte {error.start + 1} is not UTF-8: convert the file") from None
            except (ValueError, RecursionError) as error:
                raise ConfigError(f"{where}: it is not JSON ({error}); each line is one whole object") from None


def _parquet_rows(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise ConfigError(f"reading '{path}' needs pyarrow: {install_command('parquet')}, or give a .jsonl file") from None
    try:
        with ParquetFile(path) as file:
            columns = [name for name in (*FORMS, *BESIDE) if name in file.schema_arrow.names]
            number = 0
            for batch in file.iter_batches(columns=columns):
                for record in batch.to_pylist():
                    number += 1
                    yield f"'{path}', row {number}", record
    except ArrowException as error:
        raise ConfigError(f"'{path}' is not a Parquet file: {' '.join(str(error).split())}") from None
