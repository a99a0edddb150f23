"""Words that go with numbers in what a person reads."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun, which is singular where the number is one; ``plural`` where it is not ``noun`` with an s.

    >>> counted(1, "step"), counted(12_000, "step"), counted(2, "trajectory", "trajectories")
    ('1 step', '12,000 steps', '2 trajectories')
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
