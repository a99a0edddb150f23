"""Costly diagnostics on a schedule: what reasoning tells about its prompt, and what groups ask of the policy."""

import time
from collections.abc import Callable, Sequence

import numpy as np
import torch

from ragen.algos.filters import group_stats
from ragen.algos.losses import losses
from ragen.episode import Group
from ragen.learn.batch import collate
from ragen.learn.likelihood import cross_likelihood
from ragen.learn.update import policy_gradient_norm
from ragen.loops.carried import Carried
from ragen.loops.session import Session, loss_settings
from ragen.metrics.information import mutual_information, retrieval_accuracy

BUCKETS = 4
END_OF_THOUGHT = "</think>"
Ids = tuple[int, ...]


def diagnose(s: Session, groups: Sequence[Group], carried: Carried) -> dict[str, float]:
    """The diagnostics of a collected batch under the policy that sampled it, by their logged names; nothing is changed."""
    started = time.perf_counter()
    found = reasoning_information(s, groups) | bucket_gradients(s, groups, carried)
    return found | {"time/diagnostics_s": time.perf_counter() - started}


def reasoning_information(s: Session, groups: Sequence[Group]) -> dict[str, float]:
    """Mutual information between first prompts and the reasonings that follow; nothing where there are fewer than two."""
    settings = s.config.diagnostics
    prompts, reasonings, own = first_reasonings(groups, s.agent.tokenizer.decode, settings.prompts, settings.replies)
    if len(prompts) < 2:
        return {}
    table = cross_likelihood(s.policy, prompts, reasonings, s.config.optim.microbatch_tokens)
    return {
        "diagnostics/mutual_information": mutual_information(table, own),
        "diagnostics/retrieval_accuracy": retrieval_accuracy(table, own),
        "diagnostics/retrieval_chance": 1 / len(prompts),
    }


def first_reasonings(
    groups: Sequence[Group], decode: Callable[[Sequence[int]], str], prompts: int, replies: int
) -> tuple[list[Ids], list[Ids], list[int]]:
    """Up to ``prompts`` different first prompts, up to ``replies`` reasonings of each, and each reasoning's prompt by index.

    A reasoning is what was sampled up to the first ``</think>``; replies without one, and groups without such a reply, are
    left out.
    """
    found: dict[Ids, list[Ids]] = {}
    for group in groups:
        first = [t.turns[0] for t in group.trajectories if t.turns]
        said = [thought for turn in first if (thought := _thought(turn.completion.token_ids, decode))]
        if said:
            found.setdefault(first[0].prompt_ids, said[:replies])
    chosen = list(found.items())[:prompts]
    own = [index for index, (_, said) in enumerate(chosen) for _ in said]
    return [prompt for prompt, _ in chosen], [thought for _, said in chosen for thought in said], own


def _thought(token_ids: Ids, decode: Callable[[Sequence[int]], str]) -> Ids:
    """The fewest tokens whose text holds the end of the thought, by bisection; () where it is not there."""
    if END_OF_THOUGHT not in decode(token_ids):
        return ()
    low, high = 0, len(token_ids)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if END_OF_THOUGHT in decode(token_ids[:middle]) else (middle, high)
    return token_ids[:high]


def bucket_gradients(s: Session, groups: Sequence[Group], carried: Carried) -> dict[str, float]:
    """Groups sorted by their return std, in four buckets: mean std and norm of the policy loss's gradient of each.

    All groups collected take part, also those the filter leaves out. Bucket 1 has the lowest std; equal ones stay in order.
    Nothing for a loss without advantages.
    """
    if "advantages" not in losses.get(s.config.loss.name).needs:
        return {}
    groups = [group for group in groups if group.trajectories]
    if not groups:
        return {}
    batch = collate(groups, s.agent.tokenizer.pad_token_id)
    credit, _ = s.credit(batch, s.reference_logprobs(batch), carried)
    stds = group_stats([group.returns() for group in groups]).std
    found: dict[str, float] = {}
    for number, members in enumerate(np.array_split(np.argsort(stds, kind="stable"), BUCKETS), start=1):
        if len(members):
            found[f"diagnostics/return_std_q{number}"] = float(stds[members].mean())
            found[f"diagnostics/grad_norm_q{number}"] = policy_gradient_norm(
                s.policy,
                batch,
                credit,
                torch.isin(batch.group, torch.from_numpy(members)),
                loss=loss_settings(s.config),
                microbatch_tokens=s.config.optim.microbatch_tokens,
            )
    return found
