"""The report as one file: all stored steps of the runs, packed into the page."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ragen.errors import ModelError
from ragen.report.drawing import drawing_of
from ragen.report.evaluation import evaluation_overview
from ragen.report.overview import Overview, overview
from ragen.report.page import Block, head, packed, page
from ragen.report.steps import Packer
from ragen.runs.directory import RunDirectory
from ragen.runs.disk import write_text
from ragen.runs.stored import Stored, env_of, seed_of
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
    runs: Sequence[Stored], out: Path, *, all_tokens: bool = False, progress: Callable[[int], None] = lambda done: None
) -> Written:
    """Write the page of runs and evaluations to ``out``, whole or not at all; ``progress`` is told of each packed step."""
    overviews, blocks, indices = [], list[Block](), list[dict[str, Any]]()
    for number, run in enumerate(runs):
        packer, notes = packer_of(run, all_tokens=all_tokens)
        told = overview_of(run)
        overviews.append(plain(told, notes))
        steps = list(_steps(run, [step for step, _ in told.steps], packer, number, progress))
        blocks += [Block(f"run{number}-index", packed([index for index, _ in steps])), *(block for _, block in steps)]
        indices += [index for index, _ in steps]
    text = "".join(page(head(overviews), blocks))
    write_text(out, text)
    details = [kept for index in indices for kept in index["detail"]]
    return Written(len(text.encode()), len(indices), len(details), sum(details))


def overview_of(run: Stored) -> Overview:
    """What the page says of it before any trajectory is opened. Raises CheckpointError for damaged files."""
    return overview(run) if isinstance(run, RunDirectory) else evaluation_overview(run)


def plain(told: Overview, notes: Sequence[str]) -> dict[str, Any]:
    """An overview as JSON holds it, with what packing its steps has to say."""
    return asdict(replace(told, notes=(*told.notes, *notes)))


def packer_of(run: Stored, *, all_tokens: bool = False) -> tuple[Packer, list[str]]:
    """What packs the steps, and what a reader must know of it."""
    notes: list[str] = []
    try:
        decode: Decode = decoder(run)
    except ModelError:  # for example a run that was copied here without its checkpoints
        decode, notes = _by_number, [NO_TEXT]
    return Packer(decode, drawing_of(env_of(run)), seed_of(run), all_tokens=all_tokens), notes


def _by_number(ids: Sequence[int]) -> str:
    return "".join(f"⟨{i}⟩" for i in ids)


def _steps(
    run: Stored, steps: Sequence[int], packer: Packer, number: int, progress: Callable[[int], None]
) -> Iterator[tuple[dict[str, Any], Block]]:
    for step in steps:
        one = packer.pack(step, run.trajectories(step) if isinstance(run, RunDirectory) else run.trajectories())
        yield one.index, Block(f"run{number}-step{step}", packed(one.body))
        progress(1)
