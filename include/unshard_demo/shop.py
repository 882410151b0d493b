"""The demo's shop: eight shards of `orders` in two sources, and a writer that runs continuously.

Ids are unique over all shards (shard number times a billion, plus a counter), as in a shop with sharded orders. So the
union of the shards has no colliding keys.
"""

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pymysql

from unshard_demo.servers import MariaDb

SOURCES = ("shop-1", "shop-2")
ROWS_PER_SHARD = 25_000
ID_SPACE = 1_000_000_000
CREATE = """CREATE TABLE {table} (
  id BIGINT UNSIGNED NOT NULL PRIMARY KEY,
  customer VARCHAR(60) NOT NULL,
  amount DECIMAL(12,2) NOT NULL,
  status ENUM('new','paid','sent') NOT NULL DEFAULT 'new',
  note TEXT,
  created_at DATETIME(3) NOT NULL,
  updated_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  KEY by_customer (customer)
)"""
FILL = """INSERT INTO {table} (id, customer, amount, status, note, created_at)
SELECT {first} + seq, CONCAT('customer ', seq MOD 997), (seq MOD 10007) / 7, 1 + seq MOD 3,
       IF(seq MOD 5, NULL, REPEAT('x', seq MOD 60)), '2026-01-01' + INTERVAL seq SECOND
FROM {schema}.seq_1_to_{rows}"""
SHARD_DDL = "ALTER TABLE {table} ADD COLUMN channel VARCHAR(20) NOT NULL DEFAULT 'web' AFTER status"
CANARY_DDL = SHARD_DDL + ", MODIFY customer VARCHAR(120) NOT NULL"
BACK_DDL = "ALTER TABLE {table} DROP COLUMN channel, MODIFY customer VARCHAR(60) NOT NULL"
ROLLOUT_DDL = CANARY_DDL.replace("'web'", "'shop'")
FIRST_ROWS = "id < {first} + 50"
OLD_LENGTH = 60
"""Of the column `customer`."""
IN_APP = "channel = 'app'"
"""A value of the new column: an assignment, or a condition."""
LONG_NAME = "customer = RPAD(customer, 100, '+')"
SHORT_NAME = f"customer = LEFT(customer, {OLD_LENGTH})"


@dataclass(frozen=True, slots=True)
class DemoShard:
    """One shard: its number from 1 to 8, its source, its full name."""

    number: int
    source: str
    table: str

    @property
    def first_id(self) -> int:
        return self.number * ID_SPACE


