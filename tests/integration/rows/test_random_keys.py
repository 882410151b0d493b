"""Tables with any kind of key, random changes on two shards, random windows: the target is the union.

The source's own server decides which changes a table allows. A guard table with the rows of both shards prevents
collisions, so rows may move from one shard to the other. Key values are few, so that they are often equal for a
collation, for PAD SPACE or for a prefix. UNSHARD_EXAMPLES runs more, random ones.
"""

import contextlib
import uuid

import pymysql
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.livetask import LiveTask, living
from tests.suite.portions import examples
from unshard.units.relay import pull
from unshard_demo.servers import MariaDb

pytestmark = [
    pytest.mark.integration,
    pytest.mark.writes_rows,
    pytest.mark.mariadb_only("the random keys have types and collations that TiDB lacks"),
]

EXAMPLES = examples(0, 6, 100)
KINDS = {
    "INT": ["-1", "0", "1", "2", "2147483647"],
    "BIGINT UNSIGNED": ["0", "1", "18446744073709551615", "9223372036854775808"],
    "VARCHAR(9) COLLATE utf8mb4_general_ci": ["'a'", "'A'", "'á'", "'a '", "'b'", "''", "' '", "'\\\\'"],
    "VARCHAR(9) COLLATE utf8mb4_unicode_520_ci": ["'ss'", "'ß'", "'SS '", "'x'", "'\\t'"],
    "VARCHAR(9) COLLATE utf8mb4_bin": ["'a'", "'a '", "'A'", "'b'", "'a\\0'"],
    "VARCHAR(9) COLLATE utf8mb4_nopad_bin": ["'a'", "'a '", "'A'", "''", "' '"],
    "CHAR(5) CHARACTER SET latin1": ["'a'", "'A'", "'ä'", "'ae'", "'é'"],
    "VARCHAR(5) CHARACTER SET ucs2": ["'a'", "'A'", "'€'", "'a '"],
    "VARBINARY(5)": ["x''", "x'00'", "x'0000'", "x'61'", "x'41'", "x'6120'", "x'5c09'"],
    "BINARY(3)": ["x'61'", "x'6100'", "x'41'", "x'0a'"],
    "DECIMAL(9,3)": ["0", "-0.001", "1.5", "1.500", "1.501"],
    "DATE": ["'2020-01-01'", "'0000-00-00'", "'2021-02-31'"],
    "DATETIME(3)": ["'2020-01-01 00:00:00.001'", "'2020-01-01'", "'0000-00-00'"],
    "TIMESTAMP(1)": ["'2020-01-01 00:00:00.1'", "'2020-01-01'", "'0000-00-00'"],
    "TIME(2)": ["'-00:00:00.01'", "'00:00:00'", "'838:59:59'"],
    "YEAR": ["0", "1901", "2155"],
    "ENUM('a','B')": ["'a'", "'b'", "9"],
    "ENUM('','x')": ["''", "'x'"],
    "SET('x','y')": ["''", "'x'", "'y,x'"],
    "BIT(9)": ["b'0'", "b'1'", "b'100001010'"],
    "UUID": ["'00112233-4455-6677-8899-aabbccddeeff'", "'ff112233-4455-6677-8899-aabbccddeeff'"],
    "INET6": ["'::1'", "'2001:db8::1'"],
    "FLOAT": ["1.1", "-0.5", "16777217", "3.4e38"],
    "DOUBLE": ["0.1", "-1e-300"],
    "TEXT": ["'abc'", "'abd'", "'ABc'", "'xyz'", "''"],
}
VALUES = ("0", "1", "2")


@st.composite
def tables(draw):
    """Draw columns (names and definitions) and the keys of the table."""
    kinds = [draw(st.sampled_from(sorted(KINDS))) for _ in range(draw(st.integers(1, 3)))]
    columns = {f"c{number}": kind for number, kind in enumerate(kinds)}
    keys, nullable = [], {name: draw(st.booleans()) for name in columns}
    if draw(st.integers(0, 3)):
        chosen = draw(st.lists(st.sampled_from(sorted(columns)), min_size=1, max_size=2, unique=True))
        keys.append(f"PRIMARY KEY ({', '.join(part(name, columns[name], draw) for name in chosen)})")
        nullable |= dict.fromkeys(chosen, False)
    for number in range(draw(st.integers(0, 2))):
        chosen = draw(st.lists(st.sampled_from(sorted(columns)), min_size=1, max_size=2, unique=True))
        keys.append(f"UNIQUE KEY u{number} ({', '.join(part(name, columns[name], draw) for name in chosen)})")
    definitions = [f"{name} {kind} {'NULL' if nullable[name] else 'NOT NULL'}" for name, kind in columns.items()]
    return columns, ", ".join([*definitions, "v INT", *keys])


def part(name: str, kind: str, draw) -> str:
    """Return a part of a key, with a prefix length where it is required or possible."""
    is_text = kind.startswith(("VARCHAR(9)", "VARBINARY"))
    return f"{name}(2)" if kind == "TEXT" or (is_text and draw(st.integers(0, 4)) == 0) else name


