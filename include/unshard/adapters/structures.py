"""Read the structures, constraints and foreign keys of tables from their server.

All information comes from information_schema and SHOW CREATE TABLE; types are parsed only in the form that the server
prints. The session must be set up by `mysql.connect`, because sql_mode flags such as ANSI_QUOTES change the printed
text. The text is read as bytes, because a default value may not be valid UTF-8.

The structures of the target's tables are cached, and read again only after a change. A table has changed if the text of
SHOW CREATE TABLE has changed: everything else that is read about a table follows from it. A text is cached only with
the structure that contains it, so a DDL between the two queries does no harm. The target's columns also record how the
server receives text (`Column.sent_as`): TiDB stores text of every character set as UTF-8, and does not convert text
that a client sends as latin1.
"""

import contextlib
import re
import struct
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.connectionpool import ConnectionPool
from unshard.adapters.mysql import query, table_name
from unshard.binlog.values import float_text
from unshard.core.model import Column, Index, Server, TableId, TableSchema
from unshard.core.relay.segment import SchemaDefault
from unshard.core.sql.charsets import canonical
from unshard.core.sql.quoting import identifier
from unshard.core.sql.tokens import Dialect
from unshard.core.structures.columntypes import as_escaped
from unshard.core.structures.constraintnames import CHECK, FOREIGN, ConstraintsThere, checks_of
from unshard.core.structures.createtext import normal_column, normal_create, normal_with_names
from unshard.core.structures.foreignkeys import ForeignKey
from unshard.core.structures.hiddencolumns import without_period
from unshard.core.structures.parsedtable import index_parts
from unshard.errors import UnshardError
from unshard.errors.source import MissingPrivilege, TableMissing, TableUnsupported, UnknownDatabase

COLUMNS = """SELECT TABLE_NAME, COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, CHARACTER_SET_NAME, COLLATION_NAME,
COLUMN_DEFAULT, EXTRA FROM information_schema.COLUMNS WHERE {where} ORDER BY TABLE_NAME, ORDINAL_POSITION"""
INDEXES = """SELECT TABLE_NAME, INDEX_NAME, NON_UNIQUE, COLUMN_NAME, SUB_PART
FROM information_schema.STATISTICS WHERE {where} ORDER BY TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX"""
SYSTEM_SCHEMAS = ("mysql", "sys", "information_schema", "performance_schema", "metrics_schema")
FEW = 50
"""Up to this number, tables are looked up one by one: a window's targets, in a schema with perhaps thousands of tables.
"""
UTF8 = frozenset({"utf8", "utf8mb3", "utf8mb4", "ascii", "binary"})
"""Character sets whose bytes every server stores unchanged."""
TABLES = "SELECT TABLE_NAME, TABLE_TYPE, TABLE_COLLATION FROM information_schema.TABLES WHERE {where}"


class IndexRow(NamedTuple):
    """One row of STATISTICS; an expression has no column, or NULL as a text."""

    key: str
    non_unique: str
    column: str | None
    prefix: str | None


class Reader(NamedTuple):
    """A connection that is set up for reading structures."""

    connection: Connection
    dialect: Dialect
    ignores_case: bool

    def name(self, name: str) -> str:
        """Return the form in which the server compares table names."""
        return name.lower() if self.ignores_case else name

    def rows(self, sql: str, schema: str, names: tuple[str, ...]) -> Iterator[tuple[str | None, ...]]:
        """Query information_schema: a few tables one by one, otherwise the whole schema.

        information_schema answers quickly only to equality conditions.
        """
        if len(names) > FEW:
            yield from self._found(sql.format(where="TABLE_SCHEMA = %s"), schema)
            return
        for asked in {self.name(name): name for name in names}.values():
            for row in self._found(sql.format(where="TABLE_SCHEMA = %s AND TABLE_NAME = %s"), schema, asked):
                # information_schema may ignore case although the server's table names are case-sensitive.
                if self.name(str(row[0])) == self.name(asked):
                    yield row

    def _found(self, sql: str, *values: str) -> Iterator[tuple[str | None, ...]]:
        for row in query(self.connection, sql, values):
            yield tuple(map(_text, row))


def read_defaults(connection: Connection) -> dict[str, SchemaDefault]:
    """Read the default character set of every schema that the account may see."""
    sql = "SELECT SCHEMA_NAME, DEFAULT_CHARACTER_SET_NAME, DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA"
    return {_name(row[0]): SchemaDefault(_name(row[1]), _name(row[2])) for row in query(connection, sql)}


