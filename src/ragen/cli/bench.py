"""Time this machine: sampling, update and a whole training step, beside what its matrix products would allow.

On a quiet machine the shares are the figures that travel to others. Attention and everything else that is no product with
weights counts as lost time. Sampling counts the tokens drawn, an update all that pass through the layers (a prompt once a
group).
"""

import argparse
import sys
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from ragen.cli.arguments import positive, refuse_model, refuse_without_effect
from ragen.cli.output import tell
from ragen.cli.waiting import LOADING, doing
from ragen.wording import counted

if TYPE_CHECKING:
    from ragen.loops.bench import StepBench, StepTimes

STEADY = 0.8  # of the faster of two measurements of the same product: below it the machine is not quiet
_SETTINGS = ("model.device", "model.dtype", "run.threads", "optim.microbatch_tokens")
OVERRIDES: str | None = f"settings may follow as --section.key VALUE: {', '.join(_SETTINGS)}"
_SIZES = {"groups": 8, "members": 16, "prompt": 130, "new": 48, "turns": 1, "between": 40, "steps": 3}
_HELP = {
    "groups": "prompts a step",
    "members": "conversations a prompt",
    "prompt": "tokens of a prompt",
    "new": "sampled tokens a reply",
    "turns": "replies a conversation",
    "between": "given tokens before every reply but the first",
    "steps": "steps timed (one more warms up)",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("model", nargs="?", default="smollm2-135m", metavar="MODEL", help="a model, checkpoint or run")
    for name, value in _SIZES.items():
        parser.add_argument(f"--{name}", type=positive, default=value, metavar="N", help=f"{_HELP[name]} (default {value})")


def run(args: argparse.Namespace, overrides: Sequence[str]) -> int:
    """Print the table."""
    from ragen.config import load_config
    from ragen.runs.models import find_model, known_model

    refuse_model(overrides, "the argument MODEL")
    sizes = f"; the sizes are options of its own: {', '.join(f'--{name}' for name in _SIZES)}"
    refuse_without_effect("ragen bench", overrides, _SETTINGS, sizes)
    config = load_config({}, [*overrides, f"--model.name={args.model}"])
    known_model(args.model)  # a wrong name shows before torch is loaded, which making a model takes
    with doing(LOADING):
        import torch

    path, _ = find_model(args.model)
    from ragen.loops.bench import StepBench, check_length, product_rate
    from ragen.models.device import choose_device, choose_dtype
    from ragen.models.memory import Activations, check_memory, memory_estimate, model_size

    check_length(path, args.prompt + args.turns * args.new + (args.turns - 1) * args.between)
    if config.run.threads:
        torch.set_num_threads(config.run.threads)
    device, size, budget = choose_device(config.model.device), model_size(path), config.optim.microbatch_tokens
    dtype = choose_dtype(config.model.dtype, device, parameters=size.parameters)
    activations = Activations(budget, size.hidden, size.layers, size.vocabulary)
    check_memory(memory_estimate(size.parameters, dtype, trainable=size.parameters, activations=activations), device)
    threads = torch.get_num_threads()
    _say(f"{path.name} on {device}, {_short(dtype)}, {counted(threads, 'thread')}")
    more = f", {args.turns} turns with {counted(args.between, 'given token')} between" if args.turns > 1 else ""
    new = counted(args.new, "new token")
    _say(f"{args.groups} × {counted(args.members, 'conversation')}: prompt {args.prompt}, {new} a reply{more}")
    rates = {kind: product_rate(kind, device) for kind in (torch.bfloat16, torch.float32)}
    _say("product 1024³    " + " · ".join(f"{_short(kind)} {rate / 1e9:.0f} GFLOP/s" for kind, rate in rates.items()))
    bench = StepBench(path, device=device, dtype=dtype, microbatch_tokens=budget)
    prompts = bench.prompts(args.groups, args.prompt)
    times = []
    for number in range(args.steps + 1):
        times.append(bench.step(prompts, args.members, args.new, turns=args.turns, between=args.between))
        _say(f"step {number}           {times[-1].total:.1f} s{'' if number else ', warm-up'}")
    _table(bench, times[1:], _steady(rates[dtype], product_rate(dtype, device)), args)
    _environments()
    return 0


def _steady(before: float, after: float) -> float:
    """The faster of two measurements, which other work slows down; says so where they differ."""
    slow, fast = sorted((before, after))
    if slow < STEADY * fast:
        _say(f"product again    {after / 1e9:.0f} GFLOP/s: other work disturbs, so the shares are rough")
    return fast


def _short(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")


def _table(bench: "StepBench", times: "Sequence[StepTimes]", rate: float, args: Any) -> None:
    from ragen.loops.bench import peak_memory

    one = times[0]
    given = args.groups * args.prompt + args.groups * args.members * (args.turns - 1) * args.between
    sampling, update = median(sum(t.sampling) for t in times), median(t.update for t in times)
    ideal = bench.sampling_operations(one.sampled, given) / rate, bench.update_operations(one.sampled, one.processed) / rate
    _say(f"sampling         {one.sampled / sampling:.0f} tokens/s, {ideal[0] / sampling:.0%} of what the products allow")
    if len(one.sampling) > 1:
        later = [median(t.sampling[turn] for t in times) for turn in range(len(one.sampling))]
        _say("  by turn        " + " · ".join(f"{seconds:.2f}" for seconds in later) + " s")
    _say(f"update           {one.processed / update:.0f} tokens/s, {ideal[1] / update:.0%} of what the products allow")
    _say(f"training step    {median(t.total for t in times):.1f} s: sampling {sampling:.1f}, update {update:.1f}")
    _say(f"peak memory      {peak_memory() / 1e9:.2f} GB")


def _environments() -> None:
    from ragen.config.load import FAMILIES
    from ragen.envs.registry import environment_factory
    from ragen.loops.bench import environment_step

    found = {name: environment_step(environment_factory({"name": name})()) for name in FAMILIES}
    _say("environments     " + " · ".join(f"{name} {seconds * 1e6:.1f} µs" for name, seconds in found.items()) + " a step")


def _say(line: str) -> None:
    tell(line + "\n")
    sys.stdout.flush()
