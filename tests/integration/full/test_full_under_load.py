"""A full load during writes to all shards, then windows: at the end the target is the union."""

import random
import threading
from pathlib import Path

import pytest

from tests.integration.full.test_full_load import Full, full, spark  # noqa: F401  fixtures
from tests.taskfile import Settings
from unshard.units.full.dump import dump
from unshard.units.full.load import handover, load
from unshard.units.full.snapshot import take_snapshot
from unshard.units.relay import pull
from unshard.units.window.sync import run_window
from unshard.units.work import Work
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.spark]
TABLES = {
    "item": "id BIGINT PRIMARY KEY, v VARCHAR(30), n DECIMAL(9,2), f FLOAT",
    "mail": "id BIGINT PRIMARY KEY, m BIGINT, UNIQUE KEY (m)",
    "event": "what VARCHAR(9), n INT",
    "word": "w VARCHAR(20) COLLATE utf8mb4_general_ci PRIMARY KEY, n INT",
}
ROWS = 4000
HIGHEST = ROWS * 4 + 400  # UPDATE IGNORE gives no number above it, so every number above it is free


def fill(server: MariaDb, schema: str, shard: int) -> None:
    new = f"(seq * 4 + {shard})"
    for name, columns in TABLES.items():
        server.run(f"CREATE TABLE {schema}.{name}_{shard} ({columns})")
    values = {
        "item": f"{new}, 'v', seq, seq / 7",
        "mail": f"{new}, {new}",
        "event": "'e', seq % 50",
        "word": f"CONCAT('w', {new}), 0",
    }
    for name, row in values.items():
        server.run(f"INSERT INTO {schema}.{name}_{shard} SELECT {row} FROM mysql.seq_1_to_{ROWS}")


class Writer(threading.Thread):
    """Inserts, updates (keys too) and deletes in two shards of a source until it is stopped."""

    def __init__(self, server: MariaDb, schema: str, shards: tuple[int, ...]) -> None:
        super().__init__(daemon=True)
        self._server, self._schema, self._shards = server, schema, shards
        self._chance = random.Random(schema)
        self._next = HIGHEST
        self.done = threading.Event()
        self.transactions = 0

    def run(self) -> None:
        connection = self._server.connect(database=self._schema)
        with connection, connection.cursor() as cursor:
            while not self.done.is_set():
                connection.begin()
                for _ in range(self._chance.randint(1, 5)):
                    cursor.execute(self._statement())
                connection.commit()
                self.transactions += 1

    def _statement(self) -> str:
        pick, shard = self._chance.randint, self._chance.choice(self._shards)
        self._next += 4
        new, old, taken = (self._next + shard, *(pick(1, ROWS * 4) // 4 * 4 + shard for _ in range(2)))
        return self._chance.choice(
            [
                f"INSERT INTO item_{shard} VALUES ({new}, 'n', 1.5, 1.1)",
                f"UPDATE item_{shard} SET n = n + 1, f = 0.1 WHERE id >= {old} LIMIT 3",
                f"UPDATE item_{shard} SET id = {new} WHERE id = {old}",
                f"DELETE FROM item_{shard} WHERE id = {old}",
                f"INSERT INTO mail_{shard} VALUES ({new}, {new})",
                f"UPDATE mail_{shard} SET m = {new} WHERE id = {old}",
                f"UPDATE mail_{shard} SET id = {new} WHERE id = {old}",
                f"UPDATE mail_{shard} SET m = NULL WHERE id BETWEEN {old} AND {old} + 400",
                f"UPDATE IGNORE mail_{shard} SET m = {taken} + id % 100 * 4 WHERE id >= {old} LIMIT 100",
                f"DELETE FROM mail_{shard} WHERE id = {old}",
                f"INSERT INTO event_{shard} VALUES ('x', {pick(0, 9)}), ('x', 1)",
                f"UPDATE event_{shard} SET n = n + 1 WHERE n = {pick(0, 50)} LIMIT 2",
                f"DELETE FROM event_{shard} WHERE n = {pick(0, 50)} LIMIT 2",
                f"INSERT INTO word_{shard} VALUES ('W{new}', 1)",
                f"UPDATE word_{shard} SET w = UPPER(w), n = n + 1 WHERE w = 'w{old}'",
                f"DELETE FROM word_{shard} WHERE w = 'w{old}'",
            ]
        )


def catch_up(work: Work) -> int:
    windows = 0
    for source in work.task.sources:
        pull.pull(source, work.sources[source], work.store, work.meta.checkpoints.get(source).location)
        while run_window(work, source).moved:
            windows += 1
    return windows


def test_full_load_under_writes_ends_in_the_union(full: Full, tmp_path: Path) -> None:  # noqa: F811
    shards = {"s1": (0, 1), "s2": (2, 3)}
    for source, numbers in shards.items():
        for number in numbers:
            fill(full.sources[source], full.schema, number)
    writers = [Writer(full.sources[source], full.schema, numbers) for source, numbers in shards.items()]
    settings = Settings(chunk_rows=500)
    with full.work({name: f"{name}_*" for name in TABLES}, settings) as work:
        for writer in writers:
            writer.start()
        for step in (take_snapshot, dump, load):
            for source in shards:
                step(work, source)
        for source in shards:
            chunks = [chunk.shard for chunk in work.meta.chunks.of(source)]
            assert (
                min(
                    chunks.count(state.shard)
                    for state in work.meta.structures.shards(source)
                    if state.target.name == "mail"
                )
                > 2
            )
        handover(work)
        catch_up(work)
        for writer in writers:
            writer.done.set()
            writer.join()
        catch_up(work)
        assert not work.meta.deferred.counts()
    assert min(writer.transactions for writer in writers) > 100
    for name in TABLES:
        rows = full.compare(name, **{source: [f"{name}_{n}" for n in numbers] for source, numbers in shards.items()})
        assert rows > 4 * ROWS / 2
