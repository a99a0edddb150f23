"""Stored trajectories for reading: what was sampled (and so trained) is marked, with reward and advantage a turn."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from ragen.episode import Segment
from ragen.rollout.segments import segments
from ragen.runs.events import StoredTrajectory
from ragen.runs.tokens import Decode
from ragen.wording import printable

TRAINED_STYLE, UNTRAINED_STYLE = "bold green", "magenta"
OPEN, CLOSE = "⟦", "⟧"


@dataclass(frozen=True, slots=True)
class Reading:
    """How episodes are read: ``decode`` gives ids their text, ``groups_a_step`` tells a group's number in its step (groups
    are numbered through the run), and where there was no ``training`` (an evaluation) nothing is said of it.
    """

    decode: Decode
    groups_a_step: int | None = None
    training: bool = True


@dataclass(frozen=True, slots=True)
class Span:
    """A run of tokens of one kind: ``trained`` is the segment's mask over it; ``turn`` is −1 where nothing was sampled."""

    text: str
    token_ids: tuple[int, ...]
    trained: bool
    turn: int


def spans(segment: Segment, decode: Decode) -> list[Span]:
    """Cut a segment where its mask or turn changes; the ids of all spans together are the segment's ids."""
    out: list[Span] = []
    start, length = 0, len(segment.token_ids)
    for t in range(1, length + 1):
        if t == length or segment.mask[t] != segment.mask[start] or segment.turn_ids[t] != segment.turn_ids[start]:
            ids = tuple(int(i) for i in segment.token_ids[start:t])
            out.append(Span(decode(ids), ids, bool(segment.mask[start]), int(segment.turn_ids[start])))
            start = t
    return out


def show_trajectories(
    stored: Sequence[StoredTrajectory], console: Console, how: Reading, *, limit: int | None = None
) -> None:
    """Print trajectories; sampled tokens stand in ⟦ ⟧, and where there are colours the trained ones are green."""
    shown = stored if limit is None else stored[:limit]
    legend = f"sampled tokens: {OPEN}so{CLOSE}" + (", trained on where an advantage is told" if how.training else "")
    console.print(legend, highlight=False)
    for item in shown:
        for line in render(item, how):
            console.print(line, highlight=False, soft_wrap=True)
    if len(shown) < len(stored):
        console.print(f"… {len(stored) - len(shown)} more (--limit 0 for all)", highlight=False)


def reading_console() -> Console:
    """A console whose reader may leave (head, less): that raises BrokenPipeError, as it does for any other output."""
    return _Reading()


class _Reading(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def render(item: StoredTrajectory, how: Reading) -> Iterator[Text]:
    """The lines of one trajectory; where no ids are known, the texts of its turns."""
    t = item.trajectory
    title = f"── {t.env} · {' · '.join(_place(item, how))} "
    yield Text(printable(title) + "─" * max(3, 100 - len(title)), style="bold cyan")
    if t.error:
        yield Text(f"{'the environment failed' if how.training else 'lost'}: {printable(t.error)}", style="red")
    if t.has_ids:
        for number, segment in enumerate(segments(t)):
            if number:
                yield Text(f"── segment {number + 1} (history dropped)", style="dim")
            yield from _segment_lines(item, segment, how)
    else:
        for number, turn in enumerate(t.turns):
            yield Text(printable(turn.observation), style="dim")
            yield Text(f"{OPEN}{printable(turn.completion.text)}{CLOSE}", style=TRAINED_STYLE)
            yield Text(printable(turn_summary(item, number, how)), style="yellow")
    outcome = "success" if t.success else "no success"
    yield Text(f"end: {t.end.value} · {outcome} · task return {t.task_return:g} · total {t.total_return:g}", style="bold")


def _place(item: StoredTrajectory, how: Reading) -> Iterator[str]:
    t, each = item.trajectory, how.groups_a_step
    if item.group is None:
        yield "lost"
    else:
        yield f"group {item.group}" + (
            f" ({item.group % each} of this step)" if each is not None and item.group >= each else ""
        )
        if how.training and not item.trained:
            yield "not trained on"
    yield f"member {t.member}"
    yield f"instance {t.instance_seed}"
    if how.training:
        yield f"policy {t.policy_version}"


def _segment_lines(item: StoredTrajectory, segment: Segment, how: Reading) -> Iterator[Text]:
    line = Text()
    for span in spans(segment, how.decode):
        if span.trained:
            style = TRAINED_STYLE if item.trained or not how.training else UNTRAINED_STYLE
            line.append(f"{OPEN}{printable(span.text)}{CLOSE}", style=style)
            yield line
            line = Text()
            yield Text(printable(turn_summary(item, span.turn, how)), style="yellow")
        else:
            line.append(printable(span.text), style="dim")
    if line.plain:
        yield line


def turn_summary(item: StoredTrajectory, turn: int, how: Reading) -> str:
    """Rewards, penalties, advantage and actions of one turn, in one line."""
    t, advantages = item.trajectory.turns[turn], item.advantages
    value = None if advantages is None or turn >= len(advantages) else advantages[turn]
    parts = [f"turn {turn + 1}: reward {t.reward:g}"]
    if t.penalty:
        parts.append(f"penalty {t.penalty:g}")
    if t.process_score is not None:
        parts.append(f"process reward {t.process_reward:g} (score {t.process_score:.2f})")
    if t.overlong_penalty:
        parts.append(f"overlong {t.overlong_penalty:g}")
    if how.training:
        parts.append("not trained (filtered out)" if value is None or math.isnan(value) else f"advantage {value:+.3f}")
    parts.append(f"actions {' || '.join(t.actions)}" if t.actions else "no action")
    if not t.valid:
        parts.append("invalid")
    if t.invalid_actions:
        parts.append(f"{t.invalid_actions} skipped")
    return "   ↳ " + " · ".join(parts) + f" · stop {t.completion.stop.value}"
