"""What a DDL does to a structure, asked of the target itself on an empty table in the meta schema.

A parser would have to know every rule of every server; the server knows them. Shards of the same structure
ask once: results are cached by structure, statement and the session that ran it.

Died between CREATE and DROP: the shadow table stays, empty, under a name that nobody uses again. The first
effect that any process asks for sweeps those away that are older than an hour.
"""

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from pymysql.connections import Connection

from unshard.adapters.mysql import (
    assume_session,
    connect,
    create_as_shown,
    identifier,
    query,
    set_collation,
    table_name,
)
from unshard.adapters.structures import read_collations, read_schema
from unshard.core import codec
from unshard.core.ddl import Ddl, DdlKind, agreement, read, retarget
from unshard.core.ddlcreate import PLACEHOLDER, create_text
from unshard.core.ddlsteps import steps
from unshard.core.model import Server, TableId, TableSchema
from unshard.core.schemadefaults import with_default
from unshard.core.segment import SchemaDefault, Statement
from unshard.core.versioning import period_of
from unshard.errors.ddl import EffectRefused, StructureUnknown
from unshard.errors.source import StatementRefused, TableMissing

Key = tuple[str, str, str]
CLUSTERED = "tidb_enable_clustered_index"
PRIMARY_KEY = "SELECT TIDB_PK_TYPE FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
BINARY_LITERAL = re.compile(r"\b[xb]'|\b0x", re.IGNORECASE)
LOSSY = "the default of {column} is stored as other bytes, because it is no UTF-8"
OLD = """SELECT TABLE_NAME FROM information_schema.TABLES
WHERE TABLE_SCHEMA = %s AND TABLE_NAME LIKE '\\_shadow\\_%%' AND CREATE_TIME < NOW() - INTERVAL 1 HOUR"""


class TargetTypes(NamedTuple):
    """What a server makes of types and character sets whose meaning depends on the server."""

    has_json: bool
    """JSON is a type of its own."""
    national: str
    """The character set of NATIONAL types."""
    collations: frozenset[str]
    """All collations that it knows, as `canonical` names them."""
    defaults: frozenset[str]
    """Those that are the default of their character set."""


class Tried(NamedTuple):
    """What a statement does on a trial table."""

    after: TableSchema
    is_split: bool = False
    """The server refuses the statement as a whole and takes it in steps."""


