"""The structures of tables as their server describes them.

Everything is asked of information_schema and SHOW CREATE TABLE; nothing is parsed out of types but what the
server prints. The session must be as `mysql.connect` sets it, because ANSI_QUOTES and its like change how the
server prints the text. It is read as bytes, because a default value may be no UTF-8.
"""

import contextlib
import re
import struct
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from pymysql.connections import Connection

from unshard.adapters.mysql import identifier, query, table_name
from unshard.binlog.values import float_text
from unshard.core.charsets import canonical
from unshard.core.ddlcreate import normal_create
from unshard.core.ddltokens import Dialect
from unshard.core.model import Column, Index, TableId, TableSchema
from unshard.core.normalcolumns import normal_column
from unshard.core.segment import SchemaDefault
from unshard.core.versioning import without_period
from unshard.errors.source import TableMissing, TableUnsupported

COLUMNS = """SELECT TABLE_NAME, COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, CHARACTER_SET_NAME, COLLATION_NAME,
COLUMN_DEFAULT, EXTRA FROM information_schema.COLUMNS WHERE {where} ORDER BY TABLE_NAME, ORDINAL_POSITION"""
INDEXES = """SELECT TABLE_NAME, INDEX_NAME, NON_UNIQUE, COLUMN_NAME, SUB_PART
FROM information_schema.STATISTICS WHERE {where} ORDER BY TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX"""
FEW = 50
"""How many tables are looked up one by one: a window's targets, in a schema that may have thousands."""
TABLES = "SELECT TABLE_NAME, TABLE_TYPE, TABLE_COLLATION FROM information_schema.TABLES WHERE {where}"


class IndexPart(NamedTuple):
    """One row of STATISTICS; a part without a column is an expression."""

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
        """Return what the server compares names of tables by."""
        return name.lower() if self.ignores_case else name

    def rows(self, sql: str, schema: str, names: tuple[str, ...]) -> Iterator[tuple[str | None, ...]]:
        """Query information_schema: a few tables one by one, else all of the schema, however many it has.

        Only an equality is looked up quickly there.
        """
        if len(names) > FEW:
            yield from self._found(sql.format(where="TABLE_SCHEMA = %s"), schema)
            return
        for asked in {self.name(name): name for name in names}.values():
            for row in self._found(sql.format(where="TABLE_SCHEMA = %s AND TABLE_NAME = %s"), schema, asked):
                # information_schema may compare names in any case although the server tells them apart.
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


def read_sequences(connection: Connection) -> frozenset[TableId]:
    """Read which of the tables that the account may see are sequences; MySQL has none."""
    sql = "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE = 'SEQUENCE'"
    return frozenset(TableId(_name(schema), _name(name)) for schema, name in query(connection, sql))


def read_triggers(connection: Connection, schemas: Iterable[str]) -> dict[TableId, list[str]]:
    """Read what the triggers of each table do, where the account has the privilege TRIGGER."""
    found: dict[TableId, list[str]] = defaultdict(list)
    sql = ("SELECT EVENT_OBJECT_SCHEMA, EVENT_OBJECT_TABLE, ACTION_STATEMENT FROM information_schema.TRIGGERS"
           " WHERE EVENT_OBJECT_SCHEMA = %s")  # fmt: skip
    for each in schemas:
        for schema, table, body in query(connection, sql, (each,)):
            found[TableId(_name(schema), _name(table))].append(_name(body))
    return found


def column_names(connection: Connection, table: TableId) -> tuple[str, ...]:
    """Read the names of a table's columns, in order."""
    sql = ("SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
           " ORDER BY ORDINAL_POSITION")  # fmt: skip
    return tuple(_name(name) for (name,) in query(connection, sql, (table.schema, table.name)))


def read_schema(connection: Connection, table: TableId) -> TableSchema:
    """Read one structure; raises TableMissing."""
    found = read_schemas(connection, [table])
    if table not in found:
        where = getattr(connection, "where", "server")
        raise TableMissing(where, f"{connection.host}:{connection.port}", f"there is no table {table}")
    return found[table]


def read_schemas(connection: Connection, tables: Iterable[TableId]) -> dict[TableId, TableSchema]:
    """Read structures with three queries per schema or few tables, and one per table; what is no table is left out."""
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


def shown_create(connection: Connection, table: TableId) -> str:
    """Return what SHOW CREATE TABLE prints, which depends on the session's sql_mode."""
    with _as_bytes(connection):
        return str(query(connection, f"SHOW CREATE TABLE {table_name(table)}")[0][1], "utf-8", "surrogateescape")


def has_rows(connection: Connection, table: TableId) -> bool:
    """Whether there is a row in the table."""
    return bool(query(connection, f"SELECT 1 FROM {table_name(table)} LIMIT 1"))  # noqa: S608


