"""What a loaded model must prove before it acts or learns: finite weights, causality, rows for every token."""

from collections.abc import Iterable
from typing import Any

import torch

from ragen.errors import ModelError

PROBE_LENGTH = 8
TOLERANCE = 1e-5  # of the largest logit: rounding of mixture-of-experts layers, whose products change shape


def check_finite(model: torch.nn.Module, name: str) -> None:
    """Raise ModelError where a weight is NaN or infinite: nothing can be sampled or learned with it."""
    bad = [key for key, weight in model.named_parameters() if not bool(torch.isfinite(weight).all())]
    if bad:
        raise ModelError(
            f"{name} holds NaN or infinite numbers in {len(bad)} weights (such as '{bad[0]}'): the training or conversion "
            "that wrote it went wrong; use another checkpoint"
        )


@torch.no_grad()
def check_causal(model: Any, name: str) -> None:
    """Raise ModelError where the outputs at the first tokens depend on later ones (a masked language model, for example)."""
    rows = int(model.get_input_embeddings().weight.shape[0])
    ids = torch.arange(PROBE_LENGTH, device=model.device)[None] % rows
    half = PROBE_LENGTH // 2
    other = torch.cat([ids[:, :half], (ids[:, half:] + max(1, rows // 2)) % rows], dim=1)
    try:
        first, second = (model(input_ids=row, use_cache=False).logits[0, :half].float() for row in (ids, other))
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ModelError(f"{name}: {type(model).__name__} cannot be run on token ids: {error}") from None
    if not bool(torch.isfinite(first).all()):
        raise ModelError(f"{name}: {type(model).__name__} gives NaN or infinite logits: use another checkpoint")
    if not bool((first - second).abs().max() <= TOLERANCE * max(1.0, float(first.abs().max()))):
        raise ModelError(
            f"{name}: {type(model).__name__} gives a token other outputs when later tokens change: it is not a causal "
            "language model; use one trained to predict the next token"
        )


def check_vocabulary(tokenizer: Any, rows: int, used: Iterable[int], name: str) -> None:
    """Raise ModelError where text, padding or the chat template (its ids: ``used``) need more than ``rows`` embeddings.

    Other special tokens may lie beyond them (some models keep one for images there): text never becomes one.
    """
    if len(tokenizer) <= rows:
        return
    reachable = set(tokenizer.get_vocab().values()) - set(tokenizer.all_special_ids) - _special_added(tokenizer)
    highest = max(reachable | {tokenizer.pad_token_id} | set(used))
    if highest >= rows:
        raise ModelError(
            f"{name}: the tokenizer makes ids up to {highest} ({tokenizer.convert_ids_to_tokens(highest)!r}), but the model "
            f"has embeddings for 0 to {rows - 1} only: tokenizer and model do not belong together, or the embeddings were "
            "not resized after tokens were added (model.resize_token_embeddings(len(tokenizer)))"
        )


def _special_added(tokenizer: Any) -> set[int]:
    return {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
