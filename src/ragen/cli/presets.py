"""List training presets: <environment>-<method>[-small|-tiny]."""

import argparse
from collections.abc import Iterator, Sequence

from ragen.cli.output import give, tell
from ragen.cli.sources import check_source

OVERRIDES: str | None = None
_METHODS = {
    "starpo-ppo": "PPO with a critic, all groups train",
    "starpo-grpo": "returns compared within each group, no critic",
    "starpo-s-ppo": "StarPO-S: only the most uncertain groups train, no KL term, clip-higher; with a critic",
    "starpo-s-grpo": "the same, with group-relative advantages: begin with this one",
}
_SIZES = {
    "(none)": "the paper's values, meant for GPUs",
    "-small": "a 135M model on a CPU, minutes",
    "-tiny": "a model of about 2M weights made on the spot, no download",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("name", nargs="?", help="print this preset's resolved settings, or list an environment's presets")


def run(args: argparse.Namespace, overrides: Sequence[str]) -> int:
    """Print names, or one preset in full."""
    del overrides
    from ragen.config import load_config, preset_names
    from ragen.config.load import sizes_of_families
    from ragen.config.yaml_text import dump_yaml
    from ragen.envs import environments

    if args.name in environments.names():
        tell("\n".join(preset_names([args.name])) + "\n")
        return 0
    if args.name:
        check_source(args.name)
        give(dump_yaml(load_config(args.name).model_dump(mode="json")))
        return 0
    for title, words in (("method", _METHODS), ("size", _SIZES)):
        tell("\n".join([f"{title}:", *(f"  {name:<14} {about}" for name, about in words.items())]) + "\n\n")
    tell(
        "environment: any of `ragen envs`, e.g. bandit-rev-starpo-s-grpo-small. In a size without values of its own an\n"
        "environment has the common ones, untried there. Values of their own have\n"
    )
    tell("\n".join(_families()) + "\n\n")
    tell("\n".join(preset_names(sizes_of_families())) + "\n")
    return 0


def _other_worlds(name: str, sizes: Sequence[str]) -> Iterator[str]:
    """Where a size trains another environment than the preset is named after, or has other rules."""
    from ragen.config import load_config

    for size in sizes:
        env = load_config(f"{name}-starpo-s-grpo-{size}").env
        changed = " ".join(f"--env.{key} {value}" for key, value in env.items() if key != "name")
        if env["name"] != name or changed:
            yield f"-{size} trains {env['name']}{f' with {changed}' if changed else ''}"


def _families() -> Iterator[str]:
    """The environments with values of their own, for which sizes, and the files that they need or may have."""
    from ragen.config.load import sizes_of_families
    from ragen.envs import environments

    for name, sizes in sizes_of_families().items():
        preset = environments.get(name)
        told = " ".join(f"-{size}" for size in sizes)
        yield f"  {name:<11}  {told:<12}  {preset.about}"
        yield from (f"{'':<29}{sized}" for sized in _other_worlds(name, sizes))
        for key, field in preset.cls.settings_class.model_fields.items():
            if "file" in key or "file" in (field.description or ""):
                yield f"{'':<29}--env.{key} FILE: {field.description}"