SHARDS = tuple(
    DemoShard(number + 1, SOURCES[number // 4], f"shop_0{number // 2 + 1}.orders_{number % 2 + 1}")
    for number in range(8)
)


def create_shards(servers: Mapping[str, MariaDb], rows: int = ROWS_PER_SHARD) -> None:
    """Create and fill all shards; `servers` by source id."""
    for shard in SHARDS:
        schema = shard.table.partition(".")[0]
        servers[shard.source].run(
            f"CREATE DATABASE IF NOT EXISTS {schema}",
            CREATE.format(table=shard.table),
            FILL.format(table=shard.table, schema=schema, first=shard.first_id, rows=rows),
        )


@dataclass
class ShopWriter:
    """Inserts, updates (keys too) and deletes in all shards of one source until it is stopped."""

    server: MariaDb
    shards: tuple[DemoShard, ...]
    changes_per_second: float = 100.0
    rows: int = ROWS_PER_SHARD
    seed: int = 1
    counts: Counter[str] = field(default_factory=Counter)
    error: Exception | None = None
    _changed: set[int] = field(default_factory=set)
    """Numbers of the shards that have the new column."""
    _transaction: threading.Lock = field(default_factory=threading.Lock)
    """Held during each transaction."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"writer of {self.shards[0].source}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current transaction; raises the writer's error, if it failed."""
        self._stop.set()
        if self._thread:
            self._thread.join()
        if self.error:
            raise self.error

    def change(self, shard: DemoShard, ddl: str = SHARD_DDL, new_values: str = IN_APP) -> None:
        """Run a DDL that adds the new column to a shard, and use the column at once."""
        self.server.run(ddl.format(table=shard.table))
        self._update(shard, new_values, FIRST_ROWS)
        self._changed.add(shard.number)

    def change_back(self, shard: DemoShard) -> None:
        """Take the change of a shard back, after the last use of its column; then change rows again."""
        with self._transaction:
            self._changed.discard(shard.number)
        self._update(shard, SHORT_NAME, f"CHAR_LENGTH(customer) > {OLD_LENGTH}")
        self.server.run(BACK_DDL.format(table=shard.table))
        self._update(shard, "status = 'sent'", FIRST_ROWS)

    def _update(self, shard: DemoShard, values: str, condition: str) -> None:
        """Update rows between two transactions of the load, which could be its deadlock victims otherwise."""
        with self._transaction:
            self.server.run(f"UPDATE {shard.table} SET {values} WHERE {condition.format(first=shard.first_id)}")

    def _run(self) -> None:
        try:
            self.write_until(self._stop)
        except Exception as error:  # raised again by stop(), in the thread that waits for it
            self.error = error

    def write_until(self, stop: threading.Event) -> None:
        """Write transactions of one to eight changes at the configured rate until `stop` is set."""
        dice = random.Random(self.seed)
        fresh = {shard.number: shard.first_id + self.rows for shard in self.shards}
        began, done = time.monotonic(), 0
        with contextlib.closing(self.server.connect()) as connection, connection.cursor() as cursor:
            while not stop.is_set():
                shard = dice.choice(self.shards)
                with self._transaction:
                    cursor.execute("BEGIN")
                    for _ in range(dice.randint(1, 8)):
                        self._change(cursor, shard, dice, fresh)
                        done += 1
                    cursor.execute("COMMIT")
                ahead = done / self.changes_per_second - (time.monotonic() - began)
                if ahead > 0:
                    stop.wait(ahead)

    def _change(
        self, cursor: pymysql.cursors.Cursor, shard: DemoShard, dice: random.Random, fresh: dict[int, int]
    ) -> None:
        kind = dice.choices(("insert", "update", "key update", "delete"), (4, 4, 1, 1))[0]
        old = dice.randint(shard.first_id + 1, fresh[shard.number])
        if kind in ("insert", "key update"):
            fresh[shard.number] += 1
        match kind:
            case "insert":
                cursor.execute(
                    f"INSERT INTO {shard.table} (id, customer, amount, created_at) VALUES (%s, %s, %s, NOW(3))",
                    (fresh[shard.number], f"customer {dice.randint(0, 996)}", dice.randint(1, 99_999) / 100),
                )
            case "update":
                new = f", {IN_APP}" if shard.number in self._changed else ""
                cursor.execute(
                    f"UPDATE {shard.table} SET amount = amount + %s, status = 'paid'{new} WHERE id = %s",
                    (dice.randint(1, 500) / 100, old),
                )
            case "key update":
                cursor.execute(f"UPDATE {shard.table} SET id = %s WHERE id = %s", (fresh[shard.number], old))
            case "delete":
                cursor.execute(f"DELETE FROM {shard.table} WHERE id = %s", (old,))
        self.counts[kind] += cursor.rowcount


def writers(servers: Mapping[str, MariaDb], changes_per_second: float) -> list[ShopWriter]:
    """Return one writer per source; together they make about `changes_per_second` changes."""
    return [
        ShopWriter(
            servers[source],
            tuple(shard for shard in SHARDS if shard.source == source),
            changes_per_second / len(SOURCES),
            seed=number,
        )
        for number, source in enumerate(SOURCES)
    ]


def writer_of(writers: Sequence[ShopWriter], shard: DemoShard) -> ShopWriter:
    """Return the writer of a shard."""
    return next(writer for writer in writers if shard in writer.shards)
