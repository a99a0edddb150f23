"""Product files: both forms are read entry by entry, what is wrong is told in one message, and the stock is kept."""

import json
import re

import pytest
from tests.webshop_products import ENTRY, PLAIN, WISH, public_record, written

from ragen.envs.registry import environment_factory
from ragen.envs.webshop import files, stock
from ragen.envs.webshop.catalogue import Wish, product_of
from ragen.envs.webshop.stock import Sources, StoredCatalogue, stock_of, synthetic_stock
from ragen.errors import ConfigError, ModelError

pytestmark = pytest.mark.usefixtures("ragen_cache")


def read(path, setting="products"):
    return [value for _, value in files.records(setting, path)]


def test_a_public_record_becomes_the_product():
    found = product_of(public_record(Rating="4.1"), ENTRY)
    assert found == PLAIN


def test_the_line_form_becomes_the_same_product():
    line = {
        "asin": "B000000001", "name": PLAIN.title, "category": "fashion", "query": "hoodies", "pricing": [25.0],
        "product_category": "Clothing › Men › Hoodies", "Price": "$25.0", "Rating": "4.1",
        "full_description": PLAIN.description, "BulletPoints": list(PLAIN.bullets),
        "options": {"color": ["red", "navy"], "size": ["small", "large", "xx-large"]}, "Attributes": list(PLAIN.attributes),
        "instructions": None,
    }  # fmt: skip
    assert product_of(line, ENTRY) == PLAIN
    alone = product_of(line)
    assert (alone.attributes, alone.instruction) == (PLAIN.attributes, "")


@pytest.mark.parametrize(
    ("pricing", "price", "tag"),
    [
        ("$9.99", 9.99, "$9.99"),
        ("$1,009.50", 1009.5, "$1009.5"),
        (None, 100.0, "$100.0"),
        ("", 100.0, "$100.0"),
        ([], 100.0, "$100.0"),
        ([12], 12.0, "$12.0"),
    ],
)
def test_prices(pricing, price, tag):
    found = product_of(public_record(pricing=pricing))
    assert (found.price, found.price_tag) == (price, tag)


def test_of_a_price_range_one_price_is_drawn_by_the_asin_and_both_ends_are_shown():
    prices = {product_of(public_record(asin=f"B{n}", pricing="$10.00 - $20.00 $30")).price for n in range(50)}
    assert len(prices) == 50
    assert all(10 <= price <= 20 for price in prices)
    assert max(prices) - min(prices) > 5
    again = product_of(public_record(asin="B7", pricing="$10.00 to $20.00"))
    assert again.price in prices
    assert again.price_tag == "$10.0 to $20.0"


def test_options_are_lower_case_with_bars_for_slashes_and_keep_repeated_values():
    options = {"Color": [{"value": "Red/Blue "}, {"value": "red/blue"}, {"value": ""}], "Size ": ["[S]\n"], "x": []}
    found = product_of(public_record(customization_options=options))
    assert found.options == (("color", ("red | blue", "red | blue")), ("size", ("(s)",)))


def test_people_ask_for_attributes_and_lower_case_values():
    found = product_of(public_record(), ENTRY, [WISH, WISH | {"instruction_attributes": []}])
    assert found.wishes == (Wish("i want a red hoodie", ("long sleeve",), ("red",)),)
    assert product_of(public_record(instructions=[WISH])).wishes == found.wishes


@pytest.mark.parametrize("asin", ["", "nan", "B0000000012", "B00-1", "Next >", "Б00", None])
def test_records_without_a_usable_asin_are_passed_over(asin):
    assert product_of(public_record(asin=asin)) is None


RECORDS = [public_record(asin=f"B{n:03d}", name=f'T{n} "[" {{é\n' * (n + 1)) for n in range(30)]
FORMS = {
    "list": json.dumps(RECORDS),
    "indented": json.dumps(RECORDS, indent=2, ensure_ascii=False),
    "lines": "\n".join(map(json.dumps, RECORDS)) + "\n\n",
    "marked": "\ufeff" + json.dumps(RECORDS),
}


