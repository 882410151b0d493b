"""Relay, dump and held rows in HDFS by its REST interface: no partial files, and no answer is misread."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random

import pyarrow as pa
import pytest

from tests import webhdfs
from tests.binlogs import FIRST, SOURCE, assert_equal_to_server, end_of, fill, pull_several
from tests.integration.relay.test_relay import pull_at_once
from tests.lifetask import living
from tests.webhdfs import CUT, Hdfs, untroubled
from unshard.adapters.parquet import Storage
from unshard.adapters.relayfiles import BucketPlace, RelayStore
from unshard.errors import UnshardError
from unshard.errors.meta import StorageFailed, StoredFileDamaged, StoredFileMissing
from unshard.errors.relay import RelayUnwritable, SegmentDamaged
from unshard.units.relay.pull import pull
from unshard.units.work import Limits

pytestmark = pytest.mark.integration
SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string())])


@pytest.fixture
def hdfs() -> Iterator[Hdfs]:
    with webhdfs.running() as server:
        yield server


def batches(rows: int) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"a": list(range(rows)), "b": [f"{row:0900}" for row in range(rows)]}, schema=SCHEMA)


def rows_of(storage: Storage, name: str) -> int:
    return sum(batch.num_rows for batch in storage.read_batches(name))


def store_of(hdfs: Hdfs) -> RelayStore:
    return RelayStore(BucketPlace(hdfs.uri("/task/relay"), Storage("").access))


def test_a_file_has_its_name_when_it_is_whole(hdfs: Hdfs) -> None:
    storage = Storage(hdfs.uri("/task"))
    written = storage.write_batches("dump/a", SCHEMA, batches(10))
    assert len(hdfs.files["/task/dump/a"]) == written.bytes
    assert storage.write_batches("dump/a", SCHEMA, batches(30_000)).rows == rows_of(storage, "dump/a") == 30_000
    assert storage.schema("dump/a") == SCHEMA
    hdfs.files["/task/dump/.tmp-dead-b"] = b"half"
    assert storage.list() == storage.list("dump") == ("dump/a",) and storage.list("held") == ()
    assert storage.exists("dump/a") and not storage.exists("dump/b")
    storage.delete("dump/b")
    storage.delete("dump/a")
    with pytest.raises(StoredFileMissing):
        storage.schema("dump/a")
    storage.delete_folder("dump")
    storage.delete_folder("dump")
    assert hdfs.files == {}


@pytest.mark.sample(reason="the request and the failure do not interact")
@pytest.mark.parametrize("answer", [403, 500, CUT])
@pytest.mark.parametrize("operation", ["CREATE", "CREATE.DATA", "APPEND", "APPEND.DATA", "GETFILESTATUS", "RENAME"])
def test_a_request_of_a_writer_that_fails(hdfs: Hdfs, operation: str, answer: int) -> None:
    storage = Storage(hdfs.uri("/task"))
    storage.write_batches("a", SCHEMA, batches(10))
    hdfs.trouble = lambda asked, path: answer if asked == operation else None
    with pytest.raises(StorageFailed):
        storage.write_batches("a", SCHEMA, batches(20))
    hdfs.trouble = untroubled
    assert rows_of(storage, "a") == 10 and storage.list() == ("a",)


@pytest.mark.sample(reason="the request and the failure do not interact")
@pytest.mark.parametrize("answer", [403, 500, CUT])
@pytest.mark.parametrize("operation", ["OPEN", "OPEN.DATA", "GETFILESTATUS"])
def test_a_request_of_a_reader_that_fails(hdfs: Hdfs, operation: str, answer: int) -> None:
    """The error page of a data node is not read as the bytes of the file."""
    storage = Storage(hdfs.uri("/task"))
    storage.write_batches("a", SCHEMA, batches(10))
    hdfs.trouble = lambda asked, path: answer if asked == operation else None
    with pytest.raises(StorageFailed):
        rows_of(storage, "a")


@pytest.mark.parametrize("answer", [403, 500, CUT])
@pytest.mark.parametrize("operation", ["LISTSTATUS", "GETFILESTATUS"])
def test_a_listing_that_fails_is_not_an_empty_one(hdfs: Hdfs, operation: str, answer: int) -> None:
    storage, place = Storage(hdfs.uri("/task")), BucketPlace(hdfs.uri("/task/a"), Storage("").access)
    storage.write_batches("a/b/c", SCHEMA, batches(10))
    storage.write_batches("a/d", SCHEMA, batches(10))
    assert storage.list("a") == ("a/b/c", "a/d") and list(place.names()) == ["d"]
    for folder in ("/task/a", "/task/a/b"):
        hdfs.trouble = lambda asked, path, at=folder: answer if (asked, path) == (operation, at) else None
        if (operation, folder) != ("GETFILESTATUS", "/task/a/b"):
            with pytest.raises(StorageFailed):
                storage.list("a")
    hdfs.trouble = lambda asked, path: answer if asked == operation else None
    with pytest.raises(StorageFailed):
        place.names()
    if operation == "GETFILESTATUS":
        with pytest.raises(StorageFailed):
            storage.exists("a/d")


def test_what_is_damaged_there_is_told(hdfs: Hdfs) -> None:
    storage, random = Storage(hdfs.uri("/task")), Random(5)
    storage.write_batches("a", SCHEMA, batches(100))
    whole = hdfs.files["/task/a"]
    for _ in range(30):
        damaged = bytearray(whole)
        damaged[random.randrange(len(whole) - 4)] ^= 1 << random.randrange(8)
        hdfs.files["/task/a"] = random.choice((bytes(damaged), whole[: random.randrange(len(whole))]))
        try:
            found = [batch.to_pydict() for batch in storage.read_batches("a")]
        except StoredFileDamaged:
            continue
        assert found == [batch.to_pydict() for batch in batches(100)], "a bit of the footer that means nothing"


def test_another_user_is_told_what_the_name_node_says(hdfs: Hdfs) -> None:
    storage = Storage(hdfs.uri("/task").replace(webhdfs.USER, "nobody"))
    with pytest.raises(StorageFailed, match="403 AccessControlException: Permission denied: user=nobody"):
        storage.write_batches("a", SCHEMA, batches(1))


def test_the_relay_keeps_what_the_server_has(upstream_server, hdfs: Hdfs) -> None:
    store = store_of(hdfs)
    pull_several(upstream_server, store)
    end = end_of(upstream_server)
    pull(SOURCE, upstream_server.server, store, FIRST)
    found = assert_equal_to_server(upstream_server, store)
    name = next(segment.name for segment in found if segment.ranges)
    hdfs.files.pop(f"/task/relay/{SOURCE}/{name}")
    with pytest.raises(SegmentDamaged, match="missing"):
        store.read(SOURCE, name, 0, 10)
    pull(SOURCE, upstream_server.server, store, FIRST)
    assert assert_equal_to_server(upstream_server, store) == found
    assert pull(SOURCE, upstream_server.server, store, FIRST).segments == 0
    assert found[-1].ends == end


def test_a_pull_whose_requests_fail_goes_on(upstream_server, hdfs: Hdfs) -> None:
    store, random = store_of(hdfs), Random(11)
    for _ in range(4):
        fill(upstream_server, 200, 60)
        upstream_server.run("FLUSH LOGS")
    end = end_of(upstream_server)
    hdfs.trouble = lambda asked, path: random.choice((500, CUT)) if random.random() < 0.1 else None
    for _ in range(40):
        try:
            pull(SOURCE, upstream_server.server, store, FIRST)
            break
        except UnshardError as error:
            assert isinstance(error, StorageFailed | RelayUnwritable | SegmentDamaged), error
    hdfs.trouble = untroubled
    pull(SOURCE, upstream_server.server, store, FIRST)
    assert assert_equal_to_server(upstream_server, store)[-1].ends == end


def test_two_pulls_at_once(upstream_server, hdfs: Hdfs) -> None:
    pull_at_once(upstream_server, store_of(hdfs), rounds=2)


def test_a_folder_that_another_process_creates_while_it_is_listed(
    upstream_server, hdfs: Hdfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, status, asked = f"/task/relay/{SOURCE}", hdfs.status, list[str]()

    def absent_at_first(path: str) -> object:
        asked.append(path)
        return None if asked.count(folder) == 1 and path == folder else status(path)

    fill(upstream_server, 10, 60)
    pull(SOURCE, upstream_server.server, store_of(hdfs), FIRST)
    monkeypatch.setattr(hdfs, "status", absent_at_first)
    assert store_of(hdfs).folder.below(SOURCE).names()
    assert asked.count(folder) > 1


def test_what_a_dead_writer_left_goes_after_a_day(upstream_server, hdfs: Hdfs) -> None:
    folder = f"/task/relay/{SOURCE}"
    for name, age in (("old", timedelta(hours=25)), ("young", timedelta(hours=23))):
        hdfs.files[f"{folder}/.tmp-{name}"] = b"half"
        hdfs.times[f"{folder}/.tmp-{name}"] = int((datetime.now(UTC) - age).timestamp() * 1000)
    fill(upstream_server, 10, 60)
    pull(SOURCE, upstream_server.server, store_of(hdfs), FIRST)
    assert [name for name in hdfs.files if ".tmp-" in name] == [f"{folder}/.tmp-young"]


def test_a_task_holds_and_releases_rows_there(unique, tmp_path, source_1, source_2, target, hdfs):
    where = {"storage-path": hdfs.uri("/x")}
    with living(unique, tmp_path, {"s1": source_1, "s2": source_2}, target, unshard=where) as task:
        task.limits = Limits(pause_seconds=0.01)
        first, second = task.make_shard("s1", 1, *range(50)), task.make_shard("s2", 2, *range(100, 150))
        task.go()
        assert task.assert_union() == 100
        task.sources["s1"].run(f"ALTER TABLE {first} ADD c INT", f"INSERT INTO {first} (id, c) VALUES (1000, 1)")
        task.go()
        with task.work() as work:
            assert len(work.storage.list("held")) == 1
        task.sources["s2"].run(f"ALTER TABLE {second} ADD c INT", f"DELETE FROM {second} WHERE id = 100")
        task.go()
        assert task.assert_union() == 100
        with task.work() as work:
            assert work.storage.list("held") == work.storage.list("dump") == ()
        assert task.command("stop", "--remove-meta", "--yes") == 0
    assert hdfs.files == {}
