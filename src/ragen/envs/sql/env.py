"""Text-to-SQL as an environment: a question, a small database, one SELECT statement as the answer."""

import hashlib
from collections.abc import Sequence
from typing import ClassVar, Literal, cast

import numpy as np
from pydantic import Field, field_validator

from ragen.envs.base import EnvSettings
from ragen.envs.registry import EnvPreset, environments
from ragen.envs.sql.questions import LEVELS, Question, make_question, same_rows
from ragen.envs.sql.schemas import Database, fill, make_database
from ragen.envs.tool_environment import ToolEnvironment, ToolSettings
from ragen.errors import EnvironmentFault
from ragen.seeding import derive, generator
from ragen.tools import Tool, ToolError, tool
from ragen.tools.call import Call, final, is_final
from ragen.tools.database import ReadOnlyDatabase

COMPARED = 1000  # rows of an answer that are compared; no right answer has as many
TRIED = ("I try the query first.", "Let me see what it gives.", "I look at the data.", "I check it with a query.")
SURE = ("The rows fit the question.", "That is what is asked for.", "So this is the statement.", "This gives the answer.")


class SqlSettings(ToolSettings):
    """Settings of ``Sql``."""

    levels: tuple[int, ...] = Field(
        LEVELS, min_length=1, description="difficulty of the questions: 1 one table, 2 groups and extremes, 3 both tables"
    )
    rows: int = Field(12, ge=3, le=40, description="rows of the larger table; the other one has a third of them")
    tools: Literal["query", "none"] = Field("query", description="what may be called; none = only the answer")
    twins: int = Field(
        2, ge=0, le=10, description="other databases of the same tables on which the answer must be right too"
    )
    max_rows: int = Field(20, ge=1, description="rows that a query shows at most")

    @field_validator("levels")
    @classmethod
    def _known(cls, levels: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(levels)) < len(levels) or not set(levels) <= set(LEVELS):
            raise ValueError(f"it must hold some of {', '.join(map(str, LEVELS))}, each once")
        return levels


class Sql(ToolEnvironment):
    """Answer a question about a database by an SQL statement.

    - Actions: ``query`` with ``sql``, which shows the rows of a SELECT statement, and the final answer, a SELECT statement.
    - Observation: the tables and the question; then the rows of each query.
    - Rewards: 1 if the answer gives the right rows, else 0: the same rows as often as the right statement's, columns in
      the same order under any names, the order of rows only where the question asks for one. That must hold on ``twins``
      further databases with other rows too, so that ``SELECT 3`` is no answer (Zhong et al. 2020, arXiv 2010.02840).
    - End: with the answer. It never truncates; the budgets are the rollout's.
    - Instances: the instance seed draws tables, rows and question; nothing is left to chance.

    Statements can read and nothing else, with bounds on work and size (``ragen.tools.database``). The oracle queries the
    right statement and gives it.
    """

    settings_class: ClassVar[type[EnvSettings]] = SqlSettings

    def __init__(self, settings: EnvSettings | None = None) -> None:
        super().__init__(settings)
        self._own = cast(SqlSettings, self.settings)
        self._tools = (tool(self.query),) if self._own.tools == "query" else ()
        self._data: Database | None = None
        self._question = Question("", "")
        self._twins: tuple[Database, ...] = ()
        self._open: ReadOnlyDatabase | None = None

    def query(self, sql: str) -> str:
        """Show the rows of a SELECT statement.

        Args:
            sql: one SQLite SELECT statement
        """
        if self._open is None:
            self._open = ReadOnlyDatabase(self._given().script, max_rows=self._own.max_rows)
        return self._open.query(sql).shown()

    def start(self, instance_seed: int, dynamics_seed: int) -> str:
        """Draw tables, rows and question; the twins keep the tables and the question."""
        del dynamics_seed
        self._data = make_database(generator(derive(instance_seed, "sql", "rows")), self._own.rows)
        self._question = make_question(self._data, generator(derive(instance_seed, "sql", "question")), self._own.levels)
        theme = self._data.theme
        rngs = (generator(derive(instance_seed, "sql", "twin", number)) for number in range(self._own.twins))
        self._twins = tuple(Database(theme, *fill(theme, rng, self._own.rows)) for rng in rngs)
        self._open = None
        return "\n".join((*self._data.layout, f"Question: {self._question.text}"))

    def tools(self) -> tuple[Tool, ...]:
        """``query``, unless the settings take it away."""
        return self._tools

    def judge(self, answer: str) -> float:
        """1 where the rows are right in every database."""
        return float(all(self._right(answer, data) for data in (self._given(), *self._twins)))

    def solution(self) -> str:
        """The right statement."""
        return self._question.sql

    def actions(self) -> tuple[str, ...]:
        """A look at each table, and simple statements as the answer."""
        theme = self._given().theme
        names = (theme.parent.name, theme.child.name)
        looks = tuple(_query(f"SELECT * FROM {name}") for name in names) if self._tools else ()
        return (*looks, *(final(f"SELECT {what} FROM {name}") for name in names for what in ("COUNT(*)", "name")))

    def instructions(self) -> str:
        """The task."""
        looks = " Use queries to look at the data first." if self._tools and self._own.wording == "verbose" else ""
        order = " Rows may come in any order unless one is asked for." if self._own.wording == "verbose" else ""
        return f"Answer the question with one SQLite SELECT statement; its rows must be right.{order}{looks}"

    def content(self) -> str | None:
        """A hash of rows and question."""
        text = f"{self._given().script}\n{self._question.text}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def plan(self) -> tuple[str, ...] | None:
        """The right statement as a query where the budgets allow one, then as the answer."""
        last = super().plan()
        may_look = self._tools and self.calls_made == 0 and min(self._own.max_turns, self._own.max_actions) > 1
        return (_query(self.solution()),) if last is not None and may_look else last

    def thought(self, rng: np.random.Generator, actions: Sequence[str]) -> str:
        """A few words."""
        words = SURE if actions and is_final(actions[0]) else TRIED
        return words[int(rng.integers(len(words)))]

    def _right(self, answer: str, data: Database) -> bool:
        database = ReadOnlyDatabase(data.script, max_rows=COMPARED)
        try:
            given, right = database.query(answer), database.query(self._question.sql)
        except ToolError:
            return False
        finally:
            database.close()
        return same_rows(given.rows, right.rows, ordered=self._question.ordered)

    def _given(self) -> Database:
        if self._data is None:
            raise EnvironmentFault("sql: no episode has begun; call reset() first")
        return self._data


def _query(sql: str) -> str:
    return str(Call("query", {"sql": sql}))


environments.register("sql")(EnvPreset(Sql, "Questions about a small database, answered by SQL, with queries to try"))
environments.register("sql-1")(EnvPreset(Sql, "sql, questions about one table only", {"levels": (1,)}))
environments.register("sql-plain")(
    EnvPreset(Sql, "sql without queries: one answer", {"tools": "none", "max_turns": 1, "max_actions": 1})
)
