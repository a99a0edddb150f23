"""Every setting of a run, with the paper's values as defaults (arXiv 2504.20073; ``docs/settings.md`` maps the symbols)."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from ragen.config.bounds import COEF, COLDEST, COUNT, HOTTEST, NO_CLIP, PASSES, RANK, SEED, SIDE, STEPS, TOKENS
from ragen.config.collection import CurriculumConfig, ReplayConfig
from ragen.config.contradictions import contradictions
from ragen.config.settings import Settings
from ragen.episode import LARGEST_REWARD
from ragen.modules import whole_path

CLIP_BOUNDS = {"gspo": (3e-4, 4e-4), "gmpo": (0.4, 0.4)}  # clip_low, clip_high of their sources; other losses have PPO's
MADE_DATA = ("none", "format", "oracle")  # values of warmup.data that name no file
PLAYED_BY = {"optimal": "oracle", "random": "format"}  # the reference players that make them


class LoraConfig(Settings):
    """Low-rank adapters (peft) instead of full fine-tuning; rank 0 trains all weights."""

    rank: int = Field(0, ge=0, le=RANK, description="rank r of the adapters; 0 = full fine-tuning (paper: 64)")
    alpha: int = Field(64, ge=1, le=COUNT, description="scale α of the adapters")
    targets: str = Field("all-linear", description="peft target_modules: 'all-linear' or names separated by commas")


class ModelConfig(Settings):
    """The policy and where it runs."""

    name: str = Field(
        "smollm2-135m", min_length=1, description="'smollm2-135m', 'tiny', or any Hugging Face causal LM (directory or name)"
    )
    device: str = Field("auto", description="'auto', 'cpu', 'cuda', 'cuda:1', 'mps'")
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="compute type (autocast); weights stay float32"
    )
    lora: LoraConfig = LoraConfig()
    trust_remote_code: bool = Field(False, description="run code that comes with the model")

    @field_validator("device")
    @classmethod
    def _possible(cls, name: str) -> str:
        """Whether the machine has the device is known once torch is loaded; whether there can be one, at once."""
        if not re.fullmatch(r"auto|(?:cpu|cuda|mps)(?::\d+)?", name):
            raise ValueError("it names no device: use one of these")
        return name


class RolloutConfig(Settings):
    """How a batch of episodes is collected."""

    groups: int = Field(8, ge=1, le=SIDE, description="P: initial states a step")
    members: int = Field(16, ge=1, le=SIDE, description="G (paper: N): episodes a group")
    resample: int = Field(
        0, ge=0, le=100, description="batches more a step at most, until `groups` groups are not flat (DAPO); 0 = off"
    )
    instances: int = Field(0, ge=0, le=COUNT, description="training instances in all, taken in turn; 0 = always new ones")
    explore: float = Field(
        1.0, gt=0, le=1, description="chance to play an instance for each flat group of it in a row (GRESO's p_e); 1 = off"
    )
    explore_min: float = Field(0.05, gt=0, le=1, description="that chance at least, however long an instance was flat")
    max_new_tokens: int = Field(256, ge=1, le=TOKENS, description="sampled tokens a turn at most")
    max_trajectory_tokens: int | None = Field(
        None, ge=1, le=TOKENS, description="sampled tokens a trajectory; null = no limit"
    )
    max_context: int | None = Field(
        None, ge=8, le=TOKENS, description="tokens a segment at most; null = the model's context"
    )
    temperature: float = Field(1.0, ge=COLDEST, le=HOTTEST, description="sampling temperature of training")
    top_p: float = Field(1.0, gt=0, le=1, description="nucleus sampling; 1 = off")
    top_k: int = Field(0, ge=0, le=COUNT, description="top-k sampling; 0 = off")
    min_p: float = Field(0.0, ge=0, lt=1, description="min-p sampling; 0 = off")
    stop_strings: tuple[str, ...] = Field((), description="texts that end a reply (besides the end-of-turn token)")
    context: Literal["full", "window", "single"] = Field(
        "full", description="what a turn sees: the whole history, the last `window` turns, or only the current state"
    )
    window: int = Field(3, ge=1, le=COUNT, description="turns of history kept when context is 'window'")
    thinking: bool = Field(True, description="ask for <think>…</think> before <answer>…</answer>")
    force_think: bool = Field(True, description="begin each reply with a given `<think>` (no loss on it)")
    format_penalty: float = Field(-0.1, ge=-LARGEST_REWARD, le=0, description="added once to a turn without a valid answer")

    env_workers: int = Field(
        0, ge=0, le=256, description="workers in which environments act, side by side; 0 = in turn, without a time limit"
    )
    env_mode: Literal["process", "thread"] = Field(
        "process", description="what a worker is: a process can be ended, a thread takes environments of any origin"
    )
    env_timeout_s: float = Field(
        60.0,
        gt=0,
        le=86_400,
        description="seconds a call of an environment in a worker may take; then its episode is lost (only with "
        "env_workers; reference players, demonstrations and checks are in no worker)",
    )

    @field_validator("stop_strings")
    @classmethod
    def _not_empty(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        if "" in texts:
            raise ValueError("an empty text would end every reply at once: leave it out")
        return texts


class RewardConfig(Settings):
    """Rewards beside the task's, in training only; evaluation has none of them."""

    process: str = Field(
        "none", min_length=1, description="process reward on the reasoning: none, plan_agreement, state_match"
    )
    coef: float = Field(
        0.1, ge=0, le=COEF, description="process reward of a turn = coef · score; 0 = the score is only logged"
    )
    overlong_buffer: int = Field(
        0, ge=0, le=TOKENS, description="the overlong penalty begins so many tokens before rollout.max_new_tokens; 0 = off"
    )
    overlong_coef: float = Field(0.1, ge=0, le=COEF, description="overlong penalty of a turn at the limit, in size")


