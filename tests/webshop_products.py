"""Products, stocks and files of a shop for tests."""

import json
from dataclasses import replace

from ragen.envs.webshop.catalogue import Product
from ragen.envs.webshop.engine import Shop
from ragen.envs.webshop.goals import goal_count
from ragen.envs.webshop.index import build
from ragen.envs.webshop.stock import Stock

PLAIN = Product(
    asin="B000000001",
    title="Acme Cotton Hoodie Sweatshirt",
    category="fashion",
    query="hoodies",
    path=("Clothing", "Men", "Hoodies"),
    price=25.0,
    price_tag="$25.0",
    rating="4.1",
    description="A warm hoodie with a kangaroo pocket.",
    bullets=("Machine wash cold", "Drawstring closure"),
    reviews=(),
    options=(("color", ("red", "navy")), ("size", ("small", "large", "xx-large"))),
    attributes=("machine wash", "long sleeve"),
    instruction="Find me machine wash hoodies with long sleeve",
    instruction_attributes=("machine wash", "long sleeve"),
)


def product(**changes):
    return replace(PLAIN, **changes)


def numbered(count, **changes):
    return [product(asin=f"B{number:09d}", **changes) for number in range(count)]


def stock_with(products):
    index = build(each.document() for each in products)
    kinds = {kind: [n for n, each in enumerate(products) if goal_count(each, kind)] for kind in ("synthetic", "human")}
    return Stock(tuple(products), index, kinds)


def shop_with(products):
    return Shop(stock_with(products))


def public_record(**changes):
    """A product as items_shuffle_*.json has it."""
    record = {
        "asin": "B000000001",
        "name": "Acme Cotton Hoodie Sweatshirt",
        "category": "fashion",
        "query": "hoodies",
        "product_category": "Clothing › Men › Hoodies",
        "pricing": "$25.00",
        "full_description": "A warm hoodie with a kangaroo pocket.",
        "small_description": ["Machine wash cold", "Drawstring closure"],
        "customization_options": {
            "Color": [{"value": "Red", "image": None}, {"value": "Navy"}],
            "Size": [{"value": "Small"}, {"value": "Large"}, {"value": "XX-Large"}],
            "Empty": None,
        },
    }
    return record | changes


ENTRY = {
    "attributes": ["machine wash", "long sleeve"],
    "instruction": "Find me machine wash hoodies with long sleeve",
    "instruction_attributes": ["machine wash", "long sleeve"],
}
WISH = {
    "instruction": "i want a red hoodie.",
    "instruction_attributes": ["long sleeve"],
    "instruction_options": ["Red"],
    "options": ["color: red"],
}


def written(path, value):
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return str(path)
