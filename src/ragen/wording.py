"""How numbers and choices are put into the words that a person reads."""

import math
import unicodedata
from collections.abc import Sequence


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun, which is singular where the number is one; ``plural`` where it is not ``noun`` with an s.

    >>> counted(1, "step"), counted(12_000, "step"), counted(2, "trajectory", "trajectories")
    ('1 step', '12,000 steps', '2 trajectories')
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def either(choices: Sequence[str], between: str = "or") -> str:
    """Choices in a row, the last two joined by a word.

    >>> either(["'a'", "'b'", "'c'"]), either(["run", "list"], "and"), either(["alone"])
    ("'a', 'b' or 'c'", 'run and list', 'alone')
    """
    return f" {between} ".join(filter(None, (", ".join(choices[:-1]), *choices[-1:])))


def at_temperature(value: float) -> str:
    """A sampling temperature in words; NaN is one that was left to an endpoint.

    >>> at_temperature(0.5), at_temperature(math.nan)
    ('T = 0.5', 'T not told')
    """
    return "T not told" if math.isnan(value) else f"T = {value:g}"


def printable(text: str) -> str:
    r"""Text that cannot steer or break a terminal: control characters (not newline, tab) and surrogates are spelled out.

    >>> printable("HTTP 400: \x1b[2J no \u202e")
    'HTTP 400: \\x1b[2J no \\u202e'
    """
    if text.isprintable():
        return text
    hidden = ("Cc", "Cf", "Cs")
    return "".join(c if c in "\n\t" or unicodedata.category(c) not in hidden else _spelled(ord(c)) for c in text)


def _spelled(code: int) -> str:
    """As Python writes it, so that it cannot be read as another character."""
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
