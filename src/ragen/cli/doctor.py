"""Check the machine, and how a model would be used here: device, types, memory, chat template, mask, disk."""

import argparse
import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragen.cli.arguments import refuse_model
from ragen.cli.output import tell
from ragen.cli.waiting import LOADING, doing
from ragen.errors import RagenError
from ragen.wording import counted

if TYPE_CHECKING:
    import torch

    from ragen.models.memory import ModelSize

OVERRIDES: str | None = "settings may follow as --section.key VALUE, e.g. --model.dtype float32 --model.lora.rank 16"
MIN_FREE_DISK = 3 * 2**30
_MARK = {"ok": "ok  ", "note": "note", "bad": "BAD "}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: ``state`` is "ok", "note" or "bad"."""

    state: str
    what: str
    said: str


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("model", nargs="?", metavar="MODEL", help="a model, checkpoint or run (default: the machine only)")


def run(args: argparse.Namespace, overrides: Sequence[str]) -> int:
    """Print the findings; 1 if one of them is bad."""
    from ragen.config import load_config

    refuse_model(overrides, "the argument MODEL")
    words = [*overrides, *([f"--model.name={args.model}"] if args.model else [])]
    config = load_config({}, words)
    worst = 0
    for finding in _findings(config, args.model):
        worst = max(worst, int(finding.state == "bad"))
        first, *more = finding.said.splitlines() or [""]
        lines = [f"{_MARK[finding.state]} {finding.what + ':':<14} {first}", *(" " * 20 + line for line in more)]
        tell("\n".join(lines) + "\n")
        sys.stdout.flush()
    return worst


def _findings(config: Any, model: str | None) -> Iterator[Finding]:
    from ragen.runs.provenance import provenance

    with doing(LOADING):
        import torch

        from ragen.models.device import bfloat16_pays, choose_device, choose_dtype
        from ragen.models.memory import available_memory
    with doing("looking at the machine"):
        machine = provenance(config)
    yield Finding("ok", "python", f"{platform.python_version()} · torch {torch.__version__}")
    threads = config.run.threads or torch.get_num_threads()
    cores = counted(machine["logical_cores"], "logical core")
    yield Finding("ok", "processor", f"{machine['cpu']} · {cores} · threads: {threads}")
    free = available_memory(torch.device("cpu"))
    yield Finding("ok", "memory", f"{free / 2**30:.1f} GiB free of {machine['memory_bytes'] / 2**30:.1f} GiB")
    try:
        with doing("timing products of matrices"):
            device = choose_device(config.model.device)
            dtype, faster = choose_dtype(config.model.dtype, device), bfloat16_pays(device.type)
    except RagenError as error:
        yield Finding("bad", "device", str(error))
        return
    yield Finding("ok", "device", str(device))
    why = "as set" if config.model.dtype != "auto" else "chosen for this device (a model below 20M parameters: float32)"
    fast = "faster" if faster else "not faster"
    said = f"{str(dtype).removeprefix('torch.')} for compute, {why}; weights are float32; bfloat16 is {fast} here"
    yield Finding("ok", "dtype", said)
    yield from _disk(config)
    yield _sandbox()
    if model is not None:
        yield from _model(config, model, device)


def _disk(config: Any) -> Iterator[Finding]:
    from ragen.cache import cache_dir

    for what, path in (("runs", Path(config.run.root)), ("cache", cache_dir())):
        there = next(p for p in (path.absolute(), *path.absolute().parents) if p.exists())
        free = shutil.disk_usage(there).free
        state = "ok" if free >= MIN_FREE_DISK else "bad"
        advice = "" if state == "ok" else "; a run of a 135M model wants 3 GiB: free some, or set run.root or RAGEN_CACHE"
        yield Finding(state, f"disk ({what})", f"{free / 2**30:.1f} GiB free at {path}{advice}")


def _sandbox() -> Finding:
    from ragen.tools.sandbox import check

    try:
        with doing("trying the sandbox"):
            check()
    except RagenError as error:
        return Finding("note", "python tool", str(error))
    return Finding("ok", "python tool", "the sandbox holds: a policy's programs can be run here")


def _model(config: Any, name: str, device: "torch.device") -> Iterator[Finding]:
    with doing("loading transformers"):
        from ragen.models.load import load_tokenizer, read_config
        from ragen.models.memory import model_size
        from ragen.runs.models import find_model

    trust = config.model.trust_remote_code
    try:
        with doing(f"reading the model {name}"):
            path, _ = find_model(name)
            read_config(path, trust_remote_code=trust)
            size = model_size(path, trust_remote_code=trust)
        yield Finding("ok", "model", str(path))
        yield _memory(config, size, device)
        with doing("reading its tokenizer"):
            tokenizer = load_tokenizer(path, trust_remote_code=trust)
    except RagenError as error:
        yield Finding("bad", "model", str(error))
        return
    yield _tokens(tokenizer)
    yield from _template(tokenizer, config, size.vocabulary)


def _memory(config: Any, size: "ModelSize", device: "torch.device") -> Finding:
    from ragen.loops.opening import memory_needed
    from ragen.models.memory import available_memory

    needed, there = memory_needed(size, config, device), available_memory(device)
    state = "ok" if needed <= there else "bad"
    said = f"training needs about {needed / 2**30:.1f} GiB, {there / 2**30:.1f} GiB are free"
    advice = "" if state == "ok" else "; try --model.lora.rank 16 or a smaller --optim.microbatch_tokens"
    return Finding(state, "memory (run)", f"{size.parameters / 1e6:.1f}M parameters: {said}{advice}")


def _tokens(tokenizer: Any) -> Finding:
    pad, eos = tokenizer.pad_token, tokenizer.eos_token
    same = "; pad = eos: fine, masks go by position" if tokenizer.pad_token_id == tokenizer.eos_token_id else ""
    said = f"pad {pad!r} ({tokenizer.pad_token_id}) · eos {eos!r} ({tokenizer.eos_token_id}){same}"
    return Finding("ok" if eos is not None else "note", "tokens", said)


def _template(tokenizer: Any, config: Any, rows: int) -> Iterator[Finding]:
    from ragen.models.checks import check_vocabulary

    try:
        with doing("proving the chat template"):
            from ragen.loops.compose import build_renderer, control_ids

            renderer = build_renderer(tokenizer, config.rollout)
    except RagenError as error:
        yield Finding("bad", "chat template", str(error))
        return
    try:
        check_vocabulary(tokenizer, rows or len(tokenizer), control_ids(renderer), "this model")
    except RagenError as error:
        yield Finding("bad", "vocabulary", str(error))
    if renderer.multi_turn:
        yield Finding("ok", "chat template", "proved: history stays a prefix, so a conversation grows by appending")
    else:
        yield Finding(
            "note", "chat template", f"one segment a turn only (set rollout.context single): {renderer.why_single}"
        )
    ends = ", ".join(repr(tokenizer.decode([i])) for i in sorted(renderer.end_ids))
    yield Finding("ok", "a reply ends", f"with {ends}")
    yield Finding("ok", "mask preview", _preview(tokenizer, renderer, thinking=config.rollout.thinking))


def _preview(tokenizer: Any, renderer: Any, *, thinking: bool) -> str:
    """Two scripted turns as they would train: what stands in ⟦ ⟧ carries loss."""
    from ragen.episode import Completion, EndReason, StopReason, Trajectory, Turn
    from ragen.rollout.segments import segments
    from ragen.runs.view import CLOSE, OPEN, spans
    from ragen.text.prompts import reply_text
    from ragen.wording import printable

    reply = renderer.reply_ids(reply_text("The goal is above.", ["Up"], thinking=thinking).removeprefix("<think>"))
    zeros = (0.0,) * len(reply)
    completion = Completion(reply, zeros, zeros, "", StopReason.END)
    prompts = [renderer.open("Where to?")]
    prompts.append(renderer.extend(completion, "Reward 0. And now?") if renderer.multi_turn else renderer.open("And now?"))
    turns = tuple(
        Turn(ids, number > 0 and renderer.multi_turn, completion, "", ("Up",), valid=True, reward=0.0)
        for number, ids in enumerate(prompts)
    )
    trajectory = Trajectory("preview", 0, 0, turns, EndReason.BUDGET, success=False)

    def decode(ids: Sequence[int]) -> str:
        return str(tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    found = [span for segment in segments(trajectory) for span in spans(segment, decode)]
    return "".join(f"{OPEN}{printable(s.text)}{CLOSE}" if s.trained else printable(s.text) for s in found)
