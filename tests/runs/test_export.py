"""Exports: the stored tokens go out exactly, and what a format cannot hold is counted and told."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragen.episode import Completion, EndReason, StopReason, Trajectory, Turn
from ragen.errors import ConfigError
from ragen.rollout.segments import segments
from ragen.runs.events import StoredTrajectory
from ragen.runs.export import Exporter, Origin, write_parquet, write_sharegpt

WORDS = {1: "user ", 2: "<think>", 3: "\n", 7: "Up ", 8: "Left ", 9: "</s>"}


def decode(ids: Sequence[int]) -> str:
    return "".join(WORDS.get(i, "?") for i in ids)


def turn(prompt: Sequence[int], ids: Sequence[int], text: str, *, extends: bool, reward: float, shown: str = "Go.") -> Turn:
    n = len(ids)
    reply = Completion(
        tuple(ids), tuple(-0.5 * i for i in range(n)), tuple(0.25 * i for i in range(n)), text, StopReason.END
    )
    return Turn(tuple(prompt), extends, reply, shown, ("Up",), True, reward, penalty=-0.1, process_reward=0.2)


def stored(*turns: Turn, group: int | None = 3, advantages: tuple[float, ...] | None = None) -> StoredTrajectory:
    episode = Trajectory("frozen_lake", 2**62 + 1, 5, turns, EndReason.TERMINATED, success=True, policy_version=6)
    return StoredTrajectory(group, episode, advantages)


def origin(*, windowed: bool = False) -> Origin:
    return Origin("lake", 4, windowed, decode, "vocabulary")


TWO = (
    turn((1, 3), (7, 9), "Up", extends=False, reward=0.0, shown="Begin."),
    turn((1, 2, 3), (8, 8, 9), "Left Left", extends=True, reward=1.0),
)


def sharegpt(tmp_path: Path, exporter: Exporter, *items: StoredTrajectory) -> list[dict[str, Any]]:
    path = tmp_path / "out.jsonl"
    written = write_sharegpt(path, exporter.rows(7, items), exporter.origin)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert written == len(lines)
    return lines


def test_a_sharegpt_line_is_the_conversation_with_what_identifies_and_grades_it(tmp_path: Path) -> None:
    (line,) = sharegpt(tmp_path, Exporter(origin()), stored(*TWO, advantages=(0.5, -0.5)))
    assert line.pop("reward") == pytest.approx(1.2)
    assert line == {
        "conversations": [
            {"from": "human", "value": "Begin."},
            {"from": "gpt", "value": "Up"},
            {"from": "human", "value": "Go."},
            {"from": "gpt", "value": "<think>Left Left"},  # its prompt ends with the opener: given, and part of the reply
        ],
        "success": True,
        "run": "lake",
        "seed": 4,
        "step": 7,
        "group": 3,
        "member": 5,
        "segment": 0,
        "env": "frozen_lake",
        "instance_seed": 2**62 + 1,
        "policy_version": 6,
        "end": "terminated",
        "trained": True,
        "turn_rewards": [0.0, 1.0],
        "stops": ["end", "end"],
        "reply_token_ids": [[7, 9], [8, 8, 9]],
        "tokenizer": "vocabulary",
    }


def test_lost_episodes_are_left_out_and_told(tmp_path: Path) -> None:
    exporter = Exporter(origin())
    lines = sharegpt(tmp_path, exporter, stored(*TWO, group=None), stored(), stored(*TWO))
    assert len(lines) == exporter.tally.trajectories == 1
    assert list(exporter.tally.notes()) == [
        "2 episodes lost to an error of the environment, or without a sampled token, left out"
    ]


def test_a_dropped_history_makes_rows_of_its_own_and_a_window_s_have_no_messages(tmp_path: Path) -> None:
    parts = (TWO[0], replace(TWO[1], extends=False))
    lines = sharegpt(tmp_path, Exporter(origin()), stored(*parts))
    assert [(line["segment"], len(line["conversations"]), line["turn_rewards"]) for line in lines] == [
        (0, 2, [0.0]),
        (1, 2, [1.0]),
    ]
    exporter = Exporter(origin(windowed=True))
    assert [line["segment"] for line in sharegpt(tmp_path, exporter, stored(*parts))] == [0]
    assert exporter.tally.without_messages == 1
    assert "'window' dropped" in next(exporter.tally.notes())


def test_what_is_no_text_is_counted_and_written_as_the_policy_read_it(tmp_path: Path) -> None:
    exporter = Exporter(origin())
    odd = turn((1,), (7, 9), "U\ufffd", extends=False, reward=0.0, shown="a\ud800b")
    (line,) = sharegpt(tmp_path, exporter, stored(odd))
    assert [each["value"] for each in line["conversations"]] == ["a?b", "U\ufffd"]
    assert line["reply_token_ids"] == [[7, 9]]
    notes = list(exporter.tally.notes())
    assert notes[0].startswith("1 message with lone surrogates")
    assert notes[1].startswith("1 of 1 reply with bytes that are no UTF-8")


def test_a_failed_export_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("old")

    def rows() -> Any:
        yield from Exporter(origin()).rows(1, [stored(*TWO)])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_sharegpt(path, rows(), origin())
    assert [p.name for p in tmp_path.iterdir()] == ["out.jsonl"]
    assert path.read_text() == "old"


def test_parquet_holds_all_that_is_stored(tmp_path: Path) -> None:
    from pyarrow.parquet import read_table

    path = tmp_path / "out.parquet"
    parts = (TWO[0], replace(TWO[1], extends=False))
    exporter = Exporter(origin(windowed=True))
    items = [stored(*TWO, advantages=(0.5, math.nan)), stored(*parts, advantages=(0.25, -0.25)), stored(*TWO)]
    assert write_parquet(path, exporter.rows(7, items), exporter.origin) == 4
    whole, first, second, untrained = read_table(path).to_pylist()
    (row,) = segments(items[0].trajectory)
    for name in ("token_ids", "mask", "logprobs", "turn_ids"):
        assert np.array_equal(whole[name], getattr(row, name)), name
    assert whole["entropies"] == [0, 0, 0, 0.25, 0, 0, 0, 0, 0.25, 0.5]
    assert whole["messages"][3] == {"role": "assistant", "content": "<think>Left Left"}
    assert (whole["turn_rewards"], whole["turn_penalties"]) == ([0.0, 1.0], [-0.1, -0.1])
    assert (whole["turn_process_rewards"], whole["turn_overlong_penalties"]) == ([0.2, 0.2], [0.0, 0.0])
    assert whole["advantages"][0] == 0.5
    assert math.isnan(whole["advantages"][1])
    assert (whole["instance_seed"], whole["task_return"], whole["step"]) == (2**62 + 1, 1.0, 7)
    assert whole["reply_token_ids"] == [[7, 9], [8, 8, 9]]
    assert whole["actions"] == [["Up"], ["Up"]]
    assert [first["segment"], second["segment"]] == [0, 1]
    assert (first["advantages"], second["advantages"], untrained["advantages"]) == ([0.25], [-0.25], None)
    assert (first["turn_rewards"], second["turn_rewards"]) == ([0.0], [1.0])
    assert first["messages"] is not None
    assert second["messages"] is None
    assert second["turn_ids"] == [-1, -1, -1, 1, 1, 1]


def test_without_pyarrow_parquet_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"needs pyarrow: .*\[parquet\].*\.jsonl"):
        write_parquet(tmp_path / "x.parquet", iter(()), origin())


@pytest.mark.full
@pytest.mark.filterwarnings("default")
def test_hugging_face_datasets_loads_both_files(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed: pip install -c constraints.txt datasets")
    cache = str(tmp_path / "cache")
    exporter = Exporter(origin())
    items = [stored(*TWO, advantages=(0.5, -0.5)), stored(*TWO)]
    write_parquet(tmp_path / "a.parquet", exporter.rows(7, items), exporter.origin)
    write_sharegpt(tmp_path / "a.jsonl", exporter.rows(7, items), exporter.origin)
    rows = datasets.load_dataset("parquet", data_files=str(tmp_path / "a.parquet"), split="train", cache_dir=cache)
    assert rows[0]["token_ids"] == segments(items[0].trajectory)[0].token_ids.tolist()
    assert rows[0]["messages"][0] == {"role": "user", "content": "Begin."}
    lines = datasets.load_dataset("json", data_files=str(tmp_path / "a.jsonl"), split="train", cache_dir=cache)
    assert lines[1]["conversations"][3] == {"from": "gpt", "value": "<think>Left Left"}
    assert lines[0]["instance_seed"] == 2**62 + 1


def said(text: str, *, extends: bool) -> Turn:
    """A turn of an endpoint's model: without ids, and without a count of them."""
    return Turn((), extends, Completion((), (), (), text, StopReason.END), "Go.", ("Up",), True, 1.0)


