"""Reading product files entry by entry: a file of several gigabytes is never in memory as a whole."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ragen.errors import ConfigError, reason

CHUNK = 1 << 20  # characters read at a time
LONGEST = 1 << 26  # characters of one entry at most; what is longer is no entry but a broken one
SOURCE = (
    "The files come from the WebShop repository (github.com/princeton-nlp/WebShop): its setup.sh fetches "
    "items_shuffle_1000.json and items_ins_v2_1000.json or, with `-d all`, items_shuffle.json and items_ins_v2.json, and "
    "items_human_ins.json from Google Drive"
)
CUT = "it ends in the middle: a download that did not finish?"
_BETWEEN = re.compile(r"[\s,]*")
_COLON = re.compile(r"\s*:\s*")


def problem(setting: str, path: str, where: str, what: str) -> ConfigError:
    """The error for a file that cannot be used: the setting, the file, the place in it, what is wrong, where to get it."""
    end = "" if what.endswith("?") else "."
    return ConfigError(f"env.{setting} '{path}'{f', {where}' if where else ''}: {what}{end} {SOURCE}")


def checked(setting: str, path: str) -> Path:
    """The file of a setting, made sure to be there and not empty."""
    try:
        file = Path(path).expanduser()
        if not file.is_file():
            raise problem(setting, path, "", "there is no such file")
        if not file.stat().st_size:
            raise problem(setting, path, "", "it is empty: a download that did not finish?")
    except (OSError, RuntimeError, ValueError) as error:
        raise problem(setting, path, "", f"it cannot be read ({reason(error)})") from None
    return file


def records(setting: str, path: str) -> Iterator[tuple[str, Any]]:
    """The entries of a JSON list, or of a file with one JSON value a line, each with its place ("line 3, entry 3")."""
    with _reading(setting, path) as reader:
        yield from reader.values()


def pairs(setting: str, path: str) -> Iterator[tuple[str, str, Any]]:
    """The entries of a JSON object, each with its place and its key."""
    with _reading(setting, path) as reader:
        yield from reader.items()


@contextmanager
def _reading(setting: str, path: str) -> Iterator["_Reader"]:
    try:
        with checked(setting, path).open(encoding="utf-8-sig") as file:
            yield _Reader(setting, path, file)
    except UnicodeDecodeError:
        raise problem(setting, path, "", "it is not UTF-8 text") from None
    except OSError as error:
        raise problem(setting, path, "", f"it cannot be read ({reason(error)})") from None


def _words(error: Exception) -> str:
    """Why no JSON value could be read, where its reader gives no place: depth, or a number with too many digits."""
    return "nested too deeply" if isinstance(error, RecursionError) else "a number in it has too many digits"


class _Reader:
    """A window over the file's text: ``text[at:]`` is what is still to be read of it."""

    def __init__(self, setting: str, path: str, file: IO[str]) -> None:
        self.setting, self.path, self.file = setting, path, file
        self.decoder = json.JSONDecoder()
        self.text, self.at = file.read(CHUNK), 0
        self.lines, self.counted = 1, 0  # the line of ``text[counted]``
        self.number = 0

    def values(self) -> Iterator[tuple[str, Any]]:
        """Place and value of each entry of a list, or of each line."""
        self.skip()
        opening = self.text[self.at : self.at + 1]
        if opening not in {"[", "{"}:
            raise self.broken("a JSON list of products is needed, or a product a line")
        self.at += opening == "["
        while self.goes_on("]" if opening == "[" else ""):
            yield self.where(), self.value()

    def items(self) -> Iterator[tuple[str, str, Any]]:
        """Place, key and value of each entry of an object."""
        self.skip()
        if self.text[self.at : self.at + 1] != "{":
            raise self.broken("a JSON object by ASIN is needed")
        self.at += 1
        while self.goes_on("}"):
            where, key = self.where(), self.value()
            self.colon()
            yield where, str(key), self.value()

    def goes_on(self, closing: str) -> bool:
        """Whether another entry follows; the end of the file counts as the end only where nothing closes."""
        self.skip()
        if self.at == len(self.text):
            if closing:
                raise self.broken(CUT)
            return False
        if self.text[self.at] == closing:
            return False
        self.number += 1
        return True

    def skip(self) -> None:
        """Go to the next character that is neither blank nor a comma."""
        while True:
            match = _BETWEEN.match(self.text, self.at)
            self.at = match.end() if match else self.at
            if self.at < len(self.text) or not self.more():
                return

    def colon(self) -> None:
        """Go past the colon between a key and its value."""
        match = _COLON.match(self.text, self.at)
        while (match is None or match.end() == len(self.text)) and self.more():
            match = _COLON.match(self.text, self.at)
        if match is None:
            raise self.broken("it is not valid JSON: a colon is missing")
        self.at = match.end()

    def value(self) -> Any:
        """The JSON value that begins here."""
        while True:
            try:
                value, self.at = self.decoder.raw_decode(self.text, self.at)
            except (ValueError, RecursionError) as error:
                if len(self.text) - self.at < LONGEST and self.more():
                    continue
                told = error.msg if isinstance(error, json.JSONDecodeError) else _words(error)
                at_end = getattr(error, "pos", 0) >= len(self.text) - 1 or told.startswith("Unterminated")
                if at_end and not self.file.read(1):
                    raise self.broken(CUT) from None
                raise self.broken(f"it is not valid JSON ({told})") from None
            return value

    def more(self) -> bool:
        """Read on, dropping what is done; False at the end of the file. The window doubles while an entry does not fit."""
        added = self.file.read(max(CHUNK, len(self.text) - self.at))
        if added:
            self.line()
            self.text, self.counted, self.at = self.text[self.at :] + added, 0, 0
        return bool(added)

    def line(self) -> int:
        """The line on which the next entry begins."""
        self.lines += self.text.count("\n", self.counted, self.at)
        self.counted = self.at
        return self.lines

    def where(self) -> str:
        """The place of the next entry in words."""
        return f"line {self.line()}, entry {self.number}"

    def broken(self, what: str) -> ConfigError:
        """The error at this place."""
        return problem(self.setting, self.path, self.where() if self.number else "", what)