def server_dialect(connection: Connection) -> Dialect:
    """Return which executable comments this server runs."""
    text = connection.get_server_info()
    # MariaDB may say 5.5.5-10.11.6-MariaDB, for the sake of old replicas.
    numbers = re.findall(r"(\d+)\.(\d+)\.(\d+)", text)[-1]
    major, minor, patch = map(int, numbers)
    return Dialect("MariaDB" in text, major * 10000 + minor * 100 + patch)


@contextlib.contextmanager
def _reading(connection: Connection) -> Iterator[Reader]:
    """Set up the session for reading and leave it as it was."""
    ((ignores_case,),) = query(connection, "SELECT @@lower_case_table_names")
    with _as_bytes(connection):
        yield Reader(connection, server_dialect(connection), bool(int(ignores_case)))


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
    parts: Mapping[str, list[IndexPart]] = defaultdict(list)
    for name, *rest in reader.rows(INDEXES, schema, names):
        parts[str(name)].append(IndexPart(*rest))  # type: ignore[arg-type]
    by_name = {reader.name(name): name for name in tables}
    for wanted in names:
        found = by_name.get(reader.name(wanted), "")
        kind, collation = tables.get(found, ("", ""))
        if kind in ("BASE TABLE", "SYSTEM VERSIONED"):
            text = normal_create(shown_create(reader.connection, TableId(schema, found)), reader.dialect)
            own, indexes = _normal(reader, columns[found], text), _indexes(parts[found])
            if kind == "SYSTEM VERSIONED":
                _refuse_transactions(f"{schema}.{found}", own)
                own, indexes = without_period(own, indexes, text)
            yield wanted, TableSchema(own, indexes, text, canonical(collation) if _is_foreign(reader) else collation)


def _is_foreign(reader: Reader) -> bool:
    """Whether the server describes columns otherwise than MariaDB does."""
    return not reader.dialect.mariadb


def _normal(reader: Reader, columns: list[Column], create: str) -> tuple[Column, ...]:
    if not _is_foreign(reader):
        return tuple(columns)
    lines = create.splitlines()
    return tuple(normal_column(column, _line(lines, column.name), _double) for column in columns)


def _double(value: float) -> str:
    return bytes(float_text("<d", None)(struct.pack("<d", value), 0)).decode()


def _line(lines: list[str], column: str) -> str:
    """Return the column's line of SHOW CREATE TABLE."""
    return next((line for line in lines if line.startswith(f"  {identifier(column)} ")), "")


def _refuse_transactions(table: str, columns: tuple[Column, ...]) -> None:
    """Raise for a period of transaction numbers: MariaDB logs such a table's changes as statements, not as rows."""
    if any(column.default is None and column.data_type == "bigint" and column.is_generated for column in columns):
        raise TableUnsupported(table, "its history is kept by transactions, and its changes are logged as statements")


def _column(name: str | None, data_type: str | None, column_type: str | None, nullable: str | None,
            *rest: str | None) -> Column:  # fmt: skip
    charset, collation, default, extra = rest
    # MySQL says DEFAULT_GENERATED of a default that is an expression; such a column is not generated.
    words = str(extra).lower().replace("default_generated", "")
    # A column that MariaDB keeps no history of.
    words = words.replace("without system versioning", "").strip(" ,")
    # ALTER … SET DEFAULT of a generated column shows there and nowhere else, and means nothing.
    shown = None if "generated" in words else default
    return Column(str(name), str(data_type).lower(), str(column_type), nullable == "YES", charset, collation,
                  shown, words)  # fmt: skip


def _indexes(parts: list[IndexPart]) -> tuple[Index, ...]:
    """Group the parts; the order of indexes means nothing, so they come by name, the primary key first."""
    grouped: dict[str, list[IndexPart]] = {}
    for part in parts:
        grouped.setdefault(part.key, []).append(part)
    ordered = sorted(grouped, key=lambda name: (name != "PRIMARY", name.lower()))
    return tuple(_index(grouped[name]) for name in ordered)


def _index(parts: list[IndexPart]) -> Index:
    columns = tuple(part.column for part in parts if part.column is not None)
    prefixed = any(part.prefix is not None or part.column is None for part in parts)
    return Index(parts[0].key, columns, int(parts[0].non_unique) == 0, prefixed)


def _name(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _text(value: object) -> str | None:
    """Show bytes that are no UTF-8 by their numbers: the value is only compared."""
    if value is None:
        return None
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def table_sizes(connection: Connection, tables: Collection[TableId]) -> dict[TableId, int]:
    """Return about how many bytes the rows of each table take on the server; what it does not know is 0."""
    found = {}
    for schema in {table.schema for table in tables}:
        rows = query(connection, (
            "SELECT TABLE_NAME, COALESCE(DATA_LENGTH, 0) FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s"
        ), (schema,))  # fmt: skip
        found.update({TableId(schema, name): int(size) for name, size in rows})
    return {table: found.get(table, 0) for table in tables}
