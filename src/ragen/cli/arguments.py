"""Command lines with settings in them: a subcommand's own options, and ``--section.key value`` overrides for the rest."""

import argparse
from collections.abc import Mapping, Sequence
from typing import NoReturn

from ragen.errors import ConfigError

OVERRIDES = "any setting may follow as --section.key VALUE (docs/settings.md lists them), e.g. --steps 20 --env.max_turns 3"


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose complaints are ConfigErrors, so that all of them look the same."""

    def error(self, message: str) -> NoReturn:
        """Raise the complaint with where to look."""
        raise ConfigError(f"{message} (see: {self.prog} --help)")


def options_of(parser: argparse.ArgumentParser) -> dict[str, bool]:
    """The option names a parser knows, and whether each takes a value."""
    return {name: action.nargs != 0 for action in parser._actions for name in action.option_strings}


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
