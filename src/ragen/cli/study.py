"""Run a grid of settings over seeds and report it: a study that comes with RAGEN, or a YAML file (docs/studies.md)."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ragen.cli.arguments import positive, writable
from ragen.cli.output import tell
from ragen.cli.waiting import LOADING, doing
from ragen.studies import ROOT
from ragen.wording import counted

if TYPE_CHECKING:
    from ragen.studies.grid import Plan
    from ragen.studies.place import Place

OVERRIDES: str | None = None


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", title="actions")
    listed = actions.add_parser("list", help="list the studies, or the runs of one", allow_abbrev=False)
    listed.add_argument("name", nargs="?", metavar="STUDY", help="a study's name, or a YAML file")
    run_ = actions.add_parser("run", help="run what is not done yet", allow_abbrev=False)
    report = actions.add_parser("report", help="write tables and curves of what is done", allow_abbrev=False)
    for action in (run_, report):
        action.add_argument("name", metavar="STUDY", help="a study's name, or a YAML file")
    for action in (listed, run_, report):
        action.add_argument("--size", metavar="SIZE", help="the size (default: the study's first, tiny)")
        action.add_argument("--seeds", type=positive, metavar="N", help="N seeds (0, 1, …) instead of the study's own")
        action.add_argument("--root", default=ROOT, metavar="DIR", help=f"where runs and reports lie ({ROOT})")
    run_.add_argument(
        "--workers",
        type=positive,
        metavar="N",
        help="runs side by side (default: one a core where runs use one thread, else 1)",
    )
    report.add_argument(
        "--out", metavar="DIR", help="where the report goes (the root); one that is there is made anew, with its verdict"
    )


def run(args: argparse.Namespace, overrides: Sequence[str]) -> int:
    """Do it; of a run 1 where runs failed, 130 where Ctrl-C ended it."""
    del overrides
    if args.action == "list" and not args.name:
        return _list()
    from ragen.studies.grid import plan_study
    from ragen.studies.place import Place
    from ragen.studies.schema import load_study

    seeds = None if args.seeds is None else range(args.seeds)
    plan = plan_study(load_study(args.name), args.name, args.size, seeds)
    place = Place(Path(args.root))
    if args.action == "list":
        width = max(len(str(variant)) for variant in plan.variants)
        lines = [f"{place.state(each):<5}  {v!s:<{width}}  {each.name}" for v in plan.variants for each in v.runs]
        tell("\n".join([_heading(plan), "", *lines]) + "\n")
        return 0
    if args.action == "report":
        return _report(plan, place, Path(args.out or args.root))
    return _run(args, plan)


def _list() -> int:
    from ragen.studies.grid import plan_study
    from ragen.studies.schema import load_study, shipped

    for name in shipped():
        study = load_study(name)
        sizes = ", ".join(f"{size} {len(plan_study(study, name, size).runs())}" for size in study.sizes)
        tell(f"{name:<20} {study.finding:<4} {study.title}; runs: {sizes}\n")
    tell("\nruns of one: ragen study list STUDY · run it: ragen study run STUDY · then: ragen study report STUDY\n")
    return 0


def _heading(plan: "Plan") -> str:
    study, size = plan.study, plan.study.sizes[plan.size]
    variants, seeds, runs = counted(len(plan.variants), "variant"), counted(len(plan.seeds), "seed"), len(plan.runs())
    title = f"{study.title}, size {plan.size}: {variants} × {seeds}, {counted(runs, 'run')}"
    return "\n".join(filter(None, (title, study.question, size.note)))


def _report(plan: "Plan", place: "Place", folder: Path) -> int:
    from ragen.runs.disk import write_text
    from ragen.studies.report import report_files

    files = report_files(plan, place, folder)
    writable("--out", str(folder / "report"))
    for file, text in files.items():
        write_text(file, text)
        tell(f"written: {file}\n")
    return 0


def _run(args: argparse.Namespace, plan: "Plan") -> int:
    from ragen.cli.study_console import StudyConsole
    from ragen.studies.grid import command
    from ragen.studies.place import Place

    with doing(LOADING):
        from ragen.runs.provenance import usable_cores
        from ragen.studies.runner import run_study

    cores = usable_cores()
    wanted = max(run.config.run.threads for run in plan.runs().values())
    workers = args.workers or (max(1, cores // wanted) if wanted else 1)
    writable("--root", str(Path(args.root) / "runs"))
    tell(_heading(plan) + "\n")
    with StudyConsole() as console:
        result = run_study(plan, Place(Path(args.root)), console, workers=workers, threads=max(1, cores // workers))
    again, report = command(plan, "run", Path(args.root), args.workers), command(plan, "report", Path(args.root))
    counts = {"done": len(result.done), "failed": len(result.failed), "in another process": len(result.busy)}
    counts["not done"] = len(plan.runs()) - sum(counts.values())
    told = ", ".join(f"{n} {what}" for what, n in counts.items() if n)
    tell(f"{counted(len(plan.runs()), 'run')}: {told}\n")
    for name, why in result.failed:
        tell(f"failed: {name}: {why}\n        {Path(args.root) / 'logs' / name}.log\n")
    if result.interrupted:
        tell(f"go on:  {again}\n")
        return 130
    tell(f"report: {report}\n" if result.done else f"again:  {again}\n")
    return 1 if result.failed else 0
