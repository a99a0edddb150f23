"""What a shop sells: products, search index and goals, made in memory or kept in files under the cache."""

import hashlib
import json
import sys
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache, partial
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from ragen.cache import cache_dir, made_once
from ragen.envs.webshop.catalogue import NO_PRICE, Catalogue, Product, Wish, priced, product_of, without_asin
from ragen.envs.webshop.files import checked, pairs, problem, records
from ragen.envs.webshop.goals import Kind, goal_count
from ragen.envs.webshop.index import Builder, Index, opened
from ragen.envs.webshop.synthetic import make_catalogue
from ragen.errors import ConfigError, ModelError
from ragen.wording import counted

VERSION = 1  # raise it when the same files would give another stock
TOLD_EVERY = 50_000  # products
KINDS: tuple[Kind, ...] = get_args(Kind)
PRODUCTS, OFFSETS = "products.jsonl", "offsets.npy"


@dataclass(frozen=True, slots=True)
class Stock:
    """A catalogue, its search index, and by kind of goal the numbers of the products that have such goals."""

    catalogue: Catalogue
    index: Index
    wanted: Mapping[Kind, Sequence[int] | NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class Sources:
    """The files of a shop, as the settings name them; an empty name is a file that is not used."""

    products: str
    attributes: str = ""
    human_goals: str = ""


@dataclass(slots=True)
class Tally:
    """What became of the records of a products file: how many were read, left out (by the reason), and lack something."""

    read: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    lacking: Counter[str] = field(default_factory=Counter)

    def told(self) -> str:
        """In a line."""
        parts = [f"{counted(self.read, 'record')} read, {counted(self.read - self.left_out.total(), 'product')} kept"]
        for what, counts in (("left out", self.left_out), ("kept", self.lacking)):
            parts += [f"{what}: {', '.join(f'{number:,} {why}' for why, number in counts.items())}"] if counts else []
        return f"webshop: {'; '.join(parts)}\n"


def synthetic_stock(size: int, seed: int) -> Stock:
    """The made-up catalogue, in memory."""
    catalogue = make_catalogue(size, seed)
    builder = Builder()
    for product in catalogue:
        builder.add(product.document())
    return Stock(catalogue, builder.index(), {"synthetic": range(size), "human": ()})


def stock_of(sources: Sources) -> Stock:
    """The stock of these files: built at the first time, kept in the cache by the files' content, memory-mapped.

    Raises ConfigError for a file that is missing, cut off or malformed, and ModelError where the cache cannot be used.
    """
    folder = made_once(cache_dir() / "webshop" / f"{VERSION}-{_digest(sources)}", partial(_fill, sources=sources))
    try:
        wanted = {kind: np.load(folder / f"{kind}.npy", mmap_mode="r") for kind in KINDS}
        return Stock(StoredCatalogue(folder), opened(folder), wanted)
    except (OSError, ValueError) as error:
        raise ModelError(
            f"the cache holds a damaged shop ({error}): remove the folder '{folder}', it is made again"
        ) from None


class StoredCatalogue:
    """Products in a file, one a line; those in use are kept."""

    def __init__(self, folder: Path) -> None:
        with (folder / PRODUCTS).open("rb") as file:
            self._bytes = mmap(file.fileno(), 0, access=ACCESS_READ)
        self._offsets = np.load(folder / OFFSETS, mmap_mode="r")
        self._read = lru_cache(maxsize=4096)(self._line)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, number: int, /) -> Product:
        if not 0 <= number < len(self):
            raise IndexError(number)
        return self._read(number)

    def _line(self, number: int) -> Product:
        values = [_frozen(value) for value in json.loads(self._bytes[self._offsets[number] : self._offsets[number + 1]])]
        return Product(*[*values[:-1], tuple(Wish(*wish) for wish in values[-1])])


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _plain(product: Product) -> str:
    values = [getattr(product, field.name) for field in fields(product)]
    wishes = [(wish.text, wish.attributes, wish.options) for wish in product.wishes]
    return json.dumps([*values[:-1], wishes], ensure_ascii=False, separators=(",", ":")) + "\n"


