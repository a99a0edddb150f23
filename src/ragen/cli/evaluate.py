"""Evaluate a run, a checkpoint, any Hugging Face causal LM, or an API model (--api) on fixed seeded instances."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ragen.cli.arguments import add_force, refuse_model, refuse_without_effect, writable_file
from ragen.cli.early import check_environment, check_rollout
from ragen.cli.interrupted import nothing_kept
from ragen.cli.output import give, tell
from ragen.cli.sources import check_source
from ragen.cli.waiting import LOADING, doing
from ragen.errors import ConfigError
from ragen.samplers.endpoint import DEFAULT_KEY, Endpoint

OVERRIDES: str | None = (
    "settings that count in an evaluation may follow as --section.key VALUE (docs/settings.md), e.g. --env.max_turns 3\n"
    "--rollout.context single; any other is refused, with a list of those that count"
)
_SHORT = ("episodes", "samples", "temperature", "seed")
_ENDPOINT = ("key_env", "concurrency", "timeout", "retries", "patience", "body", "price_in", "price_out")
_ROLLOUT = ("max_new_tokens", "max_trajectory_tokens", "stop_strings", "context", "window", "thinking", "format_penalty")
_WORKERS = ("env_workers", "env_mode", "env_timeout_s")
COUNTING_OF_API = (
    *("env", "plugins"),
    *(f"eval.{name}" for name in _SHORT),
    *(f"rollout.{name}" for name in (*_ROLLOUT, *_WORKERS)),
)
COUNTING = (
    *COUNTING_OF_API,
    "eval.batch",
    *(f"rollout.{name}" for name in ("max_context", "force_think")),
    *(f"model.{name}" for name in ("device", "dtype", "trust_remote_code")),
    "run.threads",
)  # the settings that an evaluation reads
_WITH_API = ("api_model", *_ENDPOINT)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "model", nargs="?", metavar="MODEL_OR_RUN", help="a run, a checkpoint directory, a model directory or name"
    )
    parser.add_argument("--preset", metavar="PRESET_OR_FILE", help="settings to start from (default: the run's own)")
    parser.add_argument(
        "--env",
        metavar="NAME",
        help="environment preset or FILE.py:Class (default: the run's own, or bandit)",
    )
    add_evaluation_options(parser)
    parser.add_argument(
        "--name",
        help="keep all episodes and the report in evals/NAME, where a stopped evaluation goes on (default: nothing is kept; "
        "with --api: model and environment)",
    )
    parser.add_argument("--json", metavar="FILE", help="write the whole report as JSON ('-' = standard output)")
    add_force(parser)
    parser.add_argument("--quiet", action="store_true", help="print only the report")
    api = parser.add_argument_group("an API model, in place of MODEL_OR_RUN (docs/evaluation.md; extra 'api')")
    api.add_argument("--api", metavar="URL", help="an OpenAI-compatible endpoint, such as https://api.openai.com/v1")
    api.add_argument("--model", dest="api_model", metavar="NAME", help="the model's name there")
    api.add_argument("--key-env", metavar="VARIABLE", help=f"environment variable that holds the key ({DEFAULT_KEY})")
    api.add_argument("--concurrency", type=int, metavar="N", help="requests at the same time (8)")
    api.add_argument("--timeout", type=float, metavar="S", help="seconds a request may take (120)")
    api.add_argument("--retries", type=int, metavar="N", help="tries more for a reply that failed (6)")
    api.add_argument("--patience", type=float, metavar="S", help="seconds for one reply, all tries and waits (600)")
    api.add_argument("--body", metavar="JSON", help='more fields of each request: \'{"reasoning_effort": "low"}\'')
    api.add_argument("--price-in", type=float, metavar="P", help="price of a million tokens sent; the cost is told")
    api.add_argument("--price-out", type=float, metavar="P", help="price of a million tokens sampled")


def add_evaluation_options(parser: argparse.ArgumentParser) -> None:
    """The short forms of ``eval.*``, and whether reference players play too."""
    parser.add_argument("--episodes", metavar="N", help="fixed instances (default: the run's own, or 256)")
    parser.add_argument("--samples", metavar="K", help="episodes an instance (the run's own, or 1); more: pass@K too")
    parser.add_argument("--temperature", metavar="T", help="sampling temperature, 0 = greedy (the run's own, or 0.5)")
    parser.add_argument(
        "--seed", metavar="S", help="the instances' seed (the run's own, or 1000); same seed, same instances"
    )
    parser.add_argument(
        "--players", action=argparse.BooleanOptionalAction, default=True, help="play the reference players beside the model"
    )


def evaluation_words(args: argparse.Namespace, overrides: Sequence[str]) -> list[str]:
    """The settings that the options and overrides stand for."""
    words = [*(["--env", args.env] if args.env else []), *overrides]
    return words + [f"--eval.{name}={getattr(args, name)}" for name in _SHORT if getattr(args, name) is not None]


def run(args: argparse.Namespace, overrides: Sequence[str]) -> int:
    """Evaluate and print the report."""
    endpoint = _endpoint(args)
    refuse_model(overrides, f"the first argument ({args.model})" if endpoint is None else f"--model ({args.api_model})")
    out = writable_file("--json", args.json, force=args.force) if args.json not in (None, "-") else None
    words = evaluation_words(args, overrides)
    refuse_without_effect("ragen eval", overrides, COUNTING if endpoint is None else COUNTING_OF_API)
    if args.preset is not None:
        check_source(args.preset)
    _check(args, words)
    with doing(LOADING, quiet=args.quiet):
        from ragen.api import evaluate, evaluate_api
    from ragen.runs.listening import listening

    with listening(quiet=args.quiet or args.json == "-") as listener:
        asked = {"name": args.name or "", "players": args.players, "listener": listener}
        if endpoint is not None:
            report = evaluate_api(args.api_model, endpoint, args.preset, words, **asked)
        elif args.name:
            report = evaluate(args.model, args.preset, words, **asked)
        else:
            with nothing_kept("--name NAME keeps what is played"):
                report = evaluate(args.model, args.preset, words, **asked)
    _report(report, args, out)
    return 0


def _check(args: argparse.Namespace, words: Sequence[str]) -> None:
    """Raise RagenError for a wrong setting or name: it shows before torch is loaded."""
    from ragen.config import load_config
    from ragen.runs.models import known_model

    config = load_config(args.preset if args.preset is not None else {}, words)
    stored = known_model(args.model) if args.api is None else None
    if stored is not None and args.preset is None:
        config = load_config(stored.model_dump(mode="json"), words)
    check_environment(config)
    check_rollout(config, words)


def _endpoint(args: argparse.Namespace) -> Endpoint | None:
    """The endpoint that the options describe, or None; ConfigError for options that do not belong together."""
    given = [name for name in _WITH_API if getattr(args, name) is not None]
    if args.api is None:
        if given == ["api_model"]:
            refuse_model(["--model", "x"], f"the first argument ({args.model})")
        if given:
            raise ConfigError(f"--{given[0].removeprefix('api_').replace('_', '-')} belongs to --api URL: give that too")
        if args.model is None:
            raise ConfigError("name what to evaluate: ragen eval MODEL_OR_RUN, or ragen eval --api URL --model NAME")
        return None
    if args.model is not None:
        raise ConfigError(f"with --api the model is the one named by --model; leave '{args.model}' out")
    if args.api_model is None:
        raise ConfigError("--api needs --model NAME: the name that the model has at the endpoint")
    options = {name: getattr(args, name) for name in _ENDPOINT if getattr(args, name) is not None}
    if args.body is not None:
        options["body"] = _object(args.body)
    return Endpoint(args.api, **options)


def _object(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ConfigError("--body is not JSON: give an object such as '{\"top_p\": 0.9}'") from None


def _report(report: Any, args: argparse.Namespace, out: Path | None) -> None:
    from ragen.runs.console import eval_lines
    from ragen.runs.disk import write_text
    from ragen.runs.events import plain

    text = json.dumps(plain(report.to_dict()), indent=1, ensure_ascii=False) + "\n"
    if args.json == "-":
        give(text)
        return
    if args.quiet:
        tell("\n".join(eval_lines(report.env, report)) + "\n")
    if out is not None:
        write_text(out, text)
    elif args.api is None and not args.name and not args.quiet:
        tell("Nothing of this is stored: --name NAME keeps the episodes and this report, --json FILE the report.\n")
