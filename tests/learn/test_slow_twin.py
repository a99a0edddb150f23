"""The whole update against a slow twin: the Hugging Face module's own forward pass, row by row, and torch's own Adam."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ragen.algos.credit import Credit
from ragen.learn.batch import Batch, collate
from ragen.learn.lora import Lora
from ragen.learn.loss_settings import LossSettings
from ragen.learn.minibatches import minibatches
from ragen.learn.optimizer import Optimizer
from ragen.learn.policy import Policy
from ragen.learn.preferences import Lesson
from ragen.learn.reference import Reference
from ragen.learn.update import update
from ragen.seeding import derive

RATE, CRITIC_RATE, SIZE, PASSES, SEED = 1e-2, 3e-2, 2, 2, 5
LOSS = LossSettings(entropy_coef=0.05, kl_coef=0.1)


class Twin:
    """A policy whose outputs are computed the plain way: element t describes token t."""

    def __init__(self, policy: Policy, batch: Batch) -> None:
        self.policy, self.batch = policy, batch

    def scores(self, r: int) -> tuple[Tensor, Tensor]:
        """Log-probabilities and entropies (n,) of row r."""
        ids = self.batch.ids[r, : self.batch.lengths[r]]
        table = torch.log_softmax(self.policy.model(ids[None]).logits[0] / self.policy.network.temperature, -1)[:-1]
        found = table.gather(1, ids[1:, None])[:, 0], -(table.exp() * table).sum(-1)
        return tuple(torch.nn.functional.pad(each, (1, 0)) for each in found)  # type: ignore[return-value]

    def values(self, r: int, *, critic_only: bool) -> Tensor:
        """The critic's values (n,) of row r."""
        apart = self.policy.critic
        ids = self.batch.ids[r, : self.batch.lengths[r]]
        hidden = (self.policy.model if apart is None else apart.model).base_model(ids[None]).last_hidden_state[0]
        hidden = hidden.detach() if critic_only and apart is None else hidden
        return torch.nn.functional.pad(self.policy.value_head(hidden)[:-1, 0], (1, 0))

    def loss(
        self, rows: list[int], old: list[Any], credit: Credit, reference: Tensor, recorded: Tensor, share: Tensor
    ) -> Any:
        """Clipped policy loss, entropy and k3 by trajectory means; clipped value loss by token mean."""
        batch, total = self.batch, torch.zeros(())
        owners = {int(batch.trajectory[r]) for r in rows}
        counts = {t: int(batch.mask[batch.trajectory == t].sum()) for t in owners}
        for r in rows:
            n, t = int(batch.lengths[r]), int(batch.trajectory[r])
            on, advantage = batch.mask[r, :n], credit.advantages[r, :n]
            logprobs, entropies = self.scores(r)
            ratio = (logprobs - (batch.behaviour_logprobs[r, :n] if recorded[r] else old[r][0])).exp()
            k1 = logprobs - reference[r, :n]
            each = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
            each = each - LOSS.entropy_coef * entropies + LOSS.kl_coef * ((-k1).exp() - 1 + k1)
            total = total + share[t] * each[on].sum() / (len(owners) * counts[t])
            if self.policy.kind != "none":
                total = total + self._value_loss(r, old[r][1], credit)[on].sum() / sum(counts.values())
        return total

    def value_loss(self, rows: list[int], old: list[Any], credit: Credit) -> Any:
        """The value loss alone, which passes no gradient to the policy."""
        tokens = sum(int(self.batch.mask[r].sum()) for r in rows)
        found = [self._value_loss(r, old[r][1], credit, critic_only=True) for r in rows]
        return sum(each[self.batch.mask[r, : len(each)]].sum() / tokens for r, each in zip(rows, found, strict=True))

    def _value_loss(self, r: int, old: Tensor, credit: Credit, *, critic_only: bool = False) -> Tensor:
        assert credit.value_targets is not None
        value, target = self.values(r, critic_only=critic_only), credit.value_targets[r, : self.batch.lengths[r]]
        near = old + (value - old).clamp(-0.2, 0.2)
        scale = 1.0 if self.policy.kind == "separate" else LOSS.value_coef
        return scale * 0.5 * torch.maximum((value - target).square(), (near - target).square())


