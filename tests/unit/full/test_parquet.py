"""The storage, in a folder and in an object store: a file is complete or does not exist, and errors are reported."""

import gc
import os
import pickle
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from tests import s3server
from tests.disk import room
from unshard.adapters.parquet import Storage
from unshard.core.model import ObjectAccess
from unshard.errors.meta import StorageFailed, StoredFileDamaged, StoredFileMissing
from unshard.errors.source import ConnectionLost

SCHEMA = pa.schema([("_op", pa.int8()), ("v", pa.binary())])
PREFIX = "deep/er"


def batch(*values: bytes | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([0] * len(values), pa.int8()), pa.array(values, pa.binary())], schema=SCHEMA
    )


def values(storage: Storage, name: str) -> list[bytes | None]:
    return [row["v"] for part in storage.read_batches(name, rows=2) for row in part.to_pylist()]


@dataclass(frozen=True, slots=True)
class Folder:
    """A storage in a folder, with direct access to its files."""

    folder: Path
    scheme: str = ""

    @property
    def storage(self) -> Storage:
        return Storage(f"{self.scheme}{self.folder}/{PREFIX}")

    def files(self) -> dict[str, bytes]:
        base = self.folder / PREFIX
        return {str(path.relative_to(base)): path.read_bytes() for path in base.rglob("*") if path.is_file()}

    def replace(self, name: str, data: bytes) -> None:
        path = self.folder / PREFIX / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


@dataclass(frozen=True, slots=True)
class Bucket:
    """A storage in an object store, with direct access to its objects."""

    s3: s3server.S3

    @property
    def storage(self) -> Storage:
        return Storage(f"s3://{s3server.BUCKET}/{PREFIX}", self.s3.access)

    def files(self) -> dict[str, bytes]:
        objects = {key: data for key, data in self.s3.objects.items() if not key.endswith("/")}
        return {key.removeprefix(f"{PREFIX}/"): data for key, data in objects.items()}

    def replace(self, name: str, data: bytes) -> None:
        self.s3.objects[f"{PREFIX}/{name}"] = data


Place = Folder | Bucket


