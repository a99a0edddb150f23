"""One GRPO training step: ours against TRL's GRPOTrainer, same weights, prompts, sizes and loss, in one run.

    python benchmarks/step.py [MODEL] [--trl /path/to/python] [--dtype bfloat16] [--groups 8] [--members 16] [--prompt 130]
        [--new 48] [--steps 3]

A step samples groups × members replies of exactly NEW tokens, scores them by a function of their text, takes group-relative
advantages and makes one optimiser step over all of them (no KL term, no filter). Each side runs in a process of its own, in
turn; the first step warms up and is not counted. Medians and peak memory are printed, and the ratio, which is the figure
that travels between machines. TRL wants an environment of its own: ``python -m venv trl && trl/bin/pip install
torch==2.13.0 trl==1.16.0 transformers==5.24.0``; it runs in its best CPU configuration (bf16, no gradient checkpointing).
Without ``--trl`` only our side runs.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

WORDS = ("river", "stone", "cloud", "wheel", "garden", "window", "paper", "forest", "silver", "summer", "bridge", "candle")


def prompts(tokenizer, count, length):
    """Texts of exactly ``length`` tokens."""
    texts = []
    for i in range(count):
        text = f"{WORDS[i % len(WORDS)]} {i}:"
        while len(tokenizer(text)["input_ids"]) < length:
            text += f" {WORDS[(i + len(text)) % len(WORDS)]}"
        texts.append(tokenizer.decode(tokenizer(text)["input_ids"][:length]))
    return texts


def score(text):
    """A reward with some spread inside a group: the share of the letter e."""
    return text.count("e") / max(1, len(text))


def report(times, side):
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"side": side, "times": times, "peak_gib": peak}), flush=True)


def ours(given, path):
    import torch

    from ragen.loops.bench import StepBench
    from ragen.models.load import load_tokenizer

    bench = StepBench(
        path,
        device=torch.device("cpu"),
        dtype=getattr(torch, given.dtype),
        microbatch_tokens=given.microbatch_tokens,
    )
    tokenizer = load_tokenizer(path)
    asked = [tuple(tokenizer(text)["input_ids"]) for text in prompts(tokenizer, given.groups, given.prompt)]
    times = []
    for _ in range(given.steps + 1):
        taken = bench.step(asked, given.members, given.new, score=score)
        times.append([sum(taken.sampling), taken.total])
    report(times[1:], "ours")


def trl(given, path):
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(path)
    texts = prompts(tokenizer, given.groups, given.prompt)
    size = given.groups * given.members
    config = GRPOConfig(
        output_dir="/tmp/trl-benchmark",
        use_cpu=True,
        bf16=given.dtype == "bfloat16",
        gradient_checkpointing=False,
        per_device_train_batch_size=given.members,
        gradient_accumulation_steps=given.groups,
        num_generations=given.members,
        generation_batch_size=size,
        max_completion_length=given.new,
        generation_kwargs={"min_new_tokens": given.new},
        temperature=1.0,
        beta=0.0,
        learning_rate=1e-6,
        max_steps=given.steps + 1,
        num_iterations=1,
        save_strategy="no",
        report_to=[],
        logging_steps=1,
        disable_tqdm=True,
        shuffle_dataset=False,
    )
    times = []

    class Clock(TrainerCallback):
        def on_step_begin(self, *_, **__):
            self.start = time.perf_counter()

        def on_step_end(self, *_, **__):
            times.append([None, time.perf_counter() - self.start])

    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=lambda completions, **_: [score(text) for text in completions],
        args=config,
        train_dataset=Dataset.from_dict({"prompt": texts * (given.steps + 2)}),
        callbacks=[Clock()],
    )
    trainer.train()
    report(times[1:], "trl")


def run(python, given, side, path):
    command = [python, __file__, str(path), "--side", side, *[f"--{n}={getattr(given, n)}" for n in SIZES]]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in result.stdout.splitlines() if line.startswith('{"side"')]
    if not lines:
        sys.exit(f"{side} failed:\n{result.stderr[-3000:]}")
    found = json.loads(lines[-1])
    whole = [t for _, t in found["times"]]
    rollouts = [r for r, _ in found["times"] if r is not None]
    detail = f", rollout {statistics.median(rollouts):.1f} s" if rollouts else ""
    print(
        f"{side:5s} step {statistics.median(whole):6.1f} s{detail}, of {len(whole)}; peak {found['peak_gib']:.2f} GiB",
        flush=True,
    )
    return statistics.median(whole)


SIZES = ("groups", "members", "prompt", "new", "steps", "dtype", "microbatch_tokens")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2-135m")
    parser.add_argument("--trl", metavar="PYTHON", help="an interpreter that has TRL")
    parser.add_argument("--side", choices=["ours", "trl"], help=argparse.SUPPRESS)
    for name, value in zip(SIZES, (8, 16, 130, 48, 3, "bfloat16", 1024), strict=True):
        parser.add_argument(f"--{name}", type=type(value), default=value)
    given = parser.parse_args()
    if given.side:
        {"ours": ours, "trl": trl}[given.side](given, Path(given.model))
        return
    from ragen.models.resolve import resolve_model

    path = resolve_model(given.model)
    mine = run(sys.executable, given, "ours", path)
    if given.trl:
        print(f"ratio {run(given.trl, given, 'trl', path) / mine:.1f}", flush=True)


if __name__ == "__main__":
    main()