def read_collations(connection: Connection, *, defaults: bool) -> frozenset[str]:
    """Read the collations that a server knows, or those that are the default of their character set."""
    sql = "SELECT COLLATION_NAME FROM information_schema.COLLATIONS"
    rows = query(connection, f"{sql} WHERE IS_DEFAULT = 'Yes'" if defaults else sql)
    return frozenset(canonical(_name(name)) for (name,) in rows if name)


def meaning_of_utf8(connection: Connection) -> str:
    """Return the character set that `utf8` names in new sessions: MariaDB's `old_mode` decides it."""
    ((collation,),) = query(connection, "SELECT COLLATION(CONVERT('' USING utf8))")
    return canonical(_name(collation)).partition("_")[0]


def collations_by_charset(connection: Connection, numbers: Iterable[int]) -> dict[str, str]:
    """Read the names of collations from their numbers, by character set."""
    sql = "SELECT CHARACTER_SET_NAME, COLLATION_NAME FROM information_schema.COLLATIONS WHERE ID IN %s"
    if "mariadb" in connection.get_server_info().lower():  # it has collations of several character sets
        sql = (
            "SELECT CHARACTER_SET_NAME, FULL_COLLATION_NAME"
            " FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY WHERE ID IN %s"
        )
    return {_name(charset): _name(name) for charset, name in query(connection, sql, (tuple(numbers),))}


def read_sequences(connection: Connection) -> frozenset[TableId]:
    """Read which of the tables that the account may see are sequences; MySQL has no sequences."""
    sql = "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE = 'SEQUENCE'"
    return frozenset(TableId(_name(schema), _name(name)) for schema, name in query(connection, sql))


def read_triggers(connection: Connection, schemas: Iterable[str]) -> dict[TableId, list[str]]:
    """Read the triggers of each table, if the account has the privilege TRIGGER."""
    found: dict[TableId, list[str]] = defaultdict(list)
    sql = (
        "SELECT EVENT_OBJECT_SCHEMA, EVENT_OBJECT_TABLE, ACTION_STATEMENT FROM information_schema.TRIGGERS"
        " WHERE EVENT_OBJECT_SCHEMA = %s"
    )
    for each in schemas:
        for schema, table, body in query(connection, sql, (each,)):
            found[TableId(_name(schema), _name(table))].append(_name(body))
    return found


def read_programs(connection: Connection, schemas: Collection[str]) -> list[tuple[str, str, str]]:
    """Read kind, schema and name of the triggers and views that the account may see."""
    sql = (
        "SELECT 'trigger', TRIGGER_SCHEMA, TRIGGER_NAME FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA IN %s"
        " UNION ALL SELECT 'view', TABLE_SCHEMA, TABLE_NAME FROM information_schema.VIEWS WHERE TABLE_SCHEMA IN %s"
    )
    rows = query(connection, sql, (tuple(schemas), tuple(schemas))) if schemas else ()
    return [(_name(kind), _name(schema), _name(name)) for kind, schema, name in rows]


def column_names(connection: Connection, table: TableId) -> tuple[str, ...]:
    """Read the names of a table's columns, in order."""
    sql = (
        "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
        " ORDER BY ORDINAL_POSITION"
    )
    return tuple(_name(name) for (name,) in query(connection, sql, (table.schema, table.name)))


def read_schema(connection: Connection, table: TableId) -> TableSchema:
    """Read one structure; raises TableMissing."""
    found = read_schemas(connection, [table])
    if table not in found:
        where = getattr(connection, "where", "server")
        raise TableMissing(where, f"{connection.host}:{connection.port}", f"there is no table {table}")
    return found[table]


def read_schemas(connection: Connection, tables: Iterable[TableId]) -> dict[TableId, TableSchema]:
    """Read structures with three queries per schema or small group, and one per table; missing tables are left out."""
    by_schema = defaultdict(list)
    for table in tables:
        by_schema[table.schema].append(table.name)
    if not by_schema:
        return {}
    with _reading(connection) as reader:
        return {
            TableId(schema, name): structure
            for schema, names in by_schema.items()
            for name, structure in _read_schema(reader, schema, tuple(names))
        }


def read_each(
    connection: Connection, tables: Collection[TableId]
) -> tuple[dict[TableId, TableSchema], dict[TableId, UnshardError]]:
    """Read structures, and the errors of the tables that cannot be read; raises transient errors."""
    try:
        return read_schemas(connection, tables), {}
    except UnshardError as error:
        if error.transient:
            raise
    found: dict[TableId, TableSchema] = {}
    refused: dict[TableId, UnshardError] = {}
    for table in tables:
        try:
            found |= read_schemas(connection, [table])
        except UnshardError as error:
            refused[table] = error
    return found, refused


