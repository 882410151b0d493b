"""The demo's shop: eight shards of `orders` in two sources, and a writer that runs continuously.

Ids are unique over all shards (shard number times a billion, plus a counter), as in a shop with sharded orders. So the
union of the shards has no colliding keys.
"""

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
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
class Writer:
    """Inserts, updates (keys too) and deletes in all shards of one source until it is stopped."""

    server: MariaDb
    shards: tuple[DemoShard, ...]
    changes_per_second: float = 100.0
    rows: int = ROWS_PER_SHARD
    seed: int = 1
    counts: Counter[str] = field(default_factory=Counter)
    error: Exception | None = None
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
                cursor.execute(
                    f"UPDATE {shard.table} SET amount = amount + %s, status = 'paid' WHERE id = %s",
                    (dice.randint(1, 500) / 100, old),
                )
            case "key update":
                cursor.execute(f"UPDATE {shard.table} SET id = %s WHERE id = %s", (fresh[shard.number], old))
            case "delete":
                cursor.execute(f"DELETE FROM {shard.table} WHERE id = %s", (old,))
        self.counts[kind] += cursor.rowcount


def writers(servers: Mapping[str, MariaDb], changes_per_second: float) -> list[Writer]:
    """Return one writer per source; together they make about `changes_per_second` changes."""
    return [
        Writer(
            servers[source],
            tuple(shard for shard in SHARDS if shard.source == source),
            changes_per_second / len(SOURCES),
            seed=number,
        )
        for number, source in enumerate(SOURCES)
    ]


def migrate_shard(servers: Mapping[str, MariaDb], shard: DemoShard) -> None:
    """Run the demo's DDL on one shard, and use its new column at once."""
    servers[shard.source].run(
        SHARD_DDL.format(table=shard.table),
        f"UPDATE {shard.table} SET channel = 'app' WHERE id < {shard.first_id + 50}",
    )
