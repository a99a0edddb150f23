"""The text of recorded token ids: a run's own tokenizer, and the text that each single token adds."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ragen.errors import ModelError
from ragen.runs.evaluations import EvaluationDirectory
from ragen.runs.stored import Stored

Decode = Callable[[Sequence[int]], str]
BROKEN = "\ufffd"  # what a decoder gives for bytes that are no whole character (yet)


def decoder(stored: Stored) -> Decode:
    """A function from ids to their exact text, special tokens included, by the ``tokenizer_of`` what is stored.

    An endpoint keeps its ids to itself: there is nothing to decode then.
    """
    if not has_ids(stored):
        return lambda ids: ""
    tokenizer = tokenizer_of(stored)
    return lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=False))


def has_ids(stored: Stored) -> bool:
    """Whether its episodes tell the ids of their tokens: those of an endpoint do not."""
    return not isinstance(stored, EvaluationDirectory) or "model" in stored.config


def tokenizer_of(stored: Stored) -> Any:
    """The tokenizer of a run's newest checkpoint, or before there is one, of the model it began from; of an evaluation that
    of the model that played.

    It is read from its own file, which is fast. Raises ModelError where there is none.
    """
    from tokenizers import Tokenizer

    file = _home(stored) / "tokenizer.json"
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing more special
        raise ModelError(f"'{file}' cannot be read as a tokenizer: {error}") from None


def _home(stored: Stored) -> Path:
    if isinstance(stored, EvaluationDirectory):
        return Path(stored.config["model"]["weights"])
    if steps := stored.checkpoints.steps():
        return stored.checkpoints.path(steps[-1])
    from ragen.models.resolve import resolve_model

    return resolve_model(stored.config.model.name)


class Pieces:
    """Cuts the text of ids into one piece a token, as it grows when token after token is added.

    The pieces together are ``decode(ids)``. A character that several tokens spell belongs to the last of them, the others
    add "". Where that cannot be (a decoder whose texts do not grow), each token's own text is taken.

    >>> Pieces(lambda ids: "-".join(map(str, ids)))((1, 22, 3))
    ['1', '-22', '-3']
    """

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._pairs: dict[tuple[int, ...], str] = {}

    def __call__(self, ids: Sequence[int]) -> list[str]:
        """The pieces, one an id."""
        pieces: list[str] = []
        start, before = 0, ""  # ids[start:] are decoded together; ``before`` is the text of those already cut
        for t in range(len(ids)):
            text = self._text(tuple(ids[start : t + 1]))
            if text.endswith(BROKEN) and t + 1 < len(ids):
                pieces.append("")
                continue
            pieces.append(text[len(before) :])
            start, before = t, self._text((ids[t],))
        if "".join(pieces) == self._decode(ids):
            return pieces
        return [self._text((i,)) for i in ids]

    def _text(self, ids: tuple[int, ...]) -> str:
        if len(ids) > 2:
            return self._decode(ids)
        if ids not in self._pairs:
            self._pairs[ids] = self._decode(ids)
        return self._pairs[ids]
