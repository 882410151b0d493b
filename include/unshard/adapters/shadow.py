"""What a DDL does to a structure, asked of the target itself on an empty table in the meta schema.

A parser would have to know every rule of every server; the server knows them. Shards of the same structure
ask once: results are cached by structure, statement and the session that ran it.

Died between CREATE and DROP: the shadow table stays, empty, under a name that nobody uses again. The first
effect that any process asks for sweeps those away that are older than an hour.
"""

import contextlib
import os
import secrets
from collections.abc import Iterator
from dataclasses import replace

from pymysql.connections import Connection

from unshard.adapters.mysql import assume_session, connect, create_as_shown, identifier, query, table_name
from unshard.adapters.structures import read_schema
from unshard.core import codec
from unshard.core.ddl import Ddl, DdlKind, agreement, read, retarget
from unshard.core.ddlcreate import PLACEHOLDER, create_text
from unshard.core.model import Server, TableId, TableSchema
from unshard.core.schemadefaults import with_default
from unshard.core.segment import SchemaDefault, Statement
from unshard.core.versioning import period_of
from unshard.errors.ddl import EffectRefused, StructureUnknown
from unshard.errors.source import StatementRefused, TableMissing

Key = tuple[str, str]
OLD = """SELECT TABLE_NAME FROM information_schema.TABLES
WHERE TABLE_SCHEMA = %s AND TABLE_NAME LIKE '\\_shadow\\_%%' AND CREATE_TIME < NOW() - INTERVAL 1 HOUR"""


class ShadowTables:
    """Effects of DDL, found on empty tables of one schema of one server."""

    def __init__(self, server: Server, schema: str) -> None:
        self._server = server
        self._schema = schema
        self._known: dict[Key, TableSchema] = {}
        self._collations: dict[int, SchemaDefault] = {}
        self._is_swept = False

    def effect(self, before: TableSchema | None, statement: Statement, table: TableId) -> TableSchema:
        """Return the structure that `table` has after the statement; raises EffectRefused with the server's words.

        `before` is the structure of `table`; of a CREATE TABLE it is None, or the structure of the table
        that is named behind LIKE.
        """
        ddl = read(statement.text, statement.sql_mode, statement.schema)
        if ddl.like and before:
            return before
        if before is None and (ddl.like or ddl.kind is not DdlKind.CREATE_TABLE):
            raise StructureUnknown(str(ddl.like or table), statement.text)
        key = self._key(before, ddl, statement, table)
        if key not in self._known:
            self._known[key] = self._try_out(before, ddl, statement, table)
        return self._known[key]

    def server_default(self, collation: int) -> SchemaDefault:
        """Return what CREATE DATABASE gives a schema in a session of that collation_server, known by its number."""
        if collation not in self._collations:
            with self._connection() as connection:
                self._collations[collation] = _server_default(connection, collation)
        return self._collations[collation]

    def _key(self, before: TableSchema | None, ddl: Ddl, statement: Statement, table: TableId) -> Key:
        routed = retarget(ddl, {table: TableId("", PLACEHOLDER)})
        text = agreement(routed, statement.sql_mode)
        # The text of a default may depend on the session's time zone, its type on the other variables.
        session = codec.dumps(replace(statement, text=text, schema="", timestamp=0, microseconds=0))
        return before.digest if before else "", session

    def _try_out(self, before: TableSchema | None, ddl: Ddl, statement: Statement, table: TableId) -> TableSchema:
        with self._connection() as connection, _shadow(connection, self._schema) as shadow:
            try:
                if before:
                    create_as_shown(connection, create_text(before.create_sql, shadow))
                with self._connection() as session:
                    if before and period_of(before.create_sql):
                        # What a source's session or server has said before; replicas need it, too.
                        query(session, "SET SESSION system_versioning_alter_history = KEEP")
                    assume_session(session, statement)
                    query(session, with_default(retarget(ddl, {table: shadow}), statement))
            except (StatementRefused, TableMissing) as error:
                errno = error.errno if isinstance(error, StatementRefused) else 1146
                raise EffectRefused(str(table), errno, error.words, ddl.text) from error
            return read_schema(connection, shadow)

    @contextlib.contextmanager
    def _connection(self) -> Iterator[Connection]:
        with contextlib.closing(connect(self._server, "target")) as connection:
            query(connection, "SET SESSION foreign_key_checks = 0")
            if not self._is_swept:
                query(connection, f"CREATE DATABASE IF NOT EXISTS {identifier(self._schema)}")
                _sweep(connection, self._schema)
                self._is_swept = True
            yield connection


def _server_default(connection: Connection, collation: int) -> SchemaDefault:
    try:
        if collation:
            query(connection, "SET SESSION collation_server = %s", (collation,))
    except StatementRefused:
        return SchemaDefault(f"of_collation_{collation}")  # a table that gets it is refused, in the target's words
    ((charset, name),) = query(connection, "SELECT @@character_set_server, @@collation_server")
    return SchemaDefault(charset, name)


@contextlib.contextmanager
def _shadow(connection: Connection, schema: str) -> Iterator[TableId]:
    """Give a table's name that nobody else uses; what the block creates under it is dropped."""
    table = TableId(schema, f"_shadow_{os.getpid()}_{secrets.token_hex(6)}")
    try:
        yield table
    finally:
        if connection.open:
            query(connection, f"DROP TABLE IF EXISTS {table_name(table)}")


def _sweep(connection: Connection, schema: str) -> None:
    for (name,) in query(connection, OLD, (schema,)):
        query(connection, f"DROP TABLE IF EXISTS {table_name(TableId(schema, name))}")
