"""Whether the memory of training stays flat: resident memory over many steps, and its slope.

    python benchmarks/memory.py [MODEL] [--steps 200] [--groups 2] [--members 8] [--prompt 130] [--new 48] [--dtype auto]

Each step samples, updates once and frees, as in training. Replies are of a length drawn anew for each step, from NEW / 2 to
NEW, and prompts of PROMPT / 2 to PROMPT, because memory that grows does so with new shapes. Printed are the resident memory
at the end of steps, the slope over the second half in MB a step (least squares), and the peak.
"""

import argparse
import random

import numpy as np


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2-135m")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--groups", type=int, default=2)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=130)
    parser.add_argument("--new", type=int, default=48)
    parser.add_argument("--dtype", default="auto")
    given = parser.parse_args()

    import psutil

    from ragen.loops.bench import StepBench, peak_memory
    from ragen.models.device import choose_device, choose_dtype
    from ragen.models.resolve import resolve_model

    device = choose_device("auto")
    bench = StepBench(resolve_model(given.model), device=device, dtype=choose_dtype(given.dtype, device))
    draw, resident = random.Random(0), []
    for step in range(1, given.steps + 1):
        prompts = bench.prompts(given.groups, draw.randint(given.prompt // 2, given.prompt))
        bench.step(prompts, given.members, draw.randint(given.new // 2, given.new))
        resident.append(psutil.Process().memory_info().rss / 1e6)
        if step in (1, 2, 5) or step % 10 == 0:
            print(f"step {step:4d}   {resident[-1]:8.1f} MB", flush=True)
    half = resident[len(resident) // 2 :]
    slope = np.polyfit(range(len(half)), half, 1)[0] if len(half) > 1 else 0.0
    print(f"slope of the last {len(half)} steps {slope:+.3f} MB a step · peak {peak_memory() / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