@pytest.fixture(params=["folder", "file://", "s3://"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "s3://":
        return Bucket(request.getfixturevalue("s3"))
    return Folder(tmp_path, request.param.removeprefix("folder"))


def test_what_is_written_is_read(place: Place) -> None:
    storage = pickle.loads(pickle.dumps(place.storage))
    written = storage.write_batches("a/b %c.parquet", SCHEMA, iter([batch(b"1", None), batch(b"\xff")]))
    assert written.rows == 3
    assert written.bytes == len(place.files()["a/b %c.parquet"])
    assert values(storage, "a/b %c.parquet") == [b"1", None, b"\xff"]
    assert storage.list() == storage.list("a") == ("a/b %c.parquet",)
    assert storage.list("b") == storage.list("a/b") == ()
    assert storage.exists("a/b %c.parquet") and not storage.exists("a/b") and not storage.exists("a")
    storage.delete("a/b %c.parquet")
    storage.delete("a/b %c.parquet")
    assert storage.list() == () and place.files() == {}


def test_a_file_without_rows_keeps_its_schema(place: Place) -> None:
    schema = SCHEMA.with_metadata({b"k": b"v"})
    assert place.storage.write_batches("x", schema, iter([])).rows == 0
    assert list(place.storage.read_batches("x")) == []
    assert place.storage.schema("x").metadata == {b"k": b"v"}


def test_an_error_of_the_rows_is_passed_on_and_leaves_what_was_there(place: Place) -> None:
    def rows(error: BaseException) -> Iterator[pa.RecordBatch]:
        yield batch(b"new")
        raise error

    place.storage.write_batches("old", SCHEMA, iter([batch(b"old")]))
    before = place.files()
    for error in (ConnectionLost("source s1", "x@y:1", "gone"), ConnectionResetError("reset"), KeyboardInterrupt()):
        for name in ("new", "old"):
            with pytest.raises(type(error)):
                place.storage.write_batches(name, SCHEMA, rows(error))
    assert place.files() == before


def test_a_full_disk_is_told_and_leaves_what_was_there(tmp_path: Path) -> None:
    place = Folder(tmp_path)
    place.storage.write_batches("old", SCHEMA, iter([batch(b"old")]))
    before = place.files()
    for size in (0, 3, 400, 10_000):
        for name in ("new", "old"):
            with room(size), pytest.raises(StorageFailed, match="has free space"):
                place.storage.write_batches(name, SCHEMA, (batch(random.randbytes(5000)) for _ in range(5)))
    assert place.files() == before


def test_an_old_file_stays_until_the_new_one_is_whole(place: Place) -> None:
    storage = place.storage
    storage.write_batches("x", SCHEMA, iter([batch(b"old")]))

    def rows() -> Iterator[pa.RecordBatch]:
        yield batch(b"new")
        assert values(storage, "x") == [b"old"]
        assert storage.list() == ("x",)

    storage.write_batches("x", SCHEMA, rows())
    assert values(storage, "x") == [b"new"]


def test_what_is_wrong_is_told(place: Place) -> None:
    storage = place.storage
    assert storage.list() == ()
    with pytest.raises(StoredFileMissing, match=f"{PREFIX}/nothing"):
        list(storage.read_batches("nothing"))
    place.replace("noise", b"noise")
    with pytest.raises(StoredFileDamaged, match="noise"):
        list(storage.read_batches("noise"))
    storage.write_batches("cut", SCHEMA, iter([batch(b"1" * 1000)]))
    place.replace("cut", place.files()["cut"][:50])
    with pytest.raises(StoredFileDamaged, match="cut"):
        list(storage.read_batches("cut"))


def test_a_bit_that_has_changed_is_found(place: Place) -> None:
    """The damage is in bytes that compression cannot shorten, so only a checksum can detect it."""
    value = random.Random(1).randbytes(10_000)
    place.storage.write_batches("bit", SCHEMA, iter([batch(value)]))
    whole = place.files()["bit"]
    at = whole.index(value) + 5_000
    place.replace("bit", whole[:at] + bytes((whole[at] ^ 1,)) + whole[at + 1 :])
    with pytest.raises(StoredFileDamaged, match="checksum"):
        values(place.storage, "bit")


def test_what_is_wrong_with_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "noise").write_bytes(b"noise")
    with pytest.raises(StorageFailed):
        Storage(f"{tmp_path}/noise").write_batches("x", SCHEMA, iter([]))
    with pytest.raises(StorageFailed):
        Storage("nosuch://place").list()


def test_a_folder_goes_with_unfinished_files(place: Place) -> None:
    storage = place.storage
    storage.write_batches("d/x", SCHEMA, iter([]))
    place.replace("d/.tmp-1-x", b"")
    assert storage.list("d") == ("d/x",)
    storage.delete_folder("d")
    storage.delete_folder("d")
    assert place.files() == {}


def test_a_listing_of_many_pages_is_whole(s3: s3server.S3) -> None:
    names = [f"d/{number:05}" for number in range(2 * s3server.PAGE + 1)]
    for name in names:
        s3.objects[f"{PREFIX}/{name}"] = b""
    assert list(Bucket(s3).storage.list("d")) == names
    assert s3.requests["LIST"] == 3


@pytest.mark.slow
def test_what_a_store_refuses_is_an_error_that_may_be_tried_again(s3: s3server.S3) -> None:
    storage = Bucket(s3).storage

    def write() -> None:
        storage.write_batches("x", SCHEMA, iter([]))

    others = (
        lambda: list(storage.read_batches("x")),
        lambda: storage.exists("x"),
        storage.list,
        lambda: storage.delete("x"),
        lambda: storage.delete_folder("x"),
    )
    for status, action in ((500, write), (s3server.CUT, write), (403, write), *((403, action) for action in others)):
        s3.trouble = lambda operation, key, status=status: status
        with pytest.raises(StorageFailed, match=f"s3://{s3server.BUCKET}/{PREFIX}") as caught:
            action()
        assert caught.value.transient
        assert s3server.SECRET not in str(caught.value) + repr(caught.value)
    assert s3.objects == {}


@pytest.mark.slow
def test_a_store_that_is_unreachable(s3: s3server.S3) -> None:
    storage = Bucket(s3).storage
    for wrong in (
        Storage("s3://other/x", storage.access),
        Storage(storage.path, ObjectAccess("k", s3server.SECRET, region="x", endpoint=s3.endpoint)),
        Storage(storage.path, ObjectAccess("k", s3server.SECRET, region="x", endpoint="http://127.0.0.1:1")),
        Storage(storage.path, ObjectAccess("k", s3server.SECRET, region="x", endpoint="ftp://127.0.0.1:1")),
    ):
        with pytest.raises(StorageFailed) as caught:
            wrong.write_batches("x", SCHEMA, iter([]))
        assert s3server.SECRET not in str(caught.value) + repr(caught.value) + repr(wrong)


LARGE = """
import pickle, sys
from random import Random
import pyarrow as pa
storage = pickle.loads(bytes.fromhex(sys.argv[1]))
rows = pa.record_batch([pa.array([Random(n).randbytes(1 << 20) for n in range(24)])], ["v"])
storage.write_batches("x", rows.schema, iter([rows]))
"""


@pytest.mark.slow
def test_a_death_while_sending_leaves_no_object_and_the_old_one_stays(s3: s3server.S3) -> None:
    storage = Bucket(s3).storage
    storage.write_batches("x", SCHEMA, iter([batch(b"old")]))
    for deadly in ("BEGIN_UPLOAD", "PUT_PART", "COMPLETE_UPLOAD"):
        dies_while_sending(s3, storage, deadly)
        assert values(storage, "x") == [b"old"] and storage.list() == ("x",)
    assert len(s3.uploads) == 2, "parts without a name"


def dies_while_sending(s3: s3server.S3, storage: Storage, deadly: str) -> None:
    """Run a program that stores a large file, and kill it before the first request of a kind is answered."""

    def kill(operation: str, key: str) -> int | None:
        if operation != deadly:
            return None
        program.kill()
        program.wait()
        return s3server.CUT

    s3.trouble = kill
    command = [sys.executable, "-c", LARGE, pickle.dumps(storage).hex()]
    with s3.lock:  # its first request waits until it is known here
        program = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert program.wait() == -signal.SIGKILL
    s3.trouble = s3server.untroubled


@pytest.mark.slow
def test_a_part_that_fails_lets_nothing_exist(s3: s3server.S3) -> None:
    storage = Bucket(s3).storage
    rows = batch(*(os.urandom(1 << 20) for _ in range(24)))
    s3.trouble = lambda operation, key: 500 if operation == "PUT_PART" else None
    with pytest.raises(StorageFailed, match="UploadPart") as caught:
        storage.write_batches("x", SCHEMA, iter([rows]))
    del caught
    s3.trouble = s3server.untroubled
    gc.collect()
    assert s3.objects == {} and storage.list() == (), "nothing is stored when the failed stream is destroyed either"
    storage.write_batches("x", SCHEMA, iter([rows]))
    assert values(storage, "x") == rows.column("v").to_pylist()
    assert (s3.requests["COMPLETE_UPLOAD"], s3.requests["PUT"]) == (1, 0)
