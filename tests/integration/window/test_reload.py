"""Column reload: columns of a shard are read again beside running windows; the target is the union afterwards."""

import contextlib
import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dying import Died, mortal
from tests.livetask import LiveTask, living
from tests.openlocks import open_locks
from tests.taskfile import TaskFile, route, task_body, tidied, write_sources
from unshard.adapters import mysql
from unshard.adapters.meta.problemrecords import Reloads
from unshard.adapters.target import chunkprogress as chunks
from unshard.core.ddl.issuedcommands import IssuedCommand
from unshard.core.model import Shard, TableId
from unshard.core.rows.columnreload import Reload
from unshard.errors.base import ServerError, UnshardError
from unshard.operate.command import Force
from unshard.operate.issuing import give
from unshard.units.ddl import coordinate
from unshard.units.validate.validate import validate
from unshard.units.window import reloading
from unshard.units.window.reloading import reload_columns
from unshard.units.window.sync import run_window
from unshard.units.work import Limits
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

COLUMNS = (
    "id INT PRIMARY KEY, v INT, w VARCHAR(40), u INT UNIQUE,"
    " seen TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6)"
)
ORDER = IssuedCommand("reload", "operator", "test", "because")


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LiveTask]:
    numbers = {("s1", "g"): (1, 2), ("s2", "g"): (3,)}
    with living(unique, tmp_path, (source_1, source_2, target), "g", columns={"g": COLUMNS}, numbers=numbers) as task:
        task.limits = Limits(reload_rows=3)
        task.restart()
        yield task


def up(task: LiveTask, number: int, *statements: str) -> None:
    source = "s2" if number == 3 else "s1"
    task.sources[source].run(f"USE {task.name}", *(each.format(t=f"g_{number}") for each in statements))


def shard(task: LiveTask, number: int) -> Shard:
    return Shard("s2" if number == 3 else "s1", TableId(task.name, f"g_{number}"))


def fill(task: LiveTask, count: int = 10) -> None:
    for number in (1, 2, 3):
        rows = (f"({1000 * number + n}, {n}, 'row {n}', {1000 * number + n})" for n in range(count))
        up(task, number, f"INSERT INTO {{t}} (id, v, w, u) VALUES {', '.join(rows)}")


def again(task: LiveTask, number: int, *columns: str) -> Reload:
    return reload_columns(task.work(), shard(task, number), columns, ORDER)


@pytest.mark.on_tidb
def test_a_column_that_each_server_has_filled_by_itself(task: LiveTask) -> None:
    fill(task)
    task.run()
    for number in (1, 2, 3):
        up(task, number, "ALTER TABLE {t} ADD c DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6), ADD d INT DEFAULT 4")
    task.run()
    with pytest.raises(AssertionError):
        task.assert_union("g")
    (found,) = validate(task.work())
    assert len(found.differences) == 20 and "unshard reload TASK --shard SHARD --columns c" in found.reloads[0]
    for number in (1, 2, 3):
        (view,) = coordinate.views(task.work().meta, resolved=True)
        assert f"s{1 + number // 3}/{shard(task, number).table}" in view.warning
        assert "unshard reload TASK --shard SHARD --columns c" in view.warning
        done = again(task, number, "C")
        assert (done.rows_read, done.chunks, done.is_done) == (10, 4, True)
    (view,) = coordinate.views(task.work().meta, resolved=True)
    assert (view.warning, view.to_reload) == ("", ())
    task.assert_settled()
    (found,) = validate(task.work())
    assert found.equal and not found.reloads
    actions = task.work().meta.locks.actions("", None)
    assert [(each.action, each.who, each.reason) for each in actions] == [("reload", "operator", "because")] * 3


def test_defaults_that_differ_after_an_unlock(task: LiveTask) -> None:
    fill(task)
    task.run()
    up(task, 1, "ALTER TABLE {t} ADD c INT DEFAULT 0")
    up(task, 2, "ALTER TABLE {t} ADD c INT DEFAULT 0")
    up(task, 3, "ALTER TABLE {t} ADD c INT DEFAULT -1")
    for source in task.sources:
        task.pull(source)
        task.window(source)
    (view,) = open_locks(task.work().meta)
    give(task.work().meta, Force(view.id), "operator", "test", "because")
    task.run()
    for number in (1, 2, 3):
        again(task, number, "c")
    task.assert_settled()


