"""The policy: a causal LM with its critic and adapters, trained in float32 master weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ragen.errors import ConfigError
from ragen.learn.batch import Batch
from ragen.learn.lora import Lora, inject, merged_state
from ragen.learn.network import Network, TokenOutputs
from ragen.learn.packing import MicroBatch

CriticKind = Literal["none", "head", "separate"]


class Policy:
    """Holds the Hugging Face module (``model``, which a sampler may share), its value head or critic, and its adapters.

    Args:
        model: a causal LM; its weights become float32 and its dropout 0.
        dtype: type of the matrix products (autocast).
        pad_id: what `collate` pads with; never looked at to tell what is real.
        critic: "none"; "head", a linear map of the policy's last hidden state; "separate", the same on ``critic_model``.
        critic_model: any causal LM (its output embedding is not used); only for "separate".
        temperature: divides the logits of all log-probabilities and entropies: the sampling temperature of training.
        lora: adapters to train instead of all weights.
    """

    def __init__(
        self,
        model: Any,
        *,
        dtype: torch.dtype,
        pad_id: int,
        critic: CriticKind = "none",
        critic_model: Any = None,
        temperature: float = 1.0,
        lora: Lora | None = None,
    ) -> None:
        if temperature <= 0:
            raise ConfigError(
                f"rollout.temperature is {temperature}: training needs a temperature above 0 (1 = as the model says)"
            )
        if (critic == "separate") != (critic_model is not None):
            raise ConfigError(f"critic is '{critic}': a critic_model is given if and only if critic is 'separate'")
        for module in (model, critic_model):
            if module is not None:
                module.requires_grad_(True)
        if lora is not None:
            inject(model, lora)
        self.pad_id, self.kind, self.lora = pad_id, critic, lora
        self.network = Network(model, dtype=dtype, temperature=temperature)
        self.critic = Network(critic_model, dtype=dtype) if critic == "separate" else None
        self.value_head = None if critic == "none" else _value_head(self.critic or self.network)
        self.pack = True

    @property
    def model(self) -> Any:
        """The Hugging Face module (with adapters inside, when LoRA is on)."""
        return self.network.model

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.network.device

    def weights(self) -> dict[str, Tensor]:
        """The weights as a plain model's state dict (adapters merged), for a sampler that does not share the module."""
        return {name: value.detach() for name, value in merged_state(self.model).items()}

    def actor_parameters(self) -> dict[str, nn.Parameter]:
        """Trainable parameters of the language model, by name."""
        return {f"model.{name}": value for name, value in self.model.named_parameters() if value.requires_grad}

    def critic_parameters(self) -> dict[str, nn.Parameter]:
        """Trainable parameters of the value head and of a separate critic, by name."""
        found: dict[str, nn.Parameter] = {}
        if self.critic is not None:
            found |= {f"critic.{name}": value for name, value in self.critic.backbone.named_parameters()}
        if self.value_head is not None:
            found |= {f"value_head.{name}": value for name, value in self.value_head.named_parameters()}
        return found

    def plan(self, batch: Batch, rows: list[int], budget: int) -> list[MicroBatch]:
        """Split rows into micro-batches of at most ``budget`` processed tokens (see `ragen.learn.packing.plan`)."""
        pack = self.pack and (self.critic is None or self.critic.packs)
        return self.network.plan(batch, rows, budget, pack=pack)

    def token_outputs(self, micro: MicroBatch, *, temperature: float | None = None) -> TokenOutputs:
        """Log-probabilities and entropies of the sampled tokens, with gradients."""
        return self.network.outputs(micro, temperature=temperature)

    def token_values(self, micro: MicroBatch, outputs: TokenOutputs | None = None) -> Tensor:
        """V of the state each sampled token is chosen in (N,), float32; reuses ``outputs`` of the same micro-batch."""
        if self.value_head is None:
            raise ConfigError("this policy has no critic: build it with critic='head' or 'separate' (optim.critic)")
        if self.critic is not None:
            hidden = self.critic.hidden(micro)
        else:
            hidden = outputs.hidden if outputs is not None else self.network.hidden(micro)
        values: Tensor = self.value_head(hidden.float())[:, 0]
        return values

    def logprobs(self, batch: Batch, microbatch_tokens: int) -> Tensor:
        """The learner's log-probabilities (R, T) float32, 0 off mask, without gradients."""
        return self._scores(batch, microbatch_tokens, lambda micro: self.token_outputs(micro).logprobs)

    def values(self, batch: Batch, microbatch_tokens: int) -> Tensor:
        """The critic's values (R, T) float32, 0 off mask, without gradients: what `gae` takes before the update."""
        return self._scores(batch, microbatch_tokens, self.token_values)

    @torch.no_grad()
    def _scores(self, batch: Batch, budget: int, score: Any) -> Tensor:
        table = torch.zeros(batch.ids.shape, dtype=torch.float32)
        with self.training_mode():
            for micro in self.plan(batch, list(range(len(batch.lengths))), budget):
                table[micro.rows, micro.columns] = score(micro).cpu()
        return table

    @contextmanager
    def training_mode(self) -> Iterator[None]:
        """Train mode inside, the mode before after (B22); dropout is 0, so both compute the same. Frees cast weights."""
        modules = [self.model, *([self.critic.model] if self.critic is not None else [])]
        before = [module.training for module in modules]
        for module in modules:
            module.train()
        try:
            yield
        finally:
            for module, mode in zip(modules, before, strict=True):
                module.train(mode)
            for network in (self.network, self.critic):
                if network is not None:
                    network.release()


def _value_head(network: Network) -> nn.Linear:
    """A linear map to one number, zero at first: V = 0 before the first update."""
    # skip_init: the usual initialisation would draw from the global generator (law 8)
    head = nn.utils.skip_init(nn.Linear, network.hidden_size, 1, device=network.device, dtype=torch.float32)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head
