"""Products, and how the records of WebShop's public files become products."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ragen.envs.webshop.text import clean
from ragen.seeding import derive, generator

NO_PRICE = 100.0  # dollars; what the original takes for a product without a price
LONGEST_KEY = 10  # characters of an ASIN; records with a longer one are passed over, as by the original
Options = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Wish:
    """One instruction a person wrote for a product: the text, the attributes and the option values it asks for."""

    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Product:
    """One product; every text is clean (``ragen.envs.webshop.text``), option names and values are in lower case.

    A value that a file gives twice stands twice in ``options``: it gives its goals twice, as in the original.
    ``price`` (dollars) decides about a cap, ``price_tag`` is what is shown. ``path`` is the way through the categories.
    ``instruction`` with ``instruction_attributes`` makes the synthetic goals, ``wishes`` the human ones.
    """

    asin: str
    title: str
    category: str
    query: str
    path: tuple[str, ...]
    price: float
    price_tag: str
    rating: str
    description: str
    bullets: tuple[str, ...]
    reviews: tuple[str, ...]
    options: Options
    attributes: tuple[str, ...]
    instruction: str = ""
    instruction_attributes: tuple[str, ...] = ()
    wishes: tuple[Wish, ...] = ()

    def document(self) -> str:
        """What the search engine knows: title, description, first bullet and options."""
        options = " ".join(f"{name} {' '.join(values)}" for name, values in self.options)
        return " ".join((self.title, self.description, *self.bullets[:1], options))


class Catalogue(Protocol):
    """Products by number, from 0: a tuple, or a file."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> Product: ...


def product_of(
    record: Mapping[str, Any], attributes: Mapping[str, Any] | None = None, wishes: Sequence[Any] | None = None
) -> Product | None:
    """The product of a record, of either public form; None for a record without a usable ASIN.

    ``attributes`` is its entry in the attributes' file and ``wishes`` its list in the human goals' file, where there are
    such files. Raises ValueError with what is wrong.
    """
    if without_asin(record):
        return None
    asin = _asin(record)
    told = record if attributes is None else attributes
    price, tag = _price(asin, record.get("pricing"))
    given = record.get("instructions") if wishes is None else wishes
    return Product(
        asin=asin.upper(),
        title=_text(record, "name"),
        category=_text(record, "category"),
        query=_text(record, "query").lower(),
        path=tuple(part.strip() for part in _text(record, "product_category").split("›")),
        price=price,
        price_tag=tag,
        rating=_text(record, "Rating") or "N.A.",
        description=_text(record, "full_description"),
        bullets=_texts(record, "BulletPoints" if "BulletPoints" in record else "small_description"),
        reviews=_texts(record, "Reviews"),
        options=_options(record),
        attributes=_texts(told, "Attributes" if "Attributes" in told else "attributes"),
        instruction=_text(told, "instruction"),
        instruction_attributes=_texts(told, "instruction_attributes"),
        wishes=tuple(filter(None, map(_wish, _list("instructions", given)))),
    )


def without_asin(record: Mapping[str, Any]) -> str:
    """Why a record is passed over, as the end of "left out: 3 …"; empty where its ASIN can be used."""
    asin = _asin(record)
    if not asin or asin == "nan":
        return "without an ASIN ('asin')"
    if not (asin.isalnum() and asin.isascii()):
        return "with an ASIN that has other characters than letters and digits"
    return f"with an ASIN of more than {LONGEST_KEY} characters" if len(asin) > LONGEST_KEY else ""


def priced(record: Mapping[str, Any]) -> bool:
    """Whether a price can be read in a record; others cost ``NO_PRICE``."""
    return bool(_ends(record.get("pricing")))


def _asin(record: Mapping[str, Any]) -> str:
    return clean(str(record.get("asin") or ""))


def _wish(entry: Any) -> Wish | None:
    """A person's instruction; None for one that asks for no attribute, which the original passes over."""
    if not isinstance(entry, Mapping):
        raise ValueError(f"an instruction must be a mapping, got {type(entry).__name__}")
    attributes = _texts(entry, "instruction_attributes")
    if not attributes:
        return None
    options = tuple(value.lower() for value in _texts(entry, "instruction_options"))
    return Wish(_text(entry, "instruction").strip("."), attributes, options)


def _price(asin: str, pricing: Any) -> tuple[float, str]:
    """The price and its tag. Of a range the price is drawn (seeded by the ASIN) and both ends are shown."""
    ends = _ends(pricing)
    if not ends:
        return NO_PRICE, f"${NO_PRICE}"
    if len(ends) == 1:
        return ends[0], f"${ends[0]}"
    draw = generator(derive(int(asin, 36), "webshop", "price")).random()
    return ends[0] + (ends[1] - ends[0]) * float(draw), f"${ends[0]} to ${ends[1]}"


def _ends(pricing: Any) -> list[float]:
    """The price, or both ends of its range; nothing where the text names no dollars."""
    if isinstance(pricing, str):
        pricing = [re.sub(r"[^\d.]", "", part) for part in pricing.split("$")[1:]]
    try:
        ends = [float(end) for end in _list("pricing", pricing)][:2]
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"'pricing' must be dollars, such as '$9.99' or [9.99, 19.99], got {pricing!r}") from None
    if not all(0 <= end < float("inf") for end in ends):
        raise ValueError(f"'pricing' must be dollars of 0 or more, got {pricing!r}")
    return ends


def _options(record: Mapping[str, Any]) -> Options:
    """Names and values in lower case, ``/`` as ``|`` between blanks."""
    name = "customization_options" if "customization_options" in record else "options"
    given = record.get(name) or {}
    if not isinstance(given, Mapping):
        raise ValueError(f"'{name}' must be a mapping from names to values, got {type(given).__name__}")
    out: dict[str, tuple[str, ...]] = {}
    for key, entries in given.items():
        values = (entry.get("value", "") if isinstance(entry, Mapping) else entry for entry in _list(name, entries))
        option = clean(str(key)).lower()
        plain = (clean(str(value).strip().replace("/", " | ")).lower() for value in values)
        merged = (*out.get(option, ()), *filter(None, plain))
        if option and merged:
            out[option] = merged
    return tuple(out.items())


def _text(record: Mapping[str, Any], key: str) -> str:
    value = record.get(key)
    if not isinstance(value, str | int | float | None):
        raise ValueError(f"'{key}' must be a text, got {type(value).__name__}")
    return "" if value is None else clean(str(value))


def _texts(record: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = record.get(key)
    parts = [value] if isinstance(value, str) else _list(key, value)
    return tuple(filter(None, (clean(str(part)) for part in parts)))


def _list(key: str, value: Any) -> Sequence[Any]:
    if not isinstance(value, list | tuple | None):
        raise ValueError(f"'{key}' must be a list, got {type(value).__name__}")
    return value or ()
