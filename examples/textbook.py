"""Multi-turn GRPO in one file: torch, a tiny transformer, and nothing of this library. Runs in seconds on one CPU core:

    python examples/textbook.py

An agent plays a two-armed bandit for two turns. In each it writes a few words; the first arm it names is pulled: `safe` pays
0.15, `risky` pays 1 with chance 0.5, so risky is better and safe never disappoints. The result is told in the next message.
Nobody shows the agent how to play: it starts from random weights and has only the rewards.

One step, as in StarPO (arXiv 2504.20073) with GRPO's advantages (arXiv 2402.03300) and PPO's clip (arXiv 1707.06347):

    1. roll out   P starting states × G episodes each, keeping every token and a mask of those the policy sampled
    2. credit     A_i = (R_i − mean of the group) / (std of the group + ε), the same for every sampled token of episode i
    3. update     k passes:  L = −mean_i mean_t min( ρ_it A_i, clip(ρ_it, 1 − ε_low, 1 + ε_high) A_i ),  ρ = π / π_old

What is left out, and what the library has for it: a language model and its chat template, filters, critics, other losses,
mini- and micro-batches, packed rows, evaluation on held-out states, checkpoints. `tests/test_textbook.py` checks that the
advantages, the loss and its gradient below are those of the library.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

WORDS = [
    "<pad>",
    "<user>",
    "<agent>",
    "<end>",
    "choose",
    "you",
    "won",
    "nothing",
    "safe",
    "risky",
    "I",
    "pull",
    "the",
    "arm",
]
IDS = {word: number for number, word in enumerate(WORDS)}
PAD, END = IDS["<pad>"], IDS["<end>"]
TURNS, REPLY = 2, 4  # turns an episode, tokens a reply at most


@dataclass
class Rollout:
    """B = P·G episodes, right-padded to T tokens; the G members of a group are neighbours."""

    ids: Tensor  # (B, T) every token of the conversation
    mask: Tensor  # (B, T) True = sampled by the policy: these carry the loss
    returns: Tensor  # (B,) sum of rewards
    members: int  # G


def make_model(seed: int = 0) -> LlamaForCausalLM:
    """A transformer of two layers and random weights."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=64,
        pad_token_id=PAD,
    )
    return LlamaForCausalLM(config)


# ---------------------------------------------------------------------------------------------------------------- the task


def pull(reply: list[int]) -> tuple[float, str]:
    """The environment: reward and message for a reply. No arm named costs 0.1."""
    arms = [WORDS[i] for i in reply if WORDS[i] in ("safe", "risky")]
    if not arms:
        return -0.1, "choose"
    if arms[0] == "safe":
        return 0.15, "you won"
    return (1.0, "you won") if torch.rand(()) < 0.5 else (0.0, "you won nothing")


def message(text: str) -> list[int]:
    """A message of the environment, and the header of the reply to it."""
    return [IDS["<user>"], *(IDS[word] for word in text.split()), IDS["<agent>"]]


# -------------------------------------------------------------------------------------------------------------- 1. roll out


@torch.no_grad()
def sample_replies(model: LlamaForCausalLM, rows: list[list[int]]) -> list[list[int]]:
    """One reply for each conversation, token by token until <end>.

    Rows are padded on the right: attention is causal, so no token sees the padding.
    """
    replies: list[list[int]] = [[] for _ in rows]
    for _ in range(REPLY):
        current = [row + reply for row, reply in zip(rows, replies, strict=True)]
        logits = model(padded(current)).logits
        last = torch.tensor([len(row) - 1 for row in current])
        chosen = torch.multinomial(logits[torch.arange(len(rows)), last].softmax(-1), 1)[:, 0].tolist()
        for reply, token in zip(replies, chosen, strict=True):
            if END not in reply:
                reply.append(token)
    return replies


def rollout(model: LlamaForCausalLM, groups: int, members: int) -> Rollout:
    """Play groups × members episodes side by side. History grows by appending; what was sampled is never encoded again."""
    rows = [message("choose") for _ in range(groups * members)]
    masks = [[False] * len(row) for row in rows]
    returns = [0.0] * len(rows)
    for turn in range(TURNS):
        for b, reply in enumerate(sample_replies(model, rows)):
            reward, text = pull(reply)
            returns[b] += reward
            given = message(text) if turn < TURNS - 1 else []
            rows[b] += reply + given
            masks[b] += [True] * len(reply) + [False] * len(given)
    return Rollout(padded(rows), padded(masks).bool(), torch.tensor(returns), members)


def padded(rows: list[list[int]] | list[list[bool]]) -> Tensor:
    """Rows of different length as one (B, T) tensor, filled with 0 on the right (the pad id, and False)."""
    longest = max(len(row) for row in rows)
    return torch.tensor([[int(x) for x in row] + [0] * (longest - len(row)) for row in rows])


# ---------------------------------------------------------------------------------------------------------------- 2. credit


def grpo_advantages(returns: Tensor, members: int, eps: float = 1e-6) -> Tensor:
    """A_i = (R_i − mean) / (std + eps) within each group of ``members`` neighbours: (B,); 0 where all returns are equal."""
    groups = returns.double().view(-1, members)
    centred = groups - groups.mean(dim=1, keepdim=True)
    flat = groups.amax(dim=1, keepdim=True) == groups.amin(dim=1, keepdim=True)
    scaled = centred / (groups.std(dim=1, keepdim=True) + eps)
    return torch.where(flat, 0.0, scaled).flatten().float()


# ---------------------------------------------------------------------------------------------------------------- 3. update


def token_logprobs(model: LlamaForCausalLM, ids: Tensor) -> Tensor:
    """log π(token t | tokens before t): (B, T); 0 for the first token, which nothing predicts."""
    logits = model(ids).logits[:, :-1]
    predicted = logits.log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
    return torch.cat([torch.zeros(len(ids), 1), predicted], dim=1)


def ppo_loss(logprobs: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, low: float, high: float) -> Tensor:
    """The clipped surrogate: a mean over episodes of the mean over their sampled tokens.

    min(…) makes it pessimistic: a token whose probability already moved far in the wanted direction gets no more gradient.
    """
    ratio = (logprobs - old).exp()
    clipped = ratio.clamp(1 - low, 1 + high)
    surrogate = torch.minimum(ratio * advantages[:, None], clipped * advantages[:, None])
    return -((surrogate * mask).sum(1) / mask.sum(1)).mean()


def train(steps: int = 30, groups: int = 4, members: int = 16, passes: int = 2, learning_rate: float = 3e-3) -> list[float]:
    """Run the loop; return the mean return of each step (2 pulls: 0.3 for always safe, 1.0 for always risky)."""
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    history = []
    for step in range(steps):
        batch = rollout(model, groups, members)
        advantages = grpo_advantages(batch.returns, members)
        with torch.no_grad():
            old = token_logprobs(model, batch.ids)  # π_old: the policy before this step's first update
        for _ in range(passes):
            loss = ppo_loss(token_logprobs(model, batch.ids), old, advantages, batch.mask, low=0.2, high=0.28)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        history.append(float(batch.returns.mean()))
        if step % 5 == 0 or step == steps - 1:
            reply = " ".join(WORDS[i] for i, sampled in zip(batch.ids[0], batch.mask[0], strict=True) if sampled)
            print(f"step {step:3d}   mean return {history[-1]:5.2f}   first episode: {reply}")
    return history


if __name__ == "__main__":
    train()