def test_an_endpoint_s_replies_go_out_as_text_and_their_ids_as_unknown(tmp_path: Path) -> None:
    replies = ["why</think><answer>Up</answer>", "<think>why</think>Up", "Up", "</think>Up"]
    exporter = Exporter(Origin("api", 1, False, lambda ids: "", ""))
    item = stored(*(said(text, extends=k > 0) for k, text in enumerate(replies)))
    (line,) = sharegpt(tmp_path, exporter, item, stored(said("", extends=False)))  # the other one said nothing
    told = [message["value"] for message in line["conversations"] if message["from"] == "gpt"]
    assert told == [f"<think>{replies[0]}", replies[1], replies[2], f"<think>{replies[3]}"]
    assert (line["reply_token_ids"], line["tokenizer"]) == (None, "")
    assert exporter.tally.lost == 1
    pytest.importorskip("pyarrow")
    from pyarrow.parquet import read_table

    write_parquet(tmp_path / "out.parquet", exporter.rows(0, [item]), exporter.origin)
    (row,) = read_table(tmp_path / "out.parquet").to_pylist()
    assert [message["content"] for message in row["messages"]][1::2] == told
    for column in ("token_ids", "mask", "logprobs", "entropies", "turn_ids", "reply_token_ids"):
        assert row[column] is None, column
