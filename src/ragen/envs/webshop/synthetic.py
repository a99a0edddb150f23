"""A made-up catalogue: plausible products out of word lists, so that the shop opens with nothing to download."""

from dataclasses import dataclass
from random import Random
from string import capwords

from ragen.envs.webshop.catalogue import Options, Product
from ragen.seeding import derive

COLORS = (
    "black", "white", "navy", "red", "forest green", "light grey", "beige", "sky blue", "burgundy", "mustard yellow", "pink",
    "dark brown", "teal", "lavender", "orange",
)  # fmt: skip
VALUES = {
    "color": COLORS,
    "size": ("x-small", "small", "medium", "large", "x-large", "xx-large"),
    "shoe size": ("6", "7", "7.5", "8", "8.5", "9", "10", "11"),
    "fit type": ("men", "women", "youth"),
    "volume": ("50 ml", "100 ml", "250 ml", "500 ml", "1 liter"),
    "scent": ("unscented", "lavender", "citrus", "vanilla", "mint", "rose"),
    "flavor": ("original", "dark chocolate", "sea salt", "honey", "berry", "cinnamon", "lemon"),
    "pack": ("pack of 1", "pack of 2", "pack of 3", "pack of 6", "pack of 12"),
    "length": ("3 feet", "6 feet", "10 feet", "15 feet"),
    "capacity": ("16gb", "32gb", "64gb", "128gb", "256gb"),
    "dimensions": ("twin", "full", "queen", "king"),
    "panel": ("36 x 48 in", "42 x 63 in", "52 x 84 in", "52 x 96 in"),
}
ATTRIBUTES = {
    "fashion": (
        "machine wash", "slim fit", "long sleeve", "cotton lining", "elastic waist", "quick drying", "hand wash",
        "tumble dry", "relaxed fit", "moisture wicking", "stretch fabric", "drawstring closure", "classic fit",
        "button closure",
    ),
    "shoes": (
        "rubber sole", "memory foam", "arch support", "slip resistant", "lace up", "faux leather", "wide width",
        "shock absorbent", "water resistant", "breathable mesh", "steel toe", "ankle strap",
    ),
    "beauty": (
        "cruelty free", "paraben free", "sulfate free", "tea tree", "coconut oil", "hyaluronic acid",
        "sensitive skin", "dry skin", "long lasting", "fragrance free", "vitamin c", "argan oil", "oil free",
        "travel size",
    ),
    "electronics": (
        "noise cancelling", "fast charging", "plug play", "wireless bluetooth", "high speed", "heavy duty",
        "gold plated", "easy install", "stereo sound", "water proof", "ultra hd", "hands free", "carrying case",
        "long lasting battery",
    ),
    "garden": (
        "solid wood", "easy assemble", "easy clean", "space saving", "storage space", "stainless steel",
        "living room", "machine washable", "super soft", "wall mounted", "steel frame", "mid century", "eco friendly",
        "wood finish",
    ),
    "grocery": (
        "gluten free", "low sugar", "non gmo", "plant based", "dairy free", "high protein", "keto friendly",
        "nut free", "certified organic", "low sodium", "ready eat", "artificial colors free", "individually wrapped",
        "soy free",
    ),
}  # fmt: skip
FASHION, SHOES, CARE, SOUND = "Clothing, Shoes & Jewelry", "Shoes", "Beauty & Personal Care", "Electronics"
HOME, FOOD = "Home & Kitchen", "Grocery & Gourmet Food"


@dataclass(frozen=True, slots=True)
class Sort:
    """A sort of product: its search words, noun, way through the categories, pool of attributes, options and prices."""

    query: str
    noun: str
    path: tuple[str, ...]
    pool: str
    options: tuple[str, ...]
    prices: tuple[int, int]


def _sorts(pool: str, top: str, prices: tuple[int, int], *rows: tuple[str, str, str, str]) -> tuple[Sort, ...]:
    return tuple(
        Sort(query, noun, (top, branch, capwords(query)), pool, tuple(options.split(", ")), prices)
        for query, noun, branch, options in rows
    )


