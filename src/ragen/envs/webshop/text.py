"""Text from a product file, made harmless: nothing in it can pass for a mark of a reply, a page or a label."""

import re

_BREAKS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")  # control characters, line breaks, lone surrogates
_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")  # soft hyphens, joiners, changes of direction
_SUSPECT = re.compile(r"[^ -~¡-\u024f]|  |\|\||[<\[\]\xad]")  # without any of these only the ends need care
_BARS = re.compile(r"\|{2,}")
_TAGS = re.compile(r"<(/?(?:think|answer))>", re.IGNORECASE)
_BRACKETS = str.maketrans("[]", "()")


def clean(text: str) -> str:
    """``text`` on one line of single blanks, without what a reply or a page is read by.

    ``[`` and ``]`` (labels, ``[SEP]``) become round brackets, ``||`` one bar, the tags of a reply lose their angle brackets.
    Nothing is left to clean in the result.

    >>> clean("Size [US]: 5\\n<answer>x</answer> a||b [SEP] c")
    'Size (US): 5 (answer)x(/answer) a|b (SEP) c'
    """
    if not _SUSPECT.search(text):
        return text.strip(" ")
    text = _UNSEEN.sub("", _BREAKS.sub(" ", text)).translate(_BRACKETS)
    return " ".join(_TAGS.sub(r"(\1)", _BARS.sub("|", text)).split())


def shortened(text: str, length: int) -> str:
    """``text`` cut to ``length`` characters, with an ellipsis where something is missing.

    >>> shortened("a long title", 7)
    'a long…'
    """
    return text if len(text) <= length else f"{text[: length - 1].rstrip()}…"
