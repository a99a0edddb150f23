"""What number a text names, for answers that are numbers."""

import re
from fractions import Fraction

NUMBER = re.compile(
    r"(?<![\w.,])([-−]?)\s?[$€£]?\s?([-−]?)"
    r"((?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|(?<![\w.,])\.\d+)(?:/(\d+))?(?!\d|[.,]\d)"
)
DASH = re.compile(r"(?<![\w.,])[‐-―⁻－﹣](?=[$€£]?[\d.])")  # as it stands for a minus: right before a number
LONGEST = 1000  # digits of a number; Python reads none of more than 4,300
_UNREAD = re.compile(
    rf"\d[\d,]{{{LONGEST}}}"  # too long
    r"|(?<![\w.,])(?:(?:[\d.,]+|[\d.,]*\d\s)[eE][+-]?\d+"  # with an exponent
    r"|[\d.,]*\d\.?[eE](?!\w)"  # with the beginning of one
    r"|0[xXoObB][\da-fA-F]+"  # to another base
    r"|[\d.,]*\d(?:_\d|[¹²³⁰⁴-⁻]|\s?[¼-¾⅐-⅞]))"  # with an underscore, a raised exponent or a sign for a fraction
)


def numbers(text: str) -> tuple[Fraction, ...]:
    """The numbers a text names, in order: commas between thousands, currency signs and fractions are read.

    What has more than LONGEST digits, an exponent (2e3 is not 2, nor 2³), another base (0x10 is not 0), a sign for a
    fraction (2½ is not 2), underscores (2_000 is not 2) or 0 as its divisor is passed over.

    >>> [str(n) for n in numbers("$1,200.50 is 3/4 of it, or -2 m2, or .5")]
    ['2401/2', '3/4', '-2', '1/2']
    """
    return tuple(number for number in _named(_UNREAD.sub("x", text)) if number is not None)


def read_answer(text: str) -> Fraction | None:
    """The one number of an answer; None where it names none, or several, or one that ``numbers`` passes over.

    Units, currency and words around it do not count, nor does what stands before the last ``=`` or ``####``.

    >>> [str(read_answer(text)) for text in ("18 eggs", "9 * 2 = $18.00", "1,000", "17 or 18", "many", "5/0")]
    ['18', '18', '1000', 'None', 'None', 'None']
    """
    end = re.split(r"=|####", text)[-1]
    named = [None] if _UNREAD.search(end) else _named(end)
    return named[0] if len(named) == 1 else None


def _named(text: str) -> list[Fraction | None]:
    """Each number of a text, in order; None for one that is divided by 0."""
    found: list[Fraction | None] = []
    for outer, inner, digits, divisor in NUMBER.findall(DASH.sub("-", text)):
        below = int(divisor or 1)
        value = Fraction(digits.replace(",", "")) / below if below else None
        found.append(-value if value is not None and (outer or inner) else value)
    return found
