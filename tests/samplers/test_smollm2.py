"""The sampler on the real 135M model."""

import numpy as np
import pytest
import torch
from tests.samplers.conftest import assert_same_replies, generated

from ragen.models import tiny
from ragen.models.load import load_model, load_tokenizer
from ragen.models.resolve import resolve_model
from ragen.samplers.base import Request, SamplingParams
from ragen.samplers.hf import HFSampler

CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
PROMPTS = 200
QUESTIONS = ("Name a fruit.", "What is two plus two? Answer in one short sentence.", "Say hello.")


@pytest.fixture(scope="module")
def loaded():
    path = resolve_model("smollm2-135m")
    return load_model(path, device=torch.device("cpu")), load_tokenizer(path)


@pytest.mark.smollm2
def test_bfloat16_replies_are_text_and_their_log_probabilities_are_the_learners(loaded):
    model, tokenizer = loaded
    sampler = HFSampler(model, tokenizer, end_ids=frozenset({tokenizer.eos_token_id}), dtype=torch.bfloat16)
    assert sampler.reuses_cache
    contexts = [tuple(tokenizer.encode(CHAT.format(question))) for question in QUESTIONS]
    requests = [Request(i, contexts[i % 3], i, 16) for i in range(6)]
    completions = sampler.generate(requests, SamplingParams())
    gaps = []
    for request, completion in zip(requests, completions, strict=True):
        assert completion.text.strip()
        ids = [*request.context, *completion.token_ids]
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            logits = model(torch.tensor([ids])).logits[0, len(request.context) - 1 : -1].float()
        logprobs = logits.log_softmax(-1)[torch.arange(len(completion.token_ids)), list(completion.token_ids)]
        gaps += (logprobs - torch.tensor(completion.logprobs)).abs().tolist()
    assert np.mean(gaps) < 0.05


@pytest.mark.smollm2
def test_greedy_replies_are_those_of_generate(loaded):
    model, tokenizer = loaded
    sampler = HFSampler(model, tokenizer, end_ids=frozenset({tokenizer.eos_token_id}), dtype=torch.float32)
    contexts = [tuple(tokenizer.encode(CHAT.format(question))) for question in QUESTIONS]
    replies = sampler.generate([Request(i, c, 0, 8) for i, c in enumerate(contexts)], SamplingParams(temperature=0))
    for context, reply in zip(contexts, replies, strict=True):
        ids = torch.tensor([context])
        whole = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=8)
        assert reply.token_ids == tuple(whole[0, len(context) :].tolist())


@pytest.mark.full
@pytest.mark.smollm2
def test_greedy_replies_to_two_hundred_prompts_are_those_of_generate(loaded):
    """Pieces of 3 to 60 tokens out of the environments' texts; ``generate`` has them in batches, padded on the left."""
    model, tokenizer = loaded
    text = tokenizer.encode("\n".join(tiny.texts()))
    rng = np.random.default_rng(0)
    starts, lengths = rng.integers(len(text) - 60, size=PROMPTS), rng.integers(3, 61, size=PROMPTS)
    contexts = [text[start : start + length] for start, length in zip(starts, lengths, strict=True)]
    sampler = HFSampler(model, tokenizer, end_ids=frozenset({tokenizer.eos_token_id}), dtype=torch.float32)
    requests = [Request(i, tuple(context), 0, 8) for i, context in enumerate(contexts)]
    got = [reply.token_ids for reply in sampler.generate(requests, SamplingParams(temperature=0))]
    sampler.release()
    wanted = generated(model, contexts, 8, side_by_side=25, ends=(tokenizer.eos_token_id,))
    assert_same_replies(model, contexts, got, wanted)
