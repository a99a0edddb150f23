"""Command lines with settings in them: a subcommand's own options, and ``--section.key value`` overrides for the rest."""

import argparse
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import NoReturn

from ragen.errors import ConfigError
from ragen.wording import either

OVERRIDES = "any setting may follow as --section.key VALUE (docs/settings.md lists them), e.g. --steps 20 --env.max_turns 3"


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose complaints are ConfigErrors, so that all of them look the same."""

    def error(self, message: str) -> NoReturn:
        """Raise the complaint with what was asked for, what is allowed and where to look."""
        start, required, missing = message.partition("arguments are required: ")
        if required:
            about = {str(action.metavar): action.help for action in self._actions}
            told = (f"{name} ({about[name]})" if about.get(name) else name for name in missing.split(", "))
            message = f"{start}{required}{', '.join(told)}"
        raise ConfigError(f"{_reworded(message)} (see: {self.prog} --help)")


def _reworded(message: str) -> str:
    """argparse's complaints about a value, as those about a setting are worded."""
    if match := re.fullmatch(r"argument (.+?): invalid (int|float) value: (.*)", message, re.DOTALL):
        kind = "a whole number" if match[2] == "int" else "a number"
        return f"{match[1]} is {match[3]}: it must be {kind}"
    if match := re.fullmatch(r"argument (.+?): invalid choice: (.*?) \(choose from (.*)\)", message, re.DOTALL):
        choices = [choice.strip("'") for choice in match[3].split(", ")]
        close = get_close_matches(match[2].strip("'"), choices, n=1)
        hint = f"; did you mean '{close[0]}'?" if close else ""
        return f"{match[1]} is {match[2]}: it must be {either([repr(choice) for choice in choices])}{hint}"
    if match := re.fullmatch(r"argument (.+?): expected (?:one|at least one) argument", message):
        return f"{match[1]} needs a value: write {match[1].rpartition('/')[2]} VALUE"
    return message


def options_of(parser: argparse.ArgumentParser) -> dict[str, bool]:
    """The option names that a parser and its actions know, and whether each takes a value."""
    known = {name: action.nargs != 0 for action in parser._actions for name in action.option_strings}
    for _, inner in actions_of(parser):
        known |= options_of(inner)
    return known


def actions_of(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The parsers of a command's own commands, such as those of `ragen study`."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def split_overrides(words: Sequence[str], options: Mapping[str, bool]) -> tuple[list[str], list[str]]:
    """Part a subcommand's words into its own and the overrides.

    An option the subcommand knows is its own (with its value); any other ``--key`` takes the next word; a bare word with
    ``=`` after a dotted key is an override too; the rest are positional.
    """
    own: list[str] = []
    overrides: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, _ = word.partition("=")
        if name in options:
            own.append(word)
            if options[name] and not equals and rest:
                own.append(rest.pop(0))
        elif word.startswith("--") and len(word) > 2:
            overrides.append(word)
            if not equals and rest and not rest[0].startswith("--"):
                overrides.append(rest.pop(0))
        elif equals and "." in name and "/" not in name:
            overrides.append(word)
        else:
            own.append(word)
    return own, overrides


def positive(text: str) -> int:
    """The type of an option that counts something: a whole number of at least 1."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of at least 1")
    return int(text)


def refuse_model(overrides: Sequence[str], given: str) -> None:
    """Raise ConfigError where an override names a model, which the command takes as its argument ``given`` only."""
    from ragen.config.load import parse_overrides

    if any(
        key == "model.name" or (key == "model" and (not isinstance(value, Mapping) or "name" in value))
        for key, value in parse_overrides(overrides)
    ):
        raise ConfigError(f"--model means nothing here: the model is {given}; give the other model in its place")


def refuse_without_effect(command: str, overrides: Sequence[str], counting: Sequence[str], more: str = "") -> None:
    """Raise ConfigError for overrides of settings that the command does not read, and of those that do not exist.

    ``counting`` are the settings it reads; a section's name stands for all that is in it. ``more`` ends the message.
    """
    from ragen.config.load import parse_overrides
    from ragen.config.paths import fields, sections, unknown
    from ragen.config.settings import leaves

    keys = [key for pair in parse_overrides(overrides) for key, _ in leaves(dict([pair]))]
    given = dict.fromkeys(f"{key}.name" if f"{key}.name" in fields() else key for key in keys)
    known = {*fields(), *sections()}
    if strangers := [key for key in given if key not in known and not key.startswith("env.")]:
        raise ConfigError(unknown(strangers[0]))
    if vain := [key for key in given if key not in sections() and not {key, key.partition(".")[0]} & set(counting)]:
        read = ", ".join(f"{key}.*" if key == "env" else key for key in counting)
        named = ", ".join(f"'{key}'" for key in vain)
        said = f"settings {named} mean nothing" if len(vain) > 1 else f"setting {named} means nothing"
        leave = "leave them out" if len(vain) > 1 else "leave it out"
        raise ConfigError(f"{said} to {command}: {leave}. The settings that count there are {read}{more}")


def writable(option: str, name: str) -> Path:
    """The file or new directory that an option names, checked before any long work; its folder is made.

    Raises ConfigError where it cannot be written there.
    """
    path = Path(name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            path.lstat()
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except (OSError, ValueError) as error:  # ValueError: a name with a null character
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{option} {name!r} cannot be written: {reason}; choose a place you can write to") from None
    return path


def add_force(parser: argparse.ArgumentParser) -> None:
    """Declare the option without which ``writable_file`` refuses a file that is there."""
    parser.add_argument("--force", action="store_true", help="write over a file of that name")


def writable_file(option: str, name: str, *, force: bool) -> Path:
    """As ``writable``, for a file that a person named: one that is there is written over with ``force`` only."""
    path = writable(option, name)
    if path.is_dir():
        raise ConfigError(f"{option} {name!r} is a directory: give the name of a file")
    if path.is_file() and not force:
        raise ConfigError(f"{option} {name!r} exists: choose another name, or give --force to write over it")
    return path
