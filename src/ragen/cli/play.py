"""Play an environment in the terminal: the same prompts, rules and penalties an agent gets. Type actions or `a || b`."""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ragen.episode import Completion, StopReason, Turn
from ragen.errors import ConfigError, EnvironmentFault
from ragen.registry import MANY
from ragen.text.parser import SEPARATOR, parse_reply
from ragen.tools.call import CALL, END_CALL, FINAL, Call

if TYPE_CHECKING:
    from ragen.envs import Environment
    from ragen.rollout.runner import EpisodeRunner
    from ragen.tools import Tool

OVERRIDES: str | None = "settings of the environment may follow as --env.key VALUE (`ragen envs NAME` lists them)"


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
    best = env.best_success() if runner.end is None else None
    while runner.end is None:
        say(f"{runner.context.shown}\n\n{_hint(env)}")
        typed = _read()
        if typed is None:
            say("\nleft.")
            return 0
        tools = env.tools()
        typed = completed(typed, env) if tools is None else called(typed, tools)
        text = wrapped(typed, thinking=thinking)
        known = env.forms() if tools is None else ()  # what is wrong with a call, its answer tells
        unknown = [part for part in parse_reply(text, thinking=thinking).actions if known and env.match(part) is None]
        runner.apply(Completion((), (), (), text, StopReason.END))
        if runner.turns and runner.fault is None:
            say(_told(runner.turns[-1], unknown, known))
    _ending(runner, best)
    return 0


def completed(typed: str, env: "Environment") -> str:
    """What was typed as an action: where no action is named, what stands in the brackets of a form will do.

    In a shop ``buy now`` stands for ``click[buy now]`` and, on its search page, ``red shoes`` for ``search[red shoes]``.
    """
    if env.match(typed) is not None:
        return typed
    verbs = (form.partition("[")[0] for form in env.forms() if form.endswith("]"))
    return next((action for verb in verbs if env.match(action := f"{verb}[{typed}]") is not None), typed)


def wrapped(typed: str, *, thinking: bool) -> str:
    """What was typed as a reply: bare actions get the tags around them, a full reply stays as it is."""
    if "<answer>" in typed or "</think>" in typed:
        return typed
    if typed.startswith(CALL):
        return f"{'<think></think>' if thinking else ''}{typed}"
    return f"{'<think></think>' if thinking else ''}<answer>{typed}</answer>"


def called(typed: str, tools: "Sequence[Tool]") -> str:
    """What was typed, where actions are calls: ``NAME ARGUMENTS`` becomes a call, ``answer TEXT`` the answer's text."""
    if typed.startswith("<"):
        return typed
    name, _, rest = typed.strip().partition(" ")
    if name == FINAL and rest.strip():
        return rest.strip()
    known = {tool.name: tool for tool in tools}
    return f"{CALL}{known[name].typed(rest.strip()) if name in known else Call(name, {})}{END_CALL}"


def say(text: str) -> None:
    """Print a line."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _hint(env: "Environment") -> str:
    """What to type: the prompt above it asks an agent for tags, which a person is spared."""
    tools = env.tools()
    if tools is not None:
        names = ", ".join(f"{tool.name} …" for tool in tools)
        return f"(here only {f'{names} or ' if names else ''}{FINAL} …, without tags; Ctrl-D leaves)"
    several = min(env.settings.max_actions, env.settings.max_actions_per_turn) > 1 and len(env.actions()) > 1
    example = f", or several as {f' {SEPARATOR} '.join(env.actions()[:2])}" if several else ""
    if any(form.endswith("]") for form in env.forms()):
        example = ", or only what would stand in its brackets"
    return f"(here only the action, without tags{example}; Ctrl-D leaves)"


def _read() -> str | None:
    """The next line that is not empty; None at the end of the input (or where there is none)."""
    while sys.stdin is not None:
        sys.stdout.write("> ")
        sys.stdout.flush()
        line = sys.stdin.readline()
        if not sys.stdin.isatty() and line:
            sys.stdout.write(line if line.endswith("\n") else line + "\n")
        if not line or line.strip():
            return line.rstrip("\n") or None
    return None


def _told(turn: Turn, unknown: Sequence[str], known: Sequence[str]) -> str:
    """What a turn did and paid; of what was typed in vain, the words and those that would have counted."""
    penalty = f" and {turn.penalty:g} for the format" if turn.penalty else ""
    done = f" {SEPARATOR} ".join(turn.actions) if turn.actions else "nothing"
    listed = f"the actions are: {', '.join(known[:MANY])}{', …' if len(known) > MANY else ''}"
    why = ""
    if unknown:
        typed = ", ".join(f"'{word}'" for word in unknown)
        why = f" ({typed} {'is no action' if len(unknown) == 1 else 'are no actions'}; {listed})"
    elif not turn.valid and known:
        why = f" (no action was named; {listed})"
    return f"— did {done}: reward {turn.reward:g}{penalty}{why}\n"


def _ending(runner: "EpisodeRunner[Any]", best: float | None) -> None:
    if runner.fault is not None:
        raise EnvironmentFault(f"the environment failed: {runner.fault}")
    played = runner.trajectory(0)
    last = played.turns[-1].info.get("next_observation", "")
    if last:
        say(f"{last}\n")
    say(f"{'success' if played.success else 'no success'} · end: {played.end.value} · total {played.total_return:g}")
    if best is not None:
        say(f"best play succeeds with probability {best:.2f} from this start")
