"""Files of conversations: each faulty row is named with file, line, field and what is allowed; nothing is guessed."""

import json
from pathlib import Path
from typing import Any

import pytest

from ragen.errors import ConfigError
from ragen.text.conversations import Conversation, parse_conversation, read_conversations, vocabulary_digest

MESSAGES = [{"role": "user", "content": "Which?"}, {"role": "assistant", "content": "Left"}]
SHAREGPT = [{"from": "human", "value": "Which?"}, {"from": "gpt", "value": "Left"}]


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "row",
    [
        {"messages": MESSAGES},
        {"conversations": SHAREGPT},
        {"conversations": [{"from": "user", "value": "Which?"}, {"from": "assistant", "value": "Left"}], "id": 3},
    ],
)
def test_messages_and_sharegpt_are_the_same_conversation(row: Any) -> None:
    assert parse_conversation(row, "here") == Conversation("here", None, (("Which?", "Left"),))


def test_a_system_message_may_stand_in_front_or_beside() -> None:
    front = parse_conversation({"messages": [{"role": "system", "content": "Be terse."}, *MESSAGES, *MESSAGES]}, "x")
    beside = parse_conversation({"conversations": [*SHAREGPT, *SHAREGPT], "system": "Be terse."}, "x")
    assert front == beside == Conversation("x", "Be terse.", (("Which?", "Left"),) * 2)
    assert parse_conversation({"messages": MESSAGES, "system": ""}, "x") == Conversation("x", None, (("Which?", "Left"),))


def test_what_an_export_writes_beside_is_read() -> None:
    row = {"messages": MESSAGES, "reply_token_ids": [[4, 2]], "tokenizer": "abc", "env": "bandit", "instance_seed": 2**62}
    assert parse_conversation(row, "x") == Conversation("x", None, (("Which?", "Left"),), ((4, 2),), "abc", "bandit", 2**62)


def test_an_empty_reply_that_was_sampled_is_none_by_mistake() -> None:
    row = {"messages": [MESSAGES[0], {"role": "assistant", "content": ""}], "reply_token_ids": [[2]], "tokenizer": "abc"}
    assert parse_conversation(row, "x") == Conversation("x", None, (("Which?", ""),), ((2,),), "abc")


FAULTS: list[tuple[Any, str]] = [
    ([1], r"it is \[1\]: a row is an object"),
    ({"text": "hello"}, "it holds none of the fields 'messages' and 'conversations'"),
    ({"messages": MESSAGES, "conversations": SHAREGPT}, "it holds both of the fields"),
    ({"messages": []}, r"messages is \[\]: it must be a list of messages"),
    ({"messages": "hello"}, "messages is 'hello': it must be a list"),
    ({"messages": ["hello"]}, r"messages\[0\] is 'hello': it must be an object with 'role' and 'content'"),
    ({"messages": SHAREGPT}, r"messages\[0\] is .*it must be an object with 'role' and 'content'"),
    ({"conversations": MESSAGES}, r"conversations\[0\] is .*it must be an object with 'from' and 'value'"),
    ({"messages": [{"role": "tool", "content": ""}]}, r"messages\[0\]\.role is 'tool': allowed are system, user, human, "),
    ({"messages": [{"role": [], "content": ""}]}, r"messages\[0\]\.role is \[\]: allowed"),
    ({"messages": [{"role": "user", "content": [{"text": "a"}]}]}, r"messages\[0\]\.content is \[.*: it must be text"),
    ({"messages": [{"role": "user", "content": None}]}, r"messages\[0\]\.content is None: it must be text"),
    ({"messages": MESSAGES[:1]}, "messages ends without a reply"),
    ({"messages": [{"role": "system", "content": "a"}]}, "messages ends without a reply"),
    ({"messages": MESSAGES[1:]}, r"messages\[0\] is of 'assistant' where 'user' has its turn"),
    ({"messages": [MESSAGES[0], MESSAGES[0], MESSAGES[1]]}, r"messages\[1\] is of 'user' where 'assistant' has its turn"),
    (
        {"messages": [{"role": "system", "content": "a"}, MESSAGES[1]]},
        r"messages\[1\] is of 'assistant' where 'user' has its turn",
    ),
    (
        {"messages": [*MESSAGES, {"role": "system", "content": "a"}]},
        r"messages\[2\] is of 'system' where 'user'",
    ),
    ({"messages": [MESSAGES[0], {"role": "assistant", "content": ""}]}, r"messages\[1\] is an empty reply"),
    (
        {"messages": [MESSAGES[0], {"role": "assistant", "content": "ab\ud800"}]},
        r"\[1\]\.content holds a lone surrogate",
    ),
    ({"messages": MESSAGES, "system": 3}, "system is 3: it must be text"),
    ({"messages": [{"role": "system", "content": "a"}, *MESSAGES], "system": "b"}, r"two system messages, .*messages\[0\]"),
    ({"messages": MESSAGES, "tools": [{"name": "f"}]}, "it has 'tools'"),
    ({"messages": MESSAGES, "reply_token_ids": [[1], [2]]}, "reply_token_ids is .*: it must be 1 lists of token ids"),
    ({"messages": MESSAGES, "reply_token_ids": [[1, -2]]}, "reply_token_ids is"),
    ({"messages": MESSAGES, "reply_token_ids": [[True]]}, "reply_token_ids is"),
    ({"messages": MESSAGES, "reply_token_ids": [[]]}, "reply_token_ids is"),
    ({"messages": MESSAGES, "reply_token_ids": 7}, "reply_token_ids is 7"),
]


