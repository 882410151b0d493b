"""XA transactions: prepared at one place of the binlog and committed at another, or never."""

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.binlogs import SOURCE, end_of, end_xa
from tests.livetask import LiveTask, living
from unshard.adapters.relayfiles import RelayStore
from unshard.errors.full import TransactionsPrepared
from unshard.errors.relay import PreparedUnseen
from unshard.units.full.snapshot import take_snapshot
from unshard.units.relay.pull import pull
from unshard_demo import servers
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

COLUMNS = {"t": "id INT PRIMARY KEY, v VARCHAR(40)", "u": "v VARCHAR(40), n INT"}
KEYS = range(40)
STEPS = 70


class XaSource:
    """A source under a load of XA transactions, each with its own keys while it is open."""

    def __init__(self, task: LiveTask, seed: int) -> None:
        self.task, self.chance = task, random.Random(seed)
        self.free = set(KEYS)
        self.prepared: dict[str, set[int]] = {}
        self.number = 0

    @property
    def server(self) -> MariaDb:
        return self.task.sources["s1"]

    def changes(self, keys: set[int]) -> list[str]:
        found = []
        for key in keys:
            self.number += 1
            table = f"{self.task.name}.t_{1 + key % 2}"
            found.append(
                self.chance.choice(
                    (
                        f"REPLACE INTO {table} VALUES ({key}, 'v{self.number}')",
                        f"UPDATE {table} SET v = 'w{self.number}' WHERE id = {key}",
                        f"DELETE FROM {table} WHERE id = {key}",
                    )
                )
            )
        return [*found, f"INSERT INTO {self.task.name}.u_1 VALUES ('same', {self.number % 2})"]

    def plain(self) -> None:
        if self.free:
            keys = set(self.chance.sample(sorted(self.free), min(2, len(self.free))))
            self.server.run("BEGIN", *self.changes(keys), "COMMIT")

    def prepare(self) -> None:
        keys = set(self.chance.sample(sorted(self.free), min(3, len(self.free))))
        if not keys:
            return
        self.number += 1
        xid = f"'x{self.number}','b',{self.number}"
        spare, *rest = sorted(keys)
        undone = ("SAVEPOINT a", *self.changes({spare}), "ROLLBACK TO a") if self.chance.random() < 0.3 else ()
        self.server.run(f"XA START {xid}", *self.changes(set(rest)), *undone, f"XA END {xid}", f"XA PREPARE {xid}")
        self.free -= keys
        self.prepared[xid] = keys

    def finish(self, xid: str = "") -> None:
        if self.prepared:
            xid = xid or self.chance.choice(sorted(self.prepared))
            word = "COMMIT" if self.chance.random() < 0.6 else "ROLLBACK"
            end_xa(self.server, word, xid)
            self.free |= self.prepared.pop(xid)

    def statement(self) -> None:
        self.number += 1
        self.server.run(f"CREATE TABLE {self.task.name}.other_{self.number} (a INT)")

    def rotate(self) -> None:
        self.server.run("FLUSH LOGS")

    def restart(self) -> None:
        old = self.server
        self.chance.choice((old.stop, old.kill))()
        self.task.sources["s1"] = servers.start_server(old.folder, server_id=71, port=old.port)  # type: ignore[index]

    def follow(self) -> None:
        """Apply all changes; prepared changes are in no table of the source, and must not be in the target."""
        self.task.restart()
        self.task.run()
        for group in self.task.groups:
            self.task.assert_union(group)


@pytest.fixture
def task(server_folder: Path, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LiveTask]:
    server = servers.start_server(server_folder / unique, server_id=71)
    numbers = {("s1", "t"): (1, 2), ("s1", "u"): (1,)}
    sources = {"s1": server}

    def stop() -> None:
        sources["s1"].stop()

    with contextlib.ExitStack() as stack:
        stack.callback(stop)
        made = stack.enter_context(living(unique, tmp_path, (server, target), "tu", columns=COLUMNS, numbers=numbers))
        sources = made.sources  # type: ignore[assignment]
        yield made


@pytest.mark.parametrize("seed", [1])
def test_rows_count_when_they_are_committed(task: LiveTask, seed: int) -> None:
    source = XaSource(task, seed)
    steps = (
        source.plain,
        source.prepare,
        source.finish,
        source.statement,
        source.rotate,
        source.restart,
        source.follow,
    )
    for step in source.chance.choices(steps, (20, 25, 20, 4, 4, 1, 6), k=STEPS):
        step()
    source.restart()
    source.follow()
    for xid in sorted(source.prepared):
        source.finish(xid)
    source.follow()
    work = task.work()
    kept = work.store.segments("s1")
    assert not kept[-1].open
    assert len(kept) < 60, "what nobody needs any more is removed"


def test_a_prepared_transaction_keeps_its_segment_through_windows(task: LiveTask) -> None:
    source = task.sources["s1"]
    name = task.name
    source.run("XA START 'a'", f"INSERT INTO {name}.t_1 VALUES (1, 'late')", "XA END 'a'", "XA PREPARE 'a'")
    for number in range(2, 8):
        source.run(
            f"INSERT INTO {name}.t_1 VALUES ({number}, 'x')", f"CREATE TABLE {name}.x{number} (a INT)", "FLUSH LOGS"
        )
        task.run()
        assert task.assert_union("t") == number - 1
    held = task.work().store.segments("s1")[0]
    assert any(one.tables for one in held.open)
    end_xa(source, "COMMIT", "'a'")
    source.run(f"UPDATE {name}.t_1 SET v = 'later' WHERE id = 1")
    task.run()
    assert task.assert_union("t") == 7
    source.run(f"INSERT INTO {name}.t_1 VALUES (8, 'x')")
    task.run()
    source.run(f"INSERT INTO {name}.t_1 VALUES (9, 'x')")
    task.run()
    assert held.name not in {segment.name for segment in task.work().store.segments("s1")}


def test_what_was_prepared_before_the_relay_began(upstream_server: MariaDb, tmp_path: Path) -> None:
    upstream_server.run("XA START 'a'", "INSERT INTO d.t(v) VALUES ('a')", "XA END 'a'", "XA PREPARE 'a'")
    upstream_server.run("XA START 'b'", "INSERT INTO d.t(v) VALUES ('b')", "XA END 'b'", "XA PREPARE 'b'")
    begins = end_of(upstream_server)
    end_xa(upstream_server, "ROLLBACK", "'b'")
    upstream_server.run("INSERT INTO d.t(v) VALUES ('c')")
    behind = end_of(upstream_server)
    end_xa(upstream_server, "COMMIT", "'a'")
    store = RelayStore(tmp_path)
    with pytest.raises(PreparedUnseen, match="X'61',X'',1"):
        pull(SOURCE, upstream_server.server, store, begins)
    assert store.segments(SOURCE)[-1].ends == behind


def test_a_snapshot_waits_for_what_is_prepared(task: LiveTask) -> None:
    task.sources["s1"].run(
        "XA START 'a'", f"INSERT INTO {task.name}.t_1 VALUES (1, 'x')", "XA END 'a'", "XA PREPARE 'a'"
    )
    task.target.run(f"DELETE FROM {task.meta_schema}.checkpoint", f"DELETE FROM {task.meta_schema}.source")
    task.restart()
    with pytest.raises(TransactionsPrepared, match="1 XA"):
        take_snapshot(task.work(), "s1")
    end_xa(task.sources["s1"], "ROLLBACK", "'a'")
    take_snapshot(task.work(), "s1")
