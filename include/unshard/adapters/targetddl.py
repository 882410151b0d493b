"""DDL on the target: create and drop schemas and tables, and find the effect of a DDL on a structure.

The effect is found by running the DDL on an empty table in the target's meta schema (in the driver). A parser would
need every rule of every server, but the server already implements them. Shards of the same structure need one trial
only: results are cached by structure, statement and session settings.

If the process dies between CREATE and DROP, the empty trial table remains under a name that is not used again. The
first effect that a process asks for drops trial tables that are older than an hour. Their names have the time too: in
MySQL an ALTER TABLE changes the time of creation to that of the statement, which may be long ago.
"""

import contextlib
import re
import secrets
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from pymysql.connections import Connection

from unshard.adapters.mysql import (
    REFUSALS,
    assume_session,
    connect,
    create_as_shown,
    errno_of,
    query,
    set_collation,
    table_name,
)
from unshard.adapters.structures import keeps_utf8, meaning_of_utf8, read_collations, read_schema
from unshard.core import codec
from unshard.core.ddl.foreignkeyclauses import adds_keys, for_target, made_indexes, with_index_names
from unshard.core.ddl.parsed import Ddl, DdlKind, Role
from unshard.core.ddl.schemadefaults import with_default
from unshard.core.ddl.sessioneffects import DATED
from unshard.core.ddl.statement import fingerprint, read_ddl, retarget, without_engine
from unshard.core.ddl.steps import steps
from unshard.core.model import Server, TableId, TableSchema, has_transactions
from unshard.core.relay.segment import SchemaDefault, Statement
from unshard.core.sql.mode import NO_BACKSLASH_ESCAPES
from unshard.core.sql.quoting import identifier
from unshard.core.structures.columntypes import is_ambiguous
from unshard.core.structures.constraintnames import OWN, checks_of, trial_names, without_absent
from unshard.core.structures.createtext import create_text
from unshard.core.structures.hiddencolumns import period_of
from unshard.core.structures.storageclauses import with_engine, with_transactions
from unshard.errors.ddl import EffectRefused, StructureUnknown
from unshard.errors.source import StatementRefused


def create_schema(
    connection: Connection, schema: str, *, if_not_exists: bool = False, default: SchemaDefault | None = None
) -> None:
    """Create a schema, with this default character set if one is given."""
    options = f" {default.options}" if default else ""
    query(connection, f"CREATE DATABASE {'IF NOT EXISTS ' if if_not_exists else ''}{identifier(schema)}{options}")


def set_default(connection: Connection, schema: str, default: SchemaDefault) -> None:
    """Change the default character set of a schema."""
    query(connection, f"ALTER DATABASE {identifier(schema)} {default.options}")


def drop_schema(connection: Connection, schema: str) -> None:
    """Drop a schema."""
    query(connection, f"DROP DATABASE {identifier(schema)}")


def drop_table(connection: Connection, table: TableId, *, if_exists: bool = False) -> None:
    """Drop a table."""
    query(connection, f"DROP TABLE {'IF EXISTS ' if if_exists else ''}{table_name(table)}")


def simplest_table(name: str) -> str:
    """Return a CREATE TABLE that every server accepts which accepts one at all."""
    return f"CREATE TABLE {identifier(name)} (`id` int NOT NULL PRIMARY KEY)"


# --- effects of DDL ---

Key = tuple[str, str, str]
NO_TABLE = "_no_table"
CLUSTERED = "tidb_enable_clustered_index"
PRIMARY_KEY = "SELECT TIDB_PK_TYPE FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
WITH_FEATURES = "CREATE TABLE {table} (a INT CHECK (a > 0), b TEXT, FULLTEXT KEY f (b), KEY k (a DESC)) ENGINE=InnoDB"
BINARY_LITERAL = re.compile(r"\b[xb]'|\b0x", re.IGNORECASE)
UNPRINTED = "the server prints a backslash before 0, n or r in a label as it prints a control character"
LOSSY = "the default of {column} is stored as other bytes, because it is not valid UTF-8"
OLD = """SELECT TABLE_NAME FROM information_schema.TABLES
WHERE TABLE_SCHEMA = %s AND TABLE_NAME LIKE '\\_shadow\\_%%' AND CREATE_TIME < NOW() - INTERVAL 1 HOUR"""
MADE_AT, HOUR = re.compile(r"_shadow_(\d+)_"), 3600


class TargetTypes(NamedTuple):
    """How a server handles types and character sets whose meaning depends on the server."""

    has_json: bool
    national: str
    collations: frozenset[str]
    """All collations that it knows, with the names that `canonical` returns."""
    defaults: frozenset[str]
    """Collations that are the default of their character set."""
    utf8: str


class TriedTable(NamedTuple):
    """The result of a statement on a trial table."""

    after: TableSchema
    is_split: bool = False
    """The server refuses the statement as a whole but accepts it in steps."""


