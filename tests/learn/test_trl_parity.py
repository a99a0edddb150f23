"""Losses and gradients against TRL's own trainer on frozen batches. Needs the extra `parity`; part of `make test-full`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ragen.algos.credit import Credit
from ragen.algos.losses import losses
from ragen.learn.batch import Batch, collate
from ragen.learn.loss_settings import LossSettings
from ragen.learn.minibatches import minibatches
from ragen.learn.policy import Policy
from ragen.learn.preferences import lesson
from ragen.learn.terms import accumulate, make_tables

trl = pytest.importorskip("trl", reason="TRL is not installed: pip install -c constraints.txt -e '.[dev,parity]'")
pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("default")]

LONGEST = 40
BOUNDS = {"clip_low": 0.2, "clip_high": 0.28}
CASES: dict[str, tuple[dict[str, Any], LossSettings]] = {
    "GRPO": ({"loss_type": "grpo"}, LossSettings(own=BOUNDS)),
    "GRPO with KL": (
        {"loss_type": "grpo", "beta": 0.1, "use_bias_correction_kl": False},  # ours is not weighted by ρ
        LossSettings(own=BOUNDS, kl_coef=0.1, kl_estimator="k3"),
    ),
    "Dr. GRPO": ({"loss_type": "dr_grpo"}, LossSettings(own=BOUNDS, aggregation="trajectory-sum", length_constant=LONGEST)),
    "DAPO": ({"loss_type": "dapo"}, LossSettings(own=BOUNDS, aggregation="token-mean")),
    "dual clip": (
        {"loss_type": "dapo", "delta": 1.5},
        LossSettings(own=BOUNDS | {"dual_clip": 1.5}, aggregation="token-mean"),
    ),
    "GSPO": (
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.05, "epsilon_high": 0.06},
        LossSettings(name="gspo", own={"clip_low": 0.05, "clip_high": 0.06}),
    ),
    "CISPO": (
        {"loss_type": "cispo", "epsilon_high": 1.28},  # TRL's bound is of the ratio itself
        LossSettings(name="cispo", own={"clip_high": 0.28}, aggregation="token-mean"),
    ),
}


@pytest.fixture(scope="module")
def frozen(make_model: Callable[..., Any], make_groups: Callable[..., Any]) -> tuple[Batch, Tensor, Tensor, Tensor]:
    """A multi-turn batch, an advantage for each trajectory, and log-probabilities of an old and of a reference policy."""
    batch = collate(make_groups(groups=3, members=4, turns=3), pad_id=0)
    advantages = torch.randn(batch.trajectories, generator=torch.Generator().manual_seed(4))
    near = make_model()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in near.parameters():
            parameter.add_(0.01 * torch.randn(parameter.shape, generator=generator))
    old = Policy(near, dtype=torch.float32, pad_id=0).logprobs(batch, 1000)
    reference = Policy(make_model(seed=3), dtype=torch.float32, pad_id=0).logprobs(batch, 1000)
    return batch, advantages, old, reference


def of_trl(
    options: dict[str, Any], frozen: tuple[Batch, Tensor, Tensor, Tensor], model: Any, tokenizer: Any, folder: Path
) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients of `GRPOTrainer._compute_loss`; observations are masked as it masks tool results."""
    from datasets import Dataset

    batch, advantages, old, reference = frozen
    settings = {"epsilon": 0.2, "epsilon_high": 0.28, "max_completion_length": LONGEST} | options
    beta = settings.pop("beta", 0.0)  # given to the trainer it would load a reference model by its name on the Hub
    trainer = trl.GRPOTrainer(
        model=model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=trl.GRPOConfig(
            output_dir=str(folder),
            report_to=[],
            use_cpu=True,
            bf16=False,
            activation_checkpointing=False,
            per_device_train_batch_size=4,
            num_generations=4,
            **settings,
        ),
        train_dataset=Dataset.from_list([{"prompt": "a"}] * 4),
        processing_class=tokenizer,
    )
    trainer.beta, trainer.current_gradient_accumulation_steps = beta, 1
    start = int(batch.mask.int().argmax(1).min())
    assert batch.mask[:, start].all()  # all prompts have one length
    real = torch.arange(batch.ids.shape[1]) < batch.lengths[:, None]
    inputs = {
        "prompt_ids": batch.ids[:, :start],
        "prompt_mask": real[:, :start].long(),
        "completion_ids": batch.ids[:, start:],
        "completion_mask": real[:, start:].long(),
        "tool_mask": batch.mask[:, start:].long(),
        "advantages": advantages,
        "old_per_token_logps": old[:, start:],
        "ref_per_token_logps": reference[:, start:],
        "num_items_in_batch": batch.mask.sum(),
    }
    trainer.model.train()
    loss = trainer._compute_loss(trainer.model, inputs)
    loss.backward()
    return loss.item(), {name: p.grad for name, p in trainer.model.named_parameters() if p.grad is not None}


def of_ours(
    settings: LossSettings, frozen: tuple[Batch, Tensor, Tensor, Tensor], model: Any
) -> tuple[float, dict[str, Tensor], dict[str, float]]:
    batch, advantages, old, reference = frozen
    policy = Policy(model, dtype=torch.float32, pad_id=0)
    credit = Credit(torch.where(batch.mask, advantages[batch.trajectory][:, None], 0))
    learned = lesson(batch, losses.get(settings.name), settings.preferences, ratio_unit=settings.ratio_unit)
    tables = make_tables(policy, batch, credit, settings, reference, learned)
    tables.old_logprobs.copy_(old)
    (mini,) = minibatches(policy, batch, learned, settings, 100, 60, 0)
    found = accumulate(policy, mini, tables, settings, untouched=False).metrics()
    return found["loss"], {n.removeprefix("model."): p.grad for n, p in policy.actor_parameters().items()}, found


@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradient_are_trls(
    case: str, frozen: Any, make_model: Callable[..., Any], chatml_tokenizer: Any, tmp_path: Path
) -> None:
    options, settings = CASES[case]
    loss, gradients, means = of_ours(settings, frozen, make_model())
    wanted, expected = of_trl(options, frozen, make_model(), chatml_tokenizer, tmp_path)
    assert means["clip_high"] > 0.02  # the bounds matter on this batch
    assert loss == pytest.approx(wanted, rel=1e-5, abs=1e-6)
    assert len(expected) > 5
    for name, gradient in expected.items():
        scale = float(gradient.abs().max())
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-5, atol=1e-5 * max(scale, 1e-2))