class FilterConfig(Settings):
    """Which groups train (the uncertainty filter of StarPO-S)."""

    strategy: Literal["none", "top_fraction", "top_p", "top_k", "min_p", "soft"] = Field(
        "none", description="which groups train: see docs/settings.md"
    )
    metric: Literal["std", "entropy", "entropy_std", "length", "length_std"] = Field(
        "std", description="what groups are ranked by: spread of returns; mean or spread of members' entropy or length"
    )
    value: float = Field(
        0.25, gt=0, le=COEF, description="fraction kept (top_fraction), mass (top_p), number (top_k), share of max (min_p)"
    )
    returns: Literal["total", "task"] = Field(
        "total", description="rank by the total return, or by the environment's rewards alone (task)"
    )
    max_flat_steps: int = Field(5, ge=1, le=STEPS, description="stop after so many steps in a row with flat groups only")


class AdvantageConfig(Settings):
    """Credit assignment. The rules that use a setting stand in brackets; another rule refuses a changed one."""

    name: str = Field("grpo", description="advantage rule: see docs/rules/; none = for losses without advantages")
    gamma: float = Field(1.0, ge=0, le=1, description="γ a sampled token (bi_level_gae, gae, reinforce_pp, vapo)")
    lam: float = Field(1.0, ge=0, le=1, description="λ a sampled token (bi_level_gae, gae)")
    gamma_turn: float = Field(1.0, ge=0, le=1, description="γ a turn (bi_level_gae, gigpo)")
    lam_turn: float = Field(1.0, ge=0, le=1, description="λ a turn (bi_level_gae)")
    length_alpha: float = Field(0.05, gt=0, le=COEF, description="α: λ = 1 − 1/(α · sampled tokens of the episode) (vapo)")
    normalize_std: bool = Field(True, description="divide by a standard deviation (gigpo, grpo, pass_at_k, turn_grpo)")
    eps: float = Field(
        1e-6, ge=0, le=COEF, description="added to that standard deviation (gigpo, grpo, pass_at_k, turn_grpo)"
    )
    turn_coef: float = Field(1.0, ge=0, le=COEF, description="ω: weight of the turns' own advantage (gigpo, turn_grpo)")
    k: int = Field(4, ge=1, le=SIDE, description="the best of how many members counts (pass_at_k)")
    baseline_decay: float = Field(
        0.9, ge=0, le=1, description="weight of earlier steps in the mean return, a step; 1 = all alike (reinforce)"
    )
    whiten: bool = Field(False, description="standardise advantages over the batch (bi_level_gae, gae, vapo)")
    bootstrap_truncated: bool = Field(
        False, description="use the last value where an episode was truncated, not ended (bi_level_gae, gae, vapo)"
    )


