"""Random tables and changes on a real server: relay and decoder return the rows that SELECT shows."""

import itertools
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.binlogs import changes, end_of, schema_of, selected
from unshard.binlog.decoder import AFTER, BEFORE, DELETE, INSERT
from unshard.core.model import TableId
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.writes_rows]

EXAMPLES = 12
NUMBERS = itertools.count(1)
SESSION = ("SET SESSION sql_mode = 'NO_AUTO_VALUE_ON_ZERO', time_zone = '+00:00'",)
METADATA = ("NO_LOG", "MINIMAL", "FULL")


def integers(low: int, high: int) -> st.SearchStrategy[str]:
    return st.one_of(st.sampled_from((low, high, 0)), st.integers(low, high)).map(str)


def hexadecimal(most: int) -> st.SearchStrategy[str]:
    return st.binary(max_size=most).map(lambda value: f"x'{value.hex()}'" if value else "''")


def texts(most: int, charset: str) -> st.SearchStrategy[str]:
    alphabet = st.characters(
        codec={"latin1": "latin-1", "utf8mb4": "utf-8", "ucs2": "utf-8"}[charset], max_codepoint=0xFFFF
    )
    return st.text(alphabet, max_size=most).map(lambda text: f"CONVERT(x'{text.encode().hex()}' USING {charset})")


def fractions(digits: int) -> st.SearchStrategy[str]:
    return st.integers(0, 10**digits - 1).map(lambda number: f".{number:0{digits}}" if digits else "")


def moments(digits: int) -> st.SearchStrategy[str]:
    whole = st.datetimes().map(lambda at: at.strftime("%Y-%m-%d %H:%M:%S").rjust(19, "0"))
    odd = st.sampled_from(("0000-00-00 00:00:00", "2024-00-10 01:02:03", "9999-12-31 23:59:59"))
    return st.tuples(st.one_of(odd, whole), fractions(digits)).map(lambda parts: f"'{parts[0]}{parts[1]}'")


def durations(digits: int) -> st.SearchStrategy[str]:
    parts = st.tuples(st.sampled_from(("", "-")), st.integers(0, 837), st.integers(0, 59), fractions(digits))
    return parts.map(lambda found: f"'{found[0]}{found[1]}:{found[2]:02}:{found[2]:02}{found[3]}'")


def decimals(precision: int, scale: int) -> st.SearchStrategy[str]:
    highest = 10**precision - 1
    whole = st.one_of(st.sampled_from((0, 1, -1, highest, -highest)), st.integers(-highest, highest))
    return whole.map(lambda number: f"{number}e-{scale}" if scale == 0 else _shifted(number, scale))


def _shifted(number: int, scale: int) -> str:
    digits = str(abs(number)).rjust(scale + 1, "0")
    return f"{'-' if number < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


@st.composite
def columns(draw: Any) -> tuple[str, st.SearchStrategy[str]]:
    """Draw a type and the literals of its values."""
    digits, size = draw(st.integers(0, 6)), draw(st.sampled_from((1, 9, 70, 255, 300)))
    scale = draw(st.integers(0, 30))
    precision = draw(st.integers(max(scale, 1), 65))
    bits = draw(st.integers(1, 64))
    labels = draw(st.integers(1, 64))
    blob = draw(st.sampled_from(("TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB", f"VARBINARY({max(size, 200)})")))
    charset = draw(st.sampled_from(("latin1", "utf8mb4", "ucs2")))
    packed = draw(st.sampled_from(("", " COMPRESSED")))
    sets = st.sets(st.integers(0, labels - 1)).map(lambda some: "'" + ",".join(f"v{n}" for n in sorted(some)) + "'")
    return draw(
        st.sampled_from(
            (
                ("TINYINT", integers(-128, 127)),
                ("SMALLINT UNSIGNED", integers(0, 65535)),
                ("MEDIUMINT", integers(-(1 << 23), (1 << 23) - 1)),
                ("MEDIUMINT UNSIGNED", integers(0, (1 << 24) - 1)),
                ("INT", integers(-(1 << 31), (1 << 31) - 1)),
                ("BIGINT", integers(-(1 << 63), (1 << 63) - 1)),
                ("BIGINT UNSIGNED", integers(0, (1 << 64) - 1)),
                ("INT(7) ZEROFILL", integers(0, 99999999)),
                (f"DECIMAL({precision},{scale})", decimals(precision, scale)),
                ("DOUBLE", st.floats(allow_nan=False, allow_infinity=False).map(repr)),
                ("FLOAT", st.floats(allow_nan=False, allow_infinity=False, width=32).map(repr)),
                (f"BIT({bits})", st.integers(0, (1 << bits) - 1).map(lambda value: f"b'{value:b}'")),
                ("ENUM('a','b','ü')", st.sampled_from(("'a'", "'ü'"))),
                (f"SET({','.join(f'{chr(39)}v{n}{chr(39)}' for n in range(labels))})", sets),
                ("YEAR", st.sampled_from(("0", "1901", "2155"))),
                ("DATE", moments(0).map(lambda text: text[:11] + "'")),
                (f"DATETIME({digits})", moments(digits)),
                (f"TIME({digits})", durations(digits)),
                (f"TIMESTAMP({digits}) NULL", st.integers(1, (1 << 31) - 1).map(lambda at: f"FROM_UNIXTIME({at}.25)")),
                (f"VARCHAR({size}){packed} CHARACTER SET {charset}", texts(min(size, 40), charset)),
                (f"CHAR({min(size, 60)}) CHARACTER SET {charset}", texts(min(size, 40), charset)),
                (f"TEXT{packed} CHARACTER SET {charset}", texts(90, charset)),
                (blob + packed, hexadecimal(200)),
                (f"BINARY({min(size, 255)})", hexadecimal(min(size, 100))),
                ("UUID", st.uuids().map(lambda value: f"'{value}'")),
                ("INET6", st.ip_addresses(v=6).map(lambda ip: f"'{ip}'")),
                ("INET4", st.ip_addresses(v=4).map(lambda ip: f"'{ip}'")),
                ("POINT", st.sampled_from(("POINT(1, -2.5)", "POINT(0, 0)"))),
            )
        )
    )


