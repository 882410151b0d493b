"""The structures that the tables of the target have now, read again only where they have changed.

The text of SHOW CREATE TABLE says whether they have: all else that is asked about a table follows from it. A text is
remembered with a structure only if it is that structure's own, so a DDL between the two questions is no matter.
"""

import re
from collections.abc import Iterable

from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.kept import Kept
from unshard.adapters.structures import read_schemas, server_dialect, shown_create
from unshard.core.ddlcreate import normal_create
from unshard.core.model import Server, TableId, TableSchema
from unshard.errors.source import MissingPrivilege, TableMissing, UnknownDatabase

OPTIONS = "\n) "
NEXT_NUMBER = re.compile(r" AUTO_INCREMENT=\d+")


class PresentStructures:
    """Structures of tables of one server; may be used by several threads."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._kept = Kept(self._open)
        self._known: dict[TableId, tuple[str, TableSchema]] = {}

    def read(self, tables: Iterable[TableId]) -> dict[TableId, TableSchema]:
        """Return the structures of those tables that are there."""
        texts: dict[TableId, str] = {}
        wanted = sorted(set(tables))
        with self._kept.lent(lambda lent: texts.update((table, _shown(lent, table)) for table in wanted)) as connection:
            found = {table: schema for table, text in texts.items() if (schema := self._same(table, text))}
            read = read_schemas(connection, texts.keys() - found.keys())
            dialect = server_dialect(connection)
        for table, schema in read.items():
            if texts[table] and normal_create(texts[table], dialect) == schema.create_sql:
                self._known[table] = _without_number(texts[table]), schema
        return found | read

    def _same(self, table: TableId, text: str) -> TableSchema | None:
        known = self._known.get(table)
        return known[1] if known and known[0] == _without_number(text) else None

    def close(self) -> None:
        """Close the connections that were kept."""
        self._kept.close()

    def _open(self) -> Connection:
        self._known.clear()  # another server may answer now
        return mysql.connect(self._server)


def _shown(connection: Connection, table: TableId) -> str:
    """Return what SHOW CREATE TABLE prints; empty where it does not."""
    try:
        return shown_create(connection, table)
    except (TableMissing, UnknownDatabase, MissingPrivilege):
        return ""


def _without_number(text: str) -> str:
    """Leave out the number that the next row gets."""
    columns, options, rest = text.rpartition(OPTIONS)
    return columns + options + NEXT_NUMBER.sub("", rest, count=1)
