"""WebShop at a given size: build time, memory, opening, searches, steps. Run: python benchmarks/webshop.py [PRODUCTS]

A made-up catalogue is written as a public file pair (one JSON list, one JSON object) of descriptions as long as real
ones, the shop is built from it in a process of its own and opened again in another. The files go to a temporary
directory, also those of the cache. "CPU" are seconds of the process, whatever else the machine does. With `--files
PRODUCTS ATTRIBUTES` real files are taken instead.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean, quantiles

SEARCHES, STEPS = 200, 20_000
FILLER = 100  # words added to a description: the public ones and their first bullets have about 130


def write_files(folder, size):
    """The files of a catalogue in the public form."""
    from ragen.envs.webshop.synthetic import ATTRIBUTES, SORTS, make_catalogue

    rng = random.Random(0)
    words = [word for pool in ATTRIBUTES.values() for text in pool for word in text.split()]
    words += [f"{sort.noun.lower()}" for sort in SORTS] + [f"word{number}" for number in range(20_000)]
    weights = [1 / (rank + 3) for rank in range(len(words))]  # Zipf's law, roughly
    products, attributes = folder / "items_shuffle.json", folder / "items_ins_v2.json"
    with products.open("w") as one, attributes.open("w") as two:
        for number, product in enumerate(make_catalogue(size, 0)):
            filler = " ".join(rng.choices(words, weights, k=FILLER))
            record = {
                "asin": product.asin,
                "name": product.title,
                "category": product.category,
                "query": product.query,
                "product_category": " › ".join(product.path),
                "pricing": product.price_tag,
                "full_description": f"{product.description} {filler}",
                "small_description": list(product.bullets),
                "customization_options": {name: [{"value": v} for v in values] for name, values in product.options},
            }
            one.write(("[" if number == 0 else ",\n") + json.dumps(record))
            entry = {
                "attributes": product.attributes,
                "instruction": product.instruction,
                "instruction_attributes": product.instruction_attributes,
            }
            two.write(("{" if number == 0 else ",\n") + f'"{product.asin}": {json.dumps(entry)}')
        one.write("]")
        two.write("}")
    return products, attributes


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # GiB on Linux


def opened(products, attributes):
    """Seconds (of the clock, of CPU) to open the shop, and an environment of it."""
    from ragen.envs import environment_factory

    start, used = time.perf_counter(), time.process_time()
    env = environment_factory({"name": "webshop", "products": str(products), "attributes": str(attributes)})()
    return time.perf_counter() - start, time.process_time() - used, env


def tell_opening(products, attributes, what):
    seconds, used, env = opened(products, attributes)
    print(f"{what:<22}{seconds:10.2f} s, CPU {used:.2f} s, peak memory {peak():.2f} GiB", flush=True)
    return env


def tell_searches(env):
    """Whole instructions, as the oracle and people search: ten words and more."""
    from ragen.envs.webshop.oracle import instruction_query

    shop, times = env._shop, []
    for number in range(SEARCHES):
        query = instruction_query(shop.goal("synthetic", 7919 * number))
        used = time.process_time()
        shop.stock.index.search(query, 50)
        times.append((time.process_time() - used) * 1e3)
    print(f"{'search':<22}{mean(times):10.2f} ms CPU, p95 {quantiles(times, n=20)[18]:.2f} ms, worst {max(times):.2f} ms")


def tell_steps(env):
    """Random clicks and searches over ever new goals, resets included."""
    draw, steps = random.Random(0), 0
    used = time.process_time()
    while steps < STEPS:
        env.reset(instance_seed=draw.getrandbits(60), dynamics_seed=0)
        for _ in range(9):
            steps += 1
            if env.step(draw.choice(env.actions())).terminated:
                break
    rate = steps / (time.process_time() - used)
    print(f"{'environment':<22}{rate:10.0f} steps a second of CPU, peak memory {peak():.2f} GiB")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("size", nargs="?", type=int, default=1000)
    parser.add_argument("--files", nargs=2, type=Path, help="a products file and its attributes file")
    parser.add_argument("--stage", choices=("write", "build", "use"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.stage == "write":
        write_files(args.files[0].parent, args.size)
    elif args.stage == "build":
        tell_opening(*args.files, "build")
    elif args.stage == "use":
        env = tell_opening(*args.files, "open again")
        tell_searches(env)
        tell_steps(env)
    else:
        run_stages(args)


def run_stages(args):
    with tempfile.TemporaryDirectory() as folder:
        own = [Path(folder) / "items_shuffle.json", Path(folder) / "items_ins_v2.json"]
        files = list(map(str, args.files or own))
        environment = {**os.environ, "RAGEN_CACHE": f"{folder}/cache"}
        for stage in (() if args.files else ("write",)) + ("build", "use"):
            command = [sys.executable, __file__, str(args.size), "--files", *files, "--stage", stage]
            subprocess.run(command, check=True, env=environment)
        kept = sum(file.stat().st_size for file in (Path(folder) / "cache").rglob("*") if file.is_file())
        read = sum(Path(file).stat().st_size for file in files)
        print(f"{'on disk':<22}{kept / 2**20:10.0f} MiB made from {read / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