def _other_bounds(which: int) -> str:
    begins = ", ".join(f"{name} {bounds[which]:g}" for name, bounds in CLIP_BOUNDS.items())
    return f"default of other losses: {begins} (of log ρ)"


class LossConfig(Settings):
    """The objective of the update."""

    name: str = Field(
        "ppo_clip",
        description="policy loss: ppo_clip, pg, cispo, gspo, gmpo; without advantages: dpo, step_dpo, kto, sft",
    )
    clip_low: float = Field(0.2, gt=0, lt=1, description=f"ε_low; {_other_bounds(0)}")
    clip_high: float = Field(0.2, gt=0, le=COEF, description=f"ε_high; {_other_bounds(1)}")
    dual_clip: float | None = Field(None, gt=1, le=COEF, description="ppo_clip: largest ρ that counts if A < 0; null = off")
    ratio_unit: Literal["trajectory", "turn"] = Field("trajectory", description="gspo, gmpo: what has one ratio")
    tis_cap: float | None = Field(
        None,
        gt=0,
        le=COEF,
        description="truncated importance sampling: weigh tokens by min(π_old / π_sampler, this); null = off",
    )
    beta: float = Field(0.1, gt=0, le=COEF, description="dpo, step_dpo, kto: β, the pull to the reference")
    pairing: Literal["best-worst", "all"] = Field(
        "best-worst", description="dpo, step_dpo: one pair a group (a shared history), or every two of unequal return"
    )
    pair_margin: float = Field(
        0.0, ge=0, le=LARGEST_REWARD, description="dpo, step_dpo: a pair's returns differ by more than this"
    )
    return_threshold: float | None = Field(
        None,
        ge=-LARGEST_REWARD,
        le=LARGEST_REWARD,
        description="kto, sft: good trajectories have a return above this; null = above the group's mean",
    )
    good_weight: float = Field(1.0, ge=0, le=COEF, description="kto: weight of good trajectories")
    bad_weight: float = Field(1.0, ge=0, le=COEF, description="kto: weight of bad trajectories")
    sft_coef: float = Field(
        0.0, ge=0, le=1, description="μ: share of the loss on demonstrations of best play, mixed into RL (CHORD); 0 = none"
    )
    sft_coef_end: float = Field(0.0, ge=0, le=1, description="μ after sft_decay_steps")
    sft_decay_steps: int = Field(0, ge=0, le=STEPS, description="training steps until μ is there; 0 = it stays at sft_coef")
    sft_weighting: Literal["uniform", "phi"] = Field("uniform", description="demonstrated tokens count alike or by p(1 − p)")
    sft_demonstrations: int = Field(32, ge=1, le=COUNT, description="demonstration episodes a training step")
    aggregation: Literal["token-mean", "trajectory-mean", "trajectory-sum"] = Field(
        "trajectory-mean",
        description="mean over tokens; mean over trajectories of token means; or of token sums / length_constant "
        "(dpo, step_dpo, kto: of entropy bonus and KL term only)",
    )
    length_constant: float = Field(256.0, ge=1, le=TOKENS, description="divisor of 'trajectory-sum'")
    entropy_coef: float = Field(0.001, ge=0, le=COEF, description="weight of the entropy bonus")
    kl_coef: float = Field(0.0, ge=0, le=COEF, description="weight of the KL term to the reference; 0 loads no reference")
    kl_estimator: Literal["k1", "k2", "k3"] = Field("k3", description="k2, k3 as loss; k1, k2, k3 as reward")
    kl_in: Literal["loss", "reward"] = Field("loss", description="where the KL term goes")
    value_coef: float = Field(0.5, ge=0, le=COEF, description="weight of the value loss (value head)")
    value_clip: float | None = Field(0.2, gt=0, le=COEF, description="clip range of value predictions; null = off")

    @model_validator(mode="before")
    @classmethod
    def _own_bounds(cls, values: Any) -> Any:
        own = CLIP_BOUNDS.get(str(values.get("name"))) if isinstance(values, Mapping) else None
        return values if own is None else {"clip_low": own[0], "clip_high": own[1], **values}


