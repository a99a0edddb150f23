"""How a training step's time and memory grow with members, context and turns.

    python benchmarks/growth.py [MODEL] [--steps 3] [--dtype auto]

Each point is a process of its own: 2 groups of 4 conversations, a prompt of 128 tokens, a reply of 32, and one of the sizes
changed; between turns 32 tokens are given. The first step warms up and is not counted; medians and the peak memory are
printed, with the exponent of the growth between neighbours: log of the ratio over log of the ratio of sizes.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys

BASE = {"members": 4, "prompt": 128, "turns": 1}
SIZES = {"members": (1, 4, 16, 64), "prompt": (128, 512, 2048), "turns": (1, 2, 5, 10)}
GROUPS, NEW, BETWEEN = 2, 32, 32


def point(given):
    """Time steps of one size and print them as JSON."""
    from pathlib import Path

    from ragen.loops.bench import StepBench, peak_memory
    from ragen.models.device import choose_device, choose_dtype

    device = choose_device("auto")
    bench = StepBench(Path(given.model), device=device, dtype=choose_dtype(given.dtype, device))
    size = json.loads(given.point)
    prompts = bench.prompts(GROUPS, size["prompt"])
    steps = [
        bench.step(prompts, size["members"], NEW, turns=size["turns"], between=BETWEEN) for _ in range(given.steps + 1)
    ][1:]
    sampling, update = statistics.median(sum(s.sampling) for s in steps), statistics.median(s.update for s in steps)
    last = statistics.median(s.sampling[-1] for s in steps)
    print(json.dumps([sampling, update, last, peak_memory() / 1e9]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2-135m")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.point:
        point(given)
        return
    from ragen.models.resolve import resolve_model

    path = str(resolve_model(given.model))
    print("  size      value   step s  sampling   update  last turn  peak GB   growth of sampling, update")
    for name, values in SIZES.items():
        before = None
        for value in values:
            sampling, update, last, peak = measured(path, {**BASE, name: value}, given)
            numbers = f"{sampling + update:8.2f} {sampling:9.2f} {update:8.2f} {last:10.2f} {peak:8.2f}"
            print(f"  {name:8} {value:6d} {numbers}   {growth(before, (value, sampling, update))}", flush=True)
            before = (value, sampling, update)


def measured(path, size, given):
    words = ["--point", json.dumps(size), "--steps", str(given.steps), "--dtype", given.dtype]
    done = subprocess.run([sys.executable, __file__, path, *words], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def growth(before, now):
    if before is None:
        return ""
    wider = math.log(now[0] / before[0])
    return "   ".join(f"{math.log(b / a) / wider:.2f}" for a, b in zip(before[1:], now[1:], strict=True))


if __name__ == "__main__":
    main()
