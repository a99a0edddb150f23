"""Shared prefixes and micro-batches: what is computed changes, results do not."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from ragen.errors import ModelError
from ragen.learn.batch import Batch, collate
from ragen.learn.network import Network
from ragen.learn.packing import MicroBatch, plan
from ragen.learn.policy import Policy
from ragen.models.native import Decoder, RowLayout

LINEAR = {"llama", "llama-tied", "gpt2", "qwen2", "opt", "bloom"}
PACKS = {"llama", "llama-tied", "gpt2", "qwen2", "gemma2", "cohere", "opt"}


def reference(model: Any, batch: Batch) -> torch.Tensor:
    """Log-probabilities (R, T) from the model's own logits, one unpadded row at a time."""
    table = torch.zeros(batch.ids.shape)
    for r, n in enumerate(batch.lengths.tolist()):
        logits = model(batch.ids[r : r + 1, :n]).logits[0].double()
        scores = torch.log_softmax(logits, -1)[:-1].gather(1, batch.ids[r, 1:n, None])[:, 0]
        table[r, 1:n] = torch.where(batch.mask[r, 1:n], scores.float(), 0)
    return table


def gradients(policy: Policy, batch: Batch, budget: int) -> dict[str, torch.Tensor]:
    policy.model.zero_grad()
    factors = torch.from_numpy(np.random.default_rng(1).normal(size=batch.ids.shape)).float()
    for micro in policy.plan(batch, list(range(len(batch.lengths))), budget):
        outputs = policy.token_outputs(micro)
        place = micro.rows, micro.columns
        (factors[place] * outputs.logprobs + 0.3 * factors[place] * outputs.entropies).sum().backward()
    return {name: p.grad.clone() for name, p in policy.model.named_parameters() if p.grad is not None}