def shown_create(connection: Connection, table: TableId) -> str:
    """Return the output of SHOW CREATE TABLE, which depends on the session's sql_mode."""
    with _as_bytes(connection):
        text = str(query(connection, f"SHOW CREATE TABLE {table_name(table)}")[0][1], "utf-8", "surrogateescape")
    return as_escaped(text) if "\\" in text and keeps_utf8(connection) else text


def read_engines(connection: Connection) -> dict[TableId, str]:
    """Read the storage engine of each table that the account may see, except those of the server itself."""
    rows = query(
        connection,
        "SELECT TABLE_SCHEMA, TABLE_NAME, COALESCE(ENGINE, '') FROM information_schema.TABLES"  # noqa: S608
        " WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED')"
        f" AND TABLE_SCHEMA NOT IN ({', '.join(['%s'] * len(SYSTEM_SCHEMAS))}) ORDER BY 1, 2",
        SYSTEM_SCHEMAS,
    )
    return {TableId(schema, name): engine for schema, name, engine in rows}


def has_table(connection: Connection, table: TableId) -> bool:
    """Whether the account sees a table of that name."""
    sql = "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
    return bool(query(connection, sql, (table.schema, table.name)))


def has_schema(connection: Connection, schema: str) -> bool:
    """Whether the account sees a schema of that name, in upper or lower case."""
    sql = "SELECT 1 FROM information_schema.SCHEMATA WHERE LOWER(SCHEMA_NAME) = LOWER(%s)"
    return bool(query(connection, sql, (schema,)))


def has_rows(connection: Connection, table: TableId) -> bool:
    """Whether the table has a row."""
    return bool(query(connection, f"SELECT 1 FROM {table_name(table)} LIMIT 1"))  # noqa: S608


def keeps_pages(connection: Connection) -> bool:
    """Whether the server stores tables in InnoDB pages; TiDB's engine is also called InnoDB but has no pages."""
    return bool(query(connection, "SHOW GLOBAL STATUS LIKE 'Innodb\\_page\\_size'"))


def keeps_utf8(connection: Connection) -> bool:
    """Whether the server stores latin1 text as UTF-8; then it expects UTF-8 for every character set."""
    ((digits,),) = query(connection, "SELECT HEX(CONVERT(_utf8mb4 X'C3A9' USING latin1))")
    return _name(digits) == "C3A9"


def with_utf8(schema: TableSchema) -> TableSchema:
    """Return a structure whose text columns are written and read as UTF-8.

    This includes JSON columns: TiDB treats `_utf8mb4 x'..'` as binary there, and refuses it.
    """
    columns = (
        replace(each, sent_as="utf8mb4") if each.data_type == "json" or (each.charset or "binary") not in UTF8 else each
        for each in schema.columns
    )
    return replace(schema, columns=tuple(columns))


def server_dialect(connection: Connection) -> Dialect:
    """Return which executable comments this server runs."""
    text = connection.get_server_info()
    # MariaDB may report 5.5.5-10.11.6-MariaDB, for compatibility with old replicas.
    numbers = re.findall(r"(\d+)\.(\d+)\.(\d+)", text)[-1]
    major, minor, patch = map(int, numbers)
    return Dialect("MariaDB" in text, major * 10000 + minor * 100 + patch)


@contextlib.contextmanager
def _reading(connection: Connection) -> Iterator[Reader]:
    no_case = ignores_case(connection)
    with _as_bytes(connection):
        yield Reader(connection, server_dialect(connection), no_case)


def ignores_case(connection: Connection) -> bool:
    """Return whether names of tables that differ only in case are one table on the server."""
    ((rule,),) = query(connection, "SELECT @@lower_case_table_names")
    return bool(int(rule))


@contextlib.contextmanager
def _as_bytes(connection: Connection) -> Iterator[None]:
    unicode, connection.use_unicode = connection.use_unicode, False
    try:
        yield
    finally:
        connection.use_unicode = unicode


