"""Stored trajectories for reading: what was sampled (and so trained) is marked, with reward and advantage a turn."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from ragen.episode import Segment, Trajectory
from ragen.rollout.segments import segments
from ragen.runs.events import StoredTrajectory
from ragen.wording import printable

Decode = Callable[[Sequence[int]], str]
TRAINED_STYLE, UNTRAINED_STYLE = "bold green", "magenta"
OPEN, CLOSE = "⟦", "⟧"


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
    stored: Sequence[StoredTrajectory],
    console: Console,
    decode: Decode,
    *,
    limit: int | None = None,
    groups_a_step: int | None = None,
) -> None:
    """Print trajectories; sampled tokens stand in ⟦ ⟧, and where there are colours the trained ones are green."""
    shown = stored if limit is None else stored[:limit]
    console.print(f"sampled tokens: {OPEN}so{CLOSE}, trained on where an advantage is told", highlight=False)
    for item in shown:
        for line in render(item, decode, groups_a_step):
            console.print(line, highlight=False, soft_wrap=True)
    if len(shown) < len(stored):
        console.print(f"… {len(stored) - len(shown)} more (--limit 0 for all)", highlight=False)


def reading_console() -> Console:
    """A console whose reader may leave (head, less): that raises BrokenPipeError, as it does for any other output."""
    return _Reading()


class _Reading(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def render(item: StoredTrajectory, decode: Decode, groups_a_step: int | None = None) -> Iterator[Text]:
    """The lines of one trajectory; groups are numbered through the run, ``groups_a_step`` tells the number in the step."""
    t = item.trajectory
    group = "lost" if item.group is None else f"group {item.group}"
    if item.group is not None and groups_a_step is not None and item.group >= groups_a_step:
        group += f" ({item.group % groups_a_step} of this step)"
    untrained = "" if item.trained or item.group is None else " · not trained on"
    title = f"── {t.env} · {group}{untrained} · member {t.member} · instance {t.instance_seed} · policy {t.policy_version} "
    yield Text(printable(title) + "─" * max(3, 100 - len(title)), style="bold cyan")
    if t.error:
        yield Text(f"the environment failed: {printable(t.error)}", style="red")
    if t.turns and t.sampled_tokens:
        for number, segment in enumerate(segments(t)):
            if number:
                yield Text(f"── segment {number + 1} (history dropped)", style="dim")
            yield from _segment_lines(item, segment, decode)
    outcome = "success" if t.success else "no success"
    yield Text(f"end: {t.end.value} · {outcome} · task return {t.task_return:g} · total {t.total_return:g}", style="bold")


def _segment_lines(item: StoredTrajectory, segment: Segment, decode: Decode) -> Iterator[Text]:
    line = Text()
    for span in spans(segment, decode):
        if span.trained:
            style = TRAINED_STYLE if item.trained else UNTRAINED_STYLE
            line.append(f"{OPEN}{printable(span.text)}{CLOSE}", style=style)
            yield line
            line = Text()
            yield Text(printable(turn_summary(item.trajectory, span.turn, item.advantages)), style="yellow")
        else:
            line.append(printable(span.text), style="dim")
    if line.plain:
        yield line


def turn_summary(trajectory: Trajectory, turn: int, advantages: Sequence[float] | None) -> str:
    """Rewards, penalties, advantage and actions of one turn, in one line."""
    t = trajectory.turns[turn]
    value = None if advantages is None or turn >= len(advantages) else advantages[turn]
    parts = [f"turn {turn + 1}: reward {t.reward:g}"]
    if t.penalty:
        parts.append(f"penalty {t.penalty:g}")
    if t.process_score is not None:
        parts.append(f"process reward {t.process_reward:g} (score {t.process_score:.2f})")
    if t.overlong_penalty:
        parts.append(f"overlong {t.overlong_penalty:g}")
    parts.append("not trained (filtered out)" if value is None or math.isnan(value) else f"advantage {value:+.3f}")
    parts.append(f"actions {' || '.join(t.actions)}" if t.actions else "no action")
    if not t.valid:
        parts.append("invalid")
    if t.invalid_actions:
        parts.append(f"{t.invalid_actions} skipped")
    return "   ↳ " + " · ".join(parts) + f" · stop {t.completion.stop.value}"