class OptimConfig(Settings):
    """Optimiser, mini-batches and critic."""

    learning_rate: float = Field(1e-6, gt=0, le=COEF, description="actor learning rate")
    critic_learning_rate: float = Field(1e-5, gt=0, le=COEF, description="critic learning rate")
    betas: tuple[float, float] = Field((0.9, 0.999), description="Adam β₁, β₂")
    weight_decay: float = Field(0.0, ge=0, le=COEF, description="decoupled weight decay")
    warmup_steps: int = Field(
        0, ge=0, le=STEPS, description="steps of linear learning-rate warm-up (the first step is never 0)"
    )
    grad_clip: float = Field(1.0, gt=0, le=NO_CLIP, description="largest gradient norm")
    trajectories: int = Field(32, ge=1, le=COUNT, description="E: trajectories an optimiser step")
    online_k: int = Field(1, ge=1, le=PASSES, description="k: passes over one collected batch")
    microbatch_tokens: int = Field(
        1024, ge=1, le=TOKENS, description="most tokens in a forward pass, unless rows are longer (memory, not results)"
    )
    critic: Literal["head", "separate"] = Field("head", description="value head on the policy, or a model of its own")
    critic_warmup_steps: int = Field(0, ge=0, le=STEPS, description="first training steps in which only the critic learns")

    @field_validator("betas")
    @classmethod
    def _decay_rates(cls, betas: tuple[float, float]) -> tuple[float, float]:
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError("each of the two must be at least 0 and less than 1")
        return betas


class WarmupConfig(Settings):
    """Supervised fine-tuning before RL, on demonstrations made by the environment or on conversations of a file."""

    data: str = Field(
        "none",
        description="'none', 'format' (random valid actions), 'oracle' (best play), or a file of conversations: .jsonl, "
        ".parquet (docs/exports.md)",
    )
    demonstrations: int = Field(
        320, ge=1, le=COUNT, description="demonstration episodes (format, oracle); of a file all are taken"
    )
    epochs: int = Field(1, ge=1, le=PASSES, description="passes over them")
    batch: int = Field(32, ge=1, le=COUNT, description="episodes an optimiser step")
    learning_rate: float = Field(5e-5, gt=0, le=COEF, description="learning rate")

    @field_validator("data")
    @classmethod
    def _made_or_file(cls, data: str) -> str:
        if data in MADE_DATA:
            return data
        if data.endswith((".jsonl", ".parquet")):
            return whole_path(data)  # a run finds it again from other directories
        close = PLAYED_BY.get(data) or next(iter(get_close_matches(data, MADE_DATA, n=1)), "")
        hint = f"; did you mean '{close}'?" if close else ""
        raise ValueError(f"it must be {', '.join(MADE_DATA)}, or a file that ends in .jsonl or .parquet{hint}")


class EvalConfig(Settings):
    """Evaluation on fixed seeded instances."""

    every: int = Field(
        0, ge=0, le=STEPS, description="evaluate each so many steps; 0 = only before and after, when episodes > 0"
    )
    episodes: int = Field(256, ge=0, le=COUNT, description="fixed instances; 0 = no evaluation")
    samples: int = Field(1, ge=1, le=SIDE, description="k: episodes an instance (pass@k when k > 1)")
    temperature: float = Field(0.5, ge=0, le=HOTTEST, description="sampling temperature of evaluation; 0 = greedy")
    batch: int = Field(128, ge=1, le=COUNT, description="episodes played side by side")
    seed: int = Field(1000, ge=0, le=SEED, description="seed of the evaluation instances (independent of the run's seed)")
    also: tuple[str, ...] = Field((), description="further environment presets to evaluate on, held out of training as well")

    @field_validator("temperature")
    @classmethod
    def _greedy_or_warm(cls, temperature: float) -> float:
        if 0 < temperature < COLDEST:
            raise ValueError(f"it must be 0 (greedy) or at least {COLDEST}")
        return temperature


class DiagnosticsConfig(Settings):
    """Costly diagnostics of the policy, before the update of a step; they change nothing that is trained."""

    every: int = Field(0, ge=0, le=STEPS, description="steps between them; 0 = none")
    prompts: int = Field(8, ge=2, le=SIDE, description="first prompts, of one group each, under which reasonings are scored")
    replies: int = Field(2, ge=1, le=SIDE, description="reasonings a prompt: prompts² · replies are scored")