SORTS = (
    *_sorts(
        "fashion", FASHION, (12, 70),
        ("men's t-shirts", "T-Shirt", "Men", "color, size"),
        ("women's dresses", "Dress", "Women", "color, size"),
        ("hoodies", "Hooded Sweatshirt", "Men", "color, size, fit type"),
        ("women's leggings", "Leggings", "Women", "color, size"),
        ("men's shorts", "Shorts", "Men", "color, size"),
        ("rain jackets", "Rain Jacket", "Women", "color, size, fit type"),
        ("pajama sets", "Pajama Set", "Women", "color, size"),
        ("cardigans", "Cardigan Sweater", "Women", "color, size"),
    ),
    *_sorts(
        "shoes", FASHION, (20, 120),
        ("running shoes", "Running Shoe", SHOES, "color, shoe size"),
        ("work boots", "Work Boot", SHOES, "color, shoe size"),
        ("women's sandals", "Sandal", SHOES, "color, shoe size"),
        ("slippers", "House Slipper", SHOES, "color, shoe size"),
    ),
    *_sorts(
        "beauty", CARE, (5, 45),
        ("face moisturizers", "Face Moisturizer", "Skin Care", "volume, scent"),
        ("shampoos", "Shampoo", "Hair Care", "volume, scent"),
        ("body lotions", "Body Lotion", "Skin Care", "volume, scent"),
        ("hair masks", "Hair Mask", "Hair Care", "volume"),
        ("sunscreens", "Sunscreen", "Skin Care", "volume"),
        ("lip balms", "Lip Balm", "Lip Care", "scent, pack"),
        ("deodorants", "Deodorant", "Personal Hygiene", "scent, pack"),
    ),
    *_sorts(
        "electronics", SOUND, (9, 250),
        ("headphones", "Headphones", "Audio", "color"),
        ("hdmi cables", "HDMI Cable", "Accessories", "length, color"),
        ("phone chargers", "Phone Charger", "Accessories", "color, length"),
        ("bluetooth speakers", "Speaker", "Audio", "color"),
        ("usb flash drives", "Flash Drive", "Computers", "capacity, color"),
        ("security cameras", "Security Camera", "Cameras", "color, pack"),
        ("tablet cases", "Tablet Case", "Accessories", "color"),
        ("gaming keyboards", "Keyboard", "Computers", "color"),
    ),
    *_sorts(
        "garden", HOME, (15, 400),
        ("coffee tables", "Coffee Table", "Furniture", "color"),
        ("bookcases", "Bookcase", "Furniture", "color"),
        ("table lamps", "Table Lamp", "Lighting", "color, pack"),
        ("curtains", "Curtain Panel", "Window Treatments", "color, panel"),
        ("bed sheets", "Sheet Set", "Bedding", "color, dimensions"),
        ("office chairs", "Office Chair", "Furniture", "color"),
        ("bath towels", "Bath Towel", "Bath", "color, pack"),
        ("mattresses", "Mattress", "Bedding", "dimensions"),
        ("storage baskets", "Storage Basket", "Storage", "color, pack"),
    ),
    *_sorts(
        "grocery", FOOD, (4, 40),
        ("protein bars", "Protein Bar", "Snacks", "flavor, pack"),
        ("trail mixes", "Trail Mix", "Snacks", "flavor, pack"),
        ("herbal teas", "Herbal Tea", "Beverages", "flavor, pack"),
        ("granola", "Granola", "Breakfast", "flavor, pack"),
        ("popcorn", "Popcorn", "Snacks", "flavor, pack"),
        ("crackers", "Cracker", "Snacks", "flavor, pack"),
    ),
)  # fmt: skip
HEADS = ("Nor", "Bel", "Tav", "Lum", "Kes", "Or", "Vin", "Sol", "Mar", "Fen", "Dor", "Cal", "Ze", "Hal", "Ri")
TAILS = ("dale", "vana", "mont", "eska", "ora", "wick", "tine", "berg", "ello", "ara", "ix", "by", "field", "une", "isto")
MODELS = ("Classic", "Essential", "Premium", "Everyday", "Signature", "Original", "Compact", "Deluxe", "Modern", "Pro")
PLACES = ("home", "travel", "work", "the weekend", "everyday use", "gifts", "the family", "outdoors", "school", "the office")
PRAISE = (
    "Just as described, I would buy it again.",
    "Arrived quickly and well packed.",
    "Good value for the price.",
    "It does what it should, nothing more.",
    "My second one, still happy with it.",
    "Not quite the color of the picture, but nice.",
)
_STEP = 1_664_525_000_001  # odd and no multiple of 3: every number below 36⁸ is met once


def make_catalogue(size: int, seed: int) -> tuple[Product, ...]:
    """``size`` products; product *i* depends on ``seed`` and *i* alone, so a larger catalogue begins like a smaller one."""
    return tuple(_product(number, seed) for number in range(size))


def _product(number: int, seed: int) -> Product:
    rng = Random(derive(seed, "webshop", "product", number))
    sort = SORTS[number % len(SORTS)]
    brand = rng.choice(HEADS) + rng.choice(TAILS)
    attributes = tuple(rng.sample(ATTRIBUTES[sort.pool], 5))
    options = _options(rng, sort)
    model, place = rng.choice(MODELS), rng.choice(PLACES)
    price = rng.randint(*sort.prices) + rng.choice((0.0, 0.49, 0.95, 0.99))
    asked = tuple(rng.sample(attributes, rng.randint(2, 3)))
    return Product(
        asin=_asin(number, seed),
        title=f"{brand} {model} {sort.noun} for {capwords(place)}, {capwords(attributes[0])}, {capwords(attributes[1])}",
        category=sort.pool,
        query=sort.query,
        path=sort.path,
        price=round(price, 2),
        price_tag=f"${price:.2f}",
        rating=f"{rng.randint(28, 50) / 10}",
        description=(
            f"The {model} by {brand} is one of our {sort.query}, made for {place}. "
            f"It is {attributes[2]} and {attributes[3]}, and comes in {len(options[0][1])} kinds of {options[0][0]}."
        ),
        bullets=tuple(f"{attribute.capitalize()}: {_because(rng, sort, place)}" for attribute in attributes),
        reviews=tuple(rng.sample(PRAISE, rng.randint(0, 2))),
        options=options,
        attributes=attributes,
        instruction=f"Find me {', '.join(asked[:-1])} {sort.query} with {asked[-1]}",
        instruction_attributes=asked,
    )


def _because(rng: Random, sort: Sort, place: str) -> str:
    text = rng.choice(("what you expect of a good {noun}", "made to last", "tested for {place}", "a {noun} you can rely on"))
    return text.format(noun=sort.noun.lower(), place=place)


def _options(rng: Random, sort: Sort) -> Options:
    """Two to five values of each option, in the order of their list."""
    out = []
    for name in sort.options:
        values = VALUES[name]
        chosen = sorted(rng.sample(range(len(values)), min(len(values), rng.randint(2, 5))))
        out.append((name, tuple(values[place] for place in chosen)))
    return tuple(out)


def _asin(number: int, seed: int) -> str:
    """``B0`` and eight characters, different for each number of a catalogue."""
    rest = (number + 1) * _STEP + derive(seed, "webshop", "asin")
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return "B0" + "".join(digits[rest // 36**place % 36] for place in range(7, -1, -1))
