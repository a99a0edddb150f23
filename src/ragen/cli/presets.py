"""List training presets: <environment>-<method>[-small|-tiny]."""

import argparse
import sys
from collections.abc import Sequence

OVERRIDES: str | None = None


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("name", nargs="?", help="print the resolved settings of this preset")


def run(args: argparse.Namespace, overrides: Sequence[str]) -> int:
    """Print names, or one preset in full."""
    del overrides
    from ragen.config import load_config, preset_names
    from ragen.config.yaml_text import dump_yaml

    if args.name:
        sys.stdout.write(dump_yaml(load_config(args.name).model_dump(mode="json")))
        return 0
    sys.stdout.write(
        "The paper's values; -small: values that work for a 135M model on a CPU; -tiny: a model of 2M parameters.\n"
        "Any environment of `ragen envs` may stand in front, e.g. bandit-rev-starpo-s-grpo-small.\n\n"
    )
    sys.stdout.write("\n".join(preset_names()) + "\n")
    return 0
