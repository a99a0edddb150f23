"""Text-to-SQL: each kind of question against plain Python, equality of rows, and answers that only look right."""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import mean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.envs import environment_factory
from ragen.envs.sql.questions import LEVELS, MAKERS, make_question, same_rows
from ragen.envs.sql.schemas import Database, make_database
from ragen.envs.sql.themes import THEMES
from ragen.errors import ConfigError
from ragen.rollout.demonstrations import optimal_player, play, random_player
from ragen.rollout.instances import evaluation_specs
from ragen.seeding import generator
from ragen.tools.call import Call, final
from ragen.tools.database import ReadOnlyDatabase

FUNCTIONS: dict[str, Callable[..., Any]] = {"total": sum, "average": mean, "greatest": max, "least": min}
Row = Sequence[Any]


def table(data: Database, name: str) -> list[Row]:
    return list(data.parents if name == data.theme.parent.name else data.children)


def aggregate(word: str, numbers: list[int]) -> list[tuple[Any]]:
    return [(FUNCTIONS[word](numbers),)] if numbers else [(None,)]


def ranked(rows: list[Row], *, down: bool) -> list[Row]:
    return sorted(rows, key=lambda row: (-row[2] if down else row[2], row[1]))


def extreme(data: Database, one: str, word: str) -> list[tuple[Any]]:
    rows = list(data.parents if one == data.theme.parent.one else data.children)
    best = FUNCTIONS[word](row[2] for row in rows)
    return [(row[1],) for row in rows if row[2] == best]


def most(data: Database) -> list[tuple[Any]]:
    counts = Counter(child[4] for child in data.children)
    return [(row[1],) for row in data.parents if counts[row[0]] == max(counts.values())]


def owners(data: Database, keep: Callable[[Row], bool]) -> set[Any]:
    return {row[0] for row in data.parents if keep(row)}


READINGS: list[tuple[str, Callable[..., list[Any]]]] = [  # the question's words, and what they mean
    (r"How many (\w+) have the [\w ]+ '(.*)'\?", lambda d, t, k: [(sum(r[3] == k for r in table(d, t)),)]),
    (
        r"What are the names of the (\w+) whose [\w ]+ is greater than (\d+)\?",
        lambda d, t, n: [(r[1],) for r in table(d, t) if r[2] > int(n)],
    ),
    (
        r"What are the names of the (\w+) whose [\w ]+ is less than (\d+)\?",
        lambda d, t, n: [(r[1],) for r in table(d, t) if r[2] < int(n)],
    ),
    (
        r"What is the (\w+) [\w ]+ of the (\w+) with the [\w ]+ '(.*)'\?",
        lambda d, w, t, k: aggregate(w, [r[2] for r in table(d, t) if r[3] == k]),
    ),
    (
        r"List the names of all (\w+) by [\w ]+, from least to greatest; equal ones by name\.",
        lambda d, t: [(r[1],) for r in ranked(table(d, t), down=False)],
    ),
    (
        r"List the names of all (\w+) by [\w ]+, from greatest to least; equal ones by name\.",
        lambda d, t: [(r[1],) for r in ranked(table(d, t), down=True)],
    ),
    (r"Give each [\w ]+ of (\w+) and how many \w+ have it\.", lambda d, t: list(Counter(r[3] for r in table(d, t)).items())),
    (r"Which (\w+) has the (\w+) [\w ]+\? Give the name, or all names that share it\.", extreme),
    (
        r"Give each [\w ]+ that at least (\d+) of the (\w+) have\.",
        lambda d, n, t: [(k,) for k, c in Counter(r[3] for r in table(d, t)).items() if c >= int(n)],
    ),
    (
        r"Give name and [\w ]+ of the (\d+) (\w+) with the greatest [\w ]+, the greatest first; equal ones by name\.",
        lambda d, n, t: [(r[1], r[2]) for r in ranked(table(d, t), down=True)[: int(n)]],
    ),
    (
        r"What are the names of the \w+ that belong to \w+ with the [\w ]+ '(.*)'\?",
        lambda d, k: [(c[1],) for c in d.children if c[4] in owners(d, lambda r: r[3] == k)],
    ),
    (
        r"Give the name of each \w+ and how many \w+ belong to it, also where it is 0\.",
        lambda d: [(r[1], sum(c[4] == r[0] for c in d.children)) for r in d.parents],
    ),
    (
        r"What are the names of the \w+ to which no \w+ with the [\w ]+ '(.*)' belongs\?",
        lambda d, k: [(r[1],) for r in d.parents if r[0] not in {c[4] for c in d.children if c[3] == k}],
    ),
    (
        r"What is the (\w+) [\w ]+ of the \w+ that belong to \w+ whose [\w ]+ is at least (\d+)\?",
        lambda d, w, n: aggregate(w, [c[2] for c in d.children if c[4] in owners(d, lambda r: r[2] >= int(n))]),
    ),
    (r"Which \w+ do most \w+ belong to\? Give the name, or all names that share it\.", most),
]