def slow_update(
    twin: Twin, credit: Credit, reference: Tensor, recorded: Tensor, share: Tensor, *, critic_only: bool
) -> None:
    policy, batch = twin.policy, twin.batch
    actor, critic = policy.actor_parameters(), policy.critic_parameters()
    parts = [{"params": list(part.values()), "lr": rate} for part, rate in ((actor, RATE), (critic, CRITIC_RATE)) if part]
    adam = torch.optim.AdamW(parts, weight_decay=0.0, foreach=False)
    with torch.no_grad():
        every = range(len(batch.lengths))
        old = [(twin.scores(r)[0], twin.values(r, critic_only=True) if critic else None) for r in every]
    for number in range(PASSES):
        lesson = Lesson(batch.mask, {}, {})
        for mini in minibatches(policy, batch, lesson, LOSS, SIZE, 1, derive(SEED, "train", "order", number)):
            rows = sorted({int(r) for micro in mini.micros for r in micro.rows})
            adam.zero_grad()
            loss = (
                twin.value_loss(rows, old, credit)
                if critic_only
                else twin.loss(rows, old, credit, reference, recorded, share)
            )
            loss.backward()
            for apart in (False, True):
                named = {**actor, **critic}.items()
                torch.nn.utils.clip_grad_norm_([p for name, p in named if name.startswith("critic.") is apart], 1.0)
            adam.step()


def _policy(make_model: Any, name: str, critic: str, lora: bool) -> Policy:
    other = make_model(critic, seed=1) if critic in ("llama", "gpt2") else None
    policy = Policy(
        make_model(name),
        dtype=torch.float32,
        pad_id=0,
        critic=critic if other is None else "separate",  # type: ignore[arg-type]
        critic_model=other,
        temperature=0.8,
        lora=Lora(4, 8, seed=1) if lora else None,
    )
    with torch.no_grad():
        for key, value in policy.actor_parameters().items():
            if "lora_B" in key:  # 0 at first: then its partner would have no gradient
                value.add_(torch.linspace(-0.1, 0.1, value.numel()).view_as(value))
    return policy


@pytest.mark.parametrize(
    ("name", "critic", "lora", "new_rows", "critic_only"),
    [
        ("llama", "none", False, True, False),
        ("llama", "head", False, False, False),
        ("llama", "head", False, False, True),
        ("llama", "llama", False, True, False),
        ("llama", "llama", True, False, False),
        ("llama", "gpt2", True, True, True),
        ("gpt2", "head", False, True, False),
        ("gpt2", "llama", False, False, False),
    ],
)
def test_the_update_equals_its_slow_twin(
    name: str, critic: str, lora: bool, new_rows: bool, critic_only: bool, make_model: Any, make_groups: Any
) -> None:
    """Both forward passes, adapters, critics, several segments, replayed rows, weights, reference, two passes of 3 steps."""
    batch = collate(make_groups(new_rows=new_rows), pad_id=0)
    rng = np.random.default_rng(0)
    noise = [torch.where(batch.mask, torch.from_numpy(rng.normal(size=batch.ids.shape)).float(), 0) for _ in range(2)]
    credit = Credit(noise[0], None if critic == "none" else noise[1])
    share, recorded = torch.from_numpy(rng.random(batch.trajectories)).float(), batch.group == 1
    first, plain = (_policy(make_model, name, critic, lora) for _ in range(2))
    assert first.network.native is (name == "llama" and not lora)
    twin, remembered = Twin(plain, batch), Reference(first)
    with torch.no_grad():
        rows = [torch.nn.functional.pad(twin.scores(r)[0], (0, batch.ids.shape[1] - n)) for r, n in enumerate(batch.lengths)]
    expected = torch.where(batch.mask, torch.stack(rows), 0)
    with torch.no_grad():
        for policy in (first, plain):  # the policy moves on, the reference does not
            for value in policy.actor_parameters().values():
                value.mul_(1.05)
    reference = remembered.logprobs(batch, 60)
    torch.testing.assert_close(reference, expected, rtol=0, atol=1e-4)
    update(
        first,
        Optimizer(first, learning_rate=RATE, critic_learning_rate=CRITIC_RATE),
        batch,
        credit,
        loss=LOSS,
        trajectories=SIZE,
        microbatch_tokens=60,
        seed=SEED,
        online_k=PASSES,
        trajectory_weights=share,
        reference=reference,
        recorded=recorded,
        critic_only=critic_only,
    )
    slow_update(twin, credit, reference, recorded, share, critic_only=critic_only)
    wanted = {**plain.actor_parameters(), **plain.critic_parameters()}
    for key, value in {**first.actor_parameters(), **first.critic_parameters()}.items():
        if not key.endswith("c_attn.bias"):  # GPT-2's key biases have gradient 0, of which Adam makes steps of noise
            torch.testing.assert_close(value, wanted[key], rtol=1e-3, atol=2e-4, msg=lambda text, key=key: f"{key}: {text}")
