"""What is so in a state, as statements that a text can be checked for."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

NUMBER = r"\d{1,4}"


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that is so.

    ``pattern`` (a regular expression) finds each statement of it in a text of single blanks, whatever its case; what its
    groups catch, joined by blanks, is what the statement says. It is true where that is one of ``truths``; without any,
    whatever is said of this is false. Texts come from a policy: keep the pattern's work linear in their length.

    >>> door = Fact(r"the door is (open|shut)", ("open",))
    >>> [door.verdict(text) for text in ("The door is  open.", "the door is open, the door is shut", "a door")]
    [True, False, None]
    """

    pattern: str
    truths: tuple[str, ...]

    def __post_init__(self) -> None:
        if not re.compile(self.pattern).groups:
            raise ValueError(f"a fact's pattern needs a group that catches what is said, got {self.pattern!r}")
        if not isinstance(self.truths, tuple):
            raise ValueError(f"a fact needs its truths as a tuple of texts, got {self.truths!r}")

    def verdict(self, text: str) -> bool | None:
        """Whether all that ``text`` says of this is true; None where it says nothing."""
        found = re.finditer(self.pattern, _plain(text), re.IGNORECASE)
        said = {" ".join(filter(None, statement.groups())) for statement in found}
        return said <= {_plain(truth) for truth in self.truths} if said else None


def offset_parts(down: int, right: int, words: Sequence[str]) -> list[str]:
    """An offset in words (those for up, down, left, right), rows first; empty for none.

    >>> offset_parts(2, -1, ("up", "down", "left", "right"))
    ['2 down', '1 left']
    """
    parts = [f"{abs(down)} {words[1 if down > 0 else 0]}"] if down else []
    return parts + ([f"{abs(right)} {words[3 if right > 0 else 2]}"] if right else [])


def offset_facts(noun: str, offsets: Iterable[tuple[int, int]], words: Sequence[str]) -> tuple[Fact, Fact]:
    """Where ``noun`` lies, seen from the player, its rows and its columns: "goal is 2 down, 1 left", in either order.

    An axis on which the offset is 0 has no truth. Several ``offsets`` (rows down, columns right) are several
    things of that name; each may be meant, each axis by itself.
    """
    names = [re.escape(_plain(word)) for word in words]
    rows, columns = (f"{NUMBER} (?:{'|'.join(pair)})" for pair in (names[:2], names[2:]))
    start, places = rf"\b{noun}(?: is| lies|:) ", tuple(offsets)
    down = tuple(part for row, _ in places for part in offset_parts(row, 0, words))
    right = tuple(part for _, column in places for part in offset_parts(0, column, words))
    return (
        Fact(rf"{start}(?:{columns},? (?:and )?)?({rows})(?!\w)", down),
        Fact(rf"{start}(?:{rows},? (?:and )?)?({columns})(?!\w)", right),
    )


def place_fact(noun: str, places: Iterable[tuple[int, int]]) -> Fact:
    """The coordinates (row, column) of ``noun`` (a pattern): "goal: (1, 2)", "goal is at (1, 2)"."""
    pattern = rf"\b(?:{noun})(?: is| are| lies)?(?: at)?:? \(({NUMBER}), ?({NUMBER})\)"
    return Fact(pattern, tuple(f"{row} {column}" for row, column in places))


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()
