"""Compare models, runs or finished evaluations on the same instances, each with the first, instance by instance."""

import argparse
import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragen.cli.arguments import add_force, refuse_model, refuse_without_effect, writable_file
from ragen.cli.early import check_environment, check_rollout
from ragen.cli.evaluate import COUNTING, add_evaluation_options, evaluation_words
from ragen.cli.evaluate import OVERRIDES as _ABOUT
from ragen.cli.interrupted import nothing_kept
from ragen.cli.output import give, tell
from ragen.cli.sources import check_source
from ragen.cli.waiting import LOADING, doing
from ragen.wording import at_temperature, counted

if TYPE_CHECKING:
    from ragen.comparing import Compared

OVERRIDES: str | None = _ABOUT


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "models",
        nargs="+",
        metavar="MODEL",
        help="a run, a checkpoint or model directory, a model's name, an evaluation (evals/NAME), or a file of eval --json",
    )
    parser.add_argument("--preset", metavar="PRESET_OR_FILE", help="settings of those that are evaluated now")
    parser.add_argument("--env", metavar="NAME", help="environment preset or FILE.py:Class (default: that of the first)")
    add_evaluation_options(parser)
    parser.add_argument("--instances", action="store_true", help="print the table of instances too")
    parser.add_argument("--csv", metavar="FILE", help="write the table of instances")
    parser.add_argument("--json", metavar="FILE", help="write everything as JSON ('-' = standard output)")
    add_force(parser)
    parser.add_argument("--quiet", action="store_true", help="print only the comparison")


def run(args: argparse.Namespace, overrides: Sequence[str]) -> int:
    """Evaluate what is not evaluated yet, and print the comparison."""
    refuse_model(overrides, "one of the arguments")
    refuse_without_effect("ragen compare", overrides, COUNTING)
    if args.preset is not None:
        check_source(args.preset)
    table = writable_file("--csv", args.csv, force=args.force) if args.csv else None
    out = writable_file("--json", args.json, force=args.force) if args.json not in (None, "-") else None
    words = evaluation_words(args, overrides)
    _check(args, words)
    with doing(LOADING, quiet=args.quiet):
        from ragen.comparing import compare
    from ragen.runs.events import plain
    from ragen.runs.listening import listening

    advice = "what `ragen eval MODEL --json FILE` has made one by one is compared as files"
    with listening(quiet=args.quiet or args.json == "-") as listener, nothing_kept(advice):
        compared = compare(args.models, words, source=args.preset, players=args.players, listener=listener)
    text = json.dumps(plain(record(compared)), indent=1, ensure_ascii=False) + "\n"
    lines = [*summary(compared), *(instance_lines(compared) if args.instances else [])]
    if args.json == "-":
        give(text)
    else:
        tell("\n".join(lines) + "\n")
    _write(compared, text, out, table)
    return 0


def _check(args: argparse.Namespace, words: Sequence[str]) -> None:
    """Raise RagenError for a wrong setting or name, as far as it is known without torch."""
    from ragen.config import load_config
    from ragen.runs.evaluations import is_evaluation
    from ragen.runs.models import known_model

    finished = [model for model in args.models if is_evaluation(Path(model))]
    runs = filter(None, (known_model(model) for model in args.models if model not in finished))
    first = next((config.model_dump(mode="json") for config in list(runs)), {})
    config = load_config(first if args.preset is None else args.preset, words)
    if args.env or not finished:  # else the environment is that of a finished evaluation
        check_environment(config)
    check_rollout(config, words)


def record(compared: "Compared") -> dict[str, Any]:
    """All of it, for JSON."""
    from dataclasses import asdict

    return {
        "reports": [report.to_dict() for report in compared.reports],
        "pairs": [asdict(pair) for pair in compared.pairs],
    }


def summary(compared: "Compared") -> list[str]:
    """The sides with their own intervals, then each difference to the first."""
    first = compared.reports[0]
    count = counted(first.episodes, "instance") + (f" × {first.samples}" if first.samples > 1 else "")
    lines = [f"{first.env}: {count}, seed {first.seed}, 95 % intervals"]
    for letter, report in zip(_letters(compared), compared.reports, strict=True):
        success, total = _value(report.success, report.success_interval), _value(report.total_return, report.return_interval)
        lost = report.errors + report.endpoint.get("failures", 0)
        also = f" · {counted(lost, 'episode')} lost" if lost else ""
        lines.append(
            f"  {letter}  success {success} · return {total} · {at_temperature(report.temperature)} · {report.model}{also}"
        )
    beside = [f"{name} {score.success:.3f}" for report in compared.reports for name, score in report.players.items()]
    ceilings = [report.ceiling for report in compared.reports if report.ceiling is not None]
    beside += [f"best possible {ceilings[0]:.3f}"] if ceilings else []
    if beside:
        lines.append(f"  same instances: {' · '.join(dict.fromkeys(beside))}")
    for letter, pair in zip(_letters(compared)[1:], compared.pairs, strict=True):
        lines.append(
            f"{letter} − A: success {_value(pair.success_difference, pair.success_interval, '+')} · return "
            f"{_value(pair.return_difference, pair.return_interval, '+')} · n = {pair.n}"
        )
        missing = f" · no partner for {counted(pair.unpaired, 'instance')}" if pair.unpaired else ""
        lines.append(
            f"  {letter} better on {pair.wins}, A on {pair.losses}, alike on {pair.ties} · p = {pair.p_value:.3g}{missing}"
        )
        lines.append(f"  {pair.method}")
    return lines


def instance_lines(compared: "Compared") -> list[str]:
    """One line an instance that all sides have: success and return of each."""
    letters = _letters(compared)
    titles = [f"{letter} {what}" for letter in letters for what in ("success", "return")]
    lines = ["", "instance".rjust(20) + "".join(title.rjust(11) for title in titles)]
    rows = instance_rows(compared)
    return lines + [str(row[0]).rjust(20) + "".join(f"{value:.3f}".rjust(11) for value in row[1:]) for row in rows]


def instance_rows(compared: "Compared") -> list[list[Any]]:
    """Instance, then success share and mean return of each side, for the instances that all sides have."""
    sides: list[dict[int, tuple[float, float]]] = []
    for pair in compared.pairs:
        if not sides:
            sides.append({row.instance: (row.success[0], row.total_return[0]) for row in pair.instances})
        sides.append({row.instance: (row.success[1], row.total_return[1]) for row in pair.instances})
    shared = [i for i in sides[0] if all(i in side for side in sides)]
    return [[i, *(value for side in sides for value in side[i])] for i in shared]


def _write(compared: "Compared", text: str, out: Path | None, table: Path | None) -> None:
    from ragen.runs.disk import clear_disk_errors, write_text

    if out is not None:
        write_text(out, text)
    if table is not None:
        names = [f"{what}_{letter}" for letter in _letters(compared) for what in ("success", "return")]
        with clear_disk_errors("the table", table), table.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([["instance", *names], *instance_rows(compared)])


def _letters(compared: "Compared") -> list[str]:
    return [chr(ord("A") + i) if i < 26 else str(i + 1) for i in range(len(compared.reports))]


def _value(value: float, interval: tuple[float, float], sign: str = "") -> str:
    return f"{value:{sign}.3f} [{interval[0]:{sign}.3f}, {interval[1]:{sign}.3f}]"
