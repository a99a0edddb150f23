"""A database that can be asked and not changed."""

import sqlite3

import pytest

from ragen.errors import ConfigError
from ragen.tools import ToolError
from ragen.tools.database import ReadOnlyDatabase

SCRIPT = "CREATE TABLE t(a INTEGER, b TEXT); INSERT INTO t VALUES (1, 'x'), (2, 'y'), (3, NULL);"
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT max(x) FROM c"
WRITING = [
    "INSERT INTO t VALUES (4, 'z')",
    "UPDATE t SET a = 0",
    "DELETE FROM t",
    "DROP TABLE t",
    "CREATE TABLE u(a)",
    "CREATE TEMP TABLE u(a)",
    "CREATE VIEW v AS SELECT 1",
    "CREATE VIRTUAL TABLE f USING fts5(a)",
    "ALTER TABLE t RENAME TO u",
    "PRAGMA writable_schema = 1",
    "PRAGMA table_info(t)",
    "SELECT * FROM pragma_table_info('t')",
    "ATTACH 'other.db' AS o",
    "DETACH main",
    "VACUUM INTO 'copy.db'",
    "BEGIN",
    "COMMIT",
    "SAVEPOINT s",
    "ANALYZE",
    "SELECT load_extension('x')",
    "SELECT LOAD_EXTENSION('x')",
    "SELECT random()",
    "SELECT zeroblob(10)",
    "SELECT RandomBlob(10)",
    "WITH n AS (SELECT 1) INSERT INTO t SELECT 9, 'z' FROM n",
    "REPLACE INTO t VALUES (1, 'z')",
]


@pytest.fixture
def database():
    made = ReadOnlyDatabase(SCRIPT, max_rows=2, max_steps=100_000)
    yield made
    made.close()


def test_rows_are_shown_a_line_each_and_a_cut_is_told(database):
    assert database.query("SELECT a, b FROM t WHERE a <> 2").shown() == "a | b\n1 | x\n3 | NULL"
    assert database.query("SELECT a FROM t ORDER BY a DESC").shown() == "a\n3\n2\n… [cut: the first 2 rows]"
    assert database.query("SELECT a FROM t WHERE a > 9").shown() == "a\n[no rows]"
    assert database.query("SELECT 1.0 / 3 AS third").rows == ((1 / 3,),)


@pytest.mark.parametrize("sql", WRITING)
def test_nothing_can_be_changed(database, sql, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ToolError):
        database.query(sql)
    assert list(tmp_path.iterdir()) == []
    assert database.query("SELECT count(*), sum(a) FROM t").rows == ((3, 6),)


@pytest.mark.parametrize("sql", WRITING[:9])
def test_the_same_statements_do_change_a_database_without_the_wall(sql):
    connection = sqlite3.connect(":memory:")
    connection.executescript(SCRIPT)
    before = list(connection.iterdump())
    connection.execute(sql)
    changed = (
        list(connection.iterdump()) != before or connection.execute("SELECT count(*) FROM sqlite_temp_master").fetchone()[0]
    )
    connection.close()
    assert changed


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        (ENDLESS, "takes too long .more than 100000 steps"),
        ("SELECT count(*) FROM " + ", ".join(f"t t{i}" for i in range(20)), "takes too long"),
        ("SELECT replace(hex(printf('%90000d', 1)), '0', '00')", "too big"),
        ("SELECT b FROM t WHERE b LIKE '" + "%a" * 200 + "'", "too complex"),
        ("SELECT '" + "x" * 200_000 + "'", "too (big|large)"),
        ("SELECT 1; SELECT 2", "one statement"),
        (f"SELECT {', '.join(['b'] * 200)} FROM (SELECT printf('%99000d', a) AS b FROM t)", "the rows are too large"),
        (f"SELECT {', '.join(['b'] * 200)} FROM (SELECT CAST(printf('%99000d', a) AS BLOB) AS b FROM t)", "too large"),
        ("", "only a SELECT"),
        ("SELEC 1", "syntax error"),
        ("SELECT c FROM t", "no such column"),
        ("SELECT 1 \x00", "null character"),
        ("SELECT '\ud800'", "surrogate"),
    ],
)
def test_a_query_without_end_or_sense_is_an_error_in_words(database, sql, why):
    with pytest.raises(ToolError, match=why):
        database.query(sql)
    assert database.query("SELECT 1").rows == ((1,),)


def test_the_clock_is_a_bound_as_well():
    database = ReadOnlyDatabase(SCRIPT, max_steps=10**12, max_seconds=0.05)
    with pytest.raises(ToolError, match=r"more than 0\.05 s"):
        database.query(ENDLESS)
    database.close()


def test_a_cell_is_one_bounded_line(database):
    shown = database.query("SELECT 'a' || char(10) || 'b' AS x, printf('%500d', 1) AS y").shown()
    assert shown.startswith("x | y\na b | ")
    assert len(shown) < 300
    assert shown.endswith("…")


def test_a_source_that_is_no_database_is_refused_with_its_name(tmp_path):
    text = tmp_path / "text.db"
    text.write_text("no database at all" * 100)
    for path, why in ((text, "file is not a database"), (tmp_path / "nowhere.db", "unable to open")):
        with pytest.raises(ConfigError, match=rf"the database '{path}' cannot be read \({why}.*give the path"):
            ReadOnlyDatabase(path)
    with pytest.raises(ConfigError, match=r'do not run \(near "my": syntax error\): .* give a pathlib\.Path'):
        ReadOnlyDatabase("my.db")


def test_a_file_is_opened_for_reading_only(tmp_path):
    path = tmp_path / "a b?.db"
    connection = sqlite3.connect(path)
    connection.executescript(SCRIPT)
    connection.close()
    before = path.read_bytes()
    database = ReadOnlyDatabase(path)
    assert database.query("SELECT count(*) FROM t").rows == ((3,),)
    with pytest.raises(ToolError):
        database.query("DELETE FROM t")
    database._connection.set_authorizer(None)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):  # the file's own wall, behind the authoriser
        database._connection.execute("DELETE FROM t")
    database.close()
    assert path.read_bytes() == before
