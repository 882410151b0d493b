"""The relay against a real server: the stored bytes are the server's own, despite all disturbances."""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import numpy as np
import pymysql
import pytest
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from tests.binlogs import FIRST, SOURCE, assert_equal_to_server, changes, end_of, fill, path_of, pull_several, schema_of
from tests.disk import room
from tests.running import while_up
from tests.suite.portions import portion
from unshard.adapters import upstream
from unshard.adapters.binlogstream import LiveDump
from unshard.adapters.relayfiles import TEMPORARY, RelayStore
from unshard.binlog.cutter import Cutter
from unshard.binlog.events import HEADER, EventType, read_frame, walk
from unshard.binlog.runs import Run
from unshard.core.model import Location, TableId
from unshard.core.relay.segment import chain
from unshard.errors import UnshardError
from unshard.errors.relay import (
    DamagedEvent,
    RelayGap,
    RelayUnwritable,
    SegmentDamaged,
)
from unshard.units.relay.pull import LivePull, pull
from unshard_demo import servers
from unshard_demo.processes import await_true

pytestmark = pytest.mark.integration

STEPS = (
    "FLUSH LOGS",
    "ALTER TABLE d.t ADD COLUMN c int",
    "CREATE TABLE d.c AS SELECT * FROM d.t",
    "CREATE TABLE d.m(id int) ENGINE=MyISAM",
    "INSERT INTO d.m VALUES (1),(2)",
    "CREATE USER u",
    "SET GLOBAL binlog_checksum=NONE",
    "CREATE VIEW d.v AS SELECT 1 a",
    "SET GLOBAL binlog_checksum=CRC32",
    "CREATE TEMPORARY TABLE d.tmp(id int)",
    "TRUNCATE d.m",
    "OPTIMIZE TABLE d.t",
)


def test_stores_the_servers_own_bytes(upstream_server, tmp_path):
    store = RelayStore(tmp_path)
    for step in STEPS:
        fill(upstream_server, 100)
        upstream_server.run(step)
        report = pull(SOURCE, upstream_server.server, store, FIRST)
        assert report.ends == report.upstream_end
    run = assert_equal_to_server(upstream_server, store)
    texts = [segment.statement.text for segment in run if segment.statement]
    assert texts[0] == "CREATE DATABASE d"
    assert "ALTER TABLE d.t ADD COLUMN c int" in texts and "TRUNCATE d.m" in texts
    assert all(not segment.ranges for segment in run if segment.statement)
    assert sum(n for s in run for r in s.ranges for t, n in r.tables if t == TableId("d", "m")) == 1


def test_a_live_pull_stores_the_servers_own_bytes_over_one_connection(upstream_server, tmp_path):
    """Also while transactions arrive that take several reads, and after a new binlog file."""
    store = RelayStore(tmp_path)

    def write() -> None:
        for number, step in enumerate(STEPS):
            fill(upstream_server, 100)
            large = "'), ('".join("x" * (number * 9) for _ in range(20_000))
            upstream_server.run(step, f"INSERT INTO d.t(v) VALUES ('{large}')")

    with (
        ThreadPoolExecutor(1) as pool,
        contextlib.closing(LivePull(SOURCE, upstream_server.server, store, FIRST)) as live,
    ):
        writing, pulls = pool.submit(write), 0
        while not (writing.done() and live.location == end_of(upstream_server)):
            pulls += bool(live.pull(1.0))
            assert not pulls or live.location == chain(store.segments(SOURCE), FIRST)[-1].ends
        writing.result()
    assert pulls > len(STEPS)
    assert_equal_to_server(upstream_server, store)
    until = live.location
    with contextlib.closing(LivePull(SOURCE, upstream_server.server, store, FIRST, until=until)) as later:
        assert (later.location, later.pull(0.0)) == (until, 0)


