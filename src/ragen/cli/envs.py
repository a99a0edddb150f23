"""List environments, or tell one environment's settings."""

import argparse
import inspect
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ragen.cli.output import tell

if TYPE_CHECKING:
    from ragen.envs import Environment

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
        tell("\n".join(lines) + "\n\nsettings of one: ragen envs NAME · play it: ragen play NAME\n")
        return 0
    if args.name in environments.names():  # told without making one: it may need a file first
        preset = environments.get(args.name)
        cls, settings, about = preset.cls, preset.settings({}), preset.about
    else:
        found = find_environment({"name": args.name})
        cls, settings, about = type(found.make()), found.settings, "an environment of your own"
    text = _plain(inspect.cleandoc(cls.__doc__ or ""))
    files = "".join(f" --{key} FILE" for key in re.findall(r"needs (env\.\w+)", about))
    players = "\n".join(("Players beside an agent in its evaluation:", *_players(cls)))
    parts = (
        f"{args.name}: {about}",
        text,
        players,
        f"Play it: ragen play {shlex.quote(args.name)}{files}",
        "Settings (--env.NAME VALUE):",
    )
    tell("\n\n".join(filter(None, parts)) + "\n")
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        default = "" if value == field.default else f" (preset; the environment's own default is {field.default!r})"
        tell(f"  {name} = {value!r}{default}\n")
        common = EnvSettings.model_fields.get(name, field)  # a class that gives only another default drops the description
        if meaning := field.description or common.description:
            tell(f"      {meaning}\n")
    return 0


def _players(cls: "type[Environment]") -> Iterator[str]:
    """The floors and the ceiling, in the words of the class: an environment need not be made, it may need a file first."""
    from ragen.envs import Environment, ToolEnvironment

    yield "  random (the floor): actions drawn evenly"
    if cls.players is not Environment.players:
        yield f"  {_first_words(cls.players.__doc__) or 'those of its players()'}"
    unsolved = issubclass(cls, ToolEnvironment) and cls.solution is ToolEnvironment.solution
    if cls.plan is Environment.plan or (unsolved and cls.plan is ToolEnvironment.plan):
        yield "  no optimal one: best play is not known"
    else:
        yield f"  optimal (the ceiling): {_first_words(cls.plan.__doc__) or 'its plan()'}"


def _first_words(documentation: str | None) -> str:
    """What a docstring says first, as part of a sentence."""
    return _plain(inspect.cleandoc(documentation or "")).partition("\n\n")[0].replace("\n", " ").rstrip(".")


def _plain(text: str) -> str:
    """A docstring without its markup: reStructuredText's roles and literals are their words.

    >>> _plain("Play :class:`Lock`: ``Left`` or `Right`, **never** both.")
    'Play Lock: Left or Right, never both.'
    """
    text = re.sub(r":\w+(?::\w+)?:(?=`)", "", text)
    return re.sub(r"(``|`|\*\*)(?=\S)(.+?)(?<=\S)\1", r"\2", text, flags=re.DOTALL)
