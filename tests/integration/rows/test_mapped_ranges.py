"""Ranges of mapped keys: the shard's own index returns the same rows as a comparison of each mapped value."""

import contextlib
from collections.abc import Iterator, Sequence
from itertools import product

import pytest

from tests.integration.validate.test_compare import World
from unshard.adapters import mysql, structures
from unshard.core.model import Column, TableId, TableSchema
from unshard.core.rules.columnmapping import Affix, Change, Mapped, PartitionId
from unshard.core.rules.reshaping import Extracted, Reshaping, seen
from unshard.core.sql.keyrange import KeyRange, condition
from unshard.core.validate.checksum import compare_structures
from unshard.units.validate.ranges import Sessions, TableCheck, narrow, ranges
from unshard.units.validate.validate import reshaped_place
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

FREE = 44
HIGH = 1 << 59 | 2 << 52 | 3 << FREE
NUMBERS = (0, 1, -1, 7, 126, 127, -128, 255, (1 << FREE) - 1, 1 << FREE, (1 << 62) + 5)
TEXTS = ("''", "'a'", "'A'", "'a '", "' '", "'ä'", "'b\\ta'", "'😀'", "x'01'", "'p-a'")
LATIN = "CHARACTER SET latin1 COLLATE latin1_bin"
BIN = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
CI = "CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"


def mapped(change: Change, column: str = "id") -> Mapped:
    return Mapped("ids", column, column, change, False, False)


@pytest.fixture(scope="module")
def schema(source_1: MariaDb) -> Iterator[str]:
    source_1.run("CREATE DATABASE mapped_ranges")
    yield "mapped_ranges"
    source_1.run("DROP DATABASE mapped_ranges")


def structure(server: MariaDb, table: TableId) -> TableSchema:
    with contextlib.closing(mysql.connect(server.server)) as connection:
        return structures.read_schema(connection, table)


BITS = PartitionId(HIGH, FREE)


@pytest.mark.parametrize(
    ("given", "wanted", "change", "is_indexed"),
    [
        ("tinyint", "bigint", BITS, True),
        ("tinyint unsigned", "bigint", BITS, True),
        ("int(5) zerofill", "bigint unsigned", BITS, True),
        ("bigint unsigned", "bigint", BITS, True),
        ("bigint", "bigint", PartitionId((1 << 63) - (1 << FREE), FREE), True),
        ("bigint", "decimal(19,0)", PartitionId(0, 63), True),
        ("decimal(20,0)", "bigint", BITS, True),
        ("decimal(3,0) unsigned", "decimal(30,0)", BITS, True),
        ("bigint", f"varchar(30) {CI}", BITS, False),
        (f"varchar(9) {BIN}", f"varchar(19) {BIN}", Affix("p-"), True),
        (f"char(9) {BIN}", f"varchar(19) {BIN}", Affix("ä "), True),
        (f"varchar(9) {BIN}", f"varchar(19) {BIN}", Affix("p-", "-s"), False),
        (f"varchar(9) {CI}", f"varchar(19) {CI}", Affix("p-"), False),
        (f"varchar(9) {LATIN}", f"varchar(19) {BIN}", Affix("p-"), False),
    ],
    ids=str,
)
def test_the_rows_are_those_whose_mapped_keys_are_in_the_range(
    source_1: MariaDb, schema: str, given: str, wanted: str, change: Change, is_indexed: bool
) -> None:
    shard, target = TableId(schema, "shard"), TableId(schema, "target")
    values = [str(n) for n in NUMBERS] if isinstance(change, PartitionId) else TEXTS
    source_1.run(
        "SET SESSION sql_mode = ''",
        f"CREATE OR REPLACE TABLE {shard} (nr int AUTO_INCREMENT PRIMARY KEY, id {given} NULL, n int, KEY (id))",
        f"CREATE OR REPLACE TABLE {target} (id {wanted} NOT NULL, n int NOT NULL, c_table varchar(9) {CI} NOT NULL)",
        f"INSERT INTO {shard} (id, n) VALUES {', '.join(f'({v}, 1), ({v}, 2)' for v in ('NULL', *values))}",
    )
    reshaping = Reshaping((Extracted("c_table", "m"),), (mapped(change),))
    found = seen("s1", shard, structure(source_1, shard), target, structure(source_1, target), reshaping)
    with contextlib.closing(mysql.connect_raw(source_1.server, "source s1")) as connection:
        mysql.query(connection, "SET SESSION sql_mode = ''")
        rows = mysql.query(connection, f"SELECT DISTINCT id FROM {found.rows} WHERE id IS NOT NULL")
        ids = {bytes(value) for (value,) in rows if value is not None}
        for key in ("id", "id, n", "n, id", "c_table, id"):
            columns = [found.structure.column(name) for name in key.split(", ")]
            others = {"id": ids | near(ids, columns), "n": {b"1", b"2"}, "c_table": {b"M", b"l", b"n"}}
            bounds = list(product(*(others[column.name] for column in columns)))
            spans = [KeyRange(bound) for bound in bounds] + [KeyRange(None, bound) for bound in bounds]
            pairs = [
                (found.where(found.within(columns, span)), f"{found.rows} WHERE {condition(columns, span)}")
                for span in spans
            ]
            numbers = "COALESCE((SELECT GROUP_CONCAT(nr ORDER BY nr) FROM {}), '')"
            for first in range(0, len(pairs), 50):
                asked = (", ".join(map(numbers.format, pair)) for pair in pairs[first : first + 50])
                answers = mysql.query(connection, " UNION ALL ".join(f"SELECT {pair}" for pair in asked))
                for span, (one, other) in zip(spans[first : first + 50], answers, strict=True):
                    assert one == other, (key, span)
    own = [found.within([found.structure.column("id")], KeyRange((value,))) for value in ids]
    assert {each.startswith("`id` ") for each in own} == {is_indexed}