@pytest.mark.parametrize(("level", "number"), [(level, i) for level in LEVELS for i in range(len(MAKERS[level]))])
def test_the_statement_answers_the_question_as_plain_python_reads_it(level: int, number: int) -> None:
    for seed, rows in itertools.product(range(25), (3, 12, 40)):
        data = make_database(generator(seed), rows)
        question = MAKERS[level][number](data, generator(1000 + seed))
        found = [(rule, match) for words, rule in READINGS if (match := re.fullmatch(words, question.text))]
        assert len(found) == 1, question.text
        rule, match = found[0]
        database = ReadOnlyDatabase(data.script, max_rows=1000)
        rows_given = database.query(question.sql).rows
        database.close()
        assert same_rows(rows_given, rule(data, *match.groups()), ordered=question.ordered), question


def test_every_theme_and_kind_is_drawn() -> None:
    drawn = [
        (data, make_question(data, generator(1000 + seed), LEVELS))
        for seed in range(300)
        for data in [make_database(generator(seed), 9)]
    ]
    assert {data.theme.parent.name for data, _ in drawn} == {theme.parent.name for theme in THEMES}
    assert len({re.sub(r"'.*?'|\d+", "", question.sql) for _, question in drawn}) > 80


VALUES = st.none() | st.integers(-3, 3) | st.sampled_from(["a", "b", "1"]) | st.floats(-3, 3)
ROWS = st.lists(st.tuples(VALUES, VALUES), max_size=4)


@given(ROWS, st.randoms(use_true_random=False))
def test_rows_are_compared_as_multisets_unless_an_order_is_asked_for(rows: list[Any], random: Any) -> None:
    mixed = random.sample(rows, len(rows))
    assert same_rows(rows, mixed, ordered=False)
    assert same_rows(rows, mixed, ordered=True) == all(
        same_rows([a], [b], ordered=True) for a, b in zip(rows, mixed, strict=True)
    )
    if rows:
        assert not same_rows(rows, [*rows, rows[0]], ordered=False)
        assert not same_rows(rows, rows[1:], ordered=False)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ([(2,)], [(2.0,)], True),
        ([(0.1 + 0.2,)], [(0.3,)], True),
        ([(0.3,)], [(0.30001,)], False),
        ([(1,)], [("1",)], False),
        ([(None,)], [(0,)], False),
        ([(None,)], [], False),
        ([("a", 1)], [(1, "a")], False),
        ([("a",)], [("A",)], False),
        ([(float("inf"),)], [(float("inf"),)], True),
        ([(-0.0,)], [(0,)], True),
    ],
)
def test_what_counts_as_the_same_value(one: Any, other: Any, *, same: bool) -> None:
    assert same_rows(one, other, ordered=False) is same


def test_the_oracle_is_right_and_the_random_player_hardly_ever() -> None:
    make = environment_factory({"name": "sql"})
    specs = evaluation_specs("sql", episodes=60, samples=1, seed=0)
    assert all(play(spec, make, optimal_player) == (True, 1.0) for spec in specs)
    assert sum(play(spec, make, random_player)[0] for spec in specs) <= 3


