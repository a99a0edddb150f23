"""A run's episodes, exported, are a warm-up on exactly the tokens that were sampled; a bad file stops at the start."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ragen
from ragen.cli.main import main
from ragen.config import Config, load_config
from ragen.errors import ConfigError
from ragen.loops import warmup
from ragen.loops.compose import Agent, World, build_agent, build_world
from ragen.loops.conversations import conversation_rows, stored_conversations
from ragen.loops.plan import held_out_contents
from ragen.rollout.segments import segments
from ragen.runs.directory import RunDirectory
from ragen.runs.listener import Silent

SOURCE = {"preset": "frozen_lake-starpo-grpo"}
SMALL = {
    "model.dtype": "float32",
    "env.max_turns": 3,
    "rollout.groups": 2,
    "rollout.members": 6,
    "rollout.max_new_tokens": 24,
    "eval.episodes": 0,
    "warmup.data": "none",
    "steps": 1,
}


class Heard(Silent):
    """Keeps the messages."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def on_message(self, text: str) -> None:
        self.messages.append(text)


def settings(mini: Path, data: Path | str, **more: Any) -> Config:
    named = {name.replace("__", "."): value for name, value in more.items()}
    return load_config(
        {"preset": "frozen_lake-starpo-grpo"}, SMALL | {"model.name": str(mini), "warmup.data": str(data)} | named
    )


def taught(config: Config, heard: Heard, world: World | None = None, agent: Agent | None = None) -> list[Any]:
    world = world or build_world(config.env)
    agent = agent or build_agent(Path(config.model.name), config.model, config.rollout)
    read = stored_conversations(config.warmup.data, heard)
    assert read is not None
    return conversation_rows(config, world, held_out_contents(config, (world,)), agent, read, heard)