def test_a_live_pull_to_which_each_event_comes_alone(upstream_server, tmp_path, monkeypatch):
    """Whatever has arrived, no segment ends inside a transaction. At the end it waits no longer than it is told."""
    arrived, wait, left, waits = LiveDump.arrived, LiveDump.wait, list[bytes](), list[float]()

    def one_event(dump: LiveDump) -> Iterator[Run]:
        if not left:
            left.extend(event for run in arrived(dump) for event in run.events())
        if left:
            event = left.pop(0)
            yield Run(memoryview(event), np.array([0, len(event)]))

    def waiting(dump: LiveDump, seconds: float) -> bool:
        waits.append(seconds)
        return bool(left) or wait(dump, seconds)

    monkeypatch.setattr(LiveDump, "arrived", one_event)
    monkeypatch.setattr(LiveDump, "wait", waiting)
    for step in STEPS:
        fill(upstream_server, 5)
        upstream_server.run(step)
    store, end = RelayStore(tmp_path), end_of(upstream_server)
    with contextlib.closing(LivePull(SOURCE, upstream_server.server, store, FIRST)) as live:
        while live.location < end:
            assert live.pull(0.0), "events that exist are waited for"
        waits.clear()
        assert (live.pull(0.25), max(waits)) == (0, 0.25)
    assert_equal_to_server(upstream_server, store)


