"""Times of the built-in environments: one step, one new instance, one oracle turn.

    python benchmarks/environments.py [ENVIRONMENT …]

Without names: all of them.
"""

import argparse
import importlib
import time
from statistics import mean, quantiles

from ragen.envs.registry import environment_factory, environments
from ragen.errors import ConfigError
from ragen.loops.bench import environment_step

ROOMS = ("bandit", "frozen_lake", "sokoban", "webshop")
INSTANCES = 300
STEPS = 20_000


def seconds(action):
    start = time.perf_counter()
    result = action()
    return time.perf_counter() - start, result


def new_instances(env, first):
    """Seconds of each of INSTANCES resets to an instance that is not cached yet, and of an oracle turn from it."""
    resets, plans = [], []
    for seed in range(first, first + INSTANCES):
        resets.append(seconds(lambda seed=seed: env.reset(instance_seed=seed, dynamics_seed=0))[0])
        plans.append(seconds(env.plan)[0])
    return resets, plans


def main(names):
    print(f"{'environment':32} {'step µs':>9} {'new instance ms':>16} {'p99':>7} {'oracle turn ms':>15}")
    for number, name in enumerate(names, start=1):
        try:
            env = environment_factory({"name": name})()
        except ConfigError as error:  # it needs a file that the user has
            print(f"{name:32} {str(error).partition(':')[0]}")
            continue
        step = environment_step(env, STEPS)
        resets, plans = new_instances(env, 1_000_000 * number)
        tail = quantiles(resets, n=100)[98]
        print(f"{name:32} {step * 1e6:9.1f} {mean(resets) * 1e3:16.3f} {tail * 1e3:7.2f} {mean(plans) * 1e3:15.3f}")


if __name__ == "__main__":
    for room in ROOMS:
        importlib.import_module(f"ragen.envs.{room}")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="ENVIRONMENT", help="those to time (default: all)")
    given = parser.parse_args().names
    if strangers := [name for name in given if name not in environments.names()]:
        parser.error(f"unknown: {', '.join(strangers)} (`ragen envs` lists what there is)")
    main(given or environments.names())
