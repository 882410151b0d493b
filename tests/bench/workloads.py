"""The data written on the source: tables, their first rows and the changes, by procedures inside the server.

`mixed`, `skewed` and `wide` write one row per statement, as OLTP does; `inserts` writes a thousand rows per
transaction.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

SCHEMA = "bench"
APART = 100_000_000
"""Distance between the first ids of two shards."""
TRANSACTION = 4
"""Changes in one transaction, except of `inserts`."""
INSERTED = 1000
"""Rows in one transaction of `inserts`."""
TEXT = "LEFT(SHA2(RAND(), 512), {size})"
NARROW = """CREATE TABLE {table} (id INT NOT NULL PRIMARY KEY, k INT NOT NULL DEFAULT 0,
 c CHAR(120) NOT NULL DEFAULT '', pad CHAR(60) NOT NULL DEFAULT '', KEY k_1 (k)) CHARACTER SET latin1"""
WIDE = """CREATE TABLE {table} (
 id BIGINT UNSIGNED NOT NULL PRIMARY KEY, customer INT NOT NULL, kind TINYINT NOT NULL,
 state ENUM('new','paid','sent','back') NOT NULL, amount DECIMAL(12,2) NOT NULL, tax DECIMAL(9,4),
 price DOUBLE NOT NULL,
 born DATE, made DATETIME NOT NULL, seen DATETIME(3), changed TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
 name VARCHAR(60) NOT NULL, street VARCHAR(120), city VARCHAR(60) NOT NULL, code CHAR(10) NOT NULL, note TEXT,
 score SMALLINT, points BIGINT NOT NULL DEFAULT 0, flags INT UNSIGNED NOT NULL DEFAULT 0, token BINARY(16) NOT NULL,
 KEY by_customer (customer))"""
WIDE_ROW = (
    "{id}, {id} MOD 997, {id} MOD 5, 1 + {id} MOD 4, ({id} MOD 100003) / 7,"
    " IF({id} MOD 3, ({id} MOD 100003) / 11, NULL), {id} / 3,"
    " DATE('2026-01-01') + INTERVAL {id} MOD 9999 DAY, '2026-01-01' + INTERVAL {id} SECOND,"
    " IF({id} MOD 4, '2026-01-01 00:00:00.125' + INTERVAL {id} MINUTE, NULL), '2026-02-02 03:04:05',"
    " CONCAT('customer ', {id}), CONCAT({id}, ' long street'), 'Anytown', LEFT({id}, 10),"
    " IF({id} MOD 5, NULL, REPEAT('x', {id} MOD 60)), {id} MOD 3001, {id} * 17, {id},"
    " UNHEX(MD5({id}))"
)


@dataclass(frozen=True, slots=True)
class Workload:
    """A table with rows, and changes to it that cause about `changes` row events."""

    name: str
    rows: int
    changes: int
    schema: str = SCHEMA
    shard: int | None = None
    """The number of one shard of several; its ids differ from those of the others."""

    @property
    def table(self) -> str:
        return f"{self.schema}.{self.name}" + ("" if self.shard is None else f"_{self.shard}")

    @property
    def _before(self) -> int:
        """The id before the first one."""
        return APART * (self.shard or 0)

    def prepare(self) -> Sequence[str]:
        """Return the statements that create the table and its first rows."""
        make = (WIDE if self.name == "wide" else NARROW).format(table=self.table)
        procedure = () if self.name == "inserts" else (f"DROP PROCEDURE IF EXISTS {self.table}_run", self._procedure())
        return (f"DROP TABLE IF EXISTS {self.table}", make, *procedure, *self.fill(1, self.rows))

    def write(self, done: int = 0) -> Iterator[str]:
        """Yield the statements that make the changes, without the first `done` ones, which were made before."""
        if self.name == "inserts":
            end = self.rows + self.changes
            for first in range(1 + self.rows + done, 1 + end, INSERTED):
                yield from self.fill(first, min(end, first + INSERTED - 1))
        elif self.changes > done:
            yield f"SET rand_seed1 = {4711 + done}, rand_seed2 = 815"
            yield self.call(self.changes - done)

    def call(self, changes: int) -> str:
        """Return the statement that makes so many changes, four in a transaction."""
        return f"CALL {self.table}_run({changes // TRANSACTION})"

    def fill(self, first: int, last: int) -> tuple[str, ...]:
        """Return the statements that insert rows with these ids."""
        if last < first:
            return ()
        first, last = first + self._before, last + self._before
        numbers = f"{self.schema}.seq_{first}_to_{last}"
        if self.name == "wide":
            return (f"INSERT INTO {self.table} SELECT {WIDE_ROW.format(id='seq')} FROM {numbers}",)
        texts = f"{TEXT.format(size=119)}, {TEXT.format(size=59)}"
        seed = f"SET rand_seed1 = {first}, rand_seed2 = 1"
        return seed, f"INSERT INTO {self.table} SELECT seq, FLOOR(RAND() * {max(self.rows, 1)}), {texts} FROM {numbers}"

    def _procedure(self) -> str:
        """Return a procedure with four changes per transaction, as in sysbench's oltp_write_only:

        two updates, a delete, an insert.
        """
        draw = "POW(RAND(), 7.2)" if self.name == "skewed" else "RAND()"
        pick = f"SET d = {self._before + 1} + FLOOR({self.rows} * {draw});"
        if self.name == "wide":
            first, second = (
                "amount = amount + 1, points = points + 3",
                "state = 1 + d MOD 4, seen = made, note = 'seen'",
            )
            row = WIDE_ROW.format(id="d")
        else:
            first, second = "k = k + 1", f"c = {TEXT.format(size=119)}"
            row = f"d, FLOOR(RAND() * {self.rows}), {TEXT.format(size=119)}, {TEXT.format(size=59)}"
        return (
            f"CREATE PROCEDURE {self.table}_run(n INT) BEGIN DECLARE i INT DEFAULT 0; DECLARE d INT;"
            f" WHILE i < n DO START TRANSACTION;"
            f" {pick} UPDATE {self.table} SET {first} WHERE id = d;"
            f" {pick} UPDATE {self.table} SET {second} WHERE id = d;"
            f" {pick} DELETE FROM {self.table} WHERE id = d; INSERT INTO {self.table} VALUES ({row});"
            f" COMMIT; SET i = i + 1; END WHILE; END"
        )
