"""The storage: a file is there whole or not at all, and what is wrong with it is told."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from unshard.adapters.parquet import Storage
from unshard.errors.meta import StorageFailed, StoredFileDamaged, StoredFileMissing
from unshard.errors.source import ConnectionLost

SCHEMA = pa.schema([("_op", pa.int8()), ("v", pa.binary())])


def batch(*values: bytes | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([0] * len(values), pa.int8()), pa.array(values, pa.binary())], schema=SCHEMA
    )


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_what_is_written_is_read(tmp_path: Path, scheme: str) -> None:
    storage = pickle.loads(pickle.dumps(Storage(f"{scheme}{tmp_path}/deep/er")))
    written = storage.write_batches("a/b c.parquet", SCHEMA, iter([batch(b"1", None), batch(b"\xff")]))
    assert written.rows == 3
    assert written.bytes == (tmp_path / "deep/er/a/b c.parquet").stat().st_size
    rows = [row for part in storage.read_batches("a/b c.parquet", rows=2) for row in part.to_pylist()]
    assert [row["v"] for row in rows] == [b"1", None, b"\xff"]
    assert storage.list() == storage.list("a") == ("a/b c.parquet",)
    assert storage.exists("a/b c.parquet")
    storage.delete("a/b c.parquet")
    storage.delete("a/b c.parquet")
    assert storage.list() == ()


def test_a_file_without_rows_keeps_its_schema(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    schema = SCHEMA.with_metadata({b"k": b"v"})
    assert storage.write_batches("x", schema, iter([])).rows == 0
    assert list(storage.read_batches("x")) == []
    assert storage.schema("x").metadata == {b"k": b"v"}


def test_an_error_of_the_rows_is_passed_on_and_leaves_nothing(tmp_path: Path) -> None:
    def rows(error: BaseException) -> Iterator[pa.RecordBatch]:
        yield batch(b"1")
        raise error

    for error in (ConnectionLost("source s1", "x@y:1", "gone"), ConnectionResetError("reset"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            Storage(str(tmp_path)).write_batches("x", SCHEMA, rows(error))
    assert files(tmp_path) == []


def test_an_old_file_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    storage.write_batches("x", SCHEMA, iter([batch(b"old")]))

    def rows() -> Iterator[pa.RecordBatch]:
        yield batch(b"new")
        assert [row["v"] for part in storage.read_batches("x") for row in part.to_pylist()] == [b"old"]
        assert storage.list() == ("x",)

    storage.write_batches("x", SCHEMA, rows())
    assert [row["v"] for part in storage.read_batches("x") for row in part.to_pylist()] == [b"new"]


def test_what_is_wrong_is_told(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    with pytest.raises(StoredFileMissing, match="nothing"):
        list(storage.read_batches("nothing"))
    (tmp_path / "noise").write_bytes(b"noise")
    with pytest.raises(StoredFileDamaged, match="noise"):
        list(storage.read_batches("noise"))
    storage.write_batches("cut", SCHEMA, iter([batch(b"1" * 1000)]))
    (tmp_path / "cut").write_bytes((tmp_path / "cut").read_bytes()[:50])
    with pytest.raises(StoredFileDamaged, match="cut"):
        list(storage.read_batches("cut"))
    with pytest.raises(StorageFailed):
        Storage(f"{tmp_path}/noise").write_batches("x", SCHEMA, iter([]))
    with pytest.raises(StorageFailed):
        Storage("nosuch://place").list()
    assert Storage(str(tmp_path / "not-there")).list() == ()


def test_a_folder_goes_with_unfinished_files(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    storage.write_batches("d/x", SCHEMA, iter([]))
    (tmp_path / "d/.tmp-1-x").touch()
    assert storage.list("d") == ("d/x",)
    storage.delete_folder("d")
    storage.delete_folder("d")
    assert files(tmp_path) == []