def test_transactions_that_were_committed_as_a_group(upstream_server, tmp_path):
    """Their GTID event ends with a commit id, and the checksum after it is not read as flags."""
    writers, rounds, store = 4, 16, RelayStore(tmp_path)
    table = TableId("d", "grouped")
    begins = end_of(upstream_server)
    upstream_server.run(
        f"CREATE TABLE {table} (v int)",
        f"SET GLOBAL binlog_commit_wait_count={writers}",
        "SET GLOBAL binlog_commit_wait_usec=200000",
    )

    def write() -> None:
        with upstream_server.connect() as connection, connection.cursor() as cursor:
            for number in range(rounds):
                cursor.execute(f"INSERT INTO {table} VALUES ({number})")

    threads = [threading.Thread(target=write) for _ in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    upstream_server.run("SET GLOBAL binlog_commit_wait_count=0")
    pull(SOURCE, upstream_server.server, store, begins)
    run = chain(store.segments(SOURCE), begins)
    assert sum(n for s in run for r in s.ranges for t, n in r.tables if t == table) == writers * rounds
    data = b"".join(store.read(SOURCE, s.name, p.start, p.end).data for s in run for p in s.ranges)
    grouped = [
        offset
        for offset, frame in walk(data, True, "test")
        if frame.type == EventType.GTID and data[offset + HEADER + 12] & 2
    ]
    assert len(grouped) >= writers * rounds // 2


def test_reads_across_shutdown_crash_and_restart(server_folder, tmp_path):
    store, folder = RelayStore(tmp_path / "relay"), server_folder / tmp_path.name
    server = servers.start_server(folder, server_id=302)
    try:
        server.run("CREATE DATABASE d", "CREATE TABLE d.t(id int primary key auto_increment, v varchar(100))")
        pull(SOURCE, server.server, store, FIRST)
        for end in (servers.MariaDb.stop, servers.MariaDb.kill, servers.MariaDb.kill):
            fill(server, 10)
            pull(SOURCE, server.server, store, FIRST)
            end(server)
            server = servers.start_server(folder, server_id=302)
            report = pull(SOURCE, server.server, store, FIRST)
            assert report.ends == end_of(server)
            assert report.ends.order[1] == report.begins.order[1] + 1
        run = assert_equal_to_server(server, store)
        assert any(segment.size == 0 and segment.next_file for segment in run)
        assert sum(n for s in run for r in s.ranges for _, n in r.tables) == 3
    finally:
        server.stop()


def test_mariadb_binlog_reads_every_segment(upstream_server, tmp_path):
    store = RelayStore(tmp_path)
    fill(upstream_server, 20000)
    upstream_server.run("ALTER TABLE d.t ADD COLUMN c int", "INSERT INTO d.t(v, c) VALUES ('last', 1)")
    pull(SOURCE, upstream_server.server, store, FIRST, segment_bytes=1 << 18)
    for segment in store.segments(SOURCE):
        shown = subprocess.run(
            [
                "mariadb-binlog",
                "--no-defaults",
                "--verify-binlog-checksum",
                "--base64-output=decode-rows",
                "-v",
                str(path_of(store, segment)),
            ],
            capture_output=True,
            text=True,
            check=True,
        )
        assert not shown.stderr
        rows = sum(count for part in segment.ranges for _, count in part.tables)
        assert shown.stdout.count("Write_rows:") == rows


def test_goes_on_at_every_border(upstream_server, tmp_path):
    whole = RelayStore(tmp_path / "whole")
    for number in range(5):
        upstream_server.run(f"INSERT INTO d.t(v) VALUES ('{number}')", f"CREATE TABLE d.c{number} AS SELECT * FROM d.t")
        if number == 2:
            upstream_server.run("FLUSH LOGS")
    pull(SOURCE, upstream_server.server, whole, FIRST, until=end_of(upstream_server))
    run = chain(whole.segments(SOURCE), FIRST)
    assert len(run) == 15
    for segment in run[:-1]:
        part = RelayStore(tmp_path / segment.name)
        pull(SOURCE, upstream_server.server, part, segment.ends)
        own = assert_equal_to_server(upstream_server, part, segment.ends)
        assert [s.name for s in own] == [s.name for s in run if s.begins >= segment.ends]


def test_stops_at_until_and_tells_progress(upstream_server, tmp_path):
    store, seen = RelayStore(tmp_path), []
    fill(upstream_server, 5000)
    until = end_of(upstream_server)
    upstream_server.run("FLUSH LOGS")
    fill(upstream_server, 30000, 90)
    whole = end_of(upstream_server)
    report = pull(SOURCE, upstream_server.server, store, FIRST, until=until)
    assert report.ends == until < report.upstream_end == whole
    report = pull(SOURCE, upstream_server.server, store, FIRST, progress=lambda done, total: seen.append((done, total)))
    assert report.ends == report.upstream_end
    assert len(seen) > 2
    assert seen == sorted(seen) and len({total for _, total in seen}) == 1 and seen[-1][0] == seen[-1][1]
    assert seen[-1][1] == report.bytes


def test_an_idle_source_is_left_alone(upstream_server, tmp_path):
    store = RelayStore(tmp_path)
    pull(SOURCE, upstream_server.server, store, FIRST)
    stored = store.segments(SOURCE)
    report = pull(SOURCE, upstream_server.server, store, FIRST)
    assert report.segments == report.bytes == 0 and report.begins == report.ends
    assert store.segments(SOURCE) == stored


def test_closes_its_connections(upstream_server, tmp_path):
    store = RelayStore(tmp_path)
    for number in range(3):
        fill(upstream_server, 2000)
        pull(SOURCE, upstream_server.server, store, FIRST, until=Location(FIRST.file, 400 + number))
        pull(SOURCE, upstream_server.server, store, FIRST)

    def is_closed() -> bool:
        return not [row for row in upstream_server.run("SHOW PROCESSLIST") if row[4] == "Binlog Dump"]

    await_true(is_closed, 900, [upstream_server.program], "the server to end its threads of the binlog")


def test_large_transactions_and_large_events(server_folder, tmp_path):
    store = RelayStore(tmp_path)
    options = ("--max-allowed-packet=128M", "--innodb-log-file-size=100M")
    with while_up(servers.start_server(server_folder / tmp_path.name, *options, server_id=303)) as server:
        server.run("CREATE DATABASE d", "CREATE TABLE d.t(id int primary key auto_increment, v longtext)")
        server.run(f"INSERT INTO d.t(v) VALUES (REPEAT('y', {40 << 20}))")
        server.run(f"INSERT INTO d.t(v) VALUES (REPEAT('z', {(16 << 20) - 60}))")
        fill(server, 20000, 300)
        pull(SOURCE, server.server, store, FIRST, segment_bytes=1 << 20)
        run = assert_equal_to_server(server, store)
        assert max(segment.size for segment in run) > 40 << 20
        schema = schema_of(server, TableId("d", "t"))
        rows = changes(server, tmp_path, FIRST, {TableId("d", "t"): schema})
        assert [len(values[1] or b"") for _, _, values in rows[:3]] == [40 << 20, (16 << 20) - 60, 300]
        assert len(rows) == 20002


PULLER = """
import sys
from pathlib import Path
from unshard.adapters.relayfiles import RelayStore
from unshard.core.model import Location, Server
from unshard.units.relay.pull import LivePull, pull
host, port, user, password, folder = sys.argv[1:]
pull("s1", Server(host, int(port), user, password), RelayStore(Path(folder)), Location("mysql-bin.000001", 4),
     segment_bytes=1 << 18)
"""


def start_puller(server, folder: Path) -> subprocess.Popen[bytes]:
    target = server.server
    command = [sys.executable, "-c", PULLER, target.host, str(target.port), target.user, target.password, str(folder)]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})