@pytest.mark.parametrize("budget", [{"max_turns": 1}, {"max_actions": 1}, {"max_actions_per_turn": 1}, {"tools": "none"}])
def test_the_oracle_answers_within_any_budget(budget: dict[str, Any]) -> None:
    make = environment_factory({"name": "sql", **budget})
    assert all(play(spec, make, optimal_player)[0] for spec in evaluation_specs("sql", episodes=5, samples=1, seed=0))


def test_another_statement_with_the_right_rows_is_right_and_rows_without_reading_are_not() -> None:
    constant = twins_needed = 0
    for seed in range(60):
        env, alone = (environment_factory({"name": "sql", "twins": twins})() for twins in (2, 0))
        for each in (env, alone):
            each.reset(instance_seed=seed, dynamics_seed=0)
        gold = env.solution()
        rows = [line.split(" | ") for line in env.query(gold).splitlines()[1:]]
        values = [
            f"({', '.join(cell if cell.lstrip('-').replace('.', '').isdigit() else repr(cell) for cell in row)})"
            for row in rows
        ]
        answer = f"VALUES {', '.join(values)}" if rows != [["[no rows]"]] else "SELECT 1 WHERE 0"
        twins_needed += alone.step(final(answer)).reward == 1.0
        constant += env.step(final(answer)).reward == 1.0
        env.reset(instance_seed=seed, dynamics_seed=0)
        assert env.step(final(f"SELECT * FROM ({gold.rstrip()})" if "ORDER" not in gold else gold)).reward == 1.0
    assert twins_needed > 40
    assert constant <= 3


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "x",
        "DROP TABLE books",
        "SELECT 1; SELECT 2",
        "\x00",
        "PRAGMA table_info(books)",
        "SELECT " + "1," * 5000 + "1",
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c",
    ],
)
def test_a_hostile_answer_is_wrong_and_changes_nothing(answer: str) -> None:
    env = environment_factory({"name": "sql"})()
    env.reset(instance_seed=4, dynamics_seed=0)
    assert env.judge(answer) == 0.0
    assert env.judge(env.solution()) == 1.0


def test_a_query_shows_rows_and_errors_and_nothing_can_be_written() -> None:
    env = environment_factory({"name": "sql", "max_rows": 2})()
    env.reset(instance_seed=0, dynamics_seed=0)
    child = env._data.theme.child.name
    shown = env.step(str(Call("query", {"sql": f"SELECT name FROM {child}"})))
    assert len(shown.observation.splitlines()) == 4
    assert "cut: the first 2 rows" in shown.observation
    for sql, told in ((f"DELETE FROM {child}", "can only be read"), ("SELECT x", "no such column"), ("", "only a SELECT")):
        step = env.step(str(Call("query", {"sql": sql})))
        assert step.observation.startswith("Error: ")
        assert told in step.observation
    assert env.query(f"SELECT COUNT(*) FROM {child}") == "COUNT(*)\n12"


def test_levels_choose_the_kinds_and_wrong_ones_are_refused() -> None:
    env = environment_factory({"name": "sql-1"})()
    for seed in range(30):
        env.reset(instance_seed=seed, dynamics_seed=0)
        assert not re.search(r"JOIN|GROUP|LIMIT|\(SELECT", env.solution())
    for levels in ((), (4,), (1, 1)):
        with pytest.raises(ConfigError, match=r"env\.levels"):
            environment_factory({"name": "sql", "levels": levels})


def test_names_with_quotes_are_data() -> None:
    theme = THEMES[0]
    data = Database(theme, ((1, "O'Hara\"; DROP TABLE books;--", 1950, "x"),), ((1, "b", 3, "y", 1),))
    database = ReadOnlyDatabase(data.script)
    assert database.query("SELECT name FROM authors").rows == (("O'Hara\"; DROP TABLE books;--",),)
    database.close()
