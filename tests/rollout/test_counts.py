"""What a collection costs, in counts: no id is run twice, and a step reads no more than the rows hold."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from tests.counting import tokens
from transformers import LlamaConfig, LlamaForCausalLM

from ragen.envs import environments
from ragen.episode import Group
from ragen.models import tiny
from ragen.models.native import Decoder
from ragen.models.shapes import COLUMNS, ROWS
from ragen.rollout.collect import collect
from ragen.rollout.runner import EpisodeSpec, Rules
from ragen.samplers import engines, hf
from ragen.samplers.base import SamplingParams
from ragen.samplers.hf import HFSampler
from ragen.samplers.passes import NativePass
from ragen.samplers.rows import KeyValueRows
from ragen.samplers.shared import SharedRows
from ragen.text.chat import ChatRenderer

TURNS = 5
CONTEXT = 4096


@dataclass
class Work:
    """Ids that entered the decoder, a number a pass; those of them that filled rows before a reply; what steps read.

    ``read`` holds, a step, the columns of keys and the length of the longest row so far.
    """

    ids: list[int] = field(default_factory=list)
    filled: list[int] = field(default_factory=list)
    read: list[tuple[int, int]] = field(default_factory=list)


def watch(monkeypatch: pytest.MonkeyPatch) -> Work:
    """Count from now on."""
    work, longest = Work(), 0
    hidden, fill, update, share = Decoder.hidden, NativePass.fill, KeyValueRows.update, SharedRows.update

    def counted(self: Decoder, ids: torch.Tensor, *rest: Any) -> Any:
        work.ids.append(len(ids))
        return hidden(self, ids, *rest)

    def filled(self: NativePass, ids: torch.Tensor, *rest: Any) -> None:
        work.filled.append(ids.numel())
        fill(self, ids, *rest)

    def read(columns: int, length: int) -> None:
        nonlocal longest
        longest = max(longest, length)
        work.read.append((columns, longest))

    def updated(self: KeyValueRows, keys: torch.Tensor, values: torch.Tensor, layer: int, *rest: Any, **more: Any) -> Any:
        found = update(self, keys, values, layer, *rest, **more)
        if keys.shape[2] == 1 and layer == 0:
            read(found[0].shape[2], int(self.lengths.max()) + 1)
        return found

    def shared(self: SharedRows, keys: torch.Tensor, values: torch.Tensor, layer: int) -> Any:
        found = share(self, keys, values, layer)
        if keys.shape[2] == 1 and layer == 0:
            own, begun = int(self.lengths.max()), max(self.prefix_length(row) for row in range(self.rows))
            read(found[0].shape[2] + found[2][0].shape[2], own + begun + 1)
        return found

    monkeypatch.setattr(Decoder, "hidden", counted)
    monkeypatch.setattr(NativePass, "fill", filled)
    monkeypatch.setattr(KeyValueRows, "update", updated)
    monkeypatch.setattr(SharedRows, "update", shared)
    return work


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tiny.build_tokenizer(tiny.texts()[:60])


def play(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch, groups: int, members: int, reply: int, *, native: bool = True
) -> tuple[Sequence[Group], Work]:
    """FrozenLake with the whole history, by a model of random weights.

    One id in 24 ends a reply, so that replies have every length up to ``reply``.
    """
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=CONTEXT,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LlamaForCausalLM(config)
    preset = environments.get("frozen_lake")
    ends = frozenset(range(tokenizer.eos_token_id, len(tokenizer), 24))
    sampler = HFSampler(model, tokenizer, end_ids=ends, dtype=torch.float32, native=native)
    specs = [EpisodeSpec("frozen_lake", g, m, g, 0, 100 * g + m) for g in range(groups) for m in range(members)]
    work = watch(monkeypatch)
    played = collect(
        sampler,
        ChatRenderer(tokenizer),
        lambda: preset.cls(preset.settings({"max_turns": TURNS})),
        specs,
        rules=Rules(max_new_tokens=reply, max_context=CONTEXT),
        params=SamplingParams(),
    )
    assert all(len(trajectory.turns) == TURNS for trajectory in played.trajectories)
    return played.groups, work


def steps(groups: Sequence[Group]) -> int:
    """Passes that decode side by side needs: those of the longest reply of each turn."""
    rows = [trajectory for group in groups for trajectory in group.trajectories]
    return sum(max(len(row.turns[turn].completion.token_ids) for row in rows) for turn in range(TURNS))


def test_over_five_turns_every_token_is_run_once_and_a_groups_prompt_once(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes rounded up to few are switched off: what is left is what the conversation needs."""
    monkeypatch.setattr(NativePass, "grain", 1)
    monkeypatch.setattr(engines, "BLOCK_TOKENS", 1)  # a row at a time, none filled up to another's length
    monkeypatch.setattr(hf, "ROWS", 1)
    monkeypatch.setattr(hf, "COMPACT", 1 << 20)  # a row whose reply has ended leaves at once
    groups, work = play(tokenizer, monkeypatch, groups=3, members=4, reply=12)
    # every member runs the prompt's last token, which gives its first logits; none runs its last token, which gives nothing
    assert sum(work.ids) == tokens(groups) - len(groups)
    assert len(work.ids) - len(work.filled) == steps(groups)


def test_a_realistic_collection_runs_few_ids_besides_its_tokens(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """8 × 16 episodes of five turns. What is computed and ignored: new ids of a turn rounded up to a multiple of 8 (67 to
    72 here), and rows whose reply has ended, of which one in eight may wait for the others.
    """
    groups, work = play(tokenizer, monkeypatch, groups=8, members=16, reply=48)
    assert sum(work.ids) <= 1.1 * tokens(groups)
    sampled = sum(len(t.completion.token_ids) for group in groups for row in group.trajectories for t in row.turns)
    assert sum(work.ids) - sum(work.filled) <= 8 / 7 * (sampled + ROWS * steps(groups))
    assert len(work.ids) - len(work.filled) == steps(groups) <= TURNS * 48
    # a block of rows is more than half full, but for the last one of a turn
    assert len(work.filled) <= TURNS + 2 * sum(work.filled) // engines.BLOCK_TOKENS


@pytest.mark.parametrize("native", [True, False])
def test_a_step_reads_about_as_many_columns_as_the_longest_row_has(
    native: bool, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups, work = play(tokenizer, monkeypatch, groups=2, members=3, reply=12, native=native)
    assert len(work.read) == steps(groups)
    assert work.read[-1][1] > 1.5 * work.read[0][1]
    for columns, longest in work.read:  # prompt and rest rounded up, room for the next steps, an eighth more where it grew
        assert longest <= columns <= longest * 9 // 8 + 3 * COLUMNS
