"""Text to token ids with a wall between what we write and what others write.

A chat template's own text may hold special tokens; text of environments and users may not: a product title that reads
``<|im_start|>assistant`` must stay a title (transformers#29279, llama.cpp#24382).
"""

import json
import re
import secrets
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ragen.errors import TemplateError

Part = int | str  # a token id, or plain text to encode


@dataclass(frozen=True, slots=True)
class AddedToken:
    """A token that a tokenizer finds before its model runs. ``lstrip``/``rstrip``: it swallows blanks on that side."""

    id: int
    content: str
    special: bool
    lstrip: bool
    rstrip: bool


class Encoder:
    """Encodes runs of plain text exactly as a fast tokenizer does, but blind to its added tokens.

    The blind twin is the tokenizer's own backend with every added token renamed to an unguessable name, in the list of
    added tokens and in the vocabulary. (Non-special added tokens that are nothing but blanks stay: they are spelling.)
    """

    def __init__(self, tokenizer: Any) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise TemplateError(
                f"the tokenizer {type(tokenizer).__name__} has no fast backend (tokenizer.json), so environment text cannot "
                "be kept apart from control tokens: load it with AutoTokenizer(..., use_fast=True) or convert it"
            )
        state = json.loads(backend.to_str())
        fields = ("id", "content", "special", "lstrip", "rstrip")
        added = [AddedToken(**{name: token[name] for name in fields}) for token in state["added_tokens"]]
        self.added = {token.content: token for token in added if token.special or not token.content.isspace()}
        self._by_id = {token.id: token for token in self.added.values()}
        self._unk = _unk_token(state["model"])
        self._first, self._later = _blind_twins(type(backend), state, self.added, self._unk)

    def parse(self, text: str, only: Collection[str] | None = None) -> list[Part]:
        """Split trusted text into added tokens (ids; the longest match wins) and plain text. ``only``: these contents."""
        contents = self.added.keys() if only is None else self.added.keys() & set(only)
        if not contents:
            return [text] if text else []
        pattern = "|".join(re.escape(content) for content in sorted(contents, key=len, reverse=True))
        pieces = re.split(f"({pattern})", text)
        return [self.added[piece].id if i % 2 else piece for i, piece in enumerate(pieces) if piece]

    def ids(self, parts: Iterable[Part], *, start: bool = False, after: int | None = None) -> tuple[int, ...]:
        """Token ids of parts; neighbouring plain texts are one run.

        ``start``: the sequence begins here; ``after``: the id in front (some added tokens swallow the blanks behind them).
        """
        ids: list[int] = []
        runs = _merged(parts)
        for i, part in enumerate(runs):
            if isinstance(part, int):
                ids.append(part)
                continue
            before = runs[i - 1] if i else after
            behind = runs[i + 1] if i + 1 < len(runs) else None
            text = part
            if isinstance(before, int) and before in self._by_id and self._by_id[before].rstrip:
                text = text.lstrip()
            if isinstance(behind, int) and self._by_id[behind].lstrip:
                text = text.rstrip()
            ids.extend(self._plain(text, start=start and i == 0))
        return tuple(ids)

    def check(self, template_ids: Collection[int]) -> None:
        """Prove that no added token's content, as plain text, gives a control id.

        Control ids are those of special tokens and ``template_ids``; not the id that stands for any unknown text.

        Raises:
            TemplateError: a control token can be reached from plain text.
        """
        control = {token.id for token in self.added.values() if token.special} | set(template_ids)
        if self._unk in self.added and self.added[self._unk].id not in template_ids:
            control.discard(self.added[self._unk].id)
        for content in self.added:
            for text in (content, f"a {content} b", f"\n{content}\n"):
                if control.intersection(self._plain(text, start=False)):
                    raise TemplateError(
                        f"plain text {content!r} becomes a control token of this tokenizer with added tokens off, so an "
                        "environment could speak for the policy: use a tokenizer whose vocabulary cannot spell it"
                    )

    def _plain(self, text: str, *, start: bool) -> list[int]:
        clean = text.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate is no text: it becomes "?"
        ids: list[int] = (self._first if start else self._later).encode(clean, add_special_tokens=False).ids
        return ids


def _merged(parts: Iterable[Part]) -> list[Part]:
    runs: list[Part] = []
    for part in parts:
        if isinstance(part, str) and runs and isinstance(runs[-1], str):
            runs[-1] += part
        elif part != "":
            runs.append(part)
    return runs


def _unk_token(model: dict[str, Any]) -> str:
    if model.get("unk_id") is not None:
        return str(model["vocab"][model["unk_id"]][0])
    return str(model.get("unk_token") or "")


def _blind_twins(backend: Any, state: dict[str, Any], hidden: Collection[str], unk: str) -> tuple[Any, Any]:
    """The backend without ``hidden``, for text that begins a sequence and for text that does not."""
    model = state["model"]
    spelled = {part for merge in model.get("merges") or () for part in _operands(merge)}
    names = {content: secrets.token_hex(16) for content in hidden if content not in spelled and content != unk}
    vocab = model["vocab"]
    if isinstance(vocab, dict):
        model["vocab"] = {names.get(piece, piece): number for piece, number in vocab.items()}
    else:
        model["vocab"] = [[names.get(piece, piece), score] for piece, score in vocab]
    kept = [token for token in state["added_tokens"] if token["content"] in names or token["content"] not in hidden]
    state["added_tokens"] = [{**token, "content": names.get(token["content"], token["content"])} for token in kept]
    state.update(truncation=None, padding=None, post_processor=None)
    text = json.dumps(state, ensure_ascii=False, separators=(",", ":"))
    later = text.replace('"prepend_scheme":"first"', '"prepend_scheme":"never"')
    first = backend.from_str(text)
    return first, first if later == text else backend.from_str(later)


def _operands(merge: str | Sequence[str]) -> tuple[str, ...]:
    """A merge's two pieces and what they make (older files write a merge as one string)."""
    left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
    return left, right, left + right
