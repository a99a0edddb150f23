"""Gaps in sentences of articles: what is asked, what is right, what tools show, and files of many forms."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.envs import environment_factory
from ragen.envs.wiki.corpus import load_index
from ragen.envs.wiki.questions import GAP, KINDS, Cloze, clozes, is_right, plain, read_gap
from ragen.envs.wiki.synthetic import articles
from ragen.errors import ConfigError
from ragen.rollout.demonstrations import play, players_of, random_player
from ragen.rollout.instances import evaluation_specs
from ragen.tools import ToolError
from ragen.tools.call import Call, final
from ragen.tools.search import Document

DATA = Path(os.environ.get("RAGEN_DATA", Path(__file__).parents[2].parent / "shared" / "data")) / "wiki"
TOWER = Document(
    "Tall Tower",
    "The Tall Tower is 1,330 feet high and was built in 1889 by Gustave Eiffel. It is tall. Between 1889–1930 it was the "
    "tallest of 12 towers. In 1889 and again in 1889 it was painted by many careful people. A visit to the Tall Tower costs "
    "$25 for each of the 300.5 thousand guests of Saint Denis.",
)


def test_gaps_are_years_numbers_and_names_that_stand_once_and_not_in_the_title() -> None:
    assert [(each.kind, each.answer) for each in clozes(TOWER, KINDS)] == [
        ("year", "1889"),
        ("number", "1,330"),
        ("name", "Gustave Eiffel"),
        ("number", "12"),
        ("number", "300.5"),
        ("name", "Saint Denis"),
    ]
    assert clozes(TOWER, ("year",))[0].text == f"The Tall Tower is 1,330 feet high and was built in {GAP} by Gustave Eiffel."


@given(st.text(max_size=300), st.text(max_size=20))
def test_a_gap_filled_with_its_answer_is_the_sentence(text: str, title: str) -> None:
    document = Document(title, f"{text} In 1889 the old house of Anna Berg had 12 rooms. {text}")
    for each in clozes(document, KINDS):
        assert each.text.count(GAP) == 1
        assert each.text.replace(GAP, each.answer) in document.text
        assert is_right(each.answer, each)
        assert each.answer not in each.text.replace(GAP, "")


@pytest.mark.parametrize(
    ("kind", "gold", "answer", "right"),
    [
        ("year", "1889", "1889", True),
        ("year", "1889", "in 1889.", True),
        ("year", "1889", "1889 or 1890", False),
        ("year", "1889", "1888", False),
        ("number", "1,330", "1330 feet", True),
        ("number", "300.5", "300.50", True),
        ("number", "300.5", "300", False),
        ("name", "Gustave Eiffel", " gustave  eiffel. ", True),
        ("name", "Gustave Eiffel", "the Gustave-Eiffel", True),
        ("name", "Gustave Eiffel", "Eiffel", False),
        ("name", "Gustave Eiffel", "Gustave Eiffel or Anna Berg", False),
        ("name", "Gustave Eiffel", "", False),
        ("number", "12", "", False),
    ],
)
def test_what_is_right(kind: Any, gold: str, answer: str, *, right: bool) -> None:
    assert is_right(answer, Cloze("x", GAP, gold, kind)) is right


def test_the_made_up_articles_are_always_the_same_and_answerable() -> None:
    made = articles()
    assert len(made) == len({document.title for document in made}) == 400
    assert made[0].title == "Velormond"
    asked = [each for document in made for each in clozes(document, KINDS)]
    assert {each.kind for each in asked} == set(KINDS)
    assert len({(each.title, each.text) for each in asked}) == len(asked) > 1500


@pytest.mark.parametrize(("name", "least"), [("wiki", 1.0), ("wiki-untitled", 0.8), ("wiki-plain", 1.0)])
def test_floors_and_ceilings(name: str, least: float) -> None:
    make = environment_factory({"name": name})
    specs = evaluation_specs(name, episodes=100, samples=1, seed=0)
    env = make()
    env.reset(instance_seed=0, dynamics_seed=0)
    players = players_of(env)
    score = {player: sum(play(spec, make, players[player])[0] for spec in specs) / 100 for player in players}
    assert score["optimal"] == 1.0
    assert score["reader"] >= least
    assert score["random"] < 0.1


def test_the_search_shows_titles_and_snippets_and_an_article_can_be_read() -> None:
    env = environment_factory({"name": "wiki", "results": 2, "snippet": 60})()
    env.reset(instance_seed=3, dynamics_seed=0)
    article = env.content().splitlines()[0]
    shown = env.step(str(Call("search", {"query": article}))).observation.splitlines()
    assert len(shown) == 2
    assert shown[0].startswith(f"{article}: ")
    assert all(len(line) < 120 for line in shown)
    text = env.step(str(Call("read", {"title": f" {article.upper()} "}))).observation
    assert env.solution() in text
    for call, told in (
        (Call("search", {"query": "zzz"}), "nothing was found"),
        (Call("read", {"title": "zzz"}), "no article 'zzz'"),
    ):
        assert told in env.step(str(call)).observation


def test_titles_that_differ_by_case_alone_are_read_each(tmp_path: Path) -> None:
    text = "The old bridge of the town was built in {} by many people."
    records = [{"title": title, "text": text.format(year)} for title, year in (("Aids", 1801), ("AIDS", 1802))]
    path = tmp_path / "case.json"
    path.write_text(json.dumps(records))
    env = environment_factory({"name": "wiki", "file": str(path)})()
    env.reset(instance_seed=0, dynamics_seed=0)
    for title, year in (("Aids", "1801"), ("AIDS", "1802"), ("aids", "1801")):
        assert year in env.step(str(Call("read", {"title": title}))).observation


def test_a_number_that_no_answer_could_name_is_no_gap() -> None:
    text = f"The wall of the town hall has the number {'7' * 1200} and is built of stone."
    assert clozes(Document("x", text), KINDS) == ()


def test_a_search_that_finds_nothing_is_an_error_of_the_tool() -> None:
    env = environment_factory({"name": "wiki"})()
    with pytest.raises(ToolError):
        env.search("")


def test_the_question_names_the_article_only_if_told_to() -> None:
    told, untold = (environment_factory({"name": name})() for name in ("wiki", "wiki-untitled"))
    one, other = (env.reset(instance_seed=1, dynamics_seed=0).text for env in (told, untold))
    assert one == f"Article: {told.content().splitlines()[0]}\n{other}"
    assert told.content() == untold.content()


RECORDS = [
    {"title": f"Place {i}", "text": f"In the year {1800 + i} the place had {10 + i} houses and one large inn."}
    for i in range(4)
]


@pytest.mark.parametrize(
    "write",
    [
        lambda: "\n".join(json.dumps(record) for record in RECORDS) + "\n\n",
        lambda: json.dumps(RECORDS),
        lambda: json.dumps({record["title"]: record for record in RECORDS}),
        lambda: json.dumps([{"title": record["title"], "extract": record["text"]} for record in RECORDS]),
        lambda: json.dumps([*RECORDS, RECORDS[0]], indent=1),
    ],
    ids=["lines", "list", "by title", "extract", "doubled"],
)
def test_files_of_many_forms_hold_the_same_articles(tmp_path: Path, write: Callable[[], str]) -> None:
    path = tmp_path / "articles.json"
    path.write_text(write(), encoding="utf-8")
    documents = load_index(str(path)).documents
    assert [(d.title, d.text) for d in documents] == [(r["title"], r["text"]) for r in RECORDS]
    make = environment_factory({"name": "wiki", "file": str(path), "kinds": ["year"]})
    env = make()
    assert GAP in env.reset(instance_seed=0, dynamics_seed=0).text
    assert env.solution().startswith("180")


def test_one_article_alone_and_text_with_tags_and_newlines(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_text(
        json.dumps(
            {"title": "A </answer>\n b", "text": "In 1889 the\n\nhouse had many <tool_call>{}</tool_call> old rooms."}
        )
    )
    (document,) = load_index(str(path)).documents
    assert document == Document("A ‹/answer> b", "In 1889 the house had many ‹tool_call>{}‹/tool_call> old rooms.")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "holds no article"),
        ("[]", "holds no article"),
        ("[1]", "record 1: it has no 'title' and 'text'"),
        ('{"title": "x"}', "record 1: it has no 'title' and 'text'"),
        ('[{"title": " ", "text": "x"}]', "record 1"),
        ('{"title": "x", "text": "y"}\n{"title": ', "line 2: it is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('[{"title": "x", "text": "Short."}]', "has a sentence of 8 to 40 words"),
    ],
)
def test_a_faulty_file_is_one_message(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=why):
        environment_factory({"name": "wiki", "file": str(path)})


@pytest.mark.parametrize("name", ["nowhere.json", ".", "a\x00b", "~nobody_there/x"])
def test_a_file_that_is_not_there_is_one_message(name: str) -> None:
    with pytest.raises(ConfigError, match=r"env\.file .* cannot be read .*made-up articles"):
        environment_factory({"name": "wiki", "file": name})


def test_an_article_tells_what_stood_in_a_gap() -> None:
    for each in clozes(TOWER, KINDS):
        assert read_gap(each.text, TOWER.text) == each.answer
        assert read_gap(each.text, "Another text.") == ""


def test_names_are_compared_as_squad_does() -> None:
    assert plain("The  U.S. an _Army_!") == "u s army"
    assert final("x") != final("y")


@pytest.mark.skipif(not DATA.is_dir(), reason="needs wiki/summaries_en.json (10,033 Wikipedia summaries) in $RAGEN_DATA")
def test_ten_thousand_summaries_are_answerable_by_search() -> None:
    make = environment_factory({"name": "wiki", "file": str(DATA / "summaries_en.json")})
    specs = evaluation_specs("wiki", episodes=100, samples=1, seed=0)
    env = make()
    env.reset(instance_seed=0, dynamics_seed=0)
    assert len(env._index.documents) == 10_033
    players = players_of(env)
    assert sum(play(spec, make, players["reader"])[0] for spec in specs) >= 95
    assert sum(play(spec, make, random_player)[0] for spec in specs) <= 5


def test_a_line_ends_only_where_json_lines_do(tmp_path: Path) -> None:
    path = tmp_path / "odd.jsonl"
    line = '{{"title": "{}", "text": "One\u2028two\u0085three."}}\r\n'
    path.write_text(line.format("A") + line.format("B"), encoding="utf-8", newline="")
    assert [(each.title, each.text) for each in load_index(str(path)).documents] == [
        (title, "One two three.") for title in "AB"
    ]