@pytest.mark.parametrize("chunk", [1, 7, 100, 1 << 20])
@pytest.mark.parametrize("form", FORMS)
def test_entries_are_found_wherever_a_chunk_ends(tmp_path, monkeypatch, form, chunk):
    monkeypatch.setattr(files, "CHUNK", chunk)
    assert read(written(tmp_path / "f", FORMS[form])) == RECORDS


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_an_object_by_asin_is_read_likewise(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(files, "CHUNK", chunk)
    entries = {record["asin"]: record for record in RECORDS}
    for text in (json.dumps(entries), json.dumps(entries, indent=1)):
        path = written(tmp_path / "f", text)
        assert {key: value for _, key, value in files.pairs("attributes", path)} == entries


def test_the_place_of_an_entry_is_its_line_and_number(tmp_path):
    path = written(tmp_path / "f", json.dumps(RECORDS[:3], indent=2))
    lines = json.dumps(RECORDS[:3], indent=2).split("\n")
    starts = [number for number, line in enumerate(lines, 1) if line == "  {"]
    assert [where for where, _ in files.records("products", path)] == [
        f"line {line}, entry {number}" for number, line in enumerate(starts, 1)
    ]


GOOD = json.dumps([public_record()])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "there is no such file"),
        ("", "it is empty"),
        ("[]", "it holds no product"),
        (json.dumps({"B000000001": ENTRY}), "it holds no product with an ASIN"),  # the attributes' file in its place
        ("  \n", "a JSON list of products is needed, or a product a line"),
        ("<html>quota exceeded</html>", "a JSON list of products is needed, or a product a line"),
        (GOOD[:-1], "it ends in the middle"),
        (GOOD[:300], "line 1, entry 1: it ends in the middle"),
        (GOOD[:-1] + ',\n{"asin": }]', r"line 2, entry 2: it is not valid JSON \(Expecting value\)"),
        (GOOD[:-1] + ",\n[1]]", r"line 2, entry 2: a product must be a JSON object, got \[1\]"),
        (json.dumps([public_record(pricing={"a": 1})]), "ASIN 'B000000001': 'pricing' must be dollars, such as"),
        (json.dumps([public_record(pricing=["x"])]), "'pricing' must be dollars"),
        (json.dumps([public_record(pricing=[-1])]), "'pricing' must be dollars of 0 or more"),
        (json.dumps([public_record(name=["x"])]), "'name' must be a text, got list"),
        (json.dumps([public_record(customization_options=[1])]), "must be a mapping from names to values, got list"),
        (json.dumps([public_record(instructions=["x"])]), "an instruction must be a mapping, got str"),
    ],
)
def test_c19_a_file_that_cannot_be_used_is_told_in_one_message_with_its_source(tmp_path, text, told):
    path = tmp_path / "products.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=told) as caught:
        environment_factory({"name": "webshop", "products": str(path)})
    message = str(caught.value)
    assert message.startswith(f"env.products '{path}'")
    assert "setup.sh" in message
    assert "Google Drive" in message
    assert "?." not in message
    assert "\n" not in message


def test_a_folder_and_bytes_that_are_no_text_are_told_too(tmp_path):
    (tmp_path / "bytes").write_bytes(b'[{"asin": "\xff\xfe"}]')
    for name, told in (("", "there is no such file"), ("bytes", "it is not UTF-8 text")):
        with pytest.raises(ConfigError, match=told):
            stock_of(Sources(str(tmp_path / name)))


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("attributes", [ENTRY], "a JSON object by ASIN is needed"),
        ("attributes", {"B000000001": [1]}, "'B000000001' must have an object with attributes, got list"),
        ("human_goals", {"B000000001": WISH}, "'B000000001' must have a list of instructions, got dict"),
        ("human_goals", "{", "it ends in the middle"),
        ("attributes", '{"B1" 3}', "a colon is missing"),
    ],
)
def test_the_files_beside_the_products_are_checked_as_well(tmp_path, setting, value, told):
    products = written(tmp_path / "p.json", [public_record()])
    with pytest.raises(ConfigError, match=told) as caught:
        stock_of(Sources(**{"products": products, setting: written(tmp_path / "other.json", value)}))
    assert str(caught.value).startswith(f"env.{setting} '{tmp_path}/other.json'")


def test_no_goal_names_the_file_that_brings_some(tmp_path):
    products = written(tmp_path / "p.json", [public_record()])
    for goals, wanted in (("synthetic", "env.attributes"), ("human", "env.human_goals")):
        with pytest.raises(ConfigError, match=rf"env\.goals is '{goals}'.*name {re.escape(wanted)}"):
            environment_factory({"name": "webshop", "products": products, "goals": goals})


