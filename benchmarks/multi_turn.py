"""One multi-turn GRPO training step on Sokoban: ours against TRL's GRPOTrainer, same weights, texts, sizes and loss.

    python benchmarks/multi_turn.py [MODEL] [--trl /path/to/python] [--dtype bfloat16] [--groups 8] [--members 16]
        [--turns 5] [--new 60] [--steps 3] [--microbatch_tokens 2048] [--microbatch_rows 4] [--generate_rows 0]

A step plays groups × members episodes of TURNS turns with replies of exactly NEW tokens, scores each by a function of its
replies' text, takes group-relative advantages and makes one optimiser step over all of them: loss on the sampled tokens
only, no KL term, no filter. What the environment says is real (prompts in the thinking format, grids, rewards) but does not
depend on the replies: each turn makes the next move of a solution that is longer than the episode, so both sides read the
same ids and no episode ends early. Our side is the training loop's own code: collector, sampler with its kept cache,
credit, update. TRL plays in a ``rollout_func``: ``generate`` over the whole left-padded histories each turn,
``--generate_rows`` of them at a time (0 = all), under one autocast a rollout, so that weights are cast once; ``env_mask``
takes the environment's tokens out of the loss. A micro-batch has ``--microbatch_rows`` trajectories there (bounded by
memory: no gradient checkpointing) and ``--microbatch_tokens`` tokens here.

Each side runs in a process of its own, in turn; the first step warms up and is not counted. Medians and peak memory are
printed, the gradient norm (a sign of life), how many tokens went through the layers for each token of the trajectories, and
the ratio, which is the figure that travels between machines. TRL wants an environment of its own: ``python -m venv trl &&
trl/bin/pip install torch==2.13.0 trl==1.16.0 transformers==5.24.0``. Without ``--trl`` only our side runs.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

READ_AS = "</think><answer>Up</answer>"  # how the environment takes any reply: as one valid action
EPS = 1e-4  # added to the standard deviation of a group, TRL's value


def score(text):
    """A reward with some spread inside a group: the share of the letter e."""
    return text.count("e") / max(1, len(text))


def report(side, steps):
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"side": side, "steps": steps[1:], "peak_gib": peak}), flush=True)


def world(given, tokenizer):
    """The game: rollout settings, renderer, rules, how to make an environment, and the episodes of a step."""
    from ragen.config.schema import RolloutConfig
    from ragen.envs.sokoban.env import SokobanEnv, SokobanSettings
    from ragen.loops.compose import build_renderer, build_rules
    from ragen.rollout.instances import training_specs

    class Scripted(SokobanEnv):
        """Whatever the action, the player makes the next move of a shortest solution."""

        def step(self, action):
            return super().step((self.plan() or (action,))[0])

    budgets = {"max_turns": given.turns, "max_actions": 2 * given.turns}
    longer = given.turns + 1
    game = SokobanSettings(**budgets, min_moves=longer, max_moves=max(10, longer))
    settings = RolloutConfig(groups=given.groups, members=given.members, max_new_tokens=given.new)
    groups, members = given.groups, given.members

    def make():
        return Scripted(game)

    def episodes(step):
        numbers = range(step * groups, (step + 1) * groups)
        return training_specs(
            "sokoban", make, seed=0, first=step * groups, instances=numbers, members=members, held_out=frozenset()
        )

    return settings, build_renderer(tokenizer, settings), build_rules(settings, 1 << 20), make, episodes


def scripts(given, path):
    """For each group of each step, the ids that its members are told in each turn, as our side appends them."""
    from ragen.episode import Completion, StopReason
    from ragen.models.load import load_tokenizer
    from ragen.rollout.contexts import TokenContext
    from ragen.rollout.runner import EpisodeRunner

    _, renderer, rules, make, episodes = world(given, load_tokenizer(path))
    reply = Completion(renderer.reply_ids("Up")[:1], (0.0,), (0.0,), READ_AS, StopReason.LENGTH)
    found = []
    for step in range(given.steps + 1):
        for spec in episodes(step)[:: given.members]:
            runner, told = EpisodeRunner(spec, make(), TokenContext(renderer, rules.context), rules), []
            while runner.end is None:
                told.append(runner.context.added)
                runner.apply(reply)
            found.append(told)
    return found


def ours(given, path):
    import torch

    from ragen.algos.advantages import grpo
    from ragen.learn.batch import collate
    from ragen.learn.loss_settings import LossSettings
    from ragen.learn.optimizer import Optimizer
    from ragen.learn.policy import Policy
    from ragen.learn.update import update
    from ragen.loops.compose import training_params
    from ragen.models.allocator import trim
    from ragen.models.load import load_model, load_tokenizer
    from ragen.models.native import Decoder
    from ragen.rollout.collect import collect
    from ragen.samplers.hf import HFSampler

    class Sampler(HFSampler):
        """Replies keep their sampled tokens but read as a valid action: by chance hardly any would."""

        def generate(self, requests, params):
            return [replace(reply, text=READ_AS) for reply in super().generate(requests, params)]

    entered, hidden = 0, Decoder.hidden

    def counted(decoder, ids, *rest):
        nonlocal entered
        entered += len(ids)
        return hidden(decoder, ids, *rest)

    def scored(trajectory):
        *turns, last = trajectory.turns
        ids = [i for turn in trajectory.turns for i in turn.completion.token_ids]
        return replace(trajectory, turns=(*turns, replace(last, reward=score(tokenizer.decode(ids)))))

    Decoder.hidden = counted
    dtype = getattr(torch, given.dtype)
    model, tokenizer = load_model(path, device=torch.device("cpu")), load_tokenizer(path)
    settings, renderer, rules, make, episodes = world(given, tokenizer)
    sampler = Sampler(model, tokenizer, end_ids=frozenset(), dtype=dtype)
    policy = Policy(model, dtype=dtype, pad_id=tokenizer.pad_token_id)
    optimizer = Optimizer(policy, learning_rate=1e-6)
    steps = []
    for step in range(given.steps + 1):
        start, entered = time.perf_counter(), 0
        collection = collect(sampler, renderer, make, episodes(step), rules=rules, params=training_params(settings))
        trim()
        rollout, rollout_tokens = time.perf_counter() - start, entered
        groups = [replace(group, trajectories=tuple(map(scored, group.trajectories))) for group in collection.groups]
        batch = collate(groups, tokenizer.pad_token_id)
        stats = update(
            policy,
            optimizer,
            batch,
            grpo(batch.rewards, batch.mask, batch.trajectory, batch.group, eps=EPS),
            loss=LossSettings(),
            trajectories=batch.trajectories,
            microbatch_tokens=given.microbatch_tokens,
            seed=step,
        )
        sampler.load({}, version=step + 1)
        trim()
        steps.append(
            {
                "seconds": time.perf_counter() - start,
                "rollout": rollout,
                "entered": [rollout_tokens, entered - rollout_tokens],
                "tokens": int(batch.lengths.sum()),
                "sampled": int(batch.mask.sum()),
                "norm": stats.grad_norm,
            }
        )
    report("ours", steps)


def trl(given, path):
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer
    from trl.models.utils import unwrap_model_for_generation

    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(path)
    told = json.loads(given.scripts.read_text())
    size = given.groups * given.members
    config = GRPOConfig(
        output_dir=str(given.scripts.parent),
        use_cpu=True,
        bf16=given.dtype == "bfloat16",
        gradient_checkpointing=False,
        per_device_train_batch_size=given.microbatch_rows,
        gradient_accumulation_steps=size // given.microbatch_rows,
        num_generations=given.members,
        generation_batch_size=size,
        max_completion_length=given.new,
        generation_kwargs={"min_new_tokens": given.new},
        temperature=1.0,
        beta=0.0,
        learning_rate=1e-6,
        max_steps=given.steps + 1,
        num_iterations=1,
        save_strategy="no",
        report_to=[],
        logging_steps=1,
        disable_tqdm=True,
        shuffle_dataset=False,
    )
    steps, entered = [], 0

    def count(_, inputs, __):
        nonlocal entered
        entered += inputs[0].numel()

    def rollout(prompts, trainer):
        """Play an episode for each prompt, which is the number of a script."""
        start = time.perf_counter()
        lines = [told[int(prompt)] for prompt in prompts]
        histories, masks, replies = ([[] for _ in prompts] for _ in range(3))
        unwrapped = unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator)
        with unwrapped as network, torch.no_grad(), trainer.accelerator.autocast():
            for turn in range(given.turns):
                for line, history, mask in zip(lines, histories, masks, strict=True):
                    history.extend(line[turn])
                    mask.extend([0] * len(line[turn]))
                for part in slices(len(prompts), given.generate_rows):
                    padded = tokenizer.pad({"input_ids": histories[part]}, padding_side="left", return_tensors="pt")
                    out = network.generate(**padded, generation_config=trainer.generation_config)
                    sampled = out[:, padded["input_ids"].shape[1] :].tolist()
                    for new, history, mask, reply in zip(sampled, histories[part], masks[part], replies[part], strict=True):
                        history.extend(new)
                        mask.extend([1] * len(new))
                        reply.extend(new)
        firsts = [len(line[0]) for line in lines]
        steps[-1] |= {
            "rollout": time.perf_counter() - start,
            "entered": [entered],
            "tokens": sum(map(len, histories)),
            "sampled": sum(map(sum, masks)),
        }
        return {
            "prompt_ids": [line[0] for line in lines],
            "completion_ids": [history[first:] for history, first in zip(histories, firsts, strict=True)],
            "env_mask": [mask[first:] for mask, first in zip(masks, firsts, strict=True)],
            "logprobs": None,  # only a correction for another sampler would read them
            "replies": tokenizer.batch_decode(replies),
        }

    class Clock(TrainerCallback):
        def on_step_begin(self, *_, **__):
            nonlocal entered
            steps.append({})
            self.start, entered = time.perf_counter(), 0

        def on_step_end(self, *_, **__):
            steps[-1]["seconds"] = time.perf_counter() - self.start
            steps[-1]["entered"].append(entered - steps[-1]["entered"][0])

        def on_log(self, *_, logs, **__):
            if "grad_norm" in logs:
                steps[-1]["norm"] = logs["grad_norm"]

    model.get_input_embeddings().register_forward_hook(count)
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=lambda replies, **_: [score(text) for text in replies],
        args=config,
        train_dataset=Dataset.from_dict({"prompt": [str(number) for number in range(len(told))]}),
        callbacks=[Clock()],
        rollout_func=rollout,
    )
    trainer.train()
    report("trl", steps)


def slices(count, size):
    """``count`` rows, ``size`` at a time (0 = all)."""
    size = size or count
    return [slice(start, start + size) for start in range(0, count, size)]


def run(python, given, side, path, file):
    options = [f"--{name}={getattr(given, name)}" for name in SIZES]
    command = [python, __file__, str(path), "--side", side, "--scripts", str(file), *options]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in result.stdout.splitlines() if line.startswith('{"side"')]
    if not lines:
        sys.exit(f"{side} failed:\n{result.stderr[-3000:]}")
    found = json.loads(lines[-1])
    steps = found["steps"]
    wanted = given.groups * given.members * given.turns * given.new
    if any(step["sampled"] != wanted for step in steps):
        sys.exit(f"{side} sampled {[step['sampled'] for step in steps]} tokens in its steps, not {wanted}")
    seconds, rollout, norm, tokens = (
        statistics.median(step[name] for step in steps) for name in ("seconds", "rollout", "norm", "tokens")
    )
    played, learned = (statistics.median(step["entered"][part] / step["tokens"] for step in steps) for part in (0, 1))
    print(
        f"{side:5s} step {seconds:6.1f} s, rollout {rollout:.1f} s, of {len(steps)}; peak {found['peak_gib']:.2f} GiB; "
        f"gradient norm {norm:.2f}; {tokens / given.groups / given.members:.0f} tokens a trajectory, "
        f"through the layers for each: {played:.2f} in the rollout, {learned:.2f} in the update",
        flush=True,
    )
    return seconds, rollout


DEFAULTS = {
    "groups": 8,
    "members": 16,
    "turns": 5,
    "new": 60,
    "steps": 3,
    "dtype": "bfloat16",
    "microbatch_tokens": 2048,
    "microbatch_rows": 4,
    "generate_rows": 0,
}
SIZES = tuple(DEFAULTS)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2-135m")
    parser.add_argument("--trl", metavar="PYTHON", help="an interpreter that has TRL")
    parser.add_argument("--side", choices=["ours", "trl"], help=argparse.SUPPRESS)
    parser.add_argument("--scripts", type=Path, help=argparse.SUPPRESS)
    for name, value in DEFAULTS.items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    given = parser.parse_args()
    if given.trl and given.groups * given.members % given.microbatch_rows:
        parser.error("--microbatch_rows must divide groups × members")
    if given.side:
        {"ours": ours, "trl": trl}[given.side](given, Path(given.model))
        return
    from ragen.models.resolve import resolve_model

    path = resolve_model(given.model)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scripts.json"
        file.write_text(json.dumps(scripts(given, path)))
        mine = run(sys.executable, given, "ours", path, file)
        if given.trl:
            theirs = run(given.trl, given, "trl", path, file)
            print(f"ratio {theirs[0] / mine[0]:.1f}, of rollouts {theirs[1] / mine[1]:.1f}", flush=True)


if __name__ == "__main__":
    main()
