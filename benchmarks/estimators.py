"""What each advantage rule costs on a large batch.

    python benchmarks/estimators.py [--trajectories 10000] [--turns 5] [--tokens 1000] [--segments 1] [--repeats 3]
        [--rule NAME …]

One row a trajectory (``--segments 1``) or one a turn (any other number), all tokens sampled, rewards on turns' ends, groups
of 16. The best of the repeats is printed, wall-clock and CPU (which other work on the machine distorts less), beside the
time in which the arrays that the rule reads and writes are copied once: what this machine's memory allows at least. Arrays
are float32, as in training; statistics and recursions are float64.
"""

import argparse
import time

import torch

from ragen.algos.advantages import advantages


def batch(given):
    torch.manual_seed(0)
    width = given.turns * given.tokens
    rows = given.trajectories if given.segments == 1 else given.trajectories * given.turns
    columns = width if given.segments == 1 else given.tokens
    trajectory = torch.arange(rows) if given.segments == 1 else torch.arange(rows) // given.turns
    turns = torch.arange(columns) // given.tokens if given.segments == 1 else torch.arange(rows)[:, None] % given.turns
    rewards = torch.zeros(rows, columns)
    rewards[:, given.tokens - 1 :: given.tokens] = torch.randint(-1, 3, (rows, columns // given.tokens)).float()
    shape = (rows, columns)
    return {
        "rewards": rewards,
        "mask": torch.ones(shape, dtype=torch.bool),
        "turn_ids": turns.to(torch.int32).expand(shape).contiguous(),
        "trajectory": trajectory,
        "group": trajectory // 16,
        "values": torch.randn(shape),
        "truncated": torch.zeros(rows, dtype=torch.bool),
        "anchors": torch.randint(0, 4, (rows, 1)).expand(shape).contiguous(),
        "baseline": torch.tensor(0.5, dtype=torch.float64),
    }


def best(function, repeats):
    """The least wall-clock time and the least CPU time, in seconds."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter(), time.process_time()
        function()
        times.append((time.perf_counter() - started[0], time.process_time() - started[1]))
    return tuple(map(min, zip(*times, strict=True)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, size in (("trajectories", 10_000), ("turns", 5), ("tokens", 1000), ("segments", 1), ("repeats", 3)):
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--rule", nargs="*", default=advantages.names())
    given = parser.parse_args()
    arrays = batch(given)
    print(f"{arrays['mask'].numel() / 1e6:.1f} million tokens, {torch.get_num_threads()} threads")
    for name in given.rule:
        rule = advantages.get(name)
        read = [arrays[need] for need in rule.needs]
        written = 2 if "values" in rule.needs else 1
        copies = best(lambda read=read, n=written: [a.clone() for a in (*read, *[arrays["rewards"]] * n)], given.repeats)
        wall, cpu = best(lambda rule=rule: rule(arrays, {}), given.repeats)
        print(f"  {name:22} {wall:7.3f} s, CPU {cpu:7.3f} s   copies {copies[0]:.3f} s, CPU {copies[1]:.3f} s", flush=True)


if __name__ == "__main__":
    main()
