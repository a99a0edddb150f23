"""Print stored episodes of a run, those trained on first, or of an evaluation that was kept.

Sampled tokens are marked, and each turn's reward and credit told.
"""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ragen.cli.output import give
from ragen.errors import CheckpointError, ConfigError
from ragen.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ragen.runs.directory import RunDirectory
    from ragen.runs.events import StoredTrajectory
    from ragen.runs.stored import Episodes, Stored

OVERRIDES: str | None = None


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("run", metavar="RUN_OR_EVALUATION", help="a run or a kept evaluation, by path or by name")
    choose_episodes(parser)
    parser.add_argument("--limit", type=int, default=8, help="trajectories at most (8; 0 = all)")
    parser.add_argument("--json", action="store_true", help="print them as stored, one line of JSON each (all: --limit 0)")


def choose_episodes(parser: argparse.ArgumentParser) -> None:
    """Declare the options by which ``chosen`` chooses."""
    parser.add_argument("--step", type=int, help="the training step (default: the last one stored)")
    parser.add_argument("--group", type=int, help="only this group, by its number in the run or (from 0) in the step")
    parser.add_argument("--member", type=int, help="only this member of each group")
    parser.add_argument("--failed", action="store_true", help="only episodes without success")
    parser.add_argument("--invalid", action="store_true", help="only episodes with an invalid turn")
    order = parser.add_mutually_exclusive_group()
    order.add_argument("--best", action="store_true", help="highest return first")
    order.add_argument("--worst", action="store_true", help="lowest return first")


def run(args: argparse.Namespace, overrides: Sequence[str]) -> int:
    """Print the chosen trajectories."""
    del overrides
    if args.limit < 0:
        raise ConfigError(f"--limit is {args.limit}; use 0 (all) or more")
    from ragen.runs.events import to_line, trajectory_record
    from ragen.runs.stored import episodes, open_stored
    from ragen.runs.tokens import decoder
    from ragen.runs.view import Reading, reading_console, show_trajectories

    opened = open_stored(args.run)
    read = episodes(opened, args.step)
    wanted = chosen(read, args)
    if args.json:
        for item in wanted[: args.limit or None]:
            give(to_line(trajectory_record(item)))
        return 0
    how = Reading(decoder(opened), read.groups_a_step, training=read.step is not None)
    console = reading_console()
    for line in _head(opened, read, args):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    show_trajectories(wanted, console, how, limit=args.limit or None)
    return 0


def _head(opened: "Stored", read: "Episodes", args: argparse.Namespace) -> "Iterator[str]":
    """What stands above the episodes."""
    from ragen.runs.directory import RunDirectory

    title = f"{read.about} · {counted(len(read.items), 'trajectory', 'trajectories')}"
    if not isinstance(opened, RunDirectory) or read.step is None:
        yield title + _order(args)
        return
    trained, rollbacks = sum(item.trained for item in read.items), len(opened.rollbacks())
    told = f"{trained} of them trained on{_order(args) or ', those first'}" if trained else "none of them trained on"
    yield f"{title}, {told}" + (f" · {counted(rollbacks, 'rollback')}" if rollbacks else "")
    if why := "" if trained else _why_untrained(opened, read.step):
        yield why


def _why_untrained(run: "RunDirectory", step: int) -> str:
    """Why no episode of ``step`` was trained on, as far as its metrics tell; empty where they do not."""
    row = next((row for row in run.metrics() if row["step"] == step), {})
    if row.get("filter/kept_groups") != 0:
        return ""
    kind = "task return" if run.config.filter.returns == "task" else "return"
    flat = f"within each group all episodes had the same {kind}, so none was better than another"
    if row.get("update/optimizer_steps"):
        return f"only demonstrations were trained on in this step: {flat}"
    limit = counted(run.config.filter.max_flat_steps, "such step")
    return f"nothing was trained in this step: {flat} (a run stops after {limit} in a row: filter.max_flat_steps)"


def chosen(read: "Episodes", args: argparse.Namespace) -> "list[StoredTrajectory]":
    """What the options ask for, in the order they ask for. Raises CheckpointError where nothing is left."""
    stored, a_step = read.items, read.groups_a_step

    def wanted(item: "StoredTrajectory") -> bool:
        t = item.trajectory
        names = () if item.group is None else (item.group, item.group if a_step is None else item.group % a_step)
        in_group = args.group is None or args.group in names
        return (
            in_group
            and args.member in (None, t.member)
            and not (args.failed and t.success)
            and not (args.invalid and all(turn.valid for turn in t.turns))
        )

    found = [item for item in stored if wanted(item)]
    if not found:
        groups = sorted({item.group for item in stored if item.group is not None})
        members = max((item.trajectory.member for item in stored), default=0)
        won = sum(item.trajectory.success for item in stored)
        raise CheckpointError(
            f"no such trajectory among the {len(stored)}{'' if read.step is None else ' of this step'}: groups are "
            f"{_span(groups)}"
            f"{'' if a_step is None else f' (in the step 0 to {a_step - 1})'}, members 0 to {members}, and {won} succeeded"
        )
    if args.best or args.worst:
        found.sort(key=lambda item: item.trajectory.total_return, reverse=args.best)
    else:
        found.sort(key=lambda item: not item.trained)
    return found


def _order(args: argparse.Namespace) -> str:
    return ", highest return first" if args.best else ", lowest return first" if args.worst else ""


def _span(numbers: Sequence[int]) -> str:
    whole = len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1
    return f"{numbers[0]} to {numbers[-1]}" if whole else ", ".join(map(str, numbers)) or "none"
