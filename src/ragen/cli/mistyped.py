"""What was meant by an option that a command does not have: told before argparse takes it for something else."""

import argparse
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches

from ragen.cli.arguments import actions_of, options_of
from ragen.errors import ConfigError
from ragen.wording import either

Parsers = Callable[[], Mapping[str, argparse.ArgumentParser]]


def refuse_mistyped(
    parser: argparse.ArgumentParser, own: Sequence[str], overrides: Sequence[str] | None, parsers: Parsers
) -> None:
    """Raise ConfigError for the first option among the words that is neither the command's own nor a setting.

    ``own`` and ``overrides`` are what ``split_overrides`` makes of the words; None for overrides where the command takes no
    settings. ``parsers`` gives all commands' parsers, to look for one that has the option.
    """
    from ragen.config.paths import fields

    options = options_of(parser)
    for word in own if overrides is not None else ():
        key, equals, value = word.partition("=")
        if equals and key in fields():
            raise ConfigError(f"'{word}' is no option: did you mean '--{key} {value}'?")
    for word in (*_strange(own, options), *(word for word in overrides or () if word.startswith("--"))):
        name = word.partition("=")[0]
        if hint := _hint(name, parser.prog, options, settings=overrides is not None, parsers=parsers):
            raise ConfigError(f"unknown option '{name}': {hint}")


def _strange(words: Sequence[str], options: Mapping[str, bool]) -> Iterator[str]:
    """The words that look like options and are none of ``options``; values behind options are passed over."""
    rest = iter(words)
    for word in rest:
        name, equals, _ = word.partition("=")
        if word == "--":
            return
        if name in options:
            if options[name] and not equals:
                next(rest, None)
        elif re.match(r"--?[A-Za-z]", word) and not _attached(word, options):
            yield word


def _attached(word: str, options: Mapping[str, bool]) -> bool:
    """Whether a value hangs on a short option, as in ``-ofile.png``; ``-out`` is the long one with a dash missing."""
    return options.get(word[:2], False) and not word.startswith("--") and f"-{word.partition('=')[0]}" not in options


def _hint(name: str, prog: str, options: Mapping[str, bool], *, settings: bool, parsers: Parsers) -> str:
    """What was meant by the option ``name``, or where it belongs; empty for a setting, right or nearly right."""
    from ragen.config.paths import fields, sections

    key = name.lstrip("-")
    known = key in fields() or key in sections() or key.startswith("env.")
    if f"--{key}" in options or (settings and known and not name.startswith("--")):
        return "" if name == f"--{key}" else f"did you mean '--{key}'?"
    if settings and (known or "." in key or key == "preset"):  # of that one the settings tell where it belongs
        return ""
    if close := get_close_matches(f"--{key}", [option for option in options if option.startswith("--")], n=1, cutoff=0.8):
        return f"did you mean '{close[0]}'?"
    if settings and (meant := [f"'--{path}'" for path in fields() if path.rpartition(".")[2] == key]):
        return "" if name.startswith("--") else f"did you mean {either(meant)}?"
    near = get_close_matches(key, [path for path in fields() if "." not in path], n=1, cutoff=0.8) if settings else []
    if having := [command for command, each in parsers().items() for command in _with(f"--{key}", command, each)]:
        of = f"{either([f'`ragen {each}`' for each in having], 'and')}; `{prog} --help` lists its own"
        return f"did you mean '--{near[0]}'? '{name}' belongs to {of}" if near else f"it belongs to {of}"
    if known:
        return f"that is a setting of a run, and `{prog}` takes none; `{prog} --help` lists its own"
    return "" if settings and name.startswith("--") else f"`{prog} --help` lists all"


def _with(option: str, command: str, parser: argparse.ArgumentParser) -> list[str]:
    """The command where its parser has the option, or those of its actions that have it."""
    inner = [f"{command} {name}" for name, each in actions_of(parser) if option in options_of(each)]
    return inner or ([command] if option in options_of(parser) else [])
