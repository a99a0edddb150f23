"""The Hugging Face sampler against plain forward passes and transformers' own generation."""

import copy
import math
import re

import numpy as np
import pytest
import torch
from tests.samplers.conftest import ARCHITECTURES, GROUPED, SMALL, assert_same_replies, build, generated

from ragen.episode import StopReason
from ragen.errors import ModelError, TrainingError
from ragen.learn.lora import Lora, adapters, inject
from ragen.learn.network import Network
from ragen.samplers.base import Request, SamplingParams
from ragen.samplers.engines import PlainEngine
from ragen.samplers.hf import HFSampler
from ragen.samplers.passes import NativePass, TransformersPass
from ragen.samplers.rows import KeyValueRows

GREEDY = SamplingParams(temperature=0)
NATIVE = {"llama", "qwen2", "qwen3"}
# how each of these is run: by our own decoder, over kept rows through transformers, or plainly
OTHERS = {
    "mistral": (NativePass, {**GROUPED, "sliding_window": None}),
    "olmo2": (TransformersPass, GROUPED),
    "granite": (TransformersPass, {**GROUPED, "logits_scaling": 2.0}),
    "gpt_neo": (
        PlainEngine,
        {
            "hidden_size": 48,
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 9,
            "max_position_embeddings": 512,
        },
    ),
    "bloom": (PlainEngine, {"hidden_size": 48, "n_layer": 2, "n_head": 4, "pad_token_id": 0}),
    "mamba": (PlainEngine, {**SMALL, "state_size": 4}),
}


def make(model, tokenizer, ends=frozenset({2}), dtype=torch.float32, native=True):
    return HFSampler(model, tokenizer, end_ids=frozenset(ends), dtype=dtype, native=native)


def prompts(count, vocabulary, shortest=1, longest=30, seed=0):
    rng = np.random.default_rng(seed)
    return [tuple(rng.integers(3, vocabulary, size=rng.integers(shortest, longest)).tolist()) for _ in range(count)]


def path(sampler):
    """What runs the model: the engine, or its pass over kept rows."""
    return type(getattr(sampler._engine, "forward", sampler._engine))


def greedy(sampler, contexts, new=12):
    completions = sampler.generate([Request(i, context, 0, new) for i, context in enumerate(contexts)], GREEDY)
    assert all(set(completion.logprobs) == {0.0} for completion in completions)
    return [completion.token_ids for completion in completions]


def forward(model, context, ids, temperature=1.0):
    """Log-probabilities and entropies of ``ids`` after ``context``, from one plain pass without cache or padding."""
    with torch.no_grad():
        logits = model(torch.tensor([[*context, *ids]])).logits[0].double() / temperature
    table = logits.log_softmax(-1)[len(context) - 1 : -1]
    return table[torch.arange(len(ids)), list(ids)], -(table.exp() * table).sum(-1)


def assert_like_forward(model, context, completion, temperature=1.0):
    logprobs, entropies = forward(model, context, completion.token_ids, temperature)
    torch.testing.assert_close(torch.tensor(completion.logprobs).double(), logprobs, atol=1e-4, rtol=0)
    torch.testing.assert_close(torch.tensor(completion.entropies).double(), entropies, atol=1e-4, rtol=1e-5)


def test_every_architecture_of_the_attention_interface_keeps_its_cache(model, tokenizer):
    sampler = make(model, tokenizer)
    assert sampler.reuses_cache
    assert path(sampler) is (NativePass if model.config.model_type in NATIVE else TransformersPass)


def test_greedy_is_what_transformers_generates_token_for_token(model, tokenizer):
    contexts = prompts(40, len(tokenizer), shortest=3, longest=61)
    wanted = generated(model, contexts[:30], 12, side_by_side=15) + generated(model, contexts[30:], 12, side_by_side=1)
    assert_same_replies(model, contexts, greedy(make(model, tokenizer), contexts), wanted)


@pytest.mark.parametrize("kind", sorted(OTHERS))
def test_greedy_is_the_same_whichever_way_a_model_is_run(kind, tokenizer):
    way, settings = OTHERS[kind]
    model = build(kind, len(tokenizer), settings=settings)
    sampler = make(model, tokenizer)
    assert path(sampler) is way
    contexts = prompts(12, len(tokenizer), shortest=3, longest=61)
    # a recurrent model reads padding, too: one context at a time
    wanted = generated(model, contexts, 8, side_by_side=1 if kind == "mamba" else 6)
    assert_same_replies(model, contexts, greedy(sampler, contexts, 8), wanted)


