"""Play an environment in the terminal: the same prompts, rules and penalties an agent gets. Type actions or `a || b`.

A line with the tags of a reply (<answer>…</answer>) is taken as an agent's. Any other is read with good will: brackets may
be left out, and a near miss is asked again and costs nothing.
"""

import argparse
import io
import shlex
import shutil
import sys
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ragen.cli.output import tell
from ragen.cli.typed import how_to, possible, spoken, understood
from ragen.episode import Completion, EndReason, StopReason, Turn
from ragen.errors import ConfigError, EnvironmentFault
from ragen.text.parser import SEPARATOR, parse_reply

if TYPE_CHECKING:
    from ragen.envs import Environment
    from ragen.rollout.runner import EpisodeRunner, EpisodeSpec

OVERRIDES: str | None = "settings of the environment may follow as --env.key VALUE (`ragen envs NAME` lists them)"
LEFT = 130  # the exit status after Ctrl-C, as of any other command


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("env", metavar="ENV", help="an environment preset (`ragen envs`), or FILE.py:Class")
    parser.add_argument("--seed", type=int, default=0, help="another seed is another instance")
    parser.add_argument("--no-thinking", action="store_true", help="the prompts without <think>")


def run(args: argparse.Namespace, overrides: Sequence[str]) -> int:
    """Play one episode."""
    from ragen.config import load_config
    from ragen.config.load import parse_overrides
    from ragen.envs import environment_factory
    from ragen.rollout.contexts import MessageContext
    from ragen.rollout.runner import EpisodeRunner, EpisodeSpec, Rules
    from ragen.seeding import derive

    foreign = [key for key, _ in parse_overrides(overrides) if not key.startswith("env.")]
    if foreign:
        raise ConfigError(f"--{foreign[0]} means nothing here: play takes --env.key VALUE, --seed and --no-thinking")
    config = load_config({"env": {"name": args.env}}, overrides)
    thinking = not args.no_thinking
    env = environment_factory(config.env)()
    spec = EpisodeSpec(
        env=args.env,
        group=0,
        member=0,
        instance_seed=derive(args.seed, "play", "instance"),
        dynamics_seed=derive(args.seed, "play", "dynamics"),
        sampling_seed=0,
    )
    rules = Rules(2**31, 2**40, thinking=thinking, format_penalty=config.rollout.format_penalty)
    runner = EpisodeRunner(spec, env, MessageContext(rules.context), rules)
    best = runner.env.best_success() if runner.end is None else None
    say(_elsewhere(spec, env, overrides), end="")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    try:
        while runner.end is None:
            say(f"{runner.context.shown}\n\n({_left(runner)})\n({how_to(runner.env)}; Ctrl-D leaves)")
            reply = _reply(runner.env, thinking=thinking)
            if reply is None:
                return _leave(runner, 0)
            say(_played(runner, reply))
    except KeyboardInterrupt:
        return _leave(runner, LEFT)
    _ending(runner, best)
    same = [args.env, *overrides, *(["--no-thinking"] if args.no_thinking else [])]
    say(f"another instance: ragen play {shlex.join(same)} --seed {args.seed + 1}")
    return 0


def say(text: str, end: str = "\n") -> None:
    """Print a text, its long lines wrapped at blanks to the width of the terminal; a file or a pipe gets it as it is."""
    if sys.stdout.isatty():
        width = max(shutil.get_terminal_size().columns, 20)
        text = "\n".join("\n".join(wrapped(line, width)) for line in text.split("\n"))
    tell(text + end)
    sys.stdout.flush()


def wrapped(line: str, width: int) -> list[str]:
    """A line in pieces of at most ``width`` characters; one that fits stays as it is, blanks included.

    >>> wrapped("[Back to Search] [Next >]", 20)
    ['[Back to Search]', '[Next >]']
    """
    if len(line) <= width:
        return [line]
    return textwrap.wrap(line, width, break_on_hyphens=False, replace_whitespace=False) or [""]