@dataclass(frozen=True)
class Case:
    """A table, and the statements that change it."""

    create: str
    statements: tuple[str, ...]


@st.composite
def cases(draw: Any) -> Case:
    drawn = draw(st.lists(columns(), min_size=1, max_size=12))
    required = draw(st.lists(st.booleans(), min_size=len(drawn), max_size=len(drawn)))
    ends = [
        " NOT NULL" if wanted and not kind.endswith(" NULL") else ""
        for (kind, _), wanted in zip(drawn, required, strict=True)
    ]
    hidden = draw(st.sampled_from(("", " INVISIBLE DEFAULT 5")))
    definitions = [f"c{number} {kind}{end}" for number, ((kind, _), end) in enumerate(zip(drawn, ends, strict=True))]
    definitions.insert(draw(st.integers(0, len(drawn))), "g BIGINT AS (id + 1) STORED")
    definitions.append(f"h INT{hidden}")
    names = ", ".join(f"c{number}" for number in range(len(drawn)))

    def values() -> list[str]:
        cells = [
            values if end else st.one_of(st.just("NULL"), values, values)
            for (_, values), end in zip(drawn, ends, strict=True)
        ]
        return [draw(cell) for cell in cells]

    rows = range(1, draw(st.integers(1, 12)) + 1)
    insert = [f"INSERT INTO {{0}} (id, {names}) VALUES ({row}, {', '.join(values())})" for row in rows]
    # Copied many times, because only large numbers of small events are read in lockstep.
    copies = [
        f"INSERT INTO {{0}} (id, {names}) SELECT id + {len(rows) * copy}, {names} FROM {{0}} WHERE id <= {len(rows)}"
        for copy in range(1, 40)
    ]
    change = [
        f"UPDATE {{0}} SET {', '.join(f'c{n} = {v}' for n, v in enumerate(values()))} WHERE id = {row}"
        for row in rows[::2]
    ]
    delete = [f"DELETE FROM {{0}} WHERE id = {row}" for row in rows[::3]]
    return Case(
        f"CREATE TABLE {{0}} (id INT PRIMARY KEY, {', '.join(definitions)})", (*insert, *copies, *change, *delete)
    )


@pytest.mark.parametrize("metadata", METADATA)
def test_what_is_decoded_is_what_is_there(source_1: MariaDb, unique: str, metadata: str) -> None:
    @settings(
        max_examples=EXAMPLES // len(METADATA),
        derandomize=True,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(cases())
    def check(case: Case) -> None:
        table = TableId(unique, f"t{next(NUMBERS)}")
        name = f"{unique}.{table.name}"
        source_1.run(*SESSION, case.create.format(name))
        begins = end_of(source_1)
        source_1.run(*SESSION, *(statement.format(name) for statement in case.statements))
        schema = schema_of(source_1, table)
        with TemporaryDirectory() as folder:
            found = changes(source_1, Path(folder), begins, {table: schema})
        assert sorted(replayed(found)) == sorted(selected(source_1, table, schema))

    source_1.run(f"CREATE DATABASE {unique}", f"SET GLOBAL binlog_row_metadata = {metadata}")
    try:
        check()
    finally:
        source_1.run("SET GLOBAL binlog_row_metadata = NO_LOG", f"DROP DATABASE {unique}")


def replayed(found: list[tuple[TableId, int, tuple[bytes | None, ...]]]) -> list[tuple[bytes | None, ...]]:
    """Apply the changes one by one; each removed row must exist."""
    rows: dict[bytes | None, tuple[bytes | None, ...]] = {}
    for _, op, values in found:
        if op in (DELETE, BEFORE):
            assert rows.pop(values[0]) == values
        else:
            assert op in (INSERT, AFTER)
            rows[values[0]] = values
    return list(rows.values())
