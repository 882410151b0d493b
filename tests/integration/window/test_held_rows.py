"""Held rows: shown with size and age, whatever the source purges, released in order, removed after use."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.binlogs import purge
from tests.livetask import LiveTask, living
from tests.openlocks import open_locks
from unshard.units.task.status import SourceStatus, status
from unshard.units.window import sync
from unshard.units.window.tasks import held_folder
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

ROUNDS = 6


def follow(task: LiveTask) -> None:
    task.pull("s1")
    while task.window("s1").moved:
        pass


def told_of(task: LiveTask) -> SourceStatus:
    (told,) = status(task.work().task)
    return told


def test_held_rows_live_without_the_binlog_and_go_in_order(
    upstream_server: MariaDb, target: MariaDb, unique: str, tmp_path: Path
) -> None:
    columns, numbers = {"g": "id INT PRIMARY KEY, v INT"}, {("s1", "g"): (1, 2)}
    made = {"columns": columns, "numbers": numbers, "window_bytes": 4000}
    with living(unique, tmp_path, (upstream_server, target), "g", **made) as task:
        ahead = f"{unique}.g_1"
        upstream_server.run(f"INSERT INTO {ahead} (id, v) VALUES (1, 0)")
        follow(task)
        assert told_of(task).held_since is None
        for column in "ab":
            upstream_server.run(f"ALTER TABLE {ahead} ADD {column} INT")
            # One row that changes again and again: released in another order it would contradict itself.
            for _ in range(ROUNDS):
                upstream_server.run(
                    f"DELETE FROM {ahead}",
                    f"INSERT INTO {ahead} (id, v) VALUES (1, {ROUNDS})",
                    f"UPDATE {ahead} SET v = v + 1, {column} = v",
                )
                follow(task)
        told = told_of(task)
        stored = [tmp_path / "storage" / "live" / path for path in task.work().storage.list("held")]
        assert (told.rows_held, told.shards, told.shards_held) == (6 * ROUNDS, 2, 1)
        assert told.bytes_held == sum(path.stat().st_size for path in stored)
        assert told.held_since is not None
        assert told.held_since <= datetime.now(UTC)

        upstream_server.run("FLUSH BINARY LOGS")
        follow(task)
        purge(upstream_server)
        task.restart()
        upstream_server.run(f"ALTER TABLE {unique}.g_2 ADD a INT")
        task.run()
        told = told_of(task)
        assert (told.rows_held, told.shards_held) == (3 * ROUNDS, 1), "those behind the second DDL wait"
        upstream_server.run(f"ALTER TABLE {unique}.g_2 ADD b INT")
        task.run()
        task.assert_settled()
        assert task.executed("g")[-1].endswith("ADD b INT")
        assert open_locks(task.work().meta) == ()
        assert told_of(task).bytes_held == 0


def test_rows_of_a_shard_whose_name_no_file_system_takes(
    source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path
) -> None:
    """Letters that are written as six characters there; both shards begin alike."""
    group = "é" * 61
    columns, numbers = {group: "id INT PRIMARY KEY, v INT"}, {("s1", group): (1, 2, 3)}
    with living(unique, tmp_path, (source_1, target), (group,), columns=columns, numbers=numbers) as task:
        for number in (1, 2):
            name = f"{unique}.{group}_{number}"
            source_1.run(f"ALTER TABLE {name} ADD a INT", f"INSERT INTO {name} VALUES ({number}, 0, 1)")
        follow(task)
        assert len(task.work().storage.list("held")) == 2
        source_1.run(f"ALTER TABLE {unique}.{group}_3 ADD a INT")
        task.run()
        task.assert_settled()


def test_a_file_of_a_dead_attempt_is_removed_after_some_windows(
    source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row is held, released or repeated, so only the number of the window is a reason to search for it."""
    monkeypatch.setattr(sync, "SWEPT_WINDOWS", 3)
    columns, numbers = {"g": "id INT PRIMARY KEY"}, {("s1", "g"): (1,)}
    with living(unique, tmp_path, (source_1, target), "g", columns=columns, numbers=numbers) as task:
        folder = tmp_path / "storage" / "live" / held_folder("s1") / "gone" / "1"
        folder.mkdir(parents=True)
        for window in (1, 3, 4):
            (folder / f"w{window}-e1-0.parquet").touch()
        for number in (1, 2, 3):
            assert len(task.work().storage.list("held")) == 3
            source_1.run(f"INSERT INTO {unique}.g_1 VALUES ({number})")
            task.pull("s1")
            assert task.window("s1").window == number
        assert [path.rpartition("/")[2] for path in task.work().storage.list("held")] == ["w4-e1-0.parquet"]
        assert task.assert_union("g") == 3