@pytest.mark.parametrize(("row", "problem"), FAULTS)
def test_a_faulty_row_is_named_with_line_field_value_and_what_is_allowed(tmp_path: Path, row: Any, problem: str) -> None:
    path = write(tmp_path / "data.jsonl", {"messages": MESSAGES}, "", row)
    with pytest.raises(ConfigError, match=rf"^'{path}', line 3: .*{problem}"):
        read_conversations(path)


def test_many_faulty_rows_are_told_in_part(tmp_path: Path) -> None:
    path = write(tmp_path / "data.jsonl", *[{"messages": []}] * 8)
    with pytest.raises(ConfigError) as caught:
        read_conversations(path)
    lines = str(caught.value).splitlines()
    assert [line.split(":")[0] for line in lines] == [*(f"'{path}', line {n}" for n in range(1, 6)), "… and 3 more"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{"messages": [}', r"', line 1: it is not JSON"),
        (b'\n{"messages"', r"', line 2: it is not JSON"),
        (b"[" * 100_000, r"', line 1: it is not JSON"),
        (b'{"messages": "\xff"}', r"', line 1: byte 15 is not UTF-8"),
        (b"", "holds no conversation"),
        (b"\n \n", "holds no conversation"),
    ],
)
def test_a_file_that_is_none_of_json_lines(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=problem):
        read_conversations(path)


def test_a_missing_file_and_a_directory(tmp_path: Path) -> None:
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(ConfigError, match=f"cannot read '{path}': .*set warmup.data to none, format or oracle"):
            read_conversations(path)


def test_a_byte_order_mark_and_windows_line_ends_are_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps({"messages": MESSAGES}).encode() + b"\r\n")
    (read,), empty = read_conversations(path)
    assert (read.turns, empty) == ((("Which?", "Left"),), 0)
    assert read.where == f"'{path}', line 1"


def test_parquet_rows_are_checked_as_lines_are(tmp_path: Path) -> None:
    from pyarrow import Table
    from pyarrow.parquet import write_table

    path = tmp_path / "data.parquet"
    rows = [{"messages": MESSAGES, "env": "bandit", "score": 1.5}, {"messages": None, "env": "bandit", "score": 0.0}]
    write_table(Table.from_pylist(rows), path)
    assert read_conversations(path) == ([Conversation(f"'{path}', row 1", None, (("Which?", "Left"),), env="bandit")], 1)
    write_table(Table.from_pylist([*rows, {"messages": MESSAGES[:1], "env": "", "score": 0.0}]), path)
    with pytest.raises(ConfigError, match=rf"^'{path}', row 3: messages ends without a reply"):
        read_conversations(path)
    path.write_bytes(b"PAR1 no")
    with pytest.raises(ConfigError, match="is not a Parquet file"):
        read_conversations(path)


def test_a_vocabulary_is_named_by_its_pieces_and_ids_alone() -> None:
    assert vocabulary_digest({"a": 0, "b": 1}) == vocabulary_digest({"b": 1, "a": 0})
    assert len({vocabulary_digest(v) for v in ({"a": 0, "b": 1}, {"a": 1, "b": 0}, {"a": 0}, {"a": 0, "c": 1})}) == 4