class DdlTrialTables:
    """Effects of DDL, found with empty tables in one schema of one server."""

    def __init__(self, server: Server, schema: str) -> None:
        self._server = server
        self._schema = schema
        self._known: dict[Key, TriedTable] = {}
        self._has_clustering: bool | None = None
        self._clusterings: dict[TableId, str] = {}
        self._needs_steps: bool | None = None
        self._types: TargetTypes | None = None
        self._collations: dict[int, SchemaDefault] = {}
        self._is_swept = False

    @property
    def is_used(self) -> bool:
        """Whether anything has been asked of the server, on trial tables that are dropped again."""
        return self._is_swept

    def effect(
        self, before: TableSchema | None, statement: Statement, table: TableId, target: TableId | None = None
    ) -> TableSchema:
        """Return the structure of `table` after the statement; raises EffectRefused with the server's message.

        `before` is the structure of `table`. For a CREATE TABLE it is None, or the structure of the table named after
        LIKE. On servers with clustered keys, the trial table's primary key is clustered if that of `target` is.
        """
        return self.tried(before, statement, table, target).after

    def tried(
        self, before: TableSchema | None, statement: Statement, table: TableId, target: TableId | None = None
    ) -> TriedTable:
        """Return the effect, and whether the server accepts the statement only in steps (core.ddl.steps)."""
        ddl = read_ddl(statement.text, statement.sql_mode, statement.schema)
        if ddl.like and before:
            return TriedTable(before)
        if before is None and (ddl.like or ddl.kind is not DdlKind.CREATE_TABLE):
            raise StructureUnknown(str(ddl.like or table), statement.text)
        clustered = self._clustered(target)
        key = self._key(before, ddl, statement, table, clustered)
        if key not in self._known:
            self._known[key] = self._try_out(before, ddl, statement, table, clustered)
        return self._known[key]

    def server_default(self, collation: int) -> SchemaDefault:
        """Return the defaults that CREATE DATABASE sets if collation_server is the collation of this number."""
        if collation not in self._collations:
            with self._connection() as connection:
                self._collations[collation] = _server_default(connection, collation)
        return self._collations[collation]

    def types(self) -> TargetTypes:
        """Return how the server handles types and character sets whose meaning depends on the server."""
        if self._types is None:
            with self._connection() as connection, _trial_table(connection, self._schema) as trial:
                self._types = _target_types(connection, trial)
        return self._types

    def with_features(self) -> TableSchema:
        """Return a table as the server shows it, with features that some servers leave out."""
        with self._connection() as connection, _trial_table(connection, self._schema) as trial:
            query(connection, WITH_FEATURES.format(table=table_name(trial)))
            return read_schema(connection, trial)

    def _key(self, before: TableSchema | None, ddl: Ddl, statement: Statement, table: TableId, clustered: str) -> Key:
        routed = retarget(ddl, {table: TableId("", OWN)})
        text = fingerprint(routed, statement.sql_mode)
        # The text of a default may depend on the session's time zone or date, its type on the other variables.
        # An index gets the name of its foreign key, which may be made from the name of the table.
        named = table.name if "_ibfk_" in text else ""
        moment = statement.timestamp if DATED.search(text) else 0
        session = codec.dumps(replace(statement, text=text, schema=named, timestamp=moment, microseconds=0))
        return before.digest if before else "", session, clustered

    def _try_out(
        self, before: TableSchema | None, ddl: Ddl, statement: Statement, table: TableId, clustered: str
    ) -> TriedTable:
        with self._connection() as connection, _trial_table(connection, self._schema) as trial:
            # A trial table references no table that exists: its foreign keys would be in the way of others.
            parents = {parent: TableId(self._schema, trial.name + NO_TABLE) for parent in ddl.of(Role.REFERENCED)}
            changed, engine = _without_engine(before, ddl, statement.sql_mode)
            tried = self._with_indexes(before, changed or ddl, statement, table, clustered)
            text = with_default(retarget(tried, {**parents, table: trial}), statement)
            old = with_transactions(before.create_sql) if before else ""
            names = trial_names(table.name, trial.name, (old, 0), (text, statement.sql_mode))
            text = names.put_in(text, statement.sql_mode)
            if before and "CONSTRAINT" in text.upper():
                there = {*checks_of(names.put_in(old), trial.name), *(i.name for i in before.indexes if i.unique)}
                text = without_absent(text, statement.sql_mode, {name.lower() for name in there})
            try:
                _cluster(connection, clustered)
                if before:
                    # The target has transactions also if the shard has not (units.ddl.execute.target_text).
                    create_as_shown(connection, create_text(names.put_in(old), trial))
                with self._connection() as session:
                    _cluster(session, clustered)
                    if before and period_of(before.create_sql):
                        # The source's session or server has already allowed this change; replicas need the variable
                        # too.
                        query(session, "SET SESSION system_versioning_alter_history = KEEP")
                    assume_session(session, statement)
                    is_split = changed is not None and self._run(session, text, statement.sql_mode)
            except REFUSALS as error:
                if error.transient:
                    raise
                message = names.message(error.server_message)
                raise EffectRefused(str(table), errno_of(error), message, ddl.text) from error
            after = with_engine(names.restored(read_schema(connection, trial)), engine)
            if lossy := _lossy_default(after, text):
                raise EffectRefused(str(table), 0, LOSSY.format(column=lossy), ddl.text)
            verbatim = statement.sql_mode & NO_BACKSLASH_ESCAPES
            labels = old + (text.replace("\\", "\\\\") if verbatim else text)
            if is_ambiguous(after, labels) and keeps_utf8(connection):
                raise EffectRefused(str(table), 0, UNPRINTED, ddl.text)
            return TriedTable(after, is_split or self._has_keys_in_steps(ddl, statement.sql_mode))

    def _has_keys_in_steps(self, ddl: Ddl, sql_mode: int) -> bool:
        """Whether foreign keys need statements of their own; trial tables have none.

        TiDB refuses to drop one together with other changes. It does not see an index of the same statement, and adds
        another one for the foreign key.
        """
        has_keys = bool(ddl.dropped_keys) or adds_keys(ddl, sql_mode)
        return has_keys and len(steps(ddl.text, sql_mode)) > 1 and self._checks_each_alone()

    def _with_indexes(
        self, before: TableSchema | None, ddl: Ddl, statement: Statement, table: TableId, clustered: str
    ) -> Ddl:
        """Return a statement that makes the same indexes for foreign keys as the source; TiDB would make others."""
        mode = statement.sql_mode
        if not ddl.of(Role.REFERENCED) or not self._checks_each_alone():
            return ddl
        if before is None:
            return with_index_names(ddl, mode)
        if not adds_keys(ddl, mode):
            return ddl
        bare = read_ddl(retarget(for_target(ddl, mode, None), {}), mode, statement.schema)
        without = self._try_out(before, bare, replace(statement, text=bare.text), table, clustered).after
        return for_target(ddl, mode, None, made_indexes(ddl, mode, without))

    def _run(self, session: Connection, text: str, sql_mode: int) -> bool:
        """Run a statement on a trial table, in steps if the server requires them; return whether it was split."""
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
        """Whether the server checks each change of an ALTER TABLE against the table as it was before the statement."""
        if self._needs_steps is None:
            with self._connection() as connection, _trial_table(connection, self._schema) as trial:
                name = table_name(trial)
                query(connection, f"CREATE TABLE {name} (a INT)")
                try:
                    query(connection, f"ALTER TABLE {name} ADD b INT, ADD KEY (b)")
                    self._needs_steps = False
                except StatementRefused:
                    self._needs_steps = True
        return self._needs_steps

    def _clustered(self, target: TableId | None) -> str:
        """Return ON or OFF for the target's clustered primary key; empty on servers without this setting.

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


def _without_engine(before: TableSchema | None, ddl: Ddl, sql_mode: int) -> tuple[Ddl | None, str]:
    """Return the part of a DDL for a trial, None for nothing, and the shard's engine afterwards if a trial hides it.

    A trial table always has transactions: another engine's options may be refused, and TiDB knows no engines.
    """
    if before is None:
        return ddl, ""
    changed, named = without_engine(ddl, sql_mode)
    if not before.lacks_transactions and (not named or has_transactions(named)):
        return ddl, ""
    return changed, named or before.lacks_transactions


def _server_default(connection: Connection, collation: int) -> SchemaDefault:
    if collation and not set_collation(connection, "collation_server", collation):
        return SchemaDefault(f"of_collation_{collation}")  # the target refuses tables with this default
    ((charset, name),) = query(connection, "SELECT @@character_set_server, @@collation_server")
    return SchemaDefault(charset, name)


def _cluster(connection: Connection, clustered: str) -> None:
    """Set whether tables of the session get a clustered primary key, if the server has this setting."""
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
        meaning_of_utf8(connection),
    )


def _lossy_default(schema: TableSchema, text: str) -> str:
    """Return the column that a statement adds with a binary default that the server stored as other bytes.

    TiDB stores U+FFFD for bytes that are not UTF-8. Existing rows would get that value.
    """
    if not BINARY_LITERAL.search(text):
        return ""
    binaries = (column for column in schema.columns if column.data_type in ("binary", "varbinary"))
    return next((column.name for column in binaries if "\ufffd" in (column.default or "")), "")


def trial_table(schema: str) -> TableId:
    """Return a unique name for a temporary table; later processes drop those that a killed process leaves."""
    return TableId(schema, f"_shadow_{int(time.time())}_{secrets.token_hex(6)}")


@contextlib.contextmanager
def _trial_table(connection: Connection, schema: str) -> Iterator[TableId]:
    table = trial_table(schema)
    try:
        yield table
    finally:
        if connection.open:
            query(connection, f"DROP TABLE IF EXISTS {table_name(table)}")


def _sweep(connection: Connection, schema: str) -> None:
    for (name,) in query(connection, OLD, (schema,)):
        if (made := MADE_AT.match(name)) and int(made[1]) > time.time() - HOUR:
            continue
        query(connection, f"DROP TABLE IF EXISTS {table_name(TableId(schema, name))}")