def _elsewhere(spec: "EpisodeSpec", env: "Environment", overrides: Sequence[str]) -> str:
    """Where else this can be played: a shop opens in a browser, too, with the same goal."""
    from ragen.envs.webshop import WebShop

    if not isinstance(env, WebShop):
        return ""
    chosen = [] if spec.env == "webshop" else ["--env", spec.env]
    browser = shlex.join(["ragen", "shop", *chosen, "--instance", str(spec.instance_seed), *overrides])
    shorter = "" if getattr(env.settings, "observation", "") == "compact" else "; in fewer words: --env.observation compact"
    return f"(the same in a browser: {browser}{shorter})\n\n"


def _left(runner: "EpisodeRunner[Any]") -> str:
    """What the budgets leave: of turns and actions, and how many of these a turn takes."""
    settings = runner.env.settings
    turns, each = settings.max_turns - len(runner.turns), settings.max_actions_per_turn
    actions = min(settings.max_actions - runner.actions_used, turns * each)  # as the environment's own text counts them
    return f"turns left: {turns}, actions left: {actions}, at most {min(actions, each)} a turn"


def _reply(env: "Environment", *, thinking: bool) -> str | None:
    """The reply that is typed, asked for again after near misses; None at the end of the input."""
    while (line := _read()) is not None:
        typed = understood(line, env, thinking=thinking)
        if typed.reply is not None:
            return typed.reply
        say(f"— nothing was played: {typed.problem}")
    return None


def _read() -> str | None:
    """The next line that is not blank; None at the end of the input (or where there is none)."""
    while sys.stdin is not None:
        typing = sys.stdin.isatty()
        if typing:
            with suppress(ImportError):
                import readline  # noqa: F401 (its import is what gives `input` a history and keys to edit with)
        try:
            line = input("> ")
        except EOFError:
            return None
        if not typing:
            say(line)
        if line.strip():
            return line
    return None


def _played(runner: "EpisodeRunner[Any]", reply: str) -> str:
    """Play a reply; what it did and paid, and of what was typed in vain the words and what would have counted."""
    env = runner.env
    tools = env.tools()  # what is wrong with a call, its answer tells
    unknown = [] if tools is not None else [part for part in _parts(runner, reply) if env.match(part) is None]
    here = possible(env) if tools is None else ""
    runner.apply(Completion((), (), (), reply, StopReason.END))
    if runner.fault is not None:
        return ""
    turn = runner.turns[-1]
    done = turn.actions if tools is None else [spoken(call, tools) for call in turn.actions]
    return _told(turn, done, unknown, here)


def _parts(runner: "EpisodeRunner[Any]", reply: str) -> tuple[str, ...]:
    return parse_reply(reply, thinking=runner.rules.thinking).actions


def _told(turn: Turn, done: Sequence[str], unknown: Sequence[str], here: str) -> str:
    penalty = f" and {turn.penalty:g} for the format" if turn.penalty else ""
    why = ""
    if unknown:
        typed = ", ".join(f"'{word}'" for word in unknown)
        why = f" ({typed} {'is no action' if len(unknown) == 1 else 'are no actions'}; {here})"
    elif not turn.valid and here:
        why = f" (no action was named; {here})"
    elif ignored := turn.info.get("ignored_actions", 0):
        why = f" (beyond the limit of a turn, not played: {ignored})"
    return f"— did {f' {SEPARATOR} '.join(done) or 'nothing'}: reward {turn.reward:g}{penalty}{why}\n"


def _leave(runner: "EpisodeRunner[Any]", status: int) -> int:
    """Say what was played so far, in the middle of an episode."""
    turns, paid = len(runner.turns), sum(sum(turn.parts) for turn in runner.turns)
    say("\nleft" + (f" after turn {turns}, total {round(paid, 9):g}." if turns else "."))
    return status


def _ending(runner: "EpisodeRunner[Any]", best: float | None) -> None:
    if runner.fault is not None:
        raise EnvironmentFault(f"the environment failed: {runner.fault}")
    played = runner.trajectory(0)
    last = played.turns[-1].info.get("next_observation", "")
    if last:
        say(f"{last}\n")
    spent = f" (no {'turns' if len(played.turns) >= runner.env.settings.max_turns else 'actions'} left)"
    end = f"{played.end.value}{spent if played.end is EndReason.BUDGET else ''}"
    say(f"{'success' if played.success else 'no success'} · end: {end} · total {played.total_return:g}")
    if best is not None:
        say(f"best play succeeds with probability {best:.2f} from this start")