def assert_same_gradients(got: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert got.keys() == wanted.keys()
    scale = max(float(g.abs().max()) for g in wanted.values())
    for name, gradient in wanted.items():
        assert float((got[name] - gradient).abs().max()) <= 1e-4 * scale, name


@pytest.mark.parametrize("name", ["llama", "llama-tied", "gpt2", "qwen2", "gemma2", "cohere", "opt", "bloom"])
def test_packed_padded_and_single_rows_agree_with_the_models_own_logits_and_gradients(
    name: str, make_model: Any, make_groups: Any
) -> None:
    model = make_model(name)
    policy = Policy(model, dtype=torch.float32, pad_id=0)
    assert policy.network.linear_head is (name in LINEAR)
    assert policy.network.packs is (name in PACKS)
    batch = collate(make_groups(), pad_id=0)
    wanted = reference(model, batch)
    found = {}
    for pack in (False, True):
        policy.pack = pack
        for budget in (1, 60, 10_000):
            torch.testing.assert_close(policy.logprobs(batch, budget), wanted, rtol=1e-4, atol=1e-4)
        found[pack] = gradients(policy, batch, 10_000)
    policy.pack = False
    assert_same_gradients(found[True], found[False])
    assert_same_gradients(gradients(policy, batch, 1), found[False])


def test_groups_with_long_prompts_are_computed_in_less_than_half_the_tokens(make_model: Any, make_groups: Any) -> None:
    network = Network(make_model(), dtype=torch.float32)
    batch = collate(make_groups(groups=3, members=8, turns=1), pad_id=0)
    rows = list(range(24))
    packed = sum(micro.tokens for micro in network.plan(batch, rows, 10_000))
    plain = sum(micro.tokens for micro in network.plan(batch, rows, 10_000, pack=False))
    assert plain > 2 * packed


@pytest.mark.parametrize(("prefix", "budget", "packs"), [(100, 60, 1), (100, 110, 1), (40, 60, 1), (15, 30, 2), (15, 20, 2)])
def test_a_prefix_near_or_above_the_budget_is_not_computed_for_every_member(
    prefix: int, budget: int, packs: int, make_groups: Any
) -> None:
    """Eight members of 1 to 5 own tokens behind a prefix: together they may have as many as it."""
    batch = collate(make_groups(groups=1, members=8, turns=1), pad_id=0)
    common = batch.ids[:1, :9].expand(8, -1).repeat(1, -(-prefix // 9))[:, : prefix - 9]
    batch = dataclasses.replace(
        batch,
        ids=torch.cat([common, batch.ids], 1),
        mask=torch.cat([torch.zeros_like(common, dtype=torch.bool), batch.mask], 1),
        positions=torch.arange(batch.ids.shape[1] + prefix - 9).expand(8, -1),
        lengths=batch.lengths + prefix - 9,
    )
    own = int(batch.mask.sum())
    micros = plan(batch, list(range(8)), budget=budget, pack=True, padded=False)
    assert sum(len(micro.real) for micro in micros) == packs * prefix + own
    assert all(len(micro.real) <= max(budget, 2 * prefix) for micro in micros)


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("budget", [1, 40, 100, 10_000])
def test_every_sampled_token_is_planned_once_within_the_budget(pack: bool, budget: int, make_groups: Any) -> None:
    batch = collate(make_groups(groups=3, members=4, turns=2, new_rows=True), pad_id=0)
    micros = plan(batch, list(range(len(batch.lengths))), budget=budget, pack=pack, attention_scale=128)
    longest = int(batch.lengths.max())
    prompt = 9
    assert all(micro.tokens <= max(budget, longest, 2 * prompt) for micro in micros)
    seen = [(r, c) for m in micros for r, c in zip(m.rows.tolist(), m.columns.tolist(), strict=True)]
    assert sorted(seen) == [tuple(place) for place in batch.mask.nonzero().tolist()]
    for micro in micros:
        flat = micro.ids.flatten()
        assert torch.equal(flat[micro.predictors], batch.ids[micro.rows, micro.columns - 1])
        assert torch.equal(micro.targets, batch.ids[micro.rows, micro.columns])
        assert torch.equal(micro.positions.flatten()[micro.predictors], micro.columns - 1)


def test_the_block_mask_of_two_members_by_hand() -> None:
    blocks = torch.tensor([[0, 0, 1, 2, 2, -1]], dtype=torch.int32)
    nothing = torch.zeros(0, dtype=torch.int64)
    mask = MicroBatch(blocks, blocks, blocks, nothing, nothing, nothing, nothing, ((),)).attention_mask(torch.device("cpu"))
    assert mask is not None
    assert mask[0, 0].int().tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 0, 1, 0, 0],
        [1, 1, 0, 1, 1, 0],
        [1, 1, 0, 0, 0, 1],
    ]


@pytest.mark.parametrize("pack", [False, True])
def test_a10_ids_after_the_end_change_nothing_and_have_no_gradient(pack: bool, make_model: Any, make_groups: Any) -> None:
    policy = Policy(make_model(), dtype=torch.float32, pad_id=0)
    policy.pack = pack
    batch = collate(make_groups(), pad_id=60)
    ids = batch.ids.clone()
    for r, n in enumerate(batch.lengths.tolist()):
        ids[r, n:] = 3
    assert not torch.equal(ids, batch.ids)
    changed = dataclasses.replace(batch, ids=ids)
    assert torch.equal(policy.logprobs(changed, 100), policy.logprobs(batch, 100))
    one, other = gradients(policy, batch, 100), gradients(policy, changed, 100)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_gradient_is_exactly_zero_for_tokens_no_sampled_token_follows(make_model: Any, make_groups: Any) -> None:
    """Token 59 stands only at the end of rows, off the mask: its input embedding must not move."""
    batch = collate(make_groups(), pad_id=0)
    ids = torch.where(batch.ids == 59, 58, batch.ids)
    mask = batch.mask.clone()
    for r, n in enumerate(batch.lengths.tolist()):
        mask[r, n - 1] = False
        ids[r, n - 1] = 59
    policy = Policy(make_model(), dtype=torch.float32, pad_id=0)
    found = gradients(policy, dataclasses.replace(batch, ids=ids, mask=mask), 100)["model.embed_tokens.weight"]
    assert torch.count_nonzero(found[59]) == 0
    assert torch.count_nonzero(found[ids[0, 0]]) > 0


def test_a_sampled_first_token_is_refused(make_groups: Any) -> None:
    batch = collate(make_groups(), pad_id=0)
    batch.mask[1, 0] = True
    with pytest.raises(ValueError, match="nothing precedes it"):
        plan(batch, [0, 1], budget=100, pack=True, attention_scale=128)


def test_rows_without_a_sampled_token_are_left_out(make_groups: Any) -> None:
    batch = collate(make_groups(), pad_id=0)
    batch.mask[2] = False
    micros = plan(batch, [1, 2], budget=1, pack=False, attention_scale=128)
    assert [set(micro.rows.tolist()) for micro in micros] == [{1}]


def test_rows_longer_than_a_sliding_window_are_not_packed(make_model: Any, make_groups: Any) -> None:
    network = Network(make_model("gemma2", sliding_window=20), dtype=torch.float32)
    assert network.packs
    batch = collate(make_groups(turns=1), pad_id=0)
    cpu = torch.device("cpu")
    assert any(micro.attention_mask(cpu) is not None for micro in network.plan(batch, [0, 1, 2], 1000))
    longer = collate(make_groups(turns=4), pad_id=0)
    assert int(longer.lengths.max()) > 20
    assert all(micro.attention_mask(cpu) is None for micro in network.plan(longer, [0, 1, 2], 1000))


def test_a_model_whose_outputs_depend_on_what_follows_is_refused(make_model: Any) -> None:
    model = make_model()
    model.model.register_forward_hook(
        lambda _, __, out: setattr(
            out, "last_hidden_state", out.last_hidden_state + out.last_hidden_state.mean(1, keepdim=True)
        )
    )
    with pytest.raises(ModelError, match="not a causal language model"):
        Network(model, dtype=torch.float32)


def test_positions_that_are_ignored_forbid_packing(make_model: Any) -> None:
    model = make_model()
    rotary = model.model.rotary_emb
    real = rotary.forward
    rotary.forward = lambda x, position_ids: real(x, torch.arange(x.shape[1])[None])
    assert not Network(model, dtype=torch.float32).packs


def test_micro_batches_of_any_lengths_make_products_of_few_sizes(
    make_model: Any, make_groups: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """oneDNN keeps a kernel for every size it meets, so sizes that differ from step to step would make memory creep."""
    network = Network(make_model(), dtype=torch.float32)
    assert network.native
    real, flat, buckets = set(), set(), set()
    monkeypatch.setattr(Decoder, "hidden", lambda _, ids, *__: flat.add(len(ids)) or torch.zeros(len(ids), 32))
    made = RowLayout.__init__

    def layout(self: RowLayout, *arguments: Any) -> None:
        made(self, *arguments)
        buckets.update((bucket.queries.shape, bucket.keys.shape) for bucket in self.buckets)

    monkeypatch.setattr(RowLayout, "__init__", layout)
    for seed in range(40):
        batch = collate(make_groups(groups=1, members=2 + seed % 7, turns=1 + seed % 3, seed=seed), pad_id=0)
        for micro in network.plan(batch, list(range(len(batch.lengths))), 10_000):
            real.add(len(micro.real))
            network.hidden(micro)
    assert len(real) > 25
    assert flat <= set(range(32, 257, 32))
    assert len(buckets) <= 20
