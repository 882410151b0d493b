"""Literals: on a real server, the literal of a value finds the row that has the value, for every type."""

from contextlib import closing

import pytest

from tests import alltypes
from unshard.adapters import mysql
from unshard.adapters.structures import read_schema
from unshard.adapters.textrows import prepare_reading
from unshard.core.model import Column, TableId
from unshard.core.sql.literals import expression, literal
from unshard.errors.source import UnknownColumnType, ValueNotCanonical
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("table", [name for name in alltypes.TABLES if name != "generated"])
def test_a_literal_finds_its_row(source_1: MariaDb, unique: str, table: str) -> None:
    source_1.run(*alltypes.statements(unique, (table,)))
    with closing(mysql.connect(source_1.server)) as plain, closing(mysql.connect_raw(source_1.server)) as raw:
        prepare_reading(raw)
        mysql.query(plain, "SET SESSION sql_mode = ''")
        schema = read_schema(plain, TableId(unique, table))
        for column in schema.written:
            rows = mysql.query(raw, f"SELECT id, {expression(column)} FROM {unique}.{table}")
            for number, value in rows:
                condition = f"`{column.name}` <=> {literal(column, value)}"
                for connection in (plain, raw):
                    found = mysql.query(connection, f"SELECT id FROM {unique}.{table} WHERE {condition}")
                    assert int(number) in {int(row[0]) for row in found}, (column, value)


def test_what_no_type_prints_is_refused() -> None:
    number = Column("n", "int", "int(11)", False, None, None, None, "")
    for value in (b"1 OR 1=1", b"", b"--1", b"1\n", b"0x1"):
        with pytest.raises(ValueNotCanonical):
            literal(number, value)
    with pytest.raises(ValueNotCanonical):
        literal(Column("d", "date", "date", False, None, None, None, ""), b"2020-01-01' OR '1")
    with pytest.raises(UnknownColumnType):
        literal(Column("x", "mystery", "mystery", False, None, None, None, ""), b"1")
    with pytest.raises(UnknownColumnType):
        literal(Column("x", "char", "char(1)", False, "utf8' OR '", None, None, ""), b"1")
