"""Reads rows of a binlog with mysql-replication, a decoder that shares no code with ours.

mysql-replication opens its own connection. It learns a table's columns from the binlog only if binlog_row_metadata is
FULL, so it gets their signs and labels from the structures that we track. Strings stay bytes: it does not convert what
has an encoding that Python does not know.
"""

import logging
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pymysql
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.constants import NONE_SOURCE
from pymysqlreplication.event import RotateEvent
from pymysqlreplication.row_event import (
    DeleteRowsEvent,
    PartialUpdateRowsEvent,
    TableMapEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)

from unshard.adapters import mysql
from unshard.binlog.decoder import AFTER, BEFORE, DELETE, INSERT
from unshard.core.checks.decoding import ABSENT, Reason, is_known
from unshard.core.model import Column, Location, Server, TableId, TableSchema
from unshard.core.sql.charsets import encode
from unshard.core.structures.columntypes import encoded_labels
from unshard.core.structures.hiddencolumns import period_of, with_hashes
from unshard.errors.checks import ReferenceDecoderFailed

UNCONVERTED = "bytes as they are stored"
"""An encoding that Python does not have, so that mysql-replication leaves strings as they are."""
UNREADABLE = (ArithmeticError, LookupError, NotImplementedError, TypeError, ValueError, struct.error)
EVENTS = (TableMapEvent, WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent, PartialUpdateRowsEvent, RotateEvent)
POSITION_BITS = 0xFFFFFFFF
"""An event has four bytes for its position."""

Row = tuple[int, tuple[object, ...]]
"""An operation of our decoder, and one value for each column."""


@dataclass(frozen=True, slots=True)
class ReferenceEvent:
    """One row event as mysql-replication reads it."""

    file: str
    end: int
    """The position after the event, modulo 2^32."""
    table: TableId
    rows: tuple[Row, ...] = ()
    reason: Reason | None = None
    """Set if the rows cannot be compared; `rows` is empty then."""
    detail: str = ""
    """The error of mysql-replication, if it raised one."""


def read_events(
    server: Server, source: str, begins: Location, ends: Location, tables: Mapping[TableId, TableSchema], server_id: int
) -> Iterator[ReferenceEvent]:
    """Yield the row events of the tables between two locations; raises ReferenceDecoderFailed."""
    # It warns that it lacks what `_describe` tells it.
    logging.getLogger("pymysqlreplication").setLevel(logging.ERROR)

    def connect(**options: Any) -> Any:
        connection = mysql.connect(server, f"source {source}")
        connection.cursorclass = options.get("cursorclass", connection.cursorclass)
        return connection

    reader = BinLogStreamReader(
        {},
        server_id,
        log_file=begins.server_file,
        log_pos=begins.position,
        resume_stream=True,
        only_events=EVENTS,
        only_schemas={table.schema for table in tables},
        only_tables={table.name for table in tables},
        enable_logging=False,
        pymysql_wrapper=connect,
    )
    try:
        yield from _events(reader, source, ends, tables)
    except pymysql.err.Error as error:
        raise ReferenceDecoderFailed(source, f"{reader.log_file}:{reader.log_pos}", str(error)) from error
    finally:
        reader.close()


def _events(
    reader: Any, source: str, ends: Location, tables: Mapping[TableId, TableSchema]
) -> Iterator[ReferenceEvent]:
    while True:
        try:
            event = reader.fetchone()
        except UNREADABLE as error:
            words = f"{type(error).__name__}: {error}"
            raise ReferenceDecoderFailed(source, f"{reader.log_file}:{reader.log_pos}", words) from error
        if event is None or Location(reader.log_file, reader.log_pos) > ends:
            return
        if isinstance(event, RotateEvent) or (table := TableId(event.schema, event.table)) not in tables:
            continue
        if isinstance(event, TableMapEvent):
            _describe(reader.table_map[event.table_id].columns, tables[table])
            continue
        yield _event(event, reader.log_file, table, tables[table])


def _describe(columns: list[Any], schema: TableSchema) -> None:
    """Tell mysql-replication names, signs and labels of columns; names are their numbers, which are unique."""
    structure = with_hashes(schema, len(columns))
    if len(columns) != len(structure.columns):
        return
    for number, (column, known) in enumerate(zip(columns, structure.columns, strict=True)):
        column.name, column.unsigned, column.character_set_name = str(number), known.is_unsigned, UNCONVERTED
        if known.data_type == "enum":
            column.enum_values = (b"", *encoded_labels(known, schema.create_sql))
        elif known.data_type == "set":
            column.set_values = encoded_labels(known, schema.create_sql)


def _event(event: Any, file: str, table: TableId, schema: TableSchema) -> ReferenceEvent:
    end, schema = event.packet.log_pos & POSITION_BITS, with_hashes(schema, len(event.columns))
    reason = _reason(event, schema)
    if reason:
        return ReferenceEvent(file, end, table, (), reason)
    try:
        rows = tuple(row for images in event.rows for row in _rows(images, event, schema))
    except UNREADABLE as error:
        return ReferenceEvent(file, end, table, (), Reason.UNREADABLE, f"{type(error).__name__}: {error}")
    return ReferenceEvent(file, end, table, rows)


def _reason(event: Any, schema: TableSchema) -> Reason | None:
    if isinstance(event, PartialUpdateRowsEvent):
        return Reason.PARTIAL_JSON
    if period_of(schema.create_sql) is not None:
        return Reason.VERSIONED
    if not all(map(is_known, schema.columns)):
        return Reason.UNKNOWN_TYPE
    return Reason.OTHER_STRUCTURE if len(event.columns) != len(schema.columns) else None


def _rows(images: Mapping[str, Any], event: Any, schema: TableSchema) -> Iterator[Row]:
    if "values" in images:
        operation = INSERT if isinstance(event, WriteRowsEvent) else DELETE
        yield operation, _values(images["values"], images["none_sources"], schema)
        return
    yield BEFORE, _values(images["before_values"], images["before_none_sources"], schema)
    yield AFTER, _values(images["after_values"], images["after_none_sources"], schema)


def _values(values: Mapping[str, object], absent: Mapping[str, str], schema: TableSchema) -> tuple[object, ...]:
    return tuple(
        _value(value, absent.get(name, ""), column)
        for (name, value), column in zip(values.items(), schema.columns, strict=True)
    )


def _value(value: object, source: str, column: Column) -> object:
    """Return a value with the meaning that it has for the server: None only for NULL or what cannot be read."""
    if source == NONE_SOURCE.COLS_BITMAP:
        return ABSENT
    if column.data_type == "set" and source == NONE_SOURCE.EMPTY_SET:
        return b""
    if isinstance(value, set):
        labels = (label for label in encoded_labels(column, column.name) if label in value)
        return encode(",", column.charset or "utf8mb4").join(labels)
    # Python decodes no bytes with every encoding.
    return b"" if value == "" and column.data_type != "json" else value