def _fill(folder: Path, *, sources: Sources) -> None:
    """Write the stock of the files into ``folder``, one product after the other."""
    builder, offsets = Builder(), array("q", [0])
    wanted: dict[Kind, array[int]] = {kind: array("q") for kind in KINDS}
    tally = Tally()
    with (folder / PRODUCTS).open("wb") as file:
        for number, product in enumerate(_products(sources, tally)):
            offsets.append(offsets[-1] + file.write(_plain(product).encode()))
            builder.add(product.document())
            for kind in KINDS:
                if goal_count(product, kind):
                    wanted[kind].append(number)
            if (number + 1) % TOLD_EVERY == 0:
                sys.stderr.write(f"webshop: {number + 1:,} products read\n")
    if len(offsets) == 1:
        raise problem("products", sources.products, "", "it holds no product with an ASIN of at most 10 letters and digits")
    sys.stderr.write(tally.told())
    np.save(folder / OFFSETS, np.array(offsets, np.int64))
    for kind in KINDS:
        np.save(folder / f"{kind}.npy", np.array(wanted[kind], np.int64))
    builder.index().save(folder)


def _products(sources: Sources, tally: Tally) -> Iterator[Product]:
    """The products of the files; a second record of an ASIN is passed over, as by the original, and told in ``tally``."""
    attributes = _by_asin("attributes", sources.attributes)
    human = _by_asin("human_goals", sources.human_goals)
    seen = set()
    for where, record in records("products", sources.products):
        if not isinstance(record, Mapping):
            raise problem("products", sources.products, where, f"a product must be a JSON object, got {record!r:.40}")
        asin = str(record.get("asin", ""))
        told, wishes = (json.loads(found[asin]) if asin in found else None for found in (attributes, human))
        try:
            product = product_of(record, told, wishes)
        except ValueError as error:
            raise problem("products", sources.products, where, f"ASIN {asin!r:.20}: {error}") from None
        tally.read += 1
        if product is None or product.asin in seen:
            tally.left_out[without_asin(record) or "with the ASIN of an earlier one"] += 1
            continue
        seen.add(product.asin)
        tally.lacking.update(_lacking(product, record))
        yield product


def _lacking(product: Product, record: Mapping[str, Any]) -> Iterator[str]:
    """What a record that is kept does not tell."""
    if not product.title:
        yield "without a name ('name')"
    if not priced(record):
        yield f"without a price that can be read ('pricing'; they cost ${NO_PRICE:g})"


def _by_asin(setting: str, path: str) -> dict[str, bytes]:
    """The entries of a file by ASIN, each as JSON text: parsed objects would take several times the memory."""
    found: dict[str, bytes] = {}
    shape: type = list if setting == "human_goals" else Mapping
    for where, asin, value in pairs(setting, path) if path else ():
        if not isinstance(value, shape):
            wanted = "a list of instructions" if shape is list else "an object with attributes"
            raise problem(setting, path, where, f"{asin!r:.20} must have {wanted}, got {type(value).__name__}")
        found[asin] = json.dumps(value, separators=(",", ":")).encode()
    return found


def _digest(sources: Sources) -> str:
    """A name for the content of the files. Hashing gigabytes takes seconds, so it is noted by place, size and time."""
    parts = [
        _content(checked(field.name, name)) if (name := getattr(sources, field.name)) else "" for field in fields(sources)
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]


def _content(file: Path) -> str:
    known = file.stat()
    stamp = f"{file.resolve()}\n{known.st_size}\n{known.st_mtime_ns}\n{known.st_ino}"
    note = cache_dir() / "webshop" / "known" / hashlib.sha256(stamp.encode()).hexdigest()[:24]

    def write(folder: Path) -> None:
        try:
            with file.open("rb") as opened_file:
                digest = hashlib.file_digest(opened_file, "sha256").hexdigest()
        except OSError as error:
            raise ConfigError(f"'{file}' cannot be read: {error.strerror}") from None
        (folder / "sha256").write_text(digest, encoding="ascii")

    return (made_once(note, write) / "sha256").read_text(encoding="ascii")