class EchoTrapConfig(Settings):
    """The Echo-Trap detector and what follows a warning (``docs/collapse.md``)."""

    action: Literal["off", "warn", "stop", "rollback"] = Field(
        "warn", description="at a warning: only say so, end the run, or return to an earlier checkpoint; off = do not look"
    )
    window: int = Field(5, ge=3, le=COUNT, description="steps a level is a mean of")
    drop: float = Field(0.5, gt=0, lt=1, description="share of its healthy level below which a metric has fallen")
    spike: float = Field(5.0, gt=1, le=COEF, description="multiple of the median gradient norm that is a spike")
    solved: float = Field(0.9, gt=0, le=1, description="success rate from which on falling levels are no warning")
    max_rollbacks: int = Field(2, ge=1, le=COUNT, description="rollbacks at most; the next warning stops the run")
    learning_rate_factor: float = Field(0.5, gt=0, le=1, description="rollback: multiplies both learning rates, each time")
    filter_value: float | None = Field(None, gt=0, le=COEF, description="rollback: filter.value after it; null = as it is")


class RunConfig(Settings):
    """The run directory and what is kept in it."""

    root: str = Field("runs", description="where run directories are made")
    name: str = Field("", description="name of the run directory; empty = preset, seed and time")
    checkpoint_every: int = Field(10, ge=0, le=STEPS, description="steps between checkpoints; 0 = only at the end")
    keep: int = Field(2, ge=1, le=COUNT, description="checkpoints kept; with rollbacks, of the scheduled ones")
    trajectories_every: int = Field(1, ge=0, le=STEPS, description="steps between stored trajectories; 0 = none")
    threads: int = Field(
        0, ge=0, le=1024, description="CPU threads (results depend on it in the last bits); 0 = torch's own choice"
    )
    trackers: tuple[str, ...] = Field(
        (), description="where metrics go beside metrics.jsonl: tensorboard, wandb, mlflow, trackio (docs/trackers.md)"
    )

    @field_validator("trackers", mode="before")
    @classmethod
    def _one_or_several(cls, trackers: Any) -> Any:
        return (trackers,) if isinstance(trackers, str) else trackers

    @field_validator("trackers")
    @classmethod
    def _each_once(cls, trackers: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(trackers)) < len(trackers):
            raise ValueError("each may be named once")
        return trackers


class Config(Settings):
    """All settings of a run."""

    seed: int = Field(0, ge=0, le=SEED, description="run seed: every draw derives from it")
    steps: int = Field(200, ge=0, le=STEPS, description="training iterations")
    env: dict[str, Any] = Field(
        {"name": "bandit"}, description="environment preset (`name`) and its own settings: `ragen envs`"
    )
    plugins: tuple[str, ...] = Field(
        (), description="Python files (FILE.py) or modules to load first: they register rules, losses … of one's own"
    )
    model: ModelConfig = ModelConfig()
    warmup: WarmupConfig = WarmupConfig()
    rollout: RolloutConfig = RolloutConfig()
    reward: RewardConfig = RewardConfig()
    curriculum: CurriculumConfig = CurriculumConfig()
    filter: FilterConfig = FilterConfig()
    replay: ReplayConfig = ReplayConfig()
    advantage: AdvantageConfig = AdvantageConfig()
    loss: LossConfig = LossConfig()
    optim: OptimConfig = OptimConfig()
    eval: EvalConfig = EvalConfig()
    diagnostics: DiagnosticsConfig = DiagnosticsConfig()
    echo_trap: EchoTrapConfig = EchoTrapConfig()
    run: RunConfig = RunConfig()

    @field_validator("plugins", mode="before")
    @classmethod
    def _one_or_several(cls, plugins: Any) -> Any:
        return (plugins,) if isinstance(plugins, str) else plugins

    @field_validator("plugins")
    @classmethod
    def _whole_paths(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        """Files by their whole path, so that a run finds them again from other directories."""
        return tuple(whole_path(name) if name.endswith(".py") else name for name in names)

    @model_validator(mode="after")
    def _consistent(self) -> "Config":
        problems = list(contradictions(self))
        if problems:
            raise ValueError("\n".join(problems))
        total = self.rollout.groups * self.rollout.members
        if self.optim.trajectories > total and self.rollout.members > 1:
            return self.model_copy(update={"optim": self.optim.model_copy(update={"trajectories": total})})
        return self