def test_killed_at_random_moments(upstream_server, tmp_path):
    store, random = RelayStore(tmp_path), Random(7)
    killed = 0
    for number in itertools.count():
        fill(upstream_server, 60000, 90)
        upstream_server.run(f"CREATE TABLE d.k{number}(id int)")
        process = start_puller(upstream_server, tmp_path)
        folder, before = tmp_path / SOURCE, len(store.segments(SOURCE))
        # Kill the process while it writes: a moment after the first file of this round has appeared.
        while process.poll() is None and len(store.segments(SOURCE)) == before:
            time.sleep(0.001)
        time.sleep(random.uniform(0, 0.03))
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
        assert_equal_to_server(upstream_server, store)
        if number >= portion(2, 2, 7) and killed >= 3:  # on a busy machine a process may end before its moment
            break
    pull(SOURCE, upstream_server.server, store, FIRST)
    run = assert_equal_to_server(upstream_server, store)
    assert run[-1].ends == end_of(upstream_server)
    assert not [path for path in folder.iterdir() if path.name.startswith(TEMPORARY)]


def test_two_pulls_at_once(upstream_server, tmp_path):
    pull_at_once(upstream_server, RelayStore(tmp_path), rounds=6)


def test_a_pull_that_stores_while_another_one_asks_the_server(upstream_server, tmp_path, monkeypatch):
    """Then more is stored than the server had when it answered. It has lost no binlog."""
    store, inspect = RelayStore(tmp_path), upstream.inspect

    def inspect_and_wait(connection, source):
        found = inspect(connection, source)
        monkeypatch.setattr(upstream, "inspect", inspect)
        fill(upstream_server, 100)
        pull(SOURCE, upstream_server.server, store, FIRST)
        return found

    for begin in (
        lambda: pull(SOURCE, upstream_server.server, store, FIRST),
        lambda: LivePull(SOURCE, upstream_server.server, store, FIRST).close(),
    ):
        monkeypatch.setattr(upstream, "inspect", inspect_and_wait)
        begin()
        assert_equal_to_server(upstream_server, store)


def pull_at_once(server, store: RelayStore, rounds: int) -> None:
    """Let several pulls store the same binlog while it grows."""
    stop, errors = threading.Event(), []

    def pull_often(size: int) -> None:
        while not stop.is_set():
            try:
                pull(SOURCE, server.server, store, FIRST, segment_bytes=size)
            except UnshardError as error:
                errors.append(error)

    threads = [threading.Thread(target=pull_often, args=(size,)) for size in (1 << 16, 1 << 16, 50_000)]
    for thread in threads:
        thread.start()
    try:
        for number in range(rounds):
            fill(server, 5000, 90)
            server.run(f"CREATE TABLE d.p{number}(id int)")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    pull(SOURCE, server.server, store, FIRST)
    assert not errors
    assert assert_equal_to_server(server, store)[-1].ends == end_of(server)


