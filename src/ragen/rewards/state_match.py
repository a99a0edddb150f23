"""Process reward: is what the reasoning says of the state so?"""

from collections.abc import Sequence

from ragen.rewards.base import Reasoning, register_process_reward


@register_process_reward("state_match", needs_facts=True)
def state_match(reasoning: Reasoning, actions: Sequence[str]) -> float:
    """score = max(0, Σ_f s_f) / F over the facts f of the state (``Environment.facts``); F of them have a truth (F = 0: 0).

    s_f = +1 if the reasoning states fact f and every statement of it is true, −1 if one is false, 0 if it says nothing of f.
    So repeating a statement adds nothing, and stating one thing in several ways, to be on the safe side, costs. What was
    done has no part in it.

    The rule is ours; the paper only asks for rewards on the reasoning (RAGEN, arXiv 2504.20073).
    """
    del actions
    verdicts = [fact.verdict(reasoning.thought) for fact in reasoning.facts]
    signs = sum(0 if verdict is None else 1 if verdict else -1 for verdict in verdicts)
    return max(0, signs) / max(1, sum(bool(fact.truths) for fact in reasoning.facts))
