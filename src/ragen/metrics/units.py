"""The unit of a logged metric, read off its definition, so that no second list can differ from it."""

import re

from ragen.metrics.definitions import METRICS

_RULES = (  # the first that is found in the definition
    (r"^sampled tokens / seconds", "tokens/s"),
    (r"^seconds ", "s"),
    (r"\bGB \(", "GB"),
    (r"^(mean )?number of sampled tokens", "tokens"),
    (r"^number of words|^mean number of words", "words"),
    (r"\(nats a token|\bnats a token\b", "nats a token"),
    (r"\(nats\)|log-probability over", "nats"),
    (r"^share |^different word pairs / all|^groups that train / groups|^retrieval accuracy", "share"),
    (r"^(mean )?number of|^times |^episodes lost|^optimiser steps |^returns to an earlier|^batches |^groups of older"
     r"|^demonstrated rows", "count"),
)  # fmt: skip


def unit(name: str) -> str:
    """The unit of a metric; "" for pure numbers (returns, norms, ratios, losses, flags) and for names that are not known.

    >>> [unit(name) for name in ("rollout/entropy", "rollout/success", "time/step_s", "rollout/return_mean")]
    ['nats', 'share', 's', '']
    """
    meaning = METRICS.get(name, "")
    return next((said for pattern, said in _RULES if re.search(pattern, meaning)), "")
