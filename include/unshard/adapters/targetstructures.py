"""Current structures of the target's tables, cached and read again only after a change.

A table has changed if the text of SHOW CREATE TABLE has changed: everything else that is read about a table follows
from it. A text is cached only with the structure that contains it, so a DDL between the two queries does no harm.

The target's columns also record how the server receives text (`Column.sent_as`): TiDB stores text of every character
set as UTF-8, and does not convert text that a client sends as latin1.
"""

import re
from collections.abc import Iterable

from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.connectionpool import ConnectionPool
from unshard.adapters.structures import keeps_utf8, read_schemas, server_dialect, shown_create, with_utf8
from unshard.core.model import Server, TableId, TableSchema
from unshard.core.structures.createtext import normal_create
from unshard.errors.source import MissingPrivilege, TableMissing, UnknownDatabase

OPTIONS = "\n) "
NEXT_NUMBER = re.compile(r" AUTO_INCREMENT=\d+")


class PresentStructures:
    """Structures of one server's tables; thread-safe."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._kept = ConnectionPool(self._open)
        self._known: dict[TableId, tuple[str, TableSchema]] = {}

    def read(self, tables: Iterable[TableId]) -> dict[TableId, TableSchema]:
        """Return the structures of those tables that exist."""
        texts: dict[TableId, str] = {}
        wanted = sorted(set(tables))
        with self._kept.lent(lambda lent: texts.update((table, _shown(lent, table)) for table in wanted)) as connection:
            found = {table: schema for table, text in texts.items() if (schema := self._same(table, text))}
            read = read_schemas(connection, texts.keys() - found.keys())
            if connection.keeps_utf8:
                read = {table: with_utf8(schema) for table, schema in read.items()}
            dialect = server_dialect(connection)
        for table, schema in read.items():
            if texts[table] and normal_create(texts[table], dialect) == schema.create_sql:
                self._known[table] = _without_number(texts[table]), schema
        return found | read

    def _same(self, table: TableId, text: str) -> TableSchema | None:
        known = self._known.get(table)
        return known[1] if known and known[0] == _without_number(text) else None

    def close(self) -> None:
        self._kept.close()

    def _open(self) -> Connection:
        self._known.clear()  # another server may answer from now on
        connection = mysql.connect(self._server)
        connection.keeps_utf8 = keeps_utf8(connection)
        return connection


def _shown(connection: Connection, table: TableId) -> str:
    """Return the output of SHOW CREATE TABLE; empty if the statement fails."""
    try:
        return shown_create(connection, table)
    except (TableMissing, UnknownDatabase, MissingPrivilege):
        return ""


def _without_number(text: str) -> str:
    """Remove the next AUTO_INCREMENT value."""
    columns, options, rest = text.rpartition(OPTIONS)
    return columns + options + NEXT_NUMBER.sub("", rest, count=1)
