"""The reference policy: frozen at the start of RL; there is one only for a KL term, or a loss that compares with it."""

import copy

import torch
from torch import Tensor

from ragen.learn.batch import Batch
from ragen.learn.lora import adapters, swapped
from ragen.learn.network import Network
from ragen.learn.policy import Policy


class Reference:
    """Remembers what a policy is now. With LoRA only the adapters are copied: the frozen base weights are shared.

    Build it where RL begins (after the warm-up, before `load_state` of a resumed run), so that it is the same in a run that
    goes straight through and in a resumed one.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._adapters = {name: value.detach().clone() for name, value in adapters(policy.model).items()}
        self._network: Network | None = None
        if not self._adapters:
            model = copy.deepcopy(policy.model).requires_grad_(False)
            self._network = Network(model, dtype=policy.network.dtype, temperature=policy.network.temperature)

    @torch.no_grad()
    def logprobs(self, batch: Batch, microbatch_tokens: int) -> Tensor:
        """Log-probabilities (R, T) float32 under the reference at the policy's temperature, 0 off mask."""
        if self._network is None:
            with swapped(self._policy.model, self._adapters):
                return self._policy.logprobs(batch, microbatch_tokens)
        table = torch.zeros(batch.ids.shape, dtype=torch.float32)
        for micro in self._policy.plan(batch, list(range(len(batch.lengths))), microbatch_tokens):
            table[micro.rows, micro.columns] = self._network.outputs(micro).logprobs.cpu()
        return table