@pytest.fixture(scope="module")
def lake(mini: Path, session_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a policy that babbles: its replies are full of odd spellings, broken characters and control tokens."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAGEN_CACHE", str(session_cache))
        place = {"run.root": str(tmp_path_factory.mktemp("runs")), "run.name": "lake"}
        result = ragen.train(
            {"preset": "frozen_lake-starpo-grpo"}, SMALL | {"model.name": str(mini)} | place, progress=False
        )
    return result.run


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_an_export_is_taught_by_exactly_the_sampled_tokens(lake: Path, mini: Path, tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"lake.{ending}"
    assert main(["export", str(lake), "-o", str(out)]) == 0
    config, heard = settings(mini, out), Heard()
    agent = build_agent(mini, config.model, config.rollout)
    rows = taught(config, heard, agent=agent)
    episodes = [item.trajectory for item in RunDirectory.open(lake).trajectories()]
    assert len(rows) == len(episodes) == 12
    assert sum(len(t.turns) for t in episodes) > 24  # several turns
    control = agent.renderer.control_ids
    exact = 0
    for row, episode in zip(rows, episodes, strict=True):
        (wanted,) = segments(episode)
        replies = [turn.completion.token_ids for turn in episode.turns]
        if any(control.intersection(ids[:-1] if ids[-1] in agent.renderer.end_ids else ids) for ids in replies):
            assert not control.intersection(row.token_ids[row.mask]) - agent.renderer.end_ids
            continue
        exact += 1
        assert np.array_equal(row.token_ids, wanted.token_ids)
        assert np.array_equal(row.mask, wanted.mask)
    assert exact >= 3, exact
    texts = [turn.completion.text for t in episodes for turn in t.turns]
    assert any(agent.renderer.reply_ids(text)[:-1] != ids for text, ids in _spelled(texts, episodes))  # not what text gives
    assert "replies" in heard.messages[0]


def _spelled(texts: list[str], episodes: list[Any]) -> list[tuple[str, tuple[int, ...]]]:
    return list(zip(texts, (turn.completion.token_ids for t in episodes for turn in t.turns), strict=True))


def test_a_warm_up_on_a_file_trains_and_is_cached_by_its_content(
    lake: Path, mini: Path, tmp_path: Path, ragen_cache: Path
) -> None:
    del ragen_cache
    out = tmp_path / "lake.jsonl"
    assert main(["export", str(lake), "-o", str(out)]) == 0
    world = build_world({"name": "frozen_lake"})

    def made(path: Path) -> tuple[Path, list[str]]:
        heard = Heard()
        return warmup.starting_model(settings(mini, path), world, frozenset(), heard), heard.messages

    first, said = made(out)
    assert any("loss" in line for line in said)
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(out.read_bytes())
    again, said = made(copy)
    assert again == first  # wherever it lies
    assert any("found in the cache" in line for line in said)
    copy.write_text("\n".join(out.read_text().splitlines()[:-1]))
    other, said = made(copy)
    assert other != first
    assert any("loss" in line for line in said)


def line(messages: int = 2, **more: Any) -> str:
    pair = [{"from": "human", "value": "Up?"}, {"from": "gpt", "value": "<think>why</think><answer>Up</answer>"}]
    return json.dumps({"conversations": (pair * messages)[:messages], **more}) + "\n"


def test_a_bad_file_is_told_before_a_model_is_loaded(mini: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text(line() + line(3))
    monkeypatch.setattr(warmup, "build_agent", lambda *_: pytest.fail("the model was loaded"))
    with pytest.raises(ConfigError, match=rf"^'{data}', line 2: conversations ends without a reply"):
        warmup.starting_model(settings(mini, data), build_world({"name": "frozen_lake"}), frozenset(), Heard())


def test_long_conversations_and_evaluation_instances_are_left_out_and_told(mini: Path, tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    config = settings(mini, data, eval__episodes=4, rollout__max_context=64)
    held = ragen.rollout.instances.evaluation_specs("", episodes=4, samples=1, seed=config.eval.seed)
    mine = {"env": "frozen_lake", "instance_seed": held[0].instance_seed}
    data.write_text(line() + line(40) + line(**mine) + line(**mine | {"env": "another"}))
    heard = Heard()
    assert len(taught(config, heard)) == 2
    assert heard.messages == [
        "warm-up: 2 conversations, 2 replies, 0 of them by their stored token ids; left out: 1 of instances of the "
        "evaluation set, 1 longer than the context of 64 tokens (rollout.max_context, or the model's)"
    ]
    data.write_text(line(40) * 2)
    with pytest.raises(ConfigError, match=r"of 2 conversations of '.*' none is left: 2 longer than the context of 64"):
        taught(config, Heard())


def test_evaluation_instances_of_variants_and_of_other_environments_are_left_out(mini: Path, tmp_path: Path) -> None:
    """Only rows of the run's own environment were looked at: maps of the evaluation were taught under a variant's name."""
    data = tmp_path / "data.jsonl"
    config = settings(mini, data, eval__episodes=4)
    held = ragen.rollout.instances.evaluation_specs("", episodes=4, samples=1, seed=config.eval.seed)[0].instance_seed
    rows = [line(env=env, instance_seed=held) for env in ("frozen_lake-det", "sokoban", "frozen_lake-8", "mine.py:Own")]
    rows.append(line(env="frozen_lake-det", instance_seed=5))
    data.write_text("".join(rows))
    world, others = build_world(config.env), (build_world({"name": "sokoban"}),)
    agent = build_agent(Path(config.model.name), config.model, config.rollout)
    read = stored_conversations(config.warmup.data, Heard())
    assert read is not None
    for worlds, left in (((world,), 3), ((world, *others), 2)):
        heard = Heard()
        assert len(conversation_rows(config, world, held_out_contents(config, worlds), agent, read, heard)) == left
        assert f"left out: {len(rows) - left} of instances of the evaluation set" in heard.messages[0]


def test_conversations_that_do_not_render_are_named_by_line(mini: Path, tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    wrong = json.dumps({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "Up"}]}) + "\n"
    data.write_text(line() + wrong)
    with pytest.raises(ConfigError, match=rf"^'{data}', line 2: reply 1 begins with 'Up'.*rollout\.force_think"):
        taught(settings(mini, data, rollout__force_think=True), Heard())
    assert len(taught(settings(mini, data, rollout__force_think=False), Heard())) == 2


def test_rows_without_messages_are_told(mini: Path, tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text(line() + '{"messages": null}\n')
    heard = Heard()
    assert len(taught(settings(mini, data), heard)) == 1
    assert heard.messages[0].startswith("warm-up: 1 row without messages")


@pytest.mark.parametrize("name", ["~nosuch/x.jsonl", "loop.jsonl", "a" * 300 + ".jsonl", "a\0b.jsonl", "nothing.parquet"])
def test_a_name_that_leads_to_no_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop.jsonl").symlink_to("loop.jsonl")
    config = load_config({}, {"warmup.data": name})
    with pytest.raises(ConfigError, match=r"cannot read '.*': .*; give a file of conversations"):
        stored_conversations(config.warmup.data, Silent())


def test_warmup_data_is_a_word_or_a_file() -> None:
    for data in ("none", "format", "oracle", "/a/b.jsonl", "/b.parquet"):
        assert load_config({}, {"warmup.data": data}).warmup.data == data
    assert load_config({}, {"warmup.data": "b.jsonl"}).warmup.data == str(Path.cwd() / "b.jsonl")
    with pytest.raises(ConfigError, match=r"'warmup\.data' is 'orcale': .*\.jsonl or \.parquet; did you mean 'oracle'\?"):
        load_config({}, {"warmup.data": "orcale"})
    for player, data in (("optimal", "oracle"), ("random", "format")):  # the names of those who play in evaluations
        with pytest.raises(ConfigError, match=rf"did you mean '{data}'\?"):
            load_config({}, {"warmup.data": player})
    with pytest.raises(ConfigError, match=r"'warmup\.data' is 'data\.csv'"):
        load_config({}, {"warmup.data": "data.csv"})
