"""Meta schema, target schema or storage path is lost or older than the others: nothing is written, with one code.

Each disaster is undone by the backup that belongs to the others, and each test ends with the union of the shards. The
tables have no key, so rows that are written twice stay twice.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests import livetask
from tests.copytask import copying
from tests.cutting import bound_transactions
from tests.dying import Died, dying_after
from tests.integration.task.backups import META, PLACES, STORAGE, TARGET, Backups
from tests.lifetask import LifeTask, living
from tests.livetask import LiveTask
from tests.taskfile import route
from unshard.adapters import mysql
from unshard.adapters.target import fence, fencesteps
from unshard.adapters.target.fence import differing_writes
from unshard.core.sql.lastwrites import NAME
from unshard.errors.meta import BackupOlder
from unshard.units.relay.tasksource import pull_source
from unshard.units.task.run import Until, run
from unshard.units.window.sync import run_window
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration
LABELS = ("old", "now")
OLDER = {META: "the meta schema", TARGET: "the target schema", STORAGE: "the storage path"}
BAG = "id int, v varchar(20)"
slow_to_copy = pytest.mark.mariadb_only("TiDB takes a minute to copy the schemas of one test")


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LifeTask]:
    """A task of two sources with a shard each, without keys."""
    with living(unique, tmp_path, {"s1": source_1, "s2": source_2}, target) as made:
        for number, source in enumerate(made.sources, 1):
            shard = f"{unique}.t_{number}"
            made.sources[source].run(f"CREATE TABLE {shard} ({BAG})")
            made.shards[source] = [shard]
            made.insert(source, shard, number, number)
        yield made
        backups_of(made).drop(LABELS)


def backups_of(task: LifeTask | LiveTask) -> Backups:
    return Backups(task.target, task.name, task.meta_schema, task.folder / "storage")


def insert(task: LifeTask, *rows: int) -> None:
    for source, (shard,) in task.shards.items():
        task.insert(source, shard, *rows)


def load(task: LifeTask) -> None:
    """Run the full load and no window."""
    with task.work() as work:
        assert not run(work, Until.FULL).errors


def rows_of(task: LifeTask) -> list[tuple[object, ...]]:
    return sorted(task.target.run(f"SELECT * FROM {task.name}_to.t"))


def assert_refused(task: LifeTask, place: str) -> None:
    """Assert that the task refuses to run because of this place, and that the check says so."""
    with pytest.raises(BackupOlder) as refused:
        task.run()
    assert refused.value.older.startswith(OLDER[place]), refused.value
    assert OLDER[place] in task.checked()["US-7020"]


def assert_all_refused(task: LifeTask, *places: str) -> None:
    """Lose each place and restore it from the backup `old`: each is refused; afterwards nothing has changed."""
    backups, before = backups_of(task), rows_of(task)
    backups.save("now")
    for place in places:
        for disaster in (backups.lose, lambda each: backups.restore("old", each)):
            disaster(place)
            assert_refused(task, place)
            if place != TARGET:
                assert rows_of(task) == before
            backups.restore("now", place)


def differing(task: LifeTask | LiveTask, name: str) -> list[str]:
    with contextlib.closing(mysql.connect(task.target.server)) as connection:
        return [str(each.error) for each in differing_writes(connection, task.meta_schema, name)]


# --- the three places, lost or older


@slow_to_copy
@pytest.mark.on_mysql
def test_before_windows(task: LifeTask) -> None:
    backups = backups_of(task)
    task.body["task-mode"] = "dump"
    task.write()
    task.go()
    backups.save("old")
    task.body["task-mode"] = "all"
    task.write()
    backups.lose(STORAGE)
    assert_refused(task, STORAGE)  # the dumped rows are not loaded yet
    backups.restore("old", STORAGE)
    load(task)
    assert_all_refused(task, META, TARGET)
    insert(task, 11)
    backups.lose(STORAGE)  # nothing of it is needed any more
    task.go()
    assert task.assert_union() == 6


@slow_to_copy
@pytest.mark.on_mysql
def test_after_windows(task: LifeTask) -> None:
    load(task)
    backups_of(task).save("old")
    for row in (11, 12):
        insert(task, row)
        task.go()
    assert_all_refused(task, META, TARGET)
    for disaster in (backups_of(task).lose, lambda place: backups_of(task).restore("old", place)):
        disaster(STORAGE)  # the relay is pulled again
        insert(task, 13)
        task.go()
    assert task.assert_union() == 12


@pytest.mark.on_mysql
def test_with_held_rows(task: LifeTask) -> None:
    load(task)
    backups_of(task).save("old")
    ((first,), (second,)) = task.shards.values()
    task.sources["s1"].run(f"ALTER TABLE {first} ADD c INT DEFAULT 7", f"INSERT INTO {first} (id) VALUES (11), (11)")
    task.sources["s2"].run(f"INSERT INTO {second} (id) VALUES (12)")
    assert len(task.go().locks) == 1
    assert_all_refused(task, *PLACES)
    task.sources["s2"].run(f"ALTER TABLE {second} ADD c INT DEFAULT 7", f"INSERT INTO {second} (id) VALUES (13)")
    assert not task.go().locks
    assert task.assert_union() == 8


@slow_to_copy
def test_a_window_that_only_holds_rows_may_run_again(task: LifeTask) -> None:
    """The target has nothing of it, so an older meta schema only forgets it."""
    task.go()
    backups_of(task).save("old", META)
    ((first,), (second,)) = task.shards.values()
    task.sources["s1"].run(f"ALTER TABLE {first} ADD c INT", f"INSERT INTO {first} (id) VALUES (11), (11)")
    task.go()
    backups_of(task).restore("old", META)
    assert len(task.go().locks) == 1
    task.sources["s2"].run(f"ALTER TABLE {second} ADD c INT")
    assert not task.go().locks
    assert task.assert_union() == 6


@slow_to_copy
@pytest.mark.on_mysql
def test_a_ddl_without_rows_counts(task: LifeTask) -> None:
    load(task)
    backups_of(task).save("old")
    for source, (shard,) in task.shards.items():
        task.sources[source].run(f"ALTER TABLE {shard} ADD c INT DEFAULT 7")
    assert not task.go().locks
    assert_all_refused(task, META, TARGET)
    for source, (shard,) in task.shards.items():
        task.sources[source].run(f"INSERT INTO {shard} (id) VALUES (11)")
    task.go()
    assert task.assert_union() == 6


@slow_to_copy
@pytest.mark.on_mysql
def test_a_window_compares_before_it_writes(task: LifeTask) -> None:
    task.go()
    backups = backups_of(task)
    backups.save("old")
    insert(task, 11)
    task.go()
    backups.save("now")
    insert(task, 12)
    for place in (META, TARGET):
        backups.restore("old", place)
        before = rows_of(task)
        with task.work() as work:
            pull_source(work, "s1")
            with pytest.raises(BackupOlder, match=OLDER[place]):
                run_window(work, "s1")
        assert rows_of(task) == before
        backups.restore("now", place)
    task.go()
    assert task.assert_union() == 8


# --- recovery


@slow_to_copy
def test_meta_schema_and_target_of_one_backup_go_on(task: LifeTask) -> None:
    load(task)
    insert(task, 11)
    task.go()
    backups_of(task).save("old")
    for row in (12, 13):
        insert(task, row)
        task.go()
    backups_of(task).restore("old", META, TARGET)
    task.go()
    assert task.assert_union() == 10


@slow_to_copy
@pytest.mark.on_mysql
def test_held_rows_need_the_storage_path_of_the_same_backup(task: LifeTask) -> None:
    load(task)
    ((first,), (second,)) = task.shards.values()
    task.sources["s1"].run(f"ALTER TABLE {first} ADD c INT", f"INSERT INTO {first} (id) VALUES (11)")
    assert task.go().locks
    backups_of(task).save("old")
    task.sources["s2"].run(f"ALTER TABLE {second} ADD c INT")
    assert not task.go().locks
    backups_of(task).restore("old", META, TARGET)
    assert_refused(task, STORAGE)
    backups_of(task).restore("old", STORAGE)
    task.go()
    assert task.assert_union() == 5


@pytest.mark.on_mysql
def test_after_the_loss_of_the_meta_schema_the_task_starts_again(
    task: LifeTask,
) -> None:
    task.go()
    backups_of(task).lose(META)
    assert_refused(task, META)
    assert task.command("stop", "--remove-meta", "--yes") == 0
    assert task.target.run(f"SELECT * FROM {task.name}_to.{NAME}") == []
    task.target.run(f"TRUNCATE TABLE {task.name}_to.t")
    task.go()
    assert task.assert_union() == 4


@slow_to_copy
@pytest.mark.on_mysql
def test_tasks_that_share_a_target_schema(task: LifeTask, source_1: MariaDb, target: MariaDb, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with living(f"{task.name}o", tmp_path / "other", {"s1": source_1}, target) as other:
        other.body |= {"name": "other", "meta-schema": task.meta_schema}
        other.body["routes"] = {"all": route(other.name, "t_*", f"{task.name}_to", "u")}
        other.body["block-allow-list"] = {"ours": {"do-dbs": [other.name]}}
        task.body["block-allow-list"] = {"ours": {"do-dbs": [task.name]}}
        for each in (task, other):
            each.write()
        other.make_shard("s1", 1, 1)
        for each in (task, other):
            each.go()
        assert task.command("stop", "--remove-meta", "--yes") == 0
        assert {name for (name,) in target.run(f"SELECT task FROM {task.name}_to.{NAME}")} == {"other"}
        other.insert("s1", other.shards["s1"][0], 2)
        other.go()
        task.target.run(f"TRUNCATE TABLE {task.name}_to.t")
        task.go()
        assert task.assert_union() == 4
        assert target.run(f"SELECT id FROM {task.name}_to.u ORDER BY id") == [(1,), (2,)]


# --- no false alarm


def deaths(patch: pytest.MonkeyPatch, port: int, act: Callable[[], object], after: Callable[[], object]) -> int:
    """Die before or after the n-th statement to the target about last writes, or COMMIT; return the number of times."""
    for number in count(1):
        with patch.context() as armed:
            armed.setattr(pymysql.connections.Connection, "_execute_command", _dying(port, number))
            try:
                act()
            except Died:
                pass
            else:
                return number - 1
        after()
    raise AssertionError("count has no end")


def _dying(port: int, number: int) -> Callable[..., None]:
    """Return the sending of a command; it dies before or after the one with this number, in turns."""
    send, left = pymysql.connections.Connection._execute_command, [number]

    def dying(self: Any, command: int, sql: Any) -> None:
        text = sql.encode() if isinstance(sql, str) else bytes(sql)
        is_counted = self.port == port and (NAME.encode() in text or text.strip().upper() == b"COMMIT")
        left[0] -= is_counted
        dies = is_counted and left[0] == 0
        if dies and number % 2:
            raise Died
        send(self, command, sql)
        if dies:
            raise Died

    return dying


@pytest.mark.on_tidb
@pytest.mark.on_mysql
def test_a_death_at_any_statement_of_a_window(
    monkeypatch: pytest.MonkeyPatch, source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path
) -> None:
    columns = {"bag": BAG, "keyed": f"{BAG}, PRIMARY KEY (id)"}
    numbers = {("s1", group): (1,) for group in columns}
    with livetask.living(unique, tmp_path, (source_1, target), [*columns], columns=columns, numbers=numbers) as task:

        def window() -> None:
            task.window("s1")

        def restarted() -> None:
            task.restart()
            assert differing(task, "live") == []

        def finished() -> None:
            restarted()
            window()
            change()

        def change() -> None:
            for group in columns:
                source_1.run(
                    f"INSERT INTO {unique}.{group}_1 SELECT COALESCE(MAX(id), 0) + 1, 'a' FROM {unique}.{group}_1",
                    f"UPDATE {unique}.{group}_1 SET v = CONCAT(v, 'x') WHERE id > 1",
                )
            task.pull("s1")

        change()
        first = deaths(monkeypatch, target.port, window, restarted)  # it creates the copies
        change()
        assert min(first, deaths(monkeypatch, target.port, window, finished)) > 7
        source_1.run(f"ALTER TABLE {unique}.bag_1 ADD c INT DEFAULT 5", f"INSERT INTO {unique}.bag_1 (id) VALUES (3)")
        assert deaths(monkeypatch, target.port, task.run, restarted) > 7
        task.run()
        task.assert_settled()


@pytest.mark.on_mysql
def test_a_death_at_any_statement_of_a_load(monkeypatch: pytest.MonkeyPatch, task: LifeTask) -> None:
    for number in range(3, 7):
        shard = f"{task.name}.t_{number}"
        task.sources["s1"].run(f"CREATE TABLE {shard} ({BAG})")
        task.shards["s1"].append(shard)
        task.insert("s1", shard, number)

    def after() -> None:
        assert differing(task, "life") == []

    assert deaths(monkeypatch, task.target.port, lambda: load(task), after) > 3
    task.go()
    assert task.assert_union() == 8


@pytest.mark.on_mysql
def test_a_death_while_a_schema_is_dropped(
    monkeypatch: pytest.MonkeyPatch, source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path
) -> None:
    with copying(unique, tmp_path, {"s1": source_1}, target) as copy:
        copy.up("CREATE TABLE t (id INT)", "INSERT INTO t VALUES (1), (1)")
        copy.go()
        copy.up(f"DROP DATABASE {unique}")
        with monkeypatch.context() as patch:
            patch.setattr(fence, "_forgotten", _dying_behind(fence._forgotten))
            with pytest.raises(Died):
                copy.run()
        for _ in range(2):
            with contextlib.closing(mysql.connect(target.server)) as connection:
                assert differing_writes(connection, f"{unique}_meta", "merge") == []
            copy.go()
        assert unique not in [name for (name,) in target.run("SHOW DATABASES")]
        source_1.run(
            f"CREATE DATABASE {unique}", f"CREATE TABLE {unique}.t (id INT)", f"INSERT INTO {unique}.t VALUES (2)"
        )
        copy.go()
        copy.assert_same("t")
        copy.go()


def _dying_behind(step: Callable[..., Any]) -> Callable[..., None]:
    def dying(*given: Any) -> None:
        assert step(*given)
        raise Died

    return dying


def test_sources_that_write_at_the_same_time(
    source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path
) -> None:
    servers, numbers = (source_1, source_2, target), {("s1", "t"): (1,), ("s2", "t"): (2,)}
    made: dict[str, Any] = {"columns": {"t": BAG}, "numbers": numbers, "window_bytes": 1}
    with livetask.living(unique, tmp_path, servers, ("t",), **made) as task:
        for number, server in enumerate((source_1, source_2), 1):
            server.run("DO 1", *(f"INSERT INTO {unique}.t_{number} VALUES ({row}, '{'x' * 20}')" for row in range(300)))
        task.pull("s1")
        task.pull("s2")
        is_over = threading.Event()

        def look() -> list[str]:
            found: list[str] = []
            while not is_over.is_set():
                found += differing(task, "live")
            return found

        def windows(source: str) -> None:
            while task.window(source).moved:
                pass

        with ThreadPoolExecutor(3) as pool:
            looking = pool.submit(look)
            running = [pool.submit(windows, source) for source in ("s1", "s2")]
            for each in running:
                each.result()
            is_over.set()
            assert looking.result() == []
        task.assert_settled()


@pytest.mark.on_mysql
def test_a_part_of_a_large_window_counts(
    monkeypatch: pytest.MonkeyPatch, source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path
) -> None:
    """Its fence is the same before and after; what differs is how many of its steps are done."""
    bound_transactions(monkeypatch, fencesteps.Bounds(20, 1 << 20, 1))
    made: dict[str, Any] = {"columns": {"t": f"{BAG}, PRIMARY KEY (id)"}, "numbers": {("s1", "t"): (1,)}}
    with livetask.living(unique, tmp_path, (source_1, target), ("t",), **made) as task:
        backups = backups_of(task)
        source_1.run(f"INSERT INTO {unique}.t_1 SELECT seq, 'x' FROM {unique}.seq_1_to_150")
        task.pull("s1")
        for label in ("old", "now"):
            with monkeypatch.context() as patch:
                patch.setattr(fencesteps, "mark", dying_after(2, fencesteps.mark))
                with pytest.raises(Died):
                    task.window("s1")
            task.restart()
            backups.save(label, META, TARGET)
        try:
            for place in (META, TARGET):
                backups.restore("old", place)
                assert len(differing(task, "live")) == 1
                with pytest.raises(BackupOlder):
                    task.window("s1")
                task.restart()
                backups.restore("now", META, TARGET)
            task.run()
            task.assert_settled()
        finally:
            backups.drop(LABELS)