def test_a_lost_segment_is_pulled_again(upstream_server, tmp_path):
    store = RelayStore(tmp_path)
    run = pull_several(upstream_server, store)
    path_of(store, run[2]).unlink()
    with pytest.raises(RelayGap):
        chain(store.segments(SOURCE), FIRST)
    pull(SOURCE, upstream_server.server, store, FIRST)
    assert_equal_to_server(upstream_server, store)
    rows = next(segment for segment in run if segment.ranges)
    os.truncate(path_of(store, rows), 300)
    with pytest.raises(SegmentDamaged):
        store.read(SOURCE, rows.name, rows.ranges[0].start, rows.ranges[0].end)


def test_a_full_disk_leaves_whole_segments_and_is_gone_on_from(upstream_server, tmp_path):
    for _ in range(12):
        fill(upstream_server, 300, 90)
        upstream_server.run("CREATE TABLE IF NOT EXISTS d.k(id int)")
    fill(upstream_server, 30000, 90)
    stored = []
    for size in (1, 250, 700, 30_000, 1_500_000):
        store = RelayStore(tmp_path / str(size))
        with room(size), pytest.raises(RelayUnwritable, match="free space") as caught:
            pull(SOURCE, upstream_server.server, store, FIRST, segment_bytes=40_000)
        assert caught.value.transient and "too large" in caught.value.reason
        assert not [path for path in (tmp_path / str(size) / SOURCE).iterdir() if path.name.startswith(TEMPORARY)]
        stored.append(len(store.segments(SOURCE)))
        if stored[-1]:
            assert_equal_to_server(upstream_server, store)
        pull(SOURCE, upstream_server.server, store, FIRST, segment_bytes=40_000)
        assert assert_equal_to_server(upstream_server, store)[-1].ends == end_of(upstream_server)
    assert stored == sorted(stored) and stored[0] == 0 < stored[-1]


def test_statements_carry_their_session(upstream_server, tmp_path):
    upstream_server.run(
        "SET NAMES latin1",
        "SET time_zone='+03:00', sql_mode='ANSI_QUOTES', timestamp=1700000000",
        "USE d",
        'CREATE TABLE "é"("a" int)',
        "SET NAMES binary",
        'CREATE TABLE d."表"("ü" int comment \'中\')',
    )
    store = RelayStore(tmp_path)
    pull(SOURCE, upstream_server.server, store, FIRST)
    *_, statement, loaded = [segment.statement for segment in chain(store.segments(SOURCE), FIRST)]
    assert loaded and (loaded.charset, loaded.text) == ("binary", 'CREATE TABLE d."表"("ü" int comment \'中\')')
    assert [name for (name,) in upstream_server.run("SHOW TABLES FROM d")][1:] == ["é".encode().decode("cp1252"), "表"]
    assert statement and statement.schema == "d" and statement.charset == "latin1" and statement.timestamp == 1700000000
    assert statement.sql_mode & 4 and statement.text.startswith('CREATE TABLE "')


def test_an_incomplete_transaction_is_not_stored(upstream_server, tmp_path):
    """A damaged stream never leaves a partial transaction."""
    store = RelayStore(tmp_path)
    fill(upstream_server, 50)
    writer = store.writer(SOURCE)
    cutter = Cutter(SOURCE, FIRST, writer, 1 << 20)
    upstream_server.run("FLUSH LOGS")
    data = (upstream_server.folder / "data" / FIRST.file).read_bytes()
    offset, events = 4, []
    while offset < len(data):
        size = read_frame(data, offset).size
        events.append(data[offset : offset + size])
        offset += size
    for event in events[:-2]:  # without the end of the transaction and the rotation
        cutter.feed(event)
    cutter.end()
    run = chain(store.segments(SOURCE), FIRST)
    assert run[-1].statement  # the CREATE TABLE; the rows lack their end
    with pytest.raises(DamagedEvent):
        cutter.feed(events[0][:-1])
    assert not list(Path(tmp_path / SOURCE).glob(f"{TEMPORARY}*"))


