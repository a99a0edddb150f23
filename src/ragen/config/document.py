"""Writes ``docs/settings.md`` from the schema: ``make docs``. A test compares."""

import sys
import typing
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ragen.config.load import FAMILIES, METHODS, preset_values
from ragen.config.paths import fields
from ragen.config.settings import leaves
from ragen.config.yaml_text import dump_yaml

PAPER = (
    ("P", "initial states (prompts) an iteration", "rollout.groups"),
    ("N (G here)", "episodes an initial state", "rollout.members"),
    ("K", "turns an episode at most", "env.max_turns"),
    ("", "actions an episode at most", "env.max_actions"),
    ("", "actions a turn at most", "env.max_actions_per_turn"),
    ("E", "trajectories an optimiser step", "optim.trajectories"),
    ("k (online-k, rollout reuse)", "passes over one collected batch", "optim.online_k"),
    ("", "iterations", "steps"),
    ("β₁, β₂", "Adam", "optim.betas"),
    ("", "actor learning rate", "optim.learning_rate"),
    ("", "critic learning rate", "optim.critic_learning_rate"),
    ("r", "LoRA rank (64 in the paper's LoRA runs, with rates 1e-5 and 1e-4)", "model.lora.rank"),
    ("α", "LoRA scale", "model.lora.alpha"),
    ("γ", "discount", "advantage.gamma"),
    ("λ", "GAE", "advantage.lam"),
    ("ε_low", "lower clip", "loss.clip_low"),
    ("ε_high", "upper clip (StarPO-S: 0.28)", "loss.clip_high"),
    ("β", "KL weight (plain StarPO: 0.001)", "loss.kl_coef"),
    ("", "entropy bonus", "loss.entropy_coef"),
    ("", "format penalty a turn", "rollout.format_penalty"),
    ("", "training temperature", "rollout.temperature"),
    ("", "evaluation temperature", "eval.temperature"),
    ("", "evaluation prompts", "eval.episodes"),
    ("U, p", "uncertainty filter: share of groups kept (StarPO-S: 0.25)", "filter.value"),
    ("", "policy", "model.name"),
)
_ENV_DEFAULTS = {"env.max_turns": 5, "env.max_actions": 10, "env.max_actions_per_turn": 5}  # of multi-turn environments

_INTRO = """# Settings

This page is generated (`python -m ragen.config.document docs/settings.md`); a test compares it with the code.
Every setting can be given in a YAML file, or on the command line as `--section.name value`.
Environments have settings of their own (`--env.name value`): `ragen envs NAME` lists them.

A file may begin with `preset: NAME`; its own lines are laid over the preset. `--env NAME`, `--model NAME` and
`--advantage NAME`, `--loss NAME` are short for `--env.name`, `--model.name`, `--advantage.name`,
`--loss.name`; in a file, `env: NAME` and so on.
Another environment or advantage rule than the preset's begins with its own settings. Another loss begins with its own clip
bounds, where they bound something else than the preset's: over a preset with `clip_high: 0.28`, `--loss gspo` has 0.0004 and
`--loss cispo` 0.28. The rest of the section `loss` stays. A key in a file may be dotted: `rollout.groups: 4`.
An environment's name may be `FILE.py:Class`, see [environments.md](environments.md#your-own).
A new run refuses a changed setting that cannot count beside the others (`reward.coef` without `reward.process`), and names
what it needs; not what stands beside something switched off (`eval.episodes 0`).

`filter.strategy` chooses the groups that train, by the standard deviation of their returns (`filter.metric`: or by the mean
or the spread of their members' token entropy or length): `none` all of them;
`top_fraction` the share `filter.value` with the largest (the paper's rule); `top_k` that number; `top_p` the fewest whose
sum reaches that share of the total; `min_p` those at or above that share of the largest; `soft` all, weighted by
std / largest std. Whatever the metric, a group whose returns are all equal trains only where everything is kept
(`none`, a share of 1, `top_k` of all groups).
"""


def settings_page() -> str:
    """The whole page as Markdown."""
    return "\n".join([_INTRO, *_paper_table(), *_method_table(), *_size_notes(), *_all_settings()])


def _paper_table() -> list[str]:
    known = fields()
    lines = [
        "## The paper's symbols",
        "",
        "arXiv 2504.20073.",
        "",
        "| paper | meaning | setting | default |",
        "|---|---|---|---|",
    ]
    for symbol, meaning, key in PAPER:
        default = _ENV_DEFAULTS[key] if key.startswith("env.") else known[key].default
        lines.append(f"| {symbol} | {meaning} | `{key}` | {_plain(default)} |")
    return [*lines, "", "`bandit` has one turn and one action, whatever the table says of others.", ""]


def _method_table() -> list[str]:
    keys = [key for key in fields() if any(key in dict(leaves(preset_values(f"bandit-{method}"))) for method in METHODS)]
    lines = ["## What the methods set", "", f"| setting | {' | '.join(METHODS)} |", "|---|" + "---|" * len(METHODS)]
    for key in keys:
        if key != "env":
            cells = (dict(leaves(preset_values(f"bandit-{m}"))).get(key, fields()[key].default) for m in METHODS)
            lines.append(f"| `{key}` | {' | '.join(_plain(cell) for cell in cells)} |")
    return [*lines, ""]


def _size_notes() -> list[str]:
    lines = ["## What `-small` and `-tiny` set", ""]
    for family in FAMILIES:
        for size in ("small", "tiny"):
            base = dict(leaves(preset_values(f"{family}-starpo-s-grpo")))
            values = dict(leaves(preset_values(f"{family}-starpo-s-grpo-{size}")))
            differing = ", ".join(
                f"`{key}` {_plain(value)}" for key, value in values.items() if value not in (base.get(key), _default(key))
            )
            lines.append(f"- `{family}-*-{size}`: {differing}")
    return [*lines, ""]


def _all_settings() -> list[str]:
    lines = ["## Every setting", "", "| setting | type | default | meaning |", "|---|---|---|---|"]
    lines += [
        f"| `{key}` | {_type(f)} | {_plain(f.default)} | {_cell(f.description or '')} |" for key, f in fields().items()
    ]
    return [*lines, ""]


def _default(key: str) -> Any:
    field = fields().get(key)
    return field.default if field is not None else None


def _type(field: FieldInfo) -> str:
    kind = field.annotation
    if typing.get_origin(kind) is typing.Literal:
        return " \\| ".join(f"`{choice}`" for choice in typing.get_args(kind))
    if any(isinstance(inner, type) and issubclass(inner, BaseModel) for inner in typing.get_args(kind)):
        return "list of mappings"
    text = kind.__name__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind)
    return _cell(text.replace("typing.", "").replace("None", "null"))


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return f"[{', '.join(_plain(item) for item in value)}]"
    text = dump_yaml(value).removesuffix("...\n").strip() if not isinstance(value, dict) else str(value)
    return _cell(text) if text else '""'


def _cell(text: str) -> str:
    parts = text.replace("|", "\\|").split("`")
    return "`".join(part if number % 2 else part.replace("<", "&lt;") for number, part in enumerate(parts))


def main(arguments: list[str]) -> None:
    """Write the page to the given file, or to standard output."""
    if arguments:
        Path(arguments[0]).write_text(settings_page(), encoding="utf-8")
    else:
        sys.stdout.write(settings_page())


if __name__ == "__main__":
    main(sys.argv[1:])