@pytest.mark.parametrize("native", [True, False])
def test_two_hundred_prompts_of_mixed_length(llama, tokenizer, native):
    """One id in 24 ends a reply: rows leave the batch at every step."""
    ends = range(2, len(tokenizer), 24)
    contexts = prompts(200, len(tokenizer), shortest=3, longest=61, seed=8)
    sampler = make(llama, tokenizer, ends=ends, native=native)
    got = greedy(sampler, contexts)
    assert len({len(reply) for reply in got}) == 12
    assert_same_replies(llama, contexts, got, generated(llama, contexts, 12, side_by_side=50, ends=ends))
    assert_same_replies(llama, contexts[:20], got[:20], generated(llama, contexts[:20], 12, side_by_side=1, ends=ends))
    sampler.release()
    requests = [Request(i, context, i, 12) for i, context in enumerate(contexts)]
    for request, completion in zip(requests, sampler.generate(requests, SamplingParams()), strict=True):
        assert_like_forward(llama, request.context, completion)


def test_a9_log_probabilities_equal_a_plain_pass_over_three_turns_of_uneven_rows(model, tokenizer):
    sampler = make(model, tokenizer)
    contexts = dict(enumerate(prompts(9, len(tokenizer), seed=1)))
    rng = np.random.default_rng(2)
    for turn in range(3):
        asked = [slot for slot in contexts if (slot + turn) % 4]  # some rows sit a turn out
        requests = [Request(slot, contexts[slot], 50 * turn + slot, int(rng.integers(1, 14))) for slot in asked[::-1]]
        for request, completion in zip(requests, sampler.generate(requests, SamplingParams()), strict=True):
            assert_like_forward(model, request.context, completion)
            more = rng.integers(3, len(tokenizer), size=rng.integers(1, 9)).tolist()
            contexts[request.slot] = (*request.context, *completion.token_ids, *more)


def test_a_turn_runs_only_ids_its_slot_has_not_seen(llama, tokenizer, monkeypatch):
    monkeypatch.setattr(NativePass, "grain", 1)  # no rounding up
    sampler = make(llama, tokenizer)
    seen = []
    original = NativePass._hidden
    monkeypatch.setattr(NativePass, "_hidden", lambda self, ids, *rest: seen.append(ids.shape) or original(self, ids, *rest))
    context = tuple(range(10, 40))
    (first,) = sampler.generate([Request(0, context, 1, 5)], GREEDY)
    assert seen[0] == (1, 29)
    seen.clear()
    grown = context + first.token_ids + (7, 8, 9)
    sampler.generate([Request(0, grown, 1, 1)], GREEDY)
    # held: the context and all sampled ids but the last; new: that one, 7, 8 in a block, 9 in the step
    assert seen == [(1, 3), (1, 1)]