def write_something(task: LiveTask, chance: random.Random) -> None:
    number = chance.choice((1, 2, 3))
    key = 1000 * number + chance.randrange(16)
    other = 1000 * number + chance.randrange(16)
    up(
        task,
        number,
        chance.choice(
            (
                f"UPDATE {{t}} SET v = {chance.randrange(1000)} WHERE id = {key}",
                f"UPDATE {{t}} SET w = 'changed {chance.random()}', v = v + 1 WHERE id >= {key}",
                f"UPDATE IGNORE {{t}} SET id = {other} WHERE id = {key}",
                f"DELETE FROM {{t}} WHERE id = {key}",
                f"REPLACE INTO {{t}} (id, v, w, u) VALUES ({key}, {chance.randrange(1000)}, 'new', {other})",
                f"INSERT IGNORE INTO {{t}} (id, v, w, u) VALUES ({key}, {chance.randrange(1000)}, 'put', {key})",
            )
        ),
    )


def window(task: LiveTask, chance: random.Random, number: int) -> None:
    """Run a window; in the middle of it write a chunk of a reload or change rows."""

    def beside(step: str) -> None:
        if step in ("begin", "move") and chance.random() < 0.7:
            write_something(task, chance)
            with contextlib.suppress(ServerError):
                reloading._write_chunk(task.work(), shard(task, number), ("v", "w"), 3)

    run_window(task.work(), shard(task, number).source, beside)


@pytest.mark.on_tidb
@pytest.mark.parametrize("seed", range(4))
def test_a_reload_beside_windows_and_writers(task: LiveTask, seed: int) -> None:
    chance = random.Random(seed)
    fill(task)
    task.run()
    task.target.run(f"UPDATE {task.table('g')} SET v = -1, w = 'lost', seen = seen WHERE id % 3 > 0")
    for number in (1, 2, 3):

        def beside(_: Reload, number: int = number) -> None:
            for _ in range(chance.randrange(3)):
                write_something(task, chance)
            if chance.random() < 0.7:
                task.pull(shard(task, number).source)
            if chance.random() < 0.7:
                window(task, chance, number)

        for _ in range(3):
            write_something(task, chance)
        task.pull(shard(task, number).source)
        reload_columns(task.work(), shard(task, number), ("v", "w"), None, beside)
    task.run()
    task.assert_settled()