def _read_schema(reader: Reader, schema: str, names: tuple[str, ...]) -> Iterator[tuple[str, TableSchema]]:
    tables = {str(name): (kind, collation or "") for name, kind, collation in reader.rows(TABLES, schema, names)}
    columns: Mapping[str, list[Column]] = defaultdict(list)
    for name, *rest in reader.rows(COLUMNS, schema, names):
        columns[str(name)].append(_column(*rest))
    parts: Mapping[str, list[IndexRow]] = defaultdict(list)
    for name, *rest in reader.rows(INDEXES, schema, names):
        parts[str(name)].append(IndexRow(*rest))  # type: ignore[arg-type]
    by_name = {reader.name(name): name for name in tables}
    for wanted in names:
        found = by_name.get(reader.name(wanted), "")
        kind, collation = tables.get(found, ("", ""))
        if kind in ("BASE TABLE", "SYSTEM VERSIONED"):
            shown = shown_create(reader.connection, TableId(schema, found))
            text, left_out = normal_with_names(shown, reader.dialect)
            own, indexes = _normal(reader, columns[found], shown), _indexes(parts[found], text)
            if kind == "SYSTEM VERSIONED":
                # MariaDB logs the changes of a table with a period of transaction numbers as statements.
                if any(each.default is None and each.data_type == "bigint" and each.is_generated for each in own):
                    why = "its history is kept by transactions, and its changes are logged as statements"
                    raise TableUnsupported(f"{schema}.{found}", why)
                own, indexes = without_period(own, indexes, text)
            default = canonical(collation) if _is_foreign(reader) else collation
            yield wanted, TableSchema(own, indexes, text, default, left_out=left_out)


def _is_foreign(reader: Reader) -> bool:
    return not reader.dialect.mariadb


def _normal(reader: Reader, columns: list[Column], create: str) -> tuple[Column, ...]:
    if not _is_foreign(reader):
        return tuple(columns)
    lines = create.splitlines()
    if any("\\" in column.column_type for column in columns) and keeps_utf8(reader.connection):
        columns = [replace(column, column_type=as_escaped(column.column_type)) for column in columns]
    return tuple(normal_column(column, _line(lines, column.name), _double) for column in columns)


def _double(value: float) -> str:
    return bytes(float_text("<d", None)(struct.pack("<d", value), 0)).decode()


def _line(lines: list[str], column: str) -> str:
    return next((line for line in lines if line.startswith(f"  {identifier(column)} ")), "")


def _column(
    name: str | None, data_type: str | None, column_type: str | None, nullable: str | None, *rest: str | None
) -> Column:
    charset, collation, default, extra = rest
    # MySQL prints DEFAULT_GENERATED for a default that is an expression; such a column is not generated.
    extras = str(extra).lower().replace("default_generated", "")
    # A column that is not part of the history of a system-versioned table in MariaDB.
    extras = extras.replace("without system versioning", "").strip(" ,")
    # After ALTER … SET DEFAULT on a generated column, this text is the only trace, and it has no effect.
    shown = None if "generated" in extras else default
    return Column(
        str(name), str(data_type).lower(), str(column_type), nullable == "YES", charset, collation, shown, extras
    )


def _indexes(parts: list[IndexRow], create: str) -> tuple[Index, ...]:
    """Group the parts of each index. The order of indexes has no meaning, so the primary key is first, then by name."""
    grouped: dict[str, list[IndexRow]] = {}
    for part in parts:
        grouped.setdefault(part.key, []).append(part)
    ordered = sorted(grouped, key=lambda name: (name != "PRIMARY", name.lower()))
    return tuple(_index(grouped[name], create) for name in ordered)


def _index(parts: list[IndexRow], create: str) -> Index:
    is_unique = int(parts[0].non_unique) == 0
    if any(part.column in (None, "NULL") for part in parts):  # the text is TiDB's
        found = index_parts(create, parts[0].key)
        is_prefixed = any(part.is_expression or part.length for part in found)
        return Index(parts[0].key, tuple(part.text for part in found), is_unique, is_prefixed)
    prefixed = any(part.prefix is not None for part in parts)
    return Index(parts[0].key, tuple(str(part.column) for part in parts), is_unique, prefixed)


