"""Stored trajectories as rows of a file for others: ShareGPT JSON lines or Parquet. What was sampled goes out exactly.

A row is a segment, as in training: a whole episode where the context is ``full``, a turn where it is ``single``. A segment
behind the first of a ``window`` begins with history that was shown in other words than it is stored in: such a row has
token ids and no messages.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from ragen.episode import Segment, Turn
from ragen.errors import ConfigError
from ragen.extras import install_command
from ragen.rollout.segments import segments
from ragen.runs.disk import whole_file
from ragen.runs.events import StoredTrajectory, to_line
from ragen.runs.stored import Stored, context_of, seed_of
from ragen.runs.tokens import BROKEN, Decode, decoder, has_ids, tokenizer_of
from ragen.text.conversations import vocabulary_digest
from ragen.text.parser import END_THINK, THINK
from ragen.wording import counted

SPEAKERS = {"user": "human", "assistant": "gpt"}
OPENING = 16  # ids at the end of a prompt in which ``<think>`` would stand


@dataclass
class Tally:
    """What was written and what could not be told as it was."""

    trajectories: int = 0
    replies: int = 0
    lost: int = 0  # trajectories that sampled nothing
    without_messages: int = 0
    surrogates: int = 0
    broken: int = 0

    def notes(self) -> Iterator[str]:
        """What a reader of the file must know."""
        if self.lost:
            lost = counted(self.lost, "episode")
            yield f"{lost} lost to an error of the environment, or without a sampled token, left out"
        if self.without_messages:
            yield (
                f"{counted(self.without_messages, 'row')} without messages, behind history that rollout.context 'window' "
                "dropped (in Parquet: token ids only; not in ShareGPT)"
            )
        if self.surrogates:
            held = counted(self.surrogates, "message")
            yield f"{held} with lone surrogates, which are no text: '?' in the file, as for the policy"
        if self.broken:
            yield (
                f"{self.broken} of {counted(self.replies, 'reply', 'replies')} with bytes that are no UTF-8: U+FFFD in the "
                "text; reply_token_ids has them exactly"
            )


@dataclass(frozen=True, slots=True)
class Origin:
    """Where rows come from: a run's or an evaluation's name and seed, whether its context is a window, and its tokenizer.

    ``decode`` turns ids into text with special tokens in it; ``tokenizer`` is its ``vocabulary_digest`` ("": an endpoint's
    replies, whose ids are not known).
    """

    run: str
    seed: int
    windowed: bool
    decode: Decode
    tokenizer: str


def origin_of(stored: Stored) -> Origin:
    """What rows say of the run or the evaluation that they come from. Raises ModelError where its tokenizer is gone."""
    tokenizer = vocabulary_digest(tokenizer_of(stored).get_vocab()) if has_ids(stored) else ""
    return Origin(stored.path.resolve().name, seed_of(stored), context_of(stored) == "window", decoder(stored), tokenizer)


@dataclass(frozen=True, slots=True)
class Row:
    """One segment of a stored trajectory of a step. ``messages`` are (role, text), None where they cannot be told; ``data``
    is None where the ids are not known.
    """

    step: int
    item: StoredTrajectory
    segment: int
    turns: tuple[Turn, ...]
    first_turn: int
    data: Segment | None
    messages: tuple[tuple[str, str], ...] | None


@dataclass
class Exporter:
    """Makes rows out of stored trajectories and keeps count."""

    origin: Origin
    tally: Tally = field(default_factory=Tally)

    def rows(self, step: int, stored: Sequence[StoredTrajectory]) -> Iterator[Row]:
        """The rows of the episodes of a step."""
        for item in stored:
            t = item.trajectory
            if item.group is None or not (t.sampled_tokens or any(turn.completion.text for turn in t.turns)):
                self.tally.lost += 1
                continue
            self.tally.trajectories += 1
            starts = [k for k, turn in enumerate(t.turns) if k == 0 or not turn.extends]
            data = segments(t) if t.has_ids else (None,) * len(starts)
            parts = zip(starts, [*starts[1:], len(t.turns)], data, strict=True)
            for number, (start, end, segment) in enumerate(parts):
                turns = t.turns[start:end]
                told = None if number and self.origin.windowed else tuple(self._messages(turns))
                self.tally.without_messages += told is None
                yield Row(step, item, number, turns, start, segment, told)

    def _messages(self, turns: Sequence[Turn]) -> Iterator[tuple[str, str]]:
        for turn in turns:
            yield "user", self._text(turn.observation)
            self.tally.replies += 1
            self.tally.broken += BROKEN in turn.completion.text
            yield "assistant", self._text((THINK if self._opened(turn) else "") + turn.completion.text)

    def _opened(self, turn: Turn) -> bool:
        """Whether the reply goes on behind a ``<think>``: that of its prompt, or one that an endpoint left out."""
        if self.origin.tokenizer:
            return self.origin.decode(turn.prompt_ids[-OPENING:]).rstrip().endswith(THINK)
        text = turn.completion.text
        return END_THINK in text and THINK not in text.partition(END_THINK)[0]

    def _text(self, text: str) -> str:
        clean = text.encode("utf-8", "replace").decode("utf-8")
        self.tally.surrogates += clean != text
        return clean


def sharegpt_record(row: Row, origin: Origin) -> dict[str, Any]:
    """A row with messages as a line of ShareGPT, with what identifies and grades it beside."""
    told = row.messages or ()
    return {
        "conversations": [{"from": SPEAKERS[role], "value": text} for role, text in told],
        "reward": row.item.trajectory.total_return,
        **_identity(row, origin),
        "turn_rewards": [turn.reward for turn in row.turns],
        "stops": [turn.completion.stop.value for turn in row.turns],
        "reply_token_ids": _reply_ids(row),
        "tokenizer": origin.tokenizer,
    }


def _reply_ids(row: Row) -> list[list[int]] | None:
    return None if row.data is None else [list(turn.completion.token_ids) for turn in row.turns]


def _identity(row: Row, origin: Origin) -> dict[str, Any]:
    t = row.item.trajectory
    return {
        "success": t.success,
        "run": origin.run,
        "seed": origin.seed,
        "step": row.step,
        "group": row.item.group,
        "member": t.member,
        "segment": row.segment,
        "env": t.env,
        "instance_seed": t.instance_seed,
        "policy_version": t.policy_version,
        "end": t.end.value,
        "trained": row.item.trained,
    }


def parquet_record(row: Row, origin: Origin) -> dict[str, Any]:
    """A row with everything that is stored of it; the columns are those of ``_schema``."""
    t, turns, last = row.item.trajectory, row.turns, row.first_turn + len(row.turns)
    advantages = row.item.advantages
    told = None if row.messages is None else [{"role": role, "content": text} for role, text in row.messages]
    return {
        **_identity(row, origin),
        "task_return": t.task_return,
        "total_return": t.total_return,
        "messages": told,
        **_by_token(row),
        "turn_rewards": [turn.reward for turn in turns],
        "turn_penalties": [turn.penalty for turn in turns],
        "turn_process_rewards": [turn.process_reward for turn in turns],
        "turn_overlong_penalties": [turn.overlong_penalty for turn in turns],
        "advantages": None if advantages is None else list(advantages[row.first_turn : last]),
        "valid": [turn.valid for turn in turns],
        "actions": [list(turn.actions) for turn in turns],
        "stops": [turn.completion.stop.value for turn in turns],
        "reply_token_ids": _reply_ids(row),
        "tokenizer": origin.tokenizer,
    }


def _by_token(row: Row) -> dict[str, Any]:
    """The columns that have a value a token; null where the ids are not known. Entropies are 0 where nothing was sampled."""
    data = row.data
    if data is None:
        return dict.fromkeys(("token_ids", "mask", "logprobs", "entropies", "turn_ids"))
    entropies = np.zeros(len(data.mask), dtype=np.float32)
    entropies[data.mask] = [e for turn in row.turns for e in turn.completion.entropies]
    of_segment = {name: getattr(data, name) for name in ("token_ids", "mask", "logprobs", "turn_ids")}
    return of_segment | {"entropies": entropies}


def write_sharegpt(path: Path, rows: Iterator[Row], origin: Origin) -> int:
    """Write the rows that have messages, one a line; returns how many."""
    written = 0
    with whole_file(path) as temporary, temporary.open("w", encoding="utf-8", errors="replace") as file:
        for row in rows:
            if row.messages is not None:
                file.write(to_line(sharegpt_record(row, origin)))
                written += 1
    return written


def write_parquet(path: Path, rows: Iterator[Row], origin: Origin) -> int:
    """Write all rows, a row group a step; returns how many."""
    arrow = _pyarrow()
    from pyarrow.parquet import ParquetWriter

    schema, written = _schema(arrow), 0
    with whole_file(path) as temporary, ParquetWriter(temporary, schema, compression="zstd") as writer:
        for _, records in groupby(rows, key=lambda row: row.step):
            batch = [parquet_record(row, origin) for row in records]
            writer.write_table(arrow.Table.from_pylist(batch, schema=schema))
            written += len(batch)
    return written


def _schema(arrow: Any) -> Any:
    """The columns of a Parquet file, in order."""
    text, real, ids = arrow.string(), arrow.float64(), arrow.list_(arrow.int32())
    reals, texts = arrow.list_(real), arrow.list_(text)
    kinds = {
        "success": arrow.bool_(),
        "run": text,
        "seed": arrow.int64(),
        "step": arrow.int32(),
        "group": arrow.int64(),
        "member": arrow.int32(),
        "segment": arrow.int32(),
        "env": text,
        "instance_seed": arrow.int64(),
        "policy_version": arrow.int32(),
        "end": text,
        "trained": arrow.bool_(),
        "task_return": real,
        "total_return": real,
        "messages": arrow.list_(arrow.struct([("role", text), ("content", text)])),
        "token_ids": ids,
        "mask": arrow.list_(arrow.bool_()),
        "logprobs": arrow.list_(arrow.float32()),
        "entropies": arrow.list_(arrow.float32()),
        "turn_ids": ids,
        "turn_rewards": reals,
        "turn_penalties": reals,
        "turn_process_rewards": reals,
        "turn_overlong_penalties": reals,
        "advantages": reals,
        "valid": arrow.list_(arrow.bool_()),
        "actions": arrow.list_(texts),
        "stops": texts,
        "reply_token_ids": arrow.list_(ids),
        "tokenizer": text,
    }
    return arrow.schema(list(kinds.items()))


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise ConfigError(
            f"a Parquet file needs pyarrow: {install_command('parquet')}, or write ShareGPT (a file that ends in .jsonl)"
        ) from None
    return pyarrow
