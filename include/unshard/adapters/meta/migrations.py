"""The numbered steps that bring a meta schema to this version.

Step 1 creates the tables as `tables` defines them: the schema is not released yet, so it has no older form. After the
first release a step is never changed; a later step alters its tables. DDL has no transaction. Each statement can be
repeated after a crash (IF NOT EXISTS), and the number of a step is written last.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Table
from sqlalchemy.dialects import mysql
from sqlalchemy.schema import CreateColumn

from unshard.adapters.meta import tables
from unshard.core.sql.quoting import identifier

DIALECT = mysql.dialect()
OPTIONS = "ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"


@dataclass(frozen=True, slots=True)
class Migration:
    """One step; `number` counts from 1 without a gap."""

    number: int
    description: str
    written: Callable[[], tuple[str, ...]]

    @property
    def statements(self) -> tuple[str, ...]:
        """The statements, written only for a schema that lacks the step: that takes 20 ms."""
        return self.written()


def create_table(table: Table) -> str:
    """Return CREATE TABLE IF NOT EXISTS with all indexes, for MariaDB, MySQL and TiDB."""
    comment = str(table.comment).replace("'", "''")
    parts = ", ".join(_parts(table))
    return f"CREATE TABLE IF NOT EXISTS {identifier(table.name)} ({parts}) {OPTIONS} COMMENT='{comment}'"


def _parts(table: Table) -> Iterator[str]:
    # SQLAlchemy would create the indexes by separate statements, which MySQL cannot repeat.
    yield from (str(CreateColumn(column).compile(dialect=DIALECT)) for column in table.columns)
    yield f"PRIMARY KEY ({_names(table.primary_key.columns)})"
    for index in sorted(table.indexes, key=lambda index: str(index.name)):
        yield f"{'UNIQUE ' if index.unique else ''}KEY {identifier(str(index.name))} ({_names(index.columns)})"


def _names(columns: Iterable[Column[Any]]) -> str:
    return ", ".join(identifier(column.name) for column in columns)


MIGRATIONS = (Migration(1, "first tables", lambda: tuple(map(create_table, tables.metadata.tables.values()))),)
