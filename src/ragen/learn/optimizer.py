"""AdamW with learning rates for actor and critic, warm-up, clipping, and a guard against non-finite numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ragen.errors import TrainingError
from ragen.learn.policy import Policy

MAX_SKIPPED = 3


@dataclass(frozen=True, slots=True)
class Step:
    """One attempted step: ``grad_norm`` of the actor before clipping (not finite when ``skipped``)."""

    grad_norm: float
    skipped: bool


class Optimizer:
    """Decoupled Adam (arXiv 1711.05101) over a policy's trainable parameters.

    The learning rate of step n = 1, 2, … is ``learning_rate · min(1, n / warmup_steps)``: never 0 (B30); the actor counts
    only the steps in which it has gradients, so its warm-up begins when it begins to learn. Gradients are clipped to
    ``grad_clip`` in L2 norm, for the actor (with its value head) and a separate critic each on its own. Weight decay applies
    to matrices only. A step with a non-finite loss or gradient changes nothing, moves no counter but ``skipped``, and the
    third in a row raises TrainingError.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        learning_rate: float,
        critic_learning_rate: float = 1e-5,
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.0,
        warmup_steps: int = 0,
        grad_clip: float = 1.0,
    ) -> None:
        self.warmup_steps, self.grad_clip = warmup_steps, grad_clip
        self.steps = 0
        self.actor_steps = 0
        self.skipped = 0
        self.skipped_in_a_row = 0
        self.parameters = {**policy.actor_parameters(), **policy.critic_parameters()}
        self._clipped = [
            [p for name, p in self.parameters.items() if name.startswith("critic.") is separate]
            for separate in (False, True)
        ]
        self._actor = list(policy.actor_parameters().values())
        self._peaks: list[tuple[float, bool]] = []  # of each group: learning rate, whether it is the actor's
        groups: list[dict[str, Any]] = []
        actor, critic = policy.actor_parameters(), policy.critic_parameters()
        for part, peak in ((actor, learning_rate), (critic, critic_learning_rate)):
            for matrices, decay in ((True, weight_decay), (False, 0.0)):
                chosen = [p for p in part.values() if (p.ndim > 1) is matrices]
                if chosen:
                    groups.append({"params": chosen, "weight_decay": decay})
                    self._peaks.append((peak, part is actor))
        fused = policy.device.type in ("cpu", "cuda")
        self.adam = torch.optim.AdamW(groups, lr=learning_rate, betas=betas, fused=fused)

    @property
    def learning_rate(self) -> float:
        """The actor's learning rate of its last step taken (of the first one, before any)."""
        return self._peaks[0][0] * self._factor(max(self.actor_steps, 1))

    def zero_grad(self) -> None:
        """Drop all gradients."""
        self.adam.zero_grad(set_to_none=True)

    def step(self, terms: Mapping[str, Tensor]) -> Step:
        """Apply the gradients that lie on the parameters, then drop them; ``terms`` are the scalar losses they came from.

        Raises:
            TrainingError: the numbers were not finite three times in a row; names the step and the tensor.
        """
        norms = [torch.nn.utils.get_total_norm([p.grad for p in part if p.grad is not None]) for part in self._clipped]
        bad = self._non_finite(terms, norms)
        if bad is None:
            for part, norm in zip(self._clipped, norms, strict=True):
                torch.nn.utils.clip_grads_with_norm_([p for p in part if p.grad is not None], self.grad_clip, norm)
            self.steps += 1
            self.actor_steps += any(p.grad is not None for p in self._actor)
            for group, (peak, of_actor) in zip(self.adam.param_groups, self._peaks, strict=True):
                group["lr"] = peak * self._factor(self.actor_steps if of_actor else self.steps)
            self.adam.step()
            # torch's fused kernels do not count as a write, and copies of the weights are renewed where one was written
            torch.autograd.graph.increment_version(p for p in self.parameters.values() if p.grad is not None)
        self.zero_grad()
        self._count(bad)
        return Step(float(norms[0]), skipped=bad is not None)

    def _factor(self, step: int) -> float:
        return min(1.0, step / self.warmup_steps) if self.warmup_steps else 1.0

    def _non_finite(self, terms: Mapping[str, Tensor], norms: list[Tensor]) -> str | None:
        """The name of a non-finite loss or gradient; None where all is well."""
        for name, value in terms.items():
            if not bool(torch.isfinite(value).all()):
                return name
        if all(bool(torch.isfinite(norm)) for norm in norms):
            return None
        named = (n for n, p in self.parameters.items() if p.grad is not None and not bool(torch.isfinite(p.grad).all()))
        return f"gradient of {next(named, 'all parameters (their norm overflows)')}"

    def _count(self, bad: str | None) -> None:
        if bad is None:
            self.skipped_in_a_row = 0
            return
        self.skipped += 1
        self.skipped_in_a_row += 1
        if self.skipped_in_a_row >= MAX_SKIPPED:
            raise TrainingError(
                f"optimiser step {self.steps + 1}: {bad} is not finite, {self.skipped_in_a_row} times in a row. Nothing was "
                "changed by these steps. Lower the learning rate or optim.grad_clip, or set model.dtype to float32"
            )