def _name(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _text(value: object) -> str | None:
    """Decode text; bytes that are not UTF-8 become escapes, because the value is only compared."""
    if value is None:
        return None
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def table_sizes(connection: Connection, tables: Collection[TableId]) -> dict[TableId, int]:
    """Return the approximate size of each table's rows in bytes; 0 if the server does not know it."""
    found = {}
    for schema in {table.schema for table in tables}:
        rows = query(
            connection,
            ("SELECT TABLE_NAME, COALESCE(DATA_LENGTH, 0) FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s"),
            (schema,),
        )
        found.update({TableId(schema, name): int(size) for name, size in rows})
    return {table: found.get(table, 0) for table in tables}


# --- constraints ---

CONSTRAINTS = (
    "SELECT TABLE_NAME, CONSTRAINT_TYPE, CONSTRAINT_NAME FROM information_schema.TABLE_CONSTRAINTS"
    " WHERE CONSTRAINT_SCHEMA = %s AND CONSTRAINT_TYPE IN ('CHECK', 'FOREIGN KEY')"
)


def read_constraints(connection: Connection, table: TableId) -> ConstraintsThere:
    """Read the names; a table that does not exist has none.

    TiDB keeps all of these names apart for each table, MariaDB those of CHECK constraints.
    """
    schema = read_schemas(connection, [table]).get(table)
    keys = (index.name for index in schema.indexes if index.unique) if schema else ()
    checks = checks_of(schema.create_sql, table.name) if schema else ()
    own, others = set[str](), set[tuple[str, str]]()
    for name, kind, constraint in query(connection, CONSTRAINTS, (table.schema,)):
        if name.lower() != table.name.lower():
            others.add((CHECK if kind == CHECK else FOREIGN, constraint.lower()))
        elif kind != CHECK:
            own.add(constraint)
    others = {each for each in others if each[0] in _unique_kinds(connection)}
    return ConstraintsThere(_lower(checks), _lower(own), _lower(keys), frozenset(others))


def _unique_kinds(connection: Connection) -> Collection[str]:
    if "TiDB" in connection.get_server_info():
        return ()
    return (FOREIGN,) if server_dialect(connection).mariadb else (CHECK, FOREIGN)


def _lower(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.lower() for name in names)


# --- foreign keys ---

FOREIGN_KEYS = (
    "SELECT rules.CONSTRAINT_SCHEMA, rules.TABLE_NAME, rules.CONSTRAINT_NAME, rules.DELETE_RULE, rules.UPDATE_RULE,"
    " parts.COLUMN_NAME, parts.REFERENCED_TABLE_SCHEMA, parts.REFERENCED_TABLE_NAME, parts.REFERENCED_COLUMN_NAME"
    " FROM information_schema.REFERENTIAL_CONSTRAINTS rules JOIN information_schema.KEY_COLUMN_USAGE parts"
    " ON parts.CONSTRAINT_SCHEMA = rules.CONSTRAINT_SCHEMA AND parts.CONSTRAINT_NAME = rules.CONSTRAINT_NAME"
    " AND parts.TABLE_NAME = rules.TABLE_NAME AND parts.REFERENCED_TABLE_NAME IS NOT NULL"
    " WHERE rules.CONSTRAINT_SCHEMA IN ({0}) OR parts.REFERENCED_TABLE_SCHEMA IN ({0})"
    " ORDER BY 1, 2, 3, parts.ORDINAL_POSITION"
)


def read_foreign_keys(connection: Connection, tables: Collection[TableId]) -> tuple[ForeignKey, ...]:
    """Read the foreign keys from and to all tables in the schemas of these tables."""
    schemas = sorted({table.schema for table in tables})
    if not schemas:
        return ()
    parts: dict[tuple[str, str, str], list[tuple[str, ...]]] = {}
    for schema, table, name, *part in query(
        connection, FOREIGN_KEYS.format(", ".join(["%s"] * len(schemas))), schemas * 2
    ):
        parts.setdefault((schema, table, name), []).append(tuple(part))
    return tuple(
        ForeignKey(
            child=TableId(schema, table),
            columns=tuple(part[2] for part in found),
            parent=TableId(found[0][3], found[0][4]),
            parent_columns=tuple(part[5] for part in found),
            name=name,
            on_delete=found[0][0],
            on_update=found[0][1],
        )
        for (schema, table, name), found in parts.items()
    )


# --- structures that are read again only after a change ---

OPTIONS = "\n) "
NEXT_NUMBER = re.compile(r" AUTO_INCREMENT=(\d+)")


def next_number(connection: Connection, table: TableId) -> int:
    """Return the next value of AUTO_INCREMENT; information_schema may show one of yesterday."""
    found = NEXT_NUMBER.search(shown_create(connection, table).rpartition(OPTIONS)[2])
    return int(found[1]) if found else 1


class PresentStructures:
    """Structures of one server's tables; thread-safe."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._kept = ConnectionPool(self._open)
        self._known: dict[TableId, tuple[str, TableSchema]] = {}

    def read(self, tables: Iterable[TableId]) -> dict[TableId, TableSchema]:
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
    columns, options, rest = text.rpartition(OPTIONS)
    return columns + options + NEXT_NUMBER.sub("", rest, count=1)
