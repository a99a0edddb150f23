"""Evaluate a run, a checkpoint or any Hugging Face causal LM on fixed seeded instances."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ragen.cli.arguments import OVERRIDES as _ABOUT
from ragen.cli.arguments import refuse_model, writable_file
from ragen.cli.sources import check_source

OVERRIDES: str | None = _ABOUT
_SHORT = ("episodes", "samples", "temperature", "seed")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("model", metavar="MODEL_OR_RUN", help="a run, a checkpoint directory, a model directory or name")
    parser.add_argument("--preset", metavar="PRESET_OR_FILE", help="settings to start from (default: the run's own)")
    parser.add_argument(
        "--env",
        metavar="NAME",
        help="environment preset or FILE.py:Class (default: the run's own, or bandit)",
    )
    parser.add_argument("--episodes", metavar="N", help="fixed instances (256)")
    parser.add_argument("--samples", metavar="K", help="episodes an instance; with more than one pass@K is told too (1)")
    parser.add_argument("--temperature", metavar="T", help="sampling temperature, 0 = greedy (0.5)")
    parser.add_argument("--seed", metavar="S", help="seed of the instances (1000); the same seed gives the same instances")
    parser.add_argument(
        "--players", action=argparse.BooleanOptionalAction, default=True, help="play the reference players beside the model"
    )
    parser.add_argument("--json", metavar="FILE", help="write the whole report as JSON ('-' = standard output)")
    parser.add_argument("--quiet", action="store_true", help="print only the report")


def run(args: argparse.Namespace, overrides: Sequence[str]) -> int:
    """Evaluate and print the report."""
    refuse_model(overrides, f"the first argument ({args.model})")
    out = writable_file("--json", args.json) if args.json not in (None, "-") else None
    words = [*(["--env", args.env] if args.env else []), *overrides]
    words += [f"--eval.{name}={getattr(args, name)}" for name in _SHORT if getattr(args, name) is not None]
    if args.preset is not None:
        check_source(args.preset)
    from ragen.api import evaluate
    from ragen.runs.listening import listening

    with listening(quiet=args.quiet or args.json == "-") as listener:
        report = evaluate(args.model, args.preset, words, players=args.players, listener=listener)
    _report(report, args, out)
    return 0


def _report(report: Any, args: argparse.Namespace, out: Path | None) -> None:
    import sys

    from ragen.runs.console import eval_lines
    from ragen.runs.disk import write_text
    from ragen.runs.events import plain

    text = json.dumps(plain(report.to_dict()), indent=1, ensure_ascii=False) + "\n"
    if args.json == "-":
        sys.stdout.write(text)
        return
    if args.quiet:
        sys.stdout.write("\n".join(eval_lines(report.env, report)) + "\n")
    if out is not None:
        write_text(out, text)
