"""What an agent is told of the calls of one reply."""

from collections.abc import Sequence

from ragen.envs.base import Environment, Step
from ragen.text.parser import Choice, Reply

SHOWN = 4  # calls beyond the limit, or that could not be made, that are told one by one


def answers(env: Environment, reply: Reply, choice: Choice, steps: Sequence[Step]) -> str:
    """The answers to a reply's calls in their order, numbered where there are several.

    A call that could not be made is answered by why; one that was not made, because of the limit or the episode's end, by
    that. The observations and reasons are bounded by the environment, their number by the limit and ``SHOWN``.
    """
    lines: list[str] = []
    executed, spare = 0, SHOWN
    unmade = set(choice.invalid)
    for raw in reply.actions:
        if raw not in unmade and executed < len(steps):
            lines.append(steps[executed].shown)
            executed += 1
        elif spare == 0:
            break
        else:
            spare -= 1
            lines.append(env.problem(raw) if raw in unmade else "Error: not called, too many calls")
    if len(lines) > 1:
        lines = [f"[{number}] {line}" for number, line in enumerate(lines, start=1)]
    more = len(reply.actions) - len(lines)
    return "\n".join([*lines, f"… and {more} more calls, not made"] if more else lines)
