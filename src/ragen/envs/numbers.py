"""What number a text names, for answers that are numbers."""

import re
from fractions import Fraction

NUMBER = re.compile(r"(?<![\w.,])([-−]?)\s?[$€£]?\s?([-−]?)(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?(?:/(\d+))?(?!\d|[.,]\d)")
LONGEST = 1000  # digits of a number; Python reads none of more than 4,300
_UNREAD = re.compile(rf"\d[\d,]{{{LONGEST}}}|(?<![\w.,])[\d.,]+[eE][+-]?\d+")  # too long, or with an exponent


def numbers(text: str) -> tuple[Fraction, ...]:
    """The numbers a text names, in order: commas between thousands, currency signs and fractions are read.

    What has more than LONGEST digits, or an exponent (2e3 is not 2), is passed over.

    >>> [str(n) for n in numbers("$1,200.50 is 3/4 of it, or -2 m2")]
    ['2401/2', '3/4', '-2']
    """
    found = []
    for outer, inner, whole, decimals, divisor in NUMBER.findall(_UNREAD.sub("x", text)):
        value = Fraction(whole.replace(",", "") + decimals)
        if divisor and int(divisor):
            value /= int(divisor)
        found.append(-value if outer or inner else value)
    return tuple(found)


def read_answer(text: str) -> Fraction | None:
    """The one number of an answer; None where it names none, or several, or one that ``numbers`` passes over.

    Units, currency and words around it do not count, nor does what stands before the last ``=`` or ``####``.

    >>> [str(read_answer(text)) for text in ("18 eggs", "9 * 2 = $18.00", "1,000", "17 or 18", "many")]
    ['18', '18', '1000', 'None', 'None']
    """
    end = re.split(r"=|####", text)[-1]
    named = numbers(end)
    return named[0] if len(named) == 1 and not _UNREAD.search(end) else None
