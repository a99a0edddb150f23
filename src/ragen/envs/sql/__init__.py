"""Questions about small databases, answered by SQL."""

from ragen.envs.sql.env import Sql, SqlSettings

__all__ = ["Sql", "SqlSettings"]
