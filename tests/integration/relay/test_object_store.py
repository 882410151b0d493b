"""Relay, dump and held rows in an object store: the same files, few requests, no partial files."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests import s3server
from tests.binlogs import FIRST, SOURCE, assert_equal_to_server, end_of, fill, pull_several
from tests.integration.relay.test_relay import pull_at_once, room
from tests.lifetask import LifeTask, living
from tests.s3server import BUCKET, S3, untroubled
from unshard.adapters.relayfiles import BucketPlace, RelayStore, read_index
from unshard.core.model import ObjectAccess
from unshard.core.relay.segment import chain
from unshard.errors.meta import StorageFailed
from unshard.errors.relay import RelayGap, RelayUnwritable, SegmentDamaged
from unshard.units.relay.pull import pull
from unshard.units.work import Limits
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

PREFIX = "task/relay"


def store_of(s3: S3) -> RelayStore:
    return RelayStore(BucketPlace(f"s3://{BUCKET}/{PREFIX}", s3.access))


def key_of(name: str) -> str:
    return f"{PREFIX}/{SOURCE}/{name}"


def test_stores_what_a_folder_stores_in_few_requests(upstream_server: MariaDb, s3: S3, tmp_path: Path) -> None:
    for number in range(15):
        fill(upstream_server, 100, 50)
        upstream_server.run(f"CREATE TABLE d.k{number}(id int)", "FLUSH LOGS" if number == 7 else "DO 1")
    upstream_server.run("CREATE TABLE d.large(v longtext)", f"INSERT INTO d.large VALUES (REPEAT('x', {12 << 20}))")
    folder, bucket = RelayStore(tmp_path), store_of(s3)
    until = end_of(upstream_server)
    for store in (folder, bucket):
        pull(SOURCE, upstream_server.server, store, FIRST, until=until)
    run = assert_equal_to_server(upstream_server, bucket)
    assert run == chain(folder.segments(SOURCE), FIRST) and len(run) > 30
    kept = {path.name: path.read_bytes() for path in (tmp_path / SOURCE).iterdir()}
    assert {key.removeprefix(key_of("")): data for key, data in s3.objects.items()} == kept
    assert s3.requests["COMPLETE_UPLOAD"] == 1, "a segment of more than one part"

    read_index.cache_clear()
    s3.requests.clear()
    assert pull(SOURCE, upstream_server.server, bucket, FIRST).segments == 0
    assert s3.requests["LIST"] == 1 and s3.requests.total() < 10, "an idle pull reads the ends of files only"
    s3.requests.clear()
    assert list(bucket.links(SOURCE).following(FIRST)) == list(run)
    assert s3.requests["LIST"] == 1 and s3.requests["GET"] <= len(run)
    assert list(bucket.links(SOURCE).following(FIRST)) == list(run)
    assert s3.requests["GET"] <= len(run), "indexes are read once"


def test_what_is_missing_or_damaged_is_told_and_pulled_again(upstream_server: MariaDb, s3: S3) -> None:
    store = store_of(s3)
    run = pull_several(upstream_server, store)
    rows = next(segment for segment in run if segment.ranges)
    start, end = rows.ranges[0].start, rows.ranges[0].end
    whole = s3.objects.pop(key_of(rows.name))
    with pytest.raises(SegmentDamaged, match="missing"):
        store.read(SOURCE, rows.name, start, end)
    with pytest.raises(RelayGap):
        chain(store.segments(SOURCE), FIRST)
    pull(SOURCE, upstream_server.server, store, FIRST)
    assert assert_equal_to_server(upstream_server, store) == run
    for damaged in (b"", whole[:3], b"noise" * 20, whole[: end - 1]):
        s3.objects[key_of(rows.name)] = damaged
        with pytest.raises(SegmentDamaged, match=f"s3://{BUCKET}/{key_of(rows.name)}"):
            store.read(SOURCE, rows.name, start, end)
    s3.objects[key_of(rows.name)] = whole
    read_index.cache_clear()
    s3.objects[key_of(rows.name.replace(".seg", ".json"))] = b"noise"
    with pytest.raises(SegmentDamaged, match="index is unreadable"):
        store.segments(SOURCE)
    s3.trouble = lambda operation, key: 403
    for ask in (lambda: store.read(SOURCE, rows.name, start, end), lambda: store.links(SOURCE)):
        with pytest.raises(StorageFailed):
            ask()
    with pytest.raises(StorageFailed):
        store.purge(SOURCE, run[-1].ends)
    nowhere = RelayStore(BucketPlace("s3://b/x", ObjectAccess("k", "s", region="r", endpoint="ftp://h")))
    with pytest.raises(StorageFailed, match="s3://b/x/s1"):
        nowhere.links(SOURCE)


def test_purge_and_forget(upstream_server: MariaDb, s3: S3) -> None:
    store = store_of(s3)
    for _ in range(3):
        fill(upstream_server, 10)
        upstream_server.run("FLUSH LOGS")
    pull(SOURCE, upstream_server.server, store, FIRST, until=end_of(upstream_server))
    run = chain(store.segments(SOURCE), FIRST)
    assert store.purge(SOURCE, run[-1].begins) == len(run) - 1
    assert store.segments(SOURCE) == run[-1:]
    assert pull(SOURCE, upstream_server.server, store, run[-1].begins).segments == 0
    assert store.purge(SOURCE, run[-1].ends) == 1
    assert store.segments(SOURCE) == ()
    assert [data for data in s3.objects.values() if data] == []


def test_scratch_space_that_ends_and_a_store_that_refuses(upstream_server: MariaDb, s3: S3) -> None:
    store = store_of(s3)
    for _ in range(6):
        fill(upstream_server, 300, 90)
        upstream_server.run("CREATE TABLE IF NOT EXISTS d.k(id int)")
    with room(10_000), pytest.raises(RelayUnwritable, match="too large") as caught:
        pull(SOURCE, upstream_server.server, store, FIRST)
    assert caught.value.transient
    for operation in ("PUT", "LIST"):
        s3.trouble = lambda asked, key, operation=operation: 403 if asked == operation else None
        with pytest.raises((RelayUnwritable, StorageFailed)) as refused:
            pull(SOURCE, upstream_server.server, store, FIRST)
        assert refused.value.transient and s3server.SECRET not in str(refused.value)
    s3.trouble = untroubled
    pull(SOURCE, upstream_server.server, store, FIRST)
    assert assert_equal_to_server(upstream_server, store)[-1].ends == end_of(upstream_server)


PULLER = """
import sys
from unshard.adapters.relayfiles import BucketPlace, RelayStore
from unshard.core.model import Location, ObjectAccess, Server
from unshard.units.relay.pull import pull
host, port, user, password, uri, key, secret, endpoint = sys.argv[1:]
store = RelayStore(BucketPlace(uri, ObjectAccess(key, secret, region="us-east-1", endpoint=endpoint)))
pull("s1", Server(host, int(port), user, password), store, Location("mysql-bin.000001", 4), segment_bytes=1 << 16)
"""


def test_killed_at_a_request(upstream_server: MariaDb, s3: S3) -> None:
    store, random = store_of(s3), Random(7)
    for _ in range(20):
        fill(upstream_server, 1000, 90)
    server, access = upstream_server.server, s3.access
    command = [
        sys.executable,
        "-c",
        PULLER,
        server.host,
        str(server.port),
        server.user,
        server.password,
        f"s3://{BUCKET}/{PREFIX}",
        access.key,
        access.secret,
        access.endpoint,
    ]
    for _ in range(3):
        dies_at(command, s3, random.randrange(2, 9), random.choice((None, s3server.CUT)))
        assert_equal_to_server(upstream_server, store)
    pull(SOURCE, upstream_server.server, store, FIRST)
    assert assert_equal_to_server(upstream_server, store)[-1].ends == end_of(upstream_server)


def dies_at(command: list[str], s3: S3, put: int, answer: int | None) -> None:
    """Run a program and kill it at one of its PUTs, which may or may not arrive."""

    def kill(operation: str, key: str) -> int | None:
        nonlocal put
        put -= operation == "PUT"
        if put or operation != "PUT":
            return None
        program.kill()
        program.wait()
        return answer

    s3.trouble = kill
    with s3.lock:  # its first request waits until the process is known here
        program = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert program.wait() == -signal.SIGKILL
    s3.trouble = untroubled


def test_two_pulls_at_once(upstream_server: MariaDb, s3: S3) -> None:
    pull_at_once(upstream_server, store_of(s3), rounds=3)


@pytest.fixture
def task(
    unique: str,
    tmp_path: Path,
    source_1: MariaDb,
    source_2: MariaDb,
    target: MariaDb,
    s3: S3,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[LifeTask]:
    monkeypatch.setenv("AIRFLOW_CONN_STORE", s3.connection)
    where = {"storage-path": f"s3://{BUCKET}/x", "storage-conn-id": "store"}
    with living(unique, tmp_path, {"s1": source_1, "s2": source_2}, target, unshard=where) as task:
        task.limits = Limits(pause_seconds=0.01)
        yield task


def test_a_task_whose_store_fails_now_and_then(task: LifeTask, s3: S3) -> None:
    """After any failed request the next run continues; rows of a shard that is ahead are held, and released later.

    A file that could not be deleted goes when the next held rows of its source are released.
    """
    random, failed = Random(3), 0

    def trouble(operation: str, key: str) -> int | None:
        nonlocal failed
        is_unlucky = operation != "DELETE_MANY" and "/check-" not in key and random.random() < 0.03
        failed += is_unlucky
        return 403 if is_unlucky else None

    def go_on() -> None:
        s3.trouble = trouble
        while errors := task.run().errors:
            assert {each.error.code for each in errors} <= {StorageFailed.code, RelayUnwritable.code}, errors
        s3.trouble = untroubled

    first, second = task.make_shard("s1", 1, *range(50)), task.make_shard("s2", 2, *range(100, 150))
    go_on()
    assert task.assert_union() == 100
    for number in range(2):
        task.sources["s1"].run(f"ALTER TABLE {first} ADD c{number} INT")
        task.sources["s1"].run(f"INSERT INTO {first} (id, c{number}) VALUES ({1000 + number}, 1)")
        go_on()
    with task.work() as work:
        assert len(work.storage.list("held")) == 2
    for number in range(2):
        task.sources["s2"].run(f"ALTER TABLE {second} ADD c{number} INT", f"DELETE FROM {second} WHERE id = 10{number}")
        go_on()
    assert task.assert_union() == 100
    assert failed > 1
    for number, source, shard in ((2000, "s2", second), (3000, "s1", first)):
        task.sources[source].run(f"ALTER TABLE {shard} ADD d INT", f"INSERT INTO {shard} (id, d) VALUES ({number}, 1)")
        task.run()
    assert task.assert_union() == 102
    with task.work() as work:
        assert work.storage.list("held") == work.storage.list("dump") == ()
    assert task.command("stop", "--remove-meta", "--yes") == 0
    assert [key for key, data in s3.objects.items() if data] == []