def near(values: set[bytes], columns: Sequence[Column]) -> set[bytes]:
    """Return the values and their neighbours in the range of a column."""
    (column,) = (each for each in columns if each.name == "id")
    if column.charset:
        return {b"", b"p", b"p-", b"p ", b"q", b"o", b"p-a-s", "ä".encode(), "ä ".encode(), "ä\t".encode()}
    beside = {int(value) + step for value in values for step in (-1, 1)}
    return {str(number).encode() for number in beside | {0, -1, 1 << 63, -(1 << 63), 1 << 64}}


def test_a_mapped_key_is_read_once_and_by_index(
    source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str
) -> None:
    world = World(source_1, source_2, target, unique)
    world.run("s1 a", "CREATE TABLE {table} (id int unsigned PRIMARY KEY, v int)")
    world.run("s2 b", "CREATE TABLE {table} (id bigint PRIMARY KEY, v int)")
    world.run("target", "CREATE TABLE {table} (id bigint PRIMARY KEY, v int)")
    bits = {"s1 a": PartitionId(1 << 59, FREE), "s2 b": PartitionId(2 << 59, FREE)}
    for place, change in bits.items():
        world.run(place, f"INSERT INTO {{table}} SELECT seq, seq FROM {unique}.seq_1_to_4000")
        rows = ", ".join(f"({change.high + number}, {number})" for number in range(1, 4001))
        world.run("target", f"INSERT INTO {{table}} VALUES {rows}")
    check = world.check()
    shards = [reshaped_place(each, check.target, Reshaping((), (mapped(bits[each.name]),))) for each in check.shards]
    comparison = compare_structures({place.name: place.schema for place in (check.target, *shards)})
    check = TableCheck(check.target, tuple(shards), comparison)
    with Sessions() as sessions:
        spans = list(ranges(sessions, check, lambda: 400))
        assert len(spans) == 21
        assert all(narrow(sessions, check, span, 9) == [] for span in spans)
        for shard in shards:
            ((read,),) = sessions.query(
                shard,
                "SELECT SUM(variable_value) FROM information_schema.session_status"
                " WHERE variable_name IN ('handler_read_next', 'handler_read_rnd_next')",
            )
            assert 4000 <= int(read or 0) < 4200, "more would be a scan of the table for each range"
        world.run("s2 b", "UPDATE {table} SET v = 0 WHERE id = 3999", "INSERT INTO {table} VALUES (-1, 1)")
        world.run("s1 a", "DELETE FROM {table} WHERE id = 1")
        found = [each for span in spans for each in narrow(sessions, check, span, 9)]
    assert [(int(each.key[0] or 0), each.shards) for each in found] == [
        ((1 << 59) + 1, ()),
        ((2 << 59) - 1, ("s2 b",)),
        ((2 << 59) + 3999, ("s2 b",)),
    ]