def test_the_three_files_make_a_shop_with_both_kinds_of_goals(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    written(tmp_path / "p.json", [public_record(), public_record(), public_record(asin="B2")])
    written(tmp_path / "a.json", {"B000000001": ENTRY})
    written(tmp_path / "h.json", {"B2": [WISH, WISH]})
    found = stock_of(Sources("~/p.json", "~/a.json", "~/h.json"))
    assert [found.catalogue[n].asin for n in range(len(found.catalogue))] == ["B000000001", "B2"]
    assert {kind: list(numbers) for kind, numbers in found.wanted.items()} == {"synthetic": [0], "human": [1]}
    assert len(found.catalogue[1].wishes) == 2


def test_a_stored_catalogue_is_what_was_put_into_it(tmp_path):
    made = synthetic_stock(60, 3).catalogue
    records = [
        {
            "asin": each.asin, "name": each.title, "category": each.category, "query": each.query, "pricing": [each.price],
            "product_category": " › ".join(each.path), "Rating": each.rating, "full_description": each.description,
            "BulletPoints": each.bullets, "Reviews": each.reviews, "options": dict(each.options),
            "Attributes": each.attributes, "instruction": each.instruction,
            "instruction_attributes": each.instruction_attributes, "instructions": [WISH],
        }
        for each in made
    ]  # fmt: skip
    kept = stock_of(Sources(written(tmp_path / "p.jsonl", "\n".join(map(json.dumps, records))))).catalogue
    assert isinstance(kept, StoredCatalogue)
    assert len(kept) == 60
    for number in (0, 17, 59):
        assert kept[number] == product_of(records[number])
    for number in (-1, 60):
        with pytest.raises(IndexError):
            kept[number]


def test_the_stock_is_built_once_for_a_content_wherever_it_lies(tmp_path, monkeypatch):
    built = []
    fill = stock._fill
    monkeypatch.setattr(stock, "_fill", lambda folder, **given: (built.append(given), fill(folder, **given)))
    path = written(tmp_path / "p.json", [public_record()])
    stock_of(Sources(path))
    stock_of(Sources(path))
    stock_of(Sources(written(tmp_path / "copy.json", [public_record()])))
    assert len(built) == 1
    changed = stock_of(Sources(written(tmp_path / "p.json", [public_record(name="Other")])))
    assert len(built) == 2
    assert changed.catalogue[0].title == "Other"


def test_a_failed_build_leaves_nothing_that_looks_like_a_stock(tmp_path, ragen_cache):
    path = tmp_path / "p.json"
    for text in (GOOD[:300], GOOD):
        path.write_text(text)
        if text != GOOD:
            with pytest.raises(ConfigError):
                stock_of(Sources(str(path)))
    assert len(stock_of(Sources(str(path))).catalogue) == 1


def test_a_damaged_stock_says_which_folder_to_remove(tmp_path, ragen_cache):
    path = written(tmp_path / "p.json", [public_record()])
    stock_of(Sources(path))
    (weights,) = ragen_cache.rglob("weights.npy")
    for spoil in (lambda: weights.write_bytes(b"x"), weights.unlink):
        spoil()
        with pytest.raises(ModelError, match=re.escape(f"remove the folder '{weights.parent}'")):
            stock_of(Sources(path))


def test_progress_is_told_on_the_error_stream(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(stock, "TOLD_EVERY", 2)
    records = [public_record(asin=f"B{n}") for n in range(5)]
    stock_of(Sources(written(tmp_path / "p.json", records)))
    told = capsys.readouterr()
    assert told.err.startswith(
        "webshop: 2 products read\nwebshop: 4 products read\nwebshop: 5 records read, 5 products kept\n"
    )
    assert told.out == ""


def test_what_is_left_out_and_what_lacks_is_told_once_with_its_reason(tmp_path, capsys):
    bare = public_record(asin="B2", name="", pricing="ask us")
    left_out = [public_record(), public_record(asin="B2345678901"), public_record(asin="B-3"), public_record(asin=None)]
    path = written(tmp_path / "p.json", [public_record(), bare, *left_out, public_record(asin="B4", pricing=None)])
    for _ in range(2):
        stock_of(Sources(path))
    assert capsys.readouterr().err == (
        "webshop: 7 records read, 3 products kept; left out: 1 with the ASIN of an earlier one, 1 with an ASIN of more than "
        "10 characters, 1 with an ASIN that has other characters than letters and digits, 1 without an ASIN ('asin'); kept: "
        "1 without a name ('name'), 2 without a price that can be read ('pricing'; they cost $100)\n"
    )