def test_purge_of_the_relay(upstream_server, tmp_path):
    store = RelayStore(tmp_path)
    fill(upstream_server, 10)
    upstream_server.run("FLUSH LOGS")
    fill(upstream_server, 10)
    pull(SOURCE, upstream_server.server, store, FIRST, until=end_of(upstream_server))
    run = chain(store.segments(SOURCE), FIRST)
    at = run[-1].begins
    assert store.purge(SOURCE, at) == len(run) - 1
    assert store.segments(SOURCE) == run[-1:]
    assert pull(SOURCE, upstream_server.server, store, at).segments == 0
    assert store.purge(SOURCE, run[-1].ends) == 1
    assert store.segments(SOURCE) == () and list((tmp_path / SOURCE).iterdir()) == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_agrees_with_mysql_replication(upstream_server, tmp_path):
    """The library is the oracle for events that it is known to read correctly."""
    upstream_server.run("SET GLOBAL binlog_row_metadata=FULL")
    upstream_server.run(
        "CREATE TABLE d.o(id int primary key, n bigint, v varchar(50), dt datetime(6)) CHARSET utf8mb4",
        "INSERT INTO d.o SELECT seq, CAST(seq AS SIGNED) * -7, CONCAT('ü', seq), '2024-05-06 07:08:09.123456'"
        " FROM d.seq_1_to_500",
        "UPDATE d.o SET v = NULL, id = id + 10000 WHERE id % 3 = 0",
        "DELETE FROM d.o WHERE id < 100",
    )
    table = TableId("d", "o")
    ours = [
        (op, values)
        for _, op, values in changes(upstream_server, tmp_path, FIRST, {table: schema_of(upstream_server, table)})
    ]
    assert len(ours) == 500 + 2 * 166 + len([n for n in range(1, 100) if n % 3])
    assert ours == list(_library_rows(upstream_server))


def _library_rows(server):
    settings = {"host": "127.0.0.1", "port": server.port, "user": "admin", "password": "unshard"}
    stream = BinLogStreamReader(
        connection_settings=settings,
        server_id=77,
        log_file=FIRST.file,
        log_pos=4,
        only_tables=["o"],
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
        is_mariadb=True,
    )
    with contextlib.closing(stream):
        for event in stream:
            for row in event.rows:
                match event:
                    case UpdateRowsEvent():
                        yield 2, _texts(row["before_values"])
                        yield 3, _texts(row["after_values"])
                    case _:
                        yield (0 if isinstance(event, WriteRowsEvent) else 1), _texts(row["values"])


def _texts(values) -> tuple[bytes | None, ...]:
    return tuple(None if value is None else str(value).encode() for value in values.values())


def test_an_alter_in_two_phases_counts_when_it_is_committed(upstream_server, tmp_path):
    """The binlog has its text twice; at the first one its success is unknown."""
    store, begins = RelayStore(tmp_path), end_of(upstream_server)
    upstream_server.run("INSERT INTO d.t(v) VALUES ('a'), ('a')")
    two_phases = "SET SESSION binlog_alter_two_phase = 1"
    with pytest.raises(pymysql.err.IntegrityError):
        upstream_server.run(two_phases, "ALTER TABLE d.t ADD UNIQUE (v)")
    upstream_server.run(two_phases, "ALTER TABLE d.t ADD COLUMN c int", "INSERT INTO d.t(v, c) VALUES ('b', 1)")
    pull(SOURCE, upstream_server.server, store, begins)
    run = assert_equal_to_server(upstream_server, store, begins)
    assert [segment.statement.text for segment in run if segment.statement] == ["ALTER TABLE d.t ADD COLUMN c int"]
    assert [bool(segment.ranges) for segment in run] == [True, False, True]