class ShadowTables:
    """Effects of DDL, found on empty tables of one schema of one server."""

    def __init__(self, server: Server, schema: str) -> None:
        self._server = server
        self._schema = schema
        self._known: dict[Key, Tried] = {}
        self._has_clustering: bool | None = None
        self._clusterings: dict[TableId, str] = {}
        self._needs_steps: bool | None = None
        self._types: TargetTypes | None = None
        self._collations: dict[int, SchemaDefault] = {}
        self._is_swept = False

    def effect(
        self, before: TableSchema | None, statement: Statement, table: TableId, target: TableId | None = None
    ) -> TableSchema:
        """Return the structure that `table` has after the statement; raises EffectRefused with the server's words.

        `before` is the structure of `table`; of a CREATE TABLE it is None, or the structure of the table
        that is named behind LIKE. The trial table has its primary key clustered as `target` has, on a server that
        knows such keys.
        """
        return self.tried(before, statement, table, target).after

    def tried(
        self, before: TableSchema | None, statement: Statement, table: TableId, target: TableId | None = None
    ) -> Tried:
        """Return the effect, and whether the server takes the statement only in steps (core.ddlsteps)."""
        ddl = read(statement.text, statement.sql_mode, statement.schema)
        if ddl.like and before:
            return Tried(before)
        if before is None and (ddl.like or ddl.kind is not DdlKind.CREATE_TABLE):
            raise StructureUnknown(str(ddl.like or table), statement.text)
        clustered = self._clustered(target)
        key = self._key(before, ddl, statement, table, clustered)
        if key not in self._known:
            self._known[key] = self._try_out(before, ddl, statement, table, clustered)
        return self._known[key]

    def server_default(self, collation: int) -> SchemaDefault:
        """Return what CREATE DATABASE gives a schema in a session of that collation_server, known by its number."""
        if collation not in self._collations:
            with self._connection() as connection:
                self._collations[collation] = _server_default(connection, collation)
        return self._collations[collation]

    def types(self) -> TargetTypes:
        """Return what the server makes of types and character sets whose meaning depends on the server."""
        if self._types is None:
            with self._connection() as connection, _shadow(connection, self._schema) as shadow:
                self._types = _target_types(connection, shadow)
        return self._types

    def _key(self, before: TableSchema | None, ddl: Ddl, statement: Statement, table: TableId, clustered: str) -> Key:
        routed = retarget(ddl, {table: TableId("", PLACEHOLDER)})
        text = agreement(routed, statement.sql_mode)
        # The text of a default may depend on the session's time zone, its type on the other variables.
        session = codec.dumps(replace(statement, text=text, schema="", timestamp=0, microseconds=0))
        return before.digest if before else "", session, clustered

    def _try_out(
        self, before: TableSchema | None, ddl: Ddl, statement: Statement, table: TableId, clustered: str
    ) -> Tried:
        with self._connection() as connection, _shadow(connection, self._schema) as shadow:
            text = with_default(retarget(ddl, {table: shadow}), statement)
            try:
                _cluster(connection, clustered)
                if before:
                    create_as_shown(connection, create_text(before.create_sql, shadow))
                with self._connection() as session:
                    _cluster(session, clustered)
                    if before and period_of(before.create_sql):
                        # What a source's session or server has said before; replicas need it, too.
                        query(session, "SET SESSION system_versioning_alter_history = KEEP")
                    assume_session(session, statement)
                    is_split = self._run(session, text, statement.sql_mode)
            except (StatementRefused, TableMissing) as error:
                errno = error.errno if isinstance(error, StatementRefused) else 1146
                raise EffectRefused(str(table), errno, error.words, ddl.text) from error
            after = read_schema(connection, shadow)
            if lossy := _lossy_default(after, text):
                raise EffectRefused(str(table), 0, LOSSY.format(column=lossy), ddl.text)
            return Tried(after, is_split)

    def _run(self, session: Connection, text: str, sql_mode: int) -> bool:
        """Run a statement on a trial table, in steps if the server takes it only so; return whether it was split."""
        try:
            query(session, text)
        except StatementRefused:
            pieces = steps(text, sql_mode)
            if len(pieces) == 1 or not self._checks_each_alone():
                raise
            for piece in pieces:
                query(session, piece)
            return True
        return False

    def _checks_each_alone(self) -> bool:
        """Whether the server checks each change of an ALTER TABLE against the table as it was before all of them."""
        if self._needs_steps is None:
            with self._connection() as connection, _shadow(connection, self._schema) as shadow:
                name = table_name(shadow)
                query(connection, f"CREATE TABLE {name} (a INT)")
                try:
                    query(connection, f"ALTER TABLE {name} ADD b INT, ADD KEY (b)")
                    self._needs_steps = False
                except StatementRefused:
                    self._needs_steps = True
        return self._needs_steps

    def _clustered(self, target: TableId | None) -> str:
        """Return whether the target's primary key is clustered, ON or OFF; empty on servers without such keys.

        TiDB can drop or change a primary key only if it is not clustered.
        """
        if target is None or self._has_clustering is False:
            return ""
        if target not in self._clusterings:
            with self._connection() as connection:
                if self._has_clustering is None:
                    self._has_clustering = bool(query(connection, f"SHOW VARIABLES LIKE '{CLUSTERED}'"))
                rows = query(connection, PRIMARY_KEY, (target.schema, target.name)) if self._has_clustering else []
            if not rows:
                return ""
            self._clusterings[target] = "OFF" if rows[0][0] == "NONCLUSTERED" else "ON"
        return self._clusterings[target]

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
    if collation and not set_collation(connection, "collation_server", collation):
        return SchemaDefault(f"of_collation_{collation}")  # a table that gets it is refused, in the target's words
    ((charset, name),) = query(connection, "SELECT @@character_set_server, @@collation_server")
    return SchemaDefault(charset, name)


def _cluster(connection: Connection, clustered: str) -> None:
    """Let tables that the session creates have a clustered primary key or not, where the server knows such keys."""
    if clustered:
        query(connection, f"SET SESSION {CLUSTERED} = {clustered}")


def _target_types(connection: Connection, trial: TableId) -> TargetTypes:
    query(connection, f"CREATE TABLE {table_name(trial)} (j JSON, n NATIONAL CHAR(1))")
    j, n = read_schema(connection, trial).columns
    return TargetTypes(
        j.data_type == "json",
        str(n.charset),
        read_collations(connection, defaults=False),
        read_collations(connection, defaults=True),
    )


def _lossy_default(schema: TableSchema, text: str) -> str:
    """Return the column that a statement adds with a binary default which the server has stored as other bytes.

    TiDB stores U+FFFD for bytes that are no UTF-8. The rows that are there already would get these.
    """
    if not BINARY_LITERAL.search(text):
        return ""
    binaries = (column for column in schema.columns if column.data_type in ("binary", "varbinary"))
    return next((column.name for column in binaries if "\ufffd" in (column.default or "")), "")


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