@pytest.mark.on_tidb
def test_a_reload_that_dies_at_each_step(task: LiveTask, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(task)
    task.run()
    task.target.run(f"UPDATE {task.table('g')} SET v = -1, w = NULL, seen = seen")
    calls = mortal(monkeypatch, chunks, "hold_source", "lock_reload", "hold_structure", "advance_reload")
    calls_2 = mortal(monkeypatch, reloading, "_planned", "_read", "_write_chunk")
    calls_3 = mortal(monkeypatch, Reloads, "begin")
    calls_4 = mortal(monkeypatch, chunks.ColumnUpdate, "run")
    for number in (1, 2, 3):
        while True:
            try:
                done = reload_columns(task.work(), shard(task, number), ("v", "w"))
                break
            except Died:
                task.restart()
        assert (done.rows_read, done.chunks) == (10, 4), "each chunk counts once"
        up(task, number, "UPDATE {t} SET v = v + 1 WHERE id % 2")
    assert all(all(count.values()) for count in (calls, calls_2, calls_3, calls_4))
    monkeypatch.undo()
    task.run()
    task.assert_settled()


def test_rows_that_are_locked_on_the_source(task: LiveTask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reloading, "LOCK_WAIT_SECONDS", 1)
    fill(task)
    task.run()
    meta, plan = task.work().meta, reloading.plan_reload(task.work(), shard(task, 1), ["v"])
    meta.reloads.begin(shard(task, 1), plan.state.target, ["v"], plan.basis, None)
    with contextlib.closing(mysql.connect(task.sources["s1"].server)) as writer:
        mysql.begin(writer)
        mysql.query(writer, f"UPDATE {task.name}.g_1 SET v = 77 WHERE id = 1001")
        with pytest.raises(ServerError) as caught:
            reloading._write_chunk(task.work(), shard(task, 1), ("v",), 3)
        assert caught.value.transient
        mysql.commit(writer)
    again(task, 1, "v")
    task.run()
    task.assert_settled()


def refusal(task: LiveTask, number: int, *columns: str) -> str:
    with pytest.raises(UnshardError) as caught:
        again(task, number, *columns)
    return f"{caught.value}"


def test_what_cannot_be_reloaded(task: LiveTask) -> None:
    fill(task)
    task.run()
    assert "[US-5091] column x of" in refusal(task, 1, "x")
    assert "rows of the target are found by it" in refusal(task, 1, "id")
    assert "unique key u of the target" in refusal(task, 1, "u")
    with pytest.raises(UnshardError, match="US-5090"):
        reloading.shard_named(task.work(), "s1/nobody.t")
    assert reloading.shard_named(task.work(), f"s1/{task.name}.g_1") == shard(task, 1)
    up(task, 1, "ALTER TABLE {t} ADD c INT")
    assert "[US-5094]" in refusal(task, 1, "v")
    task.run()
    assert "[US-5092]" in (told := refusal(task, 1, "v")) and "lock" in told
    up(task, 2, "ALTER TABLE {t} ADD c INT")
    up(task, 3, "ALTER TABLE {t} ADD c INT")
    task.run()
    again(task, 1, "v", "c")
    task.sources["s2"].run("SET GLOBAL binlog_row_image = MINIMAL")
    try:
        assert "[US-5093]" in refusal(task, 3, "v")
    finally:
        task.sources["s2"].run("SET GLOBAL binlog_row_image = FULL")
    task.assert_settled()


def test_a_reload_begins_again_after_a_ddl(task: LiveTask) -> None:
    fill(task)
    task.run()
    meta, plan = task.work().meta, reloading.plan_reload(task.work(), shard(task, 1), ["v"])
    meta.reloads.begin(shard(task, 1), plan.state.target, ["v"], plan.basis, None)
    assert reloading._write_chunk(task.work(), shard(task, 1), ("v",), 3) is not None
    task.target.run(f"UPDATE {task.table('g')} SET v = -1, seen = seen")
    (open_one,) = meta.reloads.newest()
    assert (open_one.state, open_one.rows_read, open_one.reached) == ("reading", 3, (b"1002",))
    for number in (1, 2, 3):
        up(task, number, "ALTER TABLE {t} ADD c INT")
    task.run()
    for number in (1, 2, 3):
        assert again(task, number, "v").rows_read == 10
    task.assert_settled()


@dataclasses.dataclass
class Mapped(TaskFile):
    """A task whose shards get other ids and a column with their name in the target."""

    path: Path


def test_mapped_ids_and_extracted_names_by_the_command(
    source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tidied(source_1, target):
        sources = {"s1": source_1}
        write_sources(tmp_path, sources)
        extracted = {"extract-table": {"table-regexp": "_(.+)$", "target-column": "shard"}}
        routes = {"t": {**route(unique, "t_*", f"{unique}_to", "t"), **extracted}}
        rule = {"schema-pattern": "*", "table-pattern": "t_*", "expression": "partition id", "target-column": "id"}
        mappings = {"map": {**rule, "arguments": ["", "", "t_"]}}
        body = task_body(unique, sources, target, routes, **{"shard-mode": "pessimistic", "column-mappings": mappings})
        body["unshard"] = {"storage-path": str(tmp_path / "storage")}
        task = Mapped(tmp_path / "task.yaml")
        task.write_body(body)
        text = task.path.read_text().replace("- block-allow-list", "- column-mapping-rules: [map]\n  block-allow-list")
        task.path.write_text(text)
        table = f"{unique}_to.t"
        target.run(
            f"CREATE DATABASE {unique}_to",
            f"CREATE TABLE {table} (id BIGINT, v INT, w VARCHAR(9), shard VARCHAR(9), PRIMARY KEY (id, shard))",
        )
        source_1.run(f"CREATE DATABASE {unique}", f"USE {unique}")
        for number in (1, 2):
            source_1.run(
                f"USE {unique}",
                f"CREATE TABLE t_{number} (id BIGINT PRIMARY KEY, v INT, w VARCHAR(9))",
                f"INSERT INTO t_{number} VALUES (1, {number}, 'x'), (2, {number}, 'ü'), (3, NULL, '')",
            )
        task.go()
        query = f"SELECT * FROM {table} ORDER BY id, shard"
        before = target.run(query)
        target.run(f"UPDATE {table} SET v = 9, w = 'lost'")
        assert task.command("reload", "--shard", f"s1/{unique}.t_1", "--columns", "v,w", "--dry-run") == 0
        assert task.command("reload", "--shard", f"s1/{unique}.t_1", "--columns", "v, W", "--yes") == 0
        assert "done, 1 chunks, 3 rows read, 3 changed" in capsys.readouterr().out
        assert target.run(f"SELECT COUNT(*) FROM {table} WHERE w = 'lost'") == [(3,)]
        assert task.command("reload", "--shard", f"s1/{unique}.t_2", "--columns", "v,w", "--yes") == 0
        assert target.run(query) == before
