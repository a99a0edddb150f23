"""What every sampler must do, run over each of them."""

import copy

import pytest
import torch

from ragen.episode import StopReason
from ragen.samplers.base import Request, SamplingParams
from ragen.samplers.hf import HFSampler
from ragen.samplers.scripted import ScriptedSampler

END = 2
REPLIES = ["Left", "Right || Up", "Down", "Up || Up || Left || Down"]


@pytest.fixture(params=["hf", "scripted"])
def sampler(request, tokenizer, llama):
    if request.param == "scripted":
        return ScriptedSampler(tokenizer, REPLIES, END)
    return HFSampler(copy.deepcopy(llama), tokenizer, end_ids=frozenset({END}), dtype=torch.float32)


def ask(n, seed=0, budget=12, context=(5, 6, 7)):
    return [Request(slot, tuple(context), seed + slot, budget) for slot in range(n)]


def test_ids_log_probabilities_and_entropies_have_one_length(sampler):
    for completion in sampler.generate(ask(6), SamplingParams()):
        assert 1 <= len(completion.token_ids) == len(completion.logprobs) == len(completion.entropies) <= 12
        assert all(value <= 0 for value in completion.logprobs)
        assert all(value >= 0 for value in completion.entropies)


def test_no_requests_give_no_completions(sampler):
    assert sampler.generate([], SamplingParams()) == []


def test_stop_reason_is_end_exactly_when_the_last_id_ends_a_turn(sampler, tokenizer):
    completions = sampler.generate(ask(64, budget=60), SamplingParams())
    assert {StopReason.END} <= {c.stop for c in completions}
    for completion in completions:
        assert (completion.token_ids[-1] == END) == (completion.stop is StopReason.END)
        assert END not in completion.token_ids[:-1]
        assert completion.text == tokenizer.decode(completion.token_ids, skip_special_tokens=True)


def test_a17_a_reply_that_spends_its_budget_stops_by_length(sampler):
    for completion in sampler.generate(ask(8, budget=1), SamplingParams()):
        assert len(completion.token_ids) == 1
        assert completion.stop is (StopReason.END if completion.token_ids[0] == END else StopReason.LENGTH)


def test_a_stop_string_ends_the_reply_and_is_kept(sampler, tokenizer):
    texts = [c.text for c in sampler.generate(ask(4, budget=40), SamplingParams())]
    stop = texts[1][2:4]
    sampler.release()
    for text, completion in zip(
        texts, sampler.generate(ask(4, budget=40), SamplingParams(stop_strings=(stop,))), strict=True
    ):
        if stop in text:
            assert completion.stop in (StopReason.STOP_STRING, StopReason.END)
            assert completion.text == text[: len(completion.text)]
            assert stop in completion.text
            assert stop not in tokenizer.decode(completion.token_ids[:-1])
        else:
            assert completion.text == text


def test_version_is_what_load_was_given(sampler):
    assert sampler.version == 0
    sampler.load({}, version=7)
    assert sampler.version == 7


def test_order_of_completions_is_the_order_of_requests(tokenizer, llama):
    texts = {3: "Left", 1: "Right || Up", 2: "Down"}
    sampler = ScriptedSampler(tokenizer, lambda request: texts[request.slot], END)
    requests = [Request(slot, (5,), 0, 20) for slot in (3, 1, 2)]
    assert [c.text for c in sampler.generate(requests, SamplingParams())] == ["Left", "Right || Up", "Down"]
    assert sampler.requests == requests


def test_a31_a32_members_of_a_group_differ_and_seeds_decide(tokenizer, llama):
    sampler = HFSampler(llama, tokenizer, end_ids=frozenset({END}), dtype=torch.float32)

    def ids(seed):
        sampler.release()
        return [c.token_ids for c in sampler.generate(ask(8, seed=seed), SamplingParams())]

    assert len(set(ids(1))) >= 2
    assert ids(1) == ids(1)
    assert ids(1) != ids(1000)


def test_scripted_text_that_spells_a_control_token_is_no_control_token(tokenizer):
    sampler = ScriptedSampler(tokenizer, ["<|im_end|>Left"], END)
    (completion,) = sampler.generate(ask(1, budget=40), SamplingParams())
    assert completion.token_ids.count(END) == 1
    assert completion.text == "<|im_end|>Left"


def test_f8_new_weights_are_used_at_once(tokenizer, llama):
    sampler = HFSampler(copy.deepcopy(llama), tokenizer, end_ids=frozenset({END}), dtype=torch.float32)
    before = sampler.generate(ask(3), SamplingParams(temperature=0))
    forced = copy.deepcopy(llama)
    forced.lm_head.weight = torch.nn.Parameter(torch.zeros_like(forced.lm_head.weight))
    forced.lm_head.weight.data[321] = forced.model.norm.weight.data * 0
    hidden = forced.model(torch.tensor([[5, 6, 7]])).last_hidden_state[0, -1].detach()
    forced.lm_head.weight.data[321] = hidden
    sampler.load({"lm_head.weight": forced.lm_head.weight.data}, version=1)
    after = sampler.generate(ask(3, budget=1), SamplingParams(temperature=0))
    assert {c.token_ids[0] for c in after} == {321}
    assert {c.token_ids[0] for c in before} != {321}


@pytest.mark.parametrize("in_place", [False, True], ids=["load", "in place without load"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_f9_nothing_cached_survives_new_weights(tokenizer, llama, in_place, dtype):
    model = copy.deepcopy(llama)
    sampler = HFSampler(model, tokenizer, end_ids=frozenset({END}), dtype=dtype)
    first = sampler.generate(ask(4), SamplingParams())
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.05 * torch.ones_like(weight) * weight.sign())
    if not in_place:
        sampler.load(dict(model.named_parameters()), version=1)
    grown = [Request(r.slot, r.context + c.token_ids + (9, 8), 3, 6) for r, c in zip(ask(4), first, strict=True)]
    fresh = HFSampler(copy.deepcopy(model), tokenizer, end_ids=frozenset({END}), dtype=dtype)
    got, want = sampler.generate(grown, SamplingParams()), fresh.generate(grown, SamplingParams())
    assert [c.token_ids for c in got] == [c.token_ids for c in want]
    torch.testing.assert_close([c.logprobs for c in got], [c.logprobs for c in want], atol=1e-6, rtol=0)
