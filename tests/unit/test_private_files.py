"""Files that unshard writes, and those that it trusts, are its own (docs/security.md)."""

import os
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from unshard.adapters import spark, tracebacks
from unshard.adapters.parquet import Storage
from unshard.adapters.relay.folder import FolderPlace

SCHEMA = pa.schema([("a", pa.int64())])


@pytest.fixture(params=[0o022, 0o000, 0o077], autouse=True)
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever the process creates by default."""
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(folder: Path) -> set[tuple[bool, str]]:
    """Return whether an entry is a folder, and its mode, for all entries below."""
    return {(path.is_dir(), oct(stat.S_IMODE(path.stat().st_mode))) for path in folder.rglob("*")}


def write(folder: Path) -> None:
    """Write a stored file, and a file of the relay that is finished and one that is not."""
    rows = pa.record_batch({"a": [1]}, SCHEMA)
    Storage(str(folder / "shop")).write_batches("dump/s1/t/1.parquet", SCHEMA, iter([rows]))
    place = FolderPlace(folder / "shop/relay/s1")
    place.prepare()
    for name in ("1.segment", None):
        draft = place.draft()
        draft.write(b"x")
        if name:
            draft.publish(name)
        draft.file.close()


def test_stored_rows_are_for_unshards_user_only(tmp_path: Path) -> None:
    (tmp_path / "storage").mkdir(0o755)
    write(tmp_path / "storage")
    assert modes(tmp_path / "storage") == {(True, "0o700"), (False, "0o600")}
    write(tmp_path / "new/storage")
    assert modes(tmp_path / "new") == {(True, "0o700"), (False, "0o600")}


def test_a_folder_with_the_setgid_bit_is_for_its_group(tmp_path: Path) -> None:
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage").chmod(0o2770)
    write(tmp_path / "storage")
    assert modes(tmp_path / "storage") == {(True, "0o2770"), (False, "0o660")}


@pytest.mark.parametrize("is_link", [False, True])
def test_planted_code_is_not_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_link: bool) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(spark, "_folder", spark._folder.__wrapped__)
    planted = tmp_path / f"unshard-package-{os.getuid()}"
    (tmp_path / "evil" if is_link else planted).mkdir(0o777)
    if is_link:
        planted.symlink_to(tmp_path / "evil")
    with zipfile.ZipFile(planted / f"unshard-{spark.package_hash()}.zip", "w") as archive:
        archive.writestr("unshard/__init__.py", "evil")
    path = spark.package_zip(spark._folder())
    with zipfile.ZipFile(path) as archive:
        assert {info.filename: archive.read(info) for info in archive.infolist()} == dict(spark._modules())
    assert path.name == f"unshard-{spark.package_hash()}.zip"
    assert oct(stat.S_IMODE(path.parent.stat().st_mode)) == "0o700"
    assert planted not in path.parents and not path.parent.is_symlink()


def test_other_temporary_files_are_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tracebacks._write(ValueError("x"))
    spark._folder.__wrapped__()
    assert modes(tmp_path) == {(True, "0o700"), (False, "0o600")}
