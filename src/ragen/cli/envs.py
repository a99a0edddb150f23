"""List environments, or tell one environment's settings."""

import argparse
import inspect
import re
import sys
from collections.abc import Sequence

OVERRIDES: str | None = None


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("name", nargs="?", help="an environment preset, or FILE.py:Class")


def run(args: argparse.Namespace, overrides: Sequence[str]) -> int:
    """Print the list or the table."""
    del overrides
    from ragen.envs import EnvSettings, environments, find_environment

    if not args.name:
        width = max(map(len, environments.names()))
        lines = [f"{name:<{width}}  {environments.get(name).about}" for name in environments]
        sys.stdout.write("\n".join(lines) + "\n\nsettings of one: ragen envs NAME · play it: ragen play NAME\n")
        return 0
    if args.name in environments.names():  # told without making one: it may need a file first
        preset = environments.get(args.name)
        cls, settings, about = preset.cls, preset.settings({}), preset.about
    else:
        found = find_environment({"name": args.name})
        cls, settings, about = type(found.make()), found.settings, "an environment of your own"
    text = _plain(inspect.cleandoc(cls.__doc__ or ""))
    sys.stdout.write("\n\n".join(filter(None, (f"{args.name}: {about}", text, "Settings (--env.NAME VALUE):"))) + "\n")
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        default = "" if value == field.default else f" (preset; the environment's own default is {field.default!r})"
        sys.stdout.write(f"  {name} = {value!r}{default}\n")
        common = EnvSettings.model_fields.get(name, field)  # a class that gives only another default drops the description
        if meaning := field.description or common.description:
            sys.stdout.write(f"      {meaning}\n")
    return 0


def _plain(text: str) -> str:
    """A docstring without its markup: reStructuredText's roles and literals are their words.

    >>> _plain("Play :class:`Lock`: ``Left`` or `Right`, **never** both.")
    'Play Lock: Left or Right, never both.'
    """
    text = re.sub(r":\w+(?::\w+)?:(?=`)", "", text)
    return re.sub(r"(``|`|\*\*)(?=\S)(.+?)(?<=\S)\1", r"\2", text, flags=re.DOTALL)
