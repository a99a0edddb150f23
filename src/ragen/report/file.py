"""The report as one file: all stored steps of the runs, packed into the page."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragen.errors import ModelError
from ragen.report.drawing import drawing_of
from ragen.report.overview import plain_overview
from ragen.report.page import Block, head, packed, page
from ragen.report.steps import Packer
from ragen.runs.directory import RunDirectory
from ragen.runs.disk import write_text
from ragen.runs.tokens import Decode, decoder

NO_TEXT = "the tokenizer is not here, so tokens are shown by their numbers"


@dataclass(frozen=True, slots=True)
class Written:
    """What went into a report."""

    bytes: int
    steps: int
    trajectories: int
    with_tokens: int


def write_report(
    runs: Sequence[RunDirectory], out: Path, *, all_tokens: bool = False, progress: Callable[[int], None] = lambda done: None
) -> Written:
    """Write the page of ``runs`` to ``out``, whole or not at all; ``progress`` is told of each packed step."""
    overviews, blocks, indices = [], list[Block](), list[dict[str, Any]]()
    for number, run in enumerate(runs):
        told = plain_overview(run)
        packer, notes = packer_of(run, all_tokens=all_tokens)
        overviews.append(told | {"notes": [*told["notes"], *notes]})
        steps = list(_steps(run, [step for step, _ in told["steps"]], packer, number, progress))
        blocks += [Block(f"run{number}-index", packed([index for index, _ in steps])), *(block for _, block in steps)]
        indices += [index for index, _ in steps]
    text = "".join(page(head(overviews), blocks))
    write_text(out, text)
    details = [kept for index in indices for kept in index["detail"]]
    return Written(len(text.encode()), len(indices), len(details), sum(details))


def packer_of(run: RunDirectory, *, all_tokens: bool = False) -> tuple[Packer, list[str]]:
    """What packs the run's steps, and what a reader must know of it."""
    notes: list[str] = []
    try:
        decode: Decode = decoder(run)
    except ModelError:  # for example a run that was copied here without its checkpoints
        decode, notes = _by_number, [NO_TEXT]
    return Packer(decode, drawing_of(run.config.env), run.config.seed, all_tokens=all_tokens), notes


def _by_number(ids: Sequence[int]) -> str:
    return "".join(f"⟨{i}⟩" for i in ids)


def _steps(
    run: RunDirectory, steps: Sequence[int], packer: Packer, number: int, progress: Callable[[int], None]
) -> Iterator[tuple[dict[str, Any], Block]]:
    for step in steps:
        one = packer.pack(step, run.trajectories(step))
        yield one.index, Block(f"run{number}-step{step}", packed(one.body))
        progress(1)