def test_members_of_a_group_are_prefilled_once(llama, tokenizer, monkeypatch):
    monkeypatch.setattr(NativePass, "grain", 1)  # no rounding up
    sampler = make(llama, tokenizer)
    seen = []
    original = NativePass._hidden
    monkeypatch.setattr(NativePass, "_hidden", lambda self, ids, *rest: seen.append(ids.shape) or original(self, ids, *rest))
    groups = [tuple(range(5, 25)), tuple(range(40, 60))]
    requests = [Request(i, groups[i // 8], i, 2) for i in range(16)]
    completions = sampler.generate(requests, SamplingParams())
    assert seen[0] == (2, 19)
    assert len(seen) <= 3
    for request, completion in zip(requests, completions, strict=True):
        assert_like_forward(llama, request.context, completion)


@pytest.mark.parametrize("change", ["shorter", "other start", "same again", "window"])
def test_a_context_that_does_not_extend_what_its_slot_holds_starts_over(llama, tokenizer, change):
    sampler = make(llama, tokenizer)
    context = tuple(range(10, 30))
    (first,) = sampler.generate([Request(4, context, 1, 6)], SamplingParams())
    new = {
        "shorter": context[:7],
        "other start": (99, *context[1:]),
        "same again": context,
        "window": context[:5] + context[12:] + first.token_ids,
    }[change]
    (second,) = sampler.generate([Request(4, new, 2, 6)], SamplingParams())
    assert_like_forward(llama, new, second)


def test_a_row_does_not_depend_on_its_companions(model, tokenizer):
    contexts = prompts(20, len(tokenizer), seed=3)
    requests = [Request(i, c, 1000 + i, 1 + i % 9) for i, c in enumerate(contexts)]
    together = make(model, tokenizer).generate(requests, SamplingParams())
    sampler = make(model, tokenizer)
    for request, completion in zip(requests, together, strict=True):
        (alone,) = sampler.generate([request], SamplingParams())
        assert alone.token_ids == completion.token_ids
        np.testing.assert_allclose(alone.logprobs, completion.logprobs, atol=1e-4)


def test_d1_b19_temperature_enters_log_probabilities_and_entropies(llama, tokenizer):
    (completion,) = make(llama, tokenizer).generate([Request(0, (5, 6), 3, 10)], SamplingParams(temperature=0.6))
    assert_like_forward(llama, (5, 6), completion, temperature=0.6)


def test_entropy_at_temperature_zero_is_that_of_temperature_one(llama, tokenizer):
    (completion,) = make(llama, tokenizer).generate([Request(0, (5, 6), 3, 4)], GREEDY)
    _, entropies = forward(llama, (5, 6), completion.token_ids)
    np.testing.assert_allclose(completion.entropies, entropies, atol=1e-4)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_d3_d4_broken_logits_raise_and_never_give_a_token(llama, tokenizer, value):
    model = copy.deepcopy(llama)
    sampler = make(model, tokenizer)
    with torch.no_grad():
        model.model.embed_tokens.weight[77] = value  # only rows that hold this id break
    requests = [Request(11, (5, 6), 0, 4), Request(12, (5, 77), 0, 4), Request(13, (8,), 0, 4)]
    numbers = torch.cat([parameter.detach().double().flatten() for parameter in llama.parameters()])
    lost = llama.model.embed_tokens.weight[77].detach().double()
    norm, count = float((numbers.square().sum() - lost.square().sum()).sqrt()), numbers.numel()
    words = rf"parameter norm {norm:.6g}, without {lost.numel()} of {count} numbers that are not finite"
    with pytest.raises(TrainingError, match=rf"slot 12 .*version 0.*{words}.*last checkpoint"):
        sampler.generate(requests, SamplingParams())
    assert len(sampler.generate([requests[0]], SamplingParams())) == 1


def test_d4_logits_that_overflow_from_finite_weights_tell_how_large_these_are(tokenizer, llama):
    model = copy.deepcopy(llama)
    with torch.no_grad():
        model.lm_head.weight.fill_(3e38)
    norm = math.sqrt(model.lm_head.weight.numel()) * 3e38  # the rest is nothing beside it
    with pytest.raises(TrainingError, match=re.escape(f"parameter norm {norm:.6g}, all numbers finite")):
        make(model, tokenizer).generate([Request(0, (5, 6), 0, 4)], SamplingParams())


def test_a6_ids_equal_to_the_pad_or_end_id_inside_a_context_are_attended(tokenizer, llama):
    model = copy.deepcopy(llama)
    model.config.pad_token_id = model.config.eos_token_id = 2
    contexts = [(5, 2, 2, 6, 2), (2, 7), (9, 9, 9, 2, 2, 2, 2)]
    requests = [Request(i, c, i, 5) for i, c in enumerate(contexts)]
    for request, completion in zip(requests, make(model, tokenizer).generate(requests, SamplingParams()), strict=True):
        assert_like_forward(model, request.context, completion)


def test_a6_a_model_without_pad_token_samples_and_keeps_its_embedding(tokenizer, llama):
    model = copy.deepcopy(llama)
    model.config.pad_token_id = None
    bare = copy.deepcopy(tokenizer)
    bare.pad_token = None
    size = model.get_input_embeddings().weight.shape
    assert bare.pad_token_id is None
    assert len(make(model, bare).generate([Request(0, (5,), 0, 3), Request(1, (5, 6), 0, 3)], SamplingParams())) == 2
    assert model.get_input_embeddings().weight.shape == size


def test_training_mode_flags_and_attention_are_put_back(llama, tokenizer):
    model = copy.deepcopy(llama).train()
    model.lm_head.weight.requires_grad_(False)
    flags = [p.requires_grad for p in model.parameters()]
    implementation = model.config._attn_implementation
    make(model, tokenizer, dtype=torch.bfloat16).generate([Request(0, (5,), 0, 3)], SamplingParams())
    assert model.training
    assert [p.requires_grad for p in model.parameters()] == flags
    assert model.config._attn_implementation == implementation
    assert not any("forward" in vars(module) for module in model.modules())


def test_nothing_is_kept_of_the_proof_that_chose_how_to_run(llama, tokenizer):
    model = copy.deepcopy(llama)
    for decoder in (make(model, tokenizer)._decoder, Network(model, dtype=torch.bfloat16)._decoder):
        assert all(projection._weight is None for projection in decoder._projections())


@pytest.mark.parametrize("native", [True, False])
def test_adapters_put_into_the_model_later_are_sampled_with(llama, tokenizer, native):
    model = copy.deepcopy(llama)
    sampler = make(model, tokenizer, native=native)
    request = Request(0, (5, 6, 7), 0, 12)
    sampler.generate([request], SamplingParams())
    inject(model, Lora(rank=4))
    with torch.no_grad():
        for name, weight in adapters(model).items():
            weight.add_(0.3 if "lora_B" in name else 0.0)
    assert_like_forward(model, request.context, sampler.generate([request], SamplingParams())[0])


def test_load_copies_foreign_weights_and_names_wrong_ones(llama, tokenizer):
    sampler = make(copy.deepcopy(llama), tokenizer)
    with pytest.raises(ModelError, match="'nonsense'"):
        sampler.load({"nonsense": torch.zeros(1)}, 1)
    with pytest.raises(ModelError, match=r"'lm_head.weight'.*\(3, 3\)"):
        sampler.load({"lm_head.weight": torch.zeros(3, 3)}, 1)
    assert sampler.version == 0


def test_requests_that_make_no_sense_are_refused(llama, tokenizer):
    sampler = make(llama, tokenizer)
    with pytest.raises(ValueError, match="slot of its own"):
        sampler.generate([Request(0, (5,), 0, 3), Request(0, (6,), 0, 3)], SamplingParams())
    with pytest.raises(ValueError, match="slot 3"):
        sampler.generate([Request(3, (), 0, 3)], SamplingParams())
    with pytest.raises(ValueError, match="max_new_tokens 0"):
        sampler.generate([Request(3, (5,), 0, 0)], SamplingParams())


def test_a_model_outside_the_attention_interface_is_run_plainly_and_right(tokenizer, llama, monkeypatch):
    monkeypatch.setattr("ragen.samplers.engines.rows_agree", lambda *_: False)
    sampler = make(llama, tokenizer)
    assert isinstance(sampler._engine, PlainEngine)
    contexts = prompts(7, len(tokenizer), longest=5, seed=5)
    requests = [Request(i, c, i, 6) for i, c in enumerate(contexts)]
    for request, completion in zip(requests, sampler.generate(requests, SamplingParams()), strict=True):
        assert_like_forward(llama, request.context, completion)


def test_the_start_up_check_turns_wrong_rows_down(tokenizer, llama, monkeypatch):
    original = KeyValueRows.get_query_offset
    monkeypatch.setattr(KeyValueRows, "get_query_offset", lambda self, layer=0: original(self, layer) - 1)
    assert not make(llama, tokenizer, native=False).reuses_cache


@pytest.mark.parametrize("native", [True, False])
def test_long_batches_with_uneven_budgets_are_compacted_and_stay_right(llama, tokenizer, native):
    requests = [Request(i, c, i, 1 + 3 * (i % 7)) for i, c in enumerate(prompts(40, len(tokenizer), seed=6))]
    sampler = make(llama, tokenizer, native=native)
    completions = sampler.generate(requests, SamplingParams())
    for request, completion in zip(requests, completions, strict=True):
        assert_like_forward(llama, request.context, completion)
        assert completion.stop in (StopReason.END, StopReason.LENGTH)
    grown = [Request(r.slot, r.context + c.token_ids + (5,), 9, 3) for r, c in zip(requests, completions, strict=True)]
    for request, completion in zip(grown, sampler.generate(grown, SamplingParams()), strict=True):
        assert_like_forward(llama, request.context, completion)


def test_d2_bfloat16_log_probabilities_are_near_those_of_an_autocast_pass(llama, tokenizer):
    requests = [Request(i, c, i, 10) for i, c in enumerate(prompts(16, len(tokenizer), seed=7))]
    gaps = []
    for request, completion in zip(
        requests, make(llama, tokenizer, dtype=torch.bfloat16).generate(requests, SamplingParams()), strict=True
    ):
        with torch.autocast("cpu", torch.bfloat16):
            logprobs, _ = forward(llama, request.context, completion.token_ids)
        gaps += (torch.tensor(completion.logprobs) - logprobs).abs().tolist()
    assert np.mean(gaps) < 0.03  # bfloat16 logits near 8 are 0.03 apart


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_reply_may_end_where_the_models_context_does(kind, native, tokenizer, monkeypatch):
    """Learned position embeddings have no place behind the context's end: nothing may be filled up past it."""
    monkeypatch.setitem(ARCHITECTURES, "gpt2", {**ARCHITECTURES["gpt2"], "n_positions": 40})
    monkeypatch.setitem(ARCHITECTURES, "llama", {**ARCHITECTURES["llama"], "max_position_embeddings": 40})
    model = build(kind, len(tokenizer))
    requests = [Request(i, tuple(range(5 + i, 5 + i + length)), i, 40 - length) for i, length in enumerate((38, 37, 30))]
    sampler = make(model, tokenizer, ends=frozenset(), native=native)
    assert sampler.reuses_cache
    for request, completion in zip(requests, sampler.generate(requests, SamplingParams()), strict=True):
        assert len(request.context) + len(completion.token_ids) == 40
        assert_like_forward(model, request.context, completion)
