"""Late indexes: non-unique secondary indexes, which are created after the full load, by sorting instead of row by row.

Their definitions are cut out of the text that the server prints (SHOW CREATE TABLE), so that they are created again
with all their options. An index is not dropped if it is unique (it detects collisions), if it is not a plain KEY, or if
an AUTO_INCREMENT column needs it.
"""

from dataclasses import dataclass

from unshard.core.model import TableId, TableSchema
from unshard.core.sql.quoting import identifier, qualified
from unshard.core.sql.tokens import MARIADB, TokenKind, tokenize
from unshard.core.structures.parsedtable import items


@dataclass(frozen=True, slots=True)
class LateIndex:
    """The name of an index, and its definition for CREATE TABLE and ALTER TABLE … ADD."""

    name: str
    definition: str


def late_indexes(schema: TableSchema) -> tuple[LateIndex, ...]:
    """Return the indexes of a table that may be created after its rows."""
    if "ENGINE=InnoDB" not in schema.create_sql:
        return ()
    needed = {column.name for column in schema.columns if "auto_increment" in column.extra}
    kept = {index.name for index in schema.indexes if index.unique or needed.intersection(index.columns)}
    return tuple(index for index in _plain(schema.create_sql) if index.name not in kept)


def drop_statement(table: TableId, indexes: tuple[LateIndex, ...]) -> str:
    """Return the statement that drops the indexes, all or none."""
    return _alter(table, [f"DROP INDEX {identifier(index.name)}" for index in indexes])


def add_statement(table: TableId, indexes: tuple[LateIndex, ...]) -> str:
    """Return the statement that creates the indexes, all or none, reading the table once."""
    return _alter(table, [f"ADD {index.definition}" for index in indexes])


def missing_indexes(schema: TableSchema, indexes: tuple[LateIndex, ...]) -> tuple[LateIndex, ...]:
    """Return the indexes that the table does not have."""
    present = {index.name.lower() for index in schema.indexes}
    return tuple(index for index in indexes if index.name.lower() not in present)


def _plain(create: str) -> tuple[LateIndex, ...]:
    plain, tokens = tokenize(create, 0, MARIADB)  # the text has no executable comments any more
    return tuple(
        LateIndex(item[1].name, plain[item[0].start : item[-1].end])
        for _, item in items(tokens)
        if item[0].word == "KEY" and item[1].kind is TokenKind.QUOTED
    )


def _alter(table: TableId, changes: list[str]) -> str:
    return f"ALTER TABLE {qualified(table.schema, table.name)} {', '.join(changes)}"
