"""What an update costs, in counts: tokens and passes, logits of sampled tokens only, no table of B · T · V numbers."""

from typing import Any

import pytest
import torch
from tests.counting import tokens
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ragen.algos.credit import Credit
from ragen.learn import head
from ragen.learn.batch import Batch, collate
from ragen.learn.loss_settings import LossSettings
from ragen.learn.optimizer import Optimizer
from ragen.learn.policy import Policy
from ragen.learn.update import update
from ragen.models.native import Decoder
from ragen.models.shapes import TOKENS, rounded

VOCABULARY = 8192


def run(policy: Policy, batch: Batch, budget: int) -> None:
    advantages = torch.where(batch.mask, torch.ones(batch.ids.shape), 0)
    optimizer = Optimizer(policy, learning_rate=1e-3, critic_learning_rate=1e-3)
    settings = LossSettings(entropy_coef=0.01)
    update(policy, optimizer, batch, Credit(advantages), loss=settings, trajectories=1000, microbatch_tokens=budget, seed=0)


@pytest.mark.parametrize(("budget", "count"), [(200, 4), (5000, 1)])
def test_each_token_is_run_once_forward_and_once_backward_and_a_groups_prompt_once(
    budget: int, count: int, make_model: Any, make_groups: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = Policy(make_model(), dtype=torch.float32, pad_id=0)
    groups = make_groups(groups=4, members=8, turns=4)
    seen: list[int] = []
    returned: list[int] = []
    hidden = Decoder.hidden

    def counted(self: Decoder, ids: Tensor, *rest: Any) -> Tensor:
        seen.append(len(ids))
        out = hidden(self, ids, *rest)
        if out.requires_grad:
            out.register_hook(lambda gradient: returned.append(len(gradient)))
        return out

    monkeypatch.setattr(Decoder, "hidden", counted)
    run(policy, collate(groups, pad_id=0), budget)
    assert len(seen) == count
    assert returned == seen
    assert tokens(groups) <= sum(seen) < tokens(groups) + count * TOKENS


class Watch(TorchDispatchMode):
    """Elements of the largest storage that an operation gave, and rows of products as wide as the vocabulary."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = self.logits = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(found):
            if isinstance(tensor, Tensor):
                self.largest = max(self.largest, tensor.untyped_storage().nbytes() // tensor.element_size())
                if function.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm) and tensor.shape[-1] == VOCABULARY:
                    self.logits += len(tensor)
        return found


@pytest.mark.parametrize(("block", "products"), [(1 << 18, 2), (head.BLOCK_ELEMENTS, 1)])
def test_logits_are_those_of_sampled_tokens_a_block_at_a_time(
    block: int, products: int, make_model: Any, make_groups: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In blocks logits are computed again for the gradient; where one block holds them all, they are kept."""
    monkeypatch.setattr(head, "BLOCK_ELEMENTS", block)
    monkeypatch.setattr(head, "CHUNK_ELEMENTS", 1 << 17)
    policy = Policy(make_model(vocab_size=VOCABULARY), dtype=torch.float32, pad_id=0)
    batch = collate(make_groups(groups=4, members=16, turns=8), pad_id=0)
    budget = 800
    sampled = [rounded(len(micro.targets), TOKENS) for micro in policy.plan(batch, list(range(len(batch.ids))), budget)]
    with Watch() as watch:
        run(policy, batch, budget)
    rows = min(max(sampled), max(head.LEAST_ROWS, block // VOCABULARY))
    weights = VOCABULARY * policy.network.hidden_size
    assert watch.largest == max(rows * VOCABULARY, weights)
    assert watch.largest * 8 < batch.ids.numel() * VOCABULARY
    assert watch.logits == products * sum(sampled)