@st.composite
def statements(draw, columns):
    """Draw a statement on one of the shards; the server refuses many, which is intended."""
    shard = draw(st.sampled_from(("t_1", "t_2")))
    values = {name: draw(st.sampled_from([*KINDS[kind], "NULL"])) for name, kind in columns.items()}
    name = draw(st.sampled_from(sorted(columns)))
    v, other = draw(st.sampled_from(VALUES)), draw(st.sampled_from(VALUES))
    row = f"({', '.join([*values.values(), v])})"
    where = draw(st.sampled_from((f"v = {v}", f"{name} <=> {values[name]}")))
    return draw(
        st.sampled_from(
            (
                f"INSERT INTO {shard} VALUES {row}",
                f"INSERT INTO {shard} VALUES {row}",
                f"REPLACE INTO {shard} VALUES {row}",
                f"INSERT INTO {shard} VALUES {row} ON DUPLICATE KEY UPDATE v = {other}, {name} = {values[name]}",
                f"UPDATE {shard} SET v = {other} WHERE {where}",
                f"UPDATE {shard} SET {name} = {values[name]} WHERE {where} LIMIT 1",
                f"UPDATE {shard} SET {name} = {values[name]}, v = {other} WHERE v = {v} LIMIT 1",
                f"DELETE FROM {shard} WHERE {where} LIMIT 1",
                f"MOVE {shard} {'t_2' if shard == 't_1' else 't_1'} {where}",
                f"SWAP {shard} {name} {v} {other} {values[name]}",
            )
        )
    )


def spelled(statement: str) -> list[str]:
    """Return the SQL of a statement: a row that moves to the other shard, two rows that swap a value."""
    match statement.split(" ", 4):
        case ["MOVE", shard, other, *where]:
            condition = " ".join(where)
            return [
                f"INSERT INTO {other} SELECT * FROM {shard} WHERE {condition}",
                f"DELETE FROM {shard} WHERE {condition}",
            ]
        case ["SWAP", shard, name, first, rest]:
            second, free = rest.split(" ", 1)
            return [
                f"SET @a = (SELECT {name} FROM {shard} WHERE v = {first} LIMIT 1),"
                f" @b = (SELECT {name} FROM {shard} WHERE v = {second} LIMIT 1)",
                f"UPDATE {shard} SET {name} = {free} WHERE v = {first} LIMIT 1",
                f"UPDATE {shard} SET {name} = @a WHERE v = {second} LIMIT 1",
                f"UPDATE {shard} SET {name} = @b WHERE {name} <=> {free} LIMIT 1",
            ]
        case _:
            return [statement]


@st.composite
def histories(draw):
    """Draw a table and rounds of transactions, each with the cuts of its windows."""
    columns, definition = draw(tables())
    transaction = st.lists(statements(columns), min_size=1, max_size=4)
    rounds = st.lists(
        st.tuples(st.lists(transaction, min_size=1, max_size=6), st.sampled_from((1, 200, 4096)), st.booleans()),
        min_size=1,
        max_size=4,
    )
    return definition, draw(rounds)


def carry_out(task: LiveTask, connection: pymysql.connections.Connection, transaction: list[str]) -> None:
    """Run a transaction; statements that the server would refuse are left out, and a collision rolls it back."""
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        for statement in (one for each in transaction for one in spelled(each)):
            with contextlib.suppress(pymysql.err.MySQLError):
                cursor.execute(statement)
        try:
            cursor.execute(f"DELETE FROM {task.name}_guard.t")
            for shard in ("t_1", "t_2"):
                cursor.execute(f"INSERT INTO {task.name}_guard.t SELECT * FROM {shard}")
            cursor.execute("COMMIT")
        except pymysql.err.MySQLError:
            cursor.execute("ROLLBACK")


@settings(
    max_examples=EXAMPLES,
    derandomize=EXAMPLES <= 50,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(histories())
def test_random_keys_end_in_the_union(source_1: MariaDb, target: MariaDb, tmp_path_factory, history) -> None:
    definition, rounds = history
    unique, folder = f"t_{uuid.uuid4().hex[:12]}", tmp_path_factory.mktemp("random")
    lenient = "SET SESSION sql_mode = 'ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO', time_zone = '+00:00'"
    with contextlib.closing(source_1.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(lenient)
        cursor.execute(f"CREATE DATABASE {unique}_guard")
        try:
            cursor.execute(f"CREATE TABLE {unique}_guard.t ({definition})")
            with living(
                unique,
                folder,
                (source_1, target),
                ("t",),
                columns={"t": definition},
                numbers={("s1", "t"): (1, 2)},
                window_bytes=900,
            ) as task:
                cursor.execute(f"USE {unique}")
                play(task, connection, rounds)
        finally:
            cursor.execute(f"DROP DATABASE {unique}_guard")


def play(task: LiveTask, connection: pymysql.connections.Connection, rounds) -> None:
    for transactions, segment_bytes, restart in rounds:
        for transaction in transactions:
            carry_out(task, connection, transaction)
        work = task.work()
        pull.pull("s1", work.sources["s1"], work.store, task.checkpoint("s1"), segment_bytes=segment_bytes)
        while task.window("s1").moved:
            pass
        task.assert_union("t")
        if restart:
            task.restart()
