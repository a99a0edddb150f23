"""Decoding speed: the project's own loop against transformers' ``generate``, side by side in one run.

    python benchmarks/rollout.py [MODEL] [--batch 128 16] [--prompt 57] [--new 24] [--repeats 3] [--dtype auto]

Groups of 16 (or the batch, if smaller) share a prompt of random ids; nothing stops early. Runs alternate, the best of each
is printed, and the ratio of the two is the figure that travels between machines. Seconds of CPU time are given too, because
other work on the machine distorts wall-clock time.
"""

import argparse
import time

import numpy as np
import torch

from ragen.models.device import choose_device, choose_dtype
from ragen.models.load import load_model, load_tokenizer
from ragen.models.resolve import resolve_model
from ragen.samplers.base import Request, SamplingParams
from ragen.samplers.hf import HFSampler


def contexts(batch, length, vocabulary):
    rng = np.random.default_rng(0)
    prompts = rng.integers(10, vocabulary, size=(max(1, batch // 16), length))
    return [tuple(prompts[i * len(prompts) // batch].tolist()) for i in range(batch)]


def own_loop(sampler, rows, new):
    sampler.load({}, version=0)  # as after an update: weights are packed and prompts run anew
    replies = sampler.generate([Request(i, row, i, new) for i, row in enumerate(rows)], SamplingParams())
    return sum(len(reply.token_ids) for reply in replies)


def generate(model, dtype, rows, new):
    ids = torch.tensor(rows, device=model.device)
    with torch.no_grad(), torch.autocast(model.device.type, dtype=dtype, enabled=dtype != torch.float32):
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            max_new_tokens=new,
            min_new_tokens=new,
            top_k=0,
            pad_token_id=0,
        )
    return out[:, ids.shape[1] :].numel()


def measure(run, best):
    wall, cpu = time.perf_counter(), time.process_time()
    tokens = run()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return (max(best[0], tokens / wall), min(best[1], cpu))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2-135m")
    parser.add_argument("--batch", type=int, nargs="+", default=[128, 16])
    parser.add_argument("--prompt", type=int, default=57)
    parser.add_argument("--new", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dtype", default="auto")
    given = parser.parse_args()
    path, device = resolve_model(given.model), choose_device("auto")
    model, tokenizer = load_model(path, device=device), load_tokenizer(path)
    dtype = choose_dtype(given.dtype, device, sum(weight.numel() for weight in model.parameters()))
    sampler = HFSampler(model, tokenizer, end_ids=frozenset(), dtype=dtype)
    print(f"{given.model} on {device}, {dtype}, {torch.get_num_threads()} threads; {given.prompt} + {given.new} tokens")
    for batch in given.batch:
        rows = contexts(batch, given.prompt, model.config.vocab_size)
        ours = theirs = (0.0, float("inf"))
        for _ in range(given.repeats):
            ours = measure(lambda rows=rows: own_loop(sampler, rows, given.new), ours)
            theirs = measure(lambda rows=rows: generate(model, dtype, rows, given.new), theirs)
        for name, (rate, cpu) in (("own loop", ours), ("generate", theirs)):
            print(f"batch {batch:4d}  {name}: {rate:7.0f} tokens/s, {cpu:.1f} s CPU")
        print(f"batch {batch:4d}  ratio {ours[0] / theirs[0]:.1f}, of CPU time {theirs[1] / ours[1]:.1f}", flush=True)


if __name__ == "__main__":
    main()
