"""Numbers in texts, against a slow reader that goes character by character."""

import random
from fractions import Fraction

import pytest

from ragen.envs.numbers import numbers, read_answer

DIGITS = "0123456789"
PIECES = [*DIGITS, *"..,,//eExX-−$  +ab=", "0x", "12", "000", ",000", "e3", " e3", "m2"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((text, None) for text in ("5/0", "5/00", "-5/0", "5/0 or 3", "3 or 5/0")),
        *((text, None) for text in ("0x10", "0xff", "0b11", "0o17", "x = 0x10", "-0x10")),
        *((text, None) for text in ("2 e3", "2e3", "1.e3", "2e-3", "1e", "1.5e", "1e+", "1E.", "3 or 1e")),
        *((text, None) for text in ("10³", "2² m", "10⁻²", "1,000²", "5½", "5 ½", "2⅔ cups", "1_000", "1_000_000")),
        *((text, -5) for text in ("–5", "x = –5", "‑5", "−5", "—$5", "－5", "$–5.0", "(–10/2)")),
        *((text, 5) for text in ("5 m²", "5m³", "answer – 5", "answer—5")),
        *((text, Fraction(1, 2)) for text in (".5", "$.50", "x = .5", "$ .5", "(.5)", "about .5 kg", "+.5")),
        *((text, Fraction(-1, 2)) for text in ("-.5", "−.5", "-$.50", "$-.5")),
        ("x = .75", Fraction(3, 4)),
        ("-.5/2", Fraction(-1, 4)),
        *((text, None) for text in ("...5", "v.5", ".5.2", "1 .5")),
        *((text, 5) for text in ("5 eggs", "5 e", "5 each", "5.", "5/1", "10/2 m", "so 5, then", "$5.00")),
    ],
)
def test_what_one_answer_says(text: str, value: Fraction | None) -> None:
    assert read_answer(text) == value


def test_what_is_passed_over_leaves_the_others() -> None:
    assert numbers("5/0, 0x10, 2 e3 and 1e, but .5 and 7") == (Fraction(1, 2), 7)
    assert numbers("10³, 5½, 1 ¾ and 1_000, but 3–4 m² and –2") == (3, 4, -2)


def word(character: str) -> bool:
    return character.isalnum() or character == "_"


def run_of(text: str, at: int, allowed: str) -> int:
    """Where the characters ``allowed`` end."""
    while at < len(text) and text[at] in allowed:
        at += 1
    return at


def unread(text: str, at: int) -> int | None:
    """Where something that is not read ends, if it begins at ``at``, the start of a word."""
    ends = range(at + 1, run_of(text, at, DIGITS + ".,") + 1)
    for end in reversed(ends):
        for e in (end, end + 1 if text[end - 1] in DIGITS and text[end : end + 1] == " " else end):
            if text[e : e + 1] in ("e", "E"):
                sign = e + 1 + (text[e + 1 : e + 2] in ("+", "-"))
                if (last := run_of(text, sign, DIGITS)) > sign:
                    return last
    for end in reversed(ends):
        held = text[at:end].removesuffix(".")
        if held and held[-1] in DIGITS and text[end : end + 1] in ("e", "E") and not word(text[end + 1 : end + 2] or " "):
            return end + 1
    if text[at] == "0" and text[at + 1 : at + 2] in tuple("xXoObB"):
        last = run_of(text, at + 2, DIGITS + "abcdefABCDEF")
        return last if last > at + 2 else None
    return None


def fresh(text: str, at: int) -> bool:
    """Whether a number may begin at ``at``."""
    return at == 0 or not (word(text[at - 1]) or text[at - 1] in ".,")


def blotted(text: str) -> str:
    """The text with an x in place of all that is not read."""
    out, at = "", 0
    while at < len(text):
        end = unread(text, at) if fresh(text, at) and text[at] in DIGITS + ".," else None
        out, at = (out + "x", end) if end is not None else (out + text[at], at + 1)
    return out


def magnitude(text: str, at: int) -> tuple[Fraction | None, int] | None:
    """The unsigned number that begins at ``at`` and its end; its value is None where it is divided by 0."""
    last = run_of(text, at, DIGITS)
    while text[last : last + 1] in (".", ",") and text[last + 1 : last + 2] in tuple(DIGITS):  # else a sentence goes on
        last = run_of(text, last + 1, DIGITS)
    body = text[at:last]
    whole, dot, decimals = body.partition(".")
    groups = whole.split(",")
    grouped = len(groups) > 1 and 1 <= len(groups[0]) <= 3 and all(len(group) == 3 for group in groups[1:])
    if not body or "," in decimals or "." in decimals or (dot and not decimals) or not (grouped or len(groups) == 1):
        return None
    value = Fraction("".join(groups) + dot + decimals)
    if text[last : last + 1] != "/":
        return value, last
    end = run_of(text, last + 1, DIGITS)
    if end == last + 1 or (text[end : end + 1] in (".", ",") and text[end + 1 : end + 2] in tuple(DIGITS)):
        return value, last
    below = int(text[last + 1 : end])
    return (value / below if below else None), end


def slow(text: str) -> tuple[list[Fraction | None], bool]:
    """The numbers of a text, and whether something of it is not read."""
    clean = blotted(text)
    found: list[Fraction | None] = []
    at = 0
    while at < len(clean):
        if not (clean[at] in DIGITS + "." and fresh(clean, at)) or (got := magnitude(clean, at)) is None:
            at += 1
            continue
        value, end = got
        before, negative = at, False
        for mark in ("-−", " ", "$€£", " ", "-−"):  # from the number leftwards
            if before and clean[before - 1] in mark:
                before -= 1
        head = clean[before:at]
        while head and not fresh(clean, at - len(head)):
            head = head[1:]
        negative = "-" in head or "−" in head
        found.append(-value if value is not None and negative else value)
        at = end
    return found, clean != text


def test_it_reads_as_a_slow_reader_does() -> None:
    rng = random.Random(0)
    for _ in range(20_000):
        text = "".join(rng.choices(PIECES, k=rng.randint(1, 9)))
        found, passed = slow(text)
        assert numbers(text) == tuple(value for value in found if value is not None), text
        if "=" not in text:
            assert read_answer(text) == (found[0] if len(found) == 1 and not passed else None), text
