"""`contract-delay`, `strict-optimistic-shard-mode` and targets that have more than their shards, on real servers."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.joinedtask import FIRST, SECOND, JoinedTask, joined_task, run
from unshard.core.join.states import State
from unshard.core.model import Shard, TableId
from unshard.operate.command import DropShard, LockCommand, Replace, Skip
from unshard.operate.issuing import give
from unshard.units.ddl import coordinate
from unshard.units.ddl.differences import DifferenceView, differences
from unshard.units.ddl.execute import OnTarget
from unshard.units.task.optimistic import follow_rules
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.writes_rows]

COLUMNS = "id INT PRIMARY KEY, a INT"


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[JoinedTask]:
    with joined_task(unique, tmp_path, (source_1, source_2, target), COLUMNS, shards=1) as task:
        run(task, FIRST, "INSERT INTO {} VALUES (1, 1)")
        run(task, SECOND, "INSERT INTO {} VALUES (2, 2)")
        yield task


def change(task: JoinedTask, **keys: object) -> None:
    """Change keys of the task file; `unshard` is a block of it."""
    body = yaml.safe_load(task.path.read_text())
    body["unshard"] |= keys.pop("unshard", {})
    task.path.write_text(yaml.safe_dump(body | {name.replace("_", "-"): value for name, value in keys.items()}))
    task.restart()


def columns(task: JoinedTask) -> list[str]:
    return [row[0] for row in task.target.run(f"SHOW COLUMNS FROM {task.table('t')}")]


def shown(task: JoinedTask) -> tuple[DifferenceView, ...]:
    work = task.work()
    return differences(work.meta, OnTarget(work.target, work.task.meta_schema), follow_rules(work))


def test_the_target_contracts_only_after_the_delay(task: JoinedTask) -> None:
    change(task, unshard={"contract-delay": "1h"})
    task.run()
    assert task.joined("t")[0].group.floor is None, "the target has what its shards have"
    run(task, FIRST, "ALTER TABLE {} ADD COLUMN c INT, DROP COLUMN a", "INSERT INTO {} VALUES (3, 3)")
    task.run()
    run(task, FIRST, "ALTER TABLE {} DROP COLUMN c")
    run(task, SECOND, "ALTER TABLE {} DROP COLUMN a")
    task.run()
    assert columns(task) == ["id", "c", "a"], "c follows id in its shard"
    assert {(each.state, each.when) for each in shown(task)} == {
        (State.CONTRACTING, "when contract-delay is over"),
        (State.REVERSED, "when contract-delay is over"),
    }
    task.target.run(f"UPDATE {task.meta_schema}.join_member SET accepted_at = accepted_at - INTERVAL 61 MINUTE")
    task.run()
    assert columns(task) == ["id"]
    task.assert_equal("t")


def skip(lock: str, shard: Shard, table: str) -> LockCommand:
    return Skip(lock, shard)


def drop(lock: str, shard: Shard, table: str) -> LockCommand:
    return DropShard(lock, shard)


def replaced(lock: str, shard: Shard, table: str) -> LockCommand:
    return Replace(lock, (f"ALTER TABLE {table} ADD COLUMN c INT, ADD COLUMN d INT",), shard)


@pytest.mark.parametrize("way", [skip, drop, replaced, "the others follow", "the mode is given up"])
def test_strict_mode(task: JoinedTask, way: Callable[[str, Shard, str], LockCommand] | str) -> None:
    """A DDL whose text the target cannot take, because another shard has a part of it, waits for an operator."""
    change(task, shard_mode="optimistic", strict_optimistic_shard_mode=True)
    task.run()
    run(task, FIRST, "ALTER TABLE {} ADD COLUMN c INT", "INSERT INTO {} VALUES (3, 3, 3)")
    task.run()
    run(task, SECOND, "ALTER TABLE {} ADD COLUMN c INT, ADD COLUMN d INT", "INSERT INTO {} VALUES (4, 4, 4, 4)")
    task.run()
    assert columns(task) == ["id", "a", "c"]
    (lock,) = coordinate.views(task.work().meta)
    barrier = next(each for each in shown(task) if each.state is State.BARRIER)
    assert "strict-optimistic-shard-mode" in barrier.reason and barrier.held_rows == 1
    if way == "the others follow":
        run(task, FIRST, "ALTER TABLE {} ADD COLUMN d INT")
    elif way == "the mode is given up":
        change(task, strict_optimistic_shard_mode=False)
    elif not isinstance(way, str):
        command = way(lock.id, Shard("s2", TableId(task.name, "t_21")), f"`{task.name}_to`.`t`")
        give(task.work().meta, command, "operator", "test", "because")
    task.run()
    assert coordinate.views(task.work().meta) == ()
    assert not [state for state in task.states() if state.queue or state.held]
    if way is drop:
        assert task.target.run(f"SELECT id FROM {task.table('t')} ORDER BY id") == [(1,), (2,), (3,)]
    elif way is skip:
        assert task.target.run(f"SELECT id FROM {task.table('t')} ORDER BY id") == [(1,), (2,), (3,), (4,)]
    else:
        task.assert_union("t")
        assert columns(task) == ["id", "a", "c", "d"]


def test_a_target_with_more_than_its_shards_never_loses_it(task: JoinedTask) -> None:
    table = task.table("t")
    task.target.run(
        f"ALTER TABLE {table} ADD COLUMN note VARCHAR(20) DEFAULT 'n', MODIFY a BIGINT",
        f"CREATE INDEX by_note ON {table} (note)",
        f"CREATE INDEX by_a ON {table} (a)",
    )
    task.run()
    assert columns(task) == ["id", "a", "note"]
    assert task.joined("t")[0].group.floor is not None
    run(task, FIRST, "ALTER TABLE {} ADD COLUMN c INT, MODIFY a SMALLINT", "INSERT INTO {} VALUES (3, 3, 3)")
    task.run()
    run(task, SECOND, "ALTER TABLE {} ADD COLUMN c INT, MODIFY a SMALLINT", "INSERT INTO {} VALUES (4, 4, 4)")
    task.run()
    for shard in (FIRST, SECOND):
        run(task, shard, "ALTER TABLE {} DROP COLUMN c")
    task.run()
    assert task.target.run(f"SELECT * FROM {table} ORDER BY id") == [(n, n, "n") for n in (1, 2, 3, 4)]
    text = task.target.run(f"SHOW CREATE TABLE {table}")[0][1]
    assert "`a` bigint" in text and "by_note" in text and "by_a" in text
    assert shown(task) == ()
    history = task.work().meta.joins.history(TableId(f"{task.name}_to", "t"))
    assert len(history) == 2, "a settled target keeps only the newest state of each shard"
    for shard in (FIRST, SECOND):
        run(task, shard, "ALTER TABLE {} DROP COLUMN a")
    task.run()
    assert columns(task) == ["id", "note"], "a column that the shards have had is theirs"


@pytest.mark.on_tidb
def test_what_someone_adds_to_a_settled_target_stays(task: JoinedTask) -> None:
    table = task.table("t")
    task.run()
    task.target.run(f"ALTER TABLE {table} MODIFY a BIGINT", f"CREATE INDEX by_a ON {table} (a)")
    for shard in (FIRST, SECOND):
        run(task, shard, "ALTER TABLE {} ADD COLUMN c INT, ADD COLUMN d BIGINT")
        task.run()
    task.target.run(f"CREATE INDEX by_c ON {table} (c)")
    for shard in (FIRST, SECOND):
        run(task, shard, "ALTER TABLE {} MODIFY a SMALLINT, MODIFY d INT")
        task.run()
    text = task.target.run(f"SHOW CREATE TABLE {table}")[0][1]
    assert "`a` bigint" in text and "by_a" in text and "by_c" in text, text
    assert "`d` int" in text, "nobody but the shards has made it wider"
    assert shown(task) == () and task.assert_union("t") == 2


def stuck(task: JoinedTask, order: int) -> tuple[str, Shard]:
    """Let one shard wait for a barrier and the other for its conflict, each with the other's DDL behind it."""
    barrier, conflict = (
        "ALTER TABLE {} DROP PRIMARY KEY, ADD PRIMARY KEY (id, b)",
        "ALTER TABLE {} MODIFY a VARCHAR(20)",
    )
    for shard in (FIRST, SECOND):
        run(task, shard, "ALTER TABLE {} ADD COLUMN b INT NOT NULL DEFAULT 1")
    task.run()
    first, second = (FIRST, SECOND) if order else (SECOND, FIRST)
    for shard, texts in ((first, (barrier, conflict)), (second, (conflict, barrier))):
        run(task, shard, *texts, f"INSERT INTO {{}} VALUES ({shard[1]}, 5, 5)")
        task.run()
    assert task.target.run(f"SELECT id FROM {task.table('t')} ORDER BY id") == [(1,), (2,)]
    assert {each.state for each in shown(task)} >= {State.BARRIER, State.CONFLICT}
    (lock,) = coordinate.views(task.work().meta)
    assert {*lock.ready, *lock.conflicts} == {
        Shard("s1", TableId(task.name, "t_11")),
        Shard("s2", TableId(task.name, "t_21")),
    }
    return lock.id, Shard(second[0], TableId(task.name, f"t_{second[1]}"))


@pytest.mark.mariadb_only("TiDB changes no clustered primary key")
@pytest.mark.parametrize("order", [1, 0], ids=["first the barrier", "first the conflict"])
def test_a_barrier_and_a_conflict_in_different_order(task: JoinedTask, order: int) -> None:
    """The conflict is skipped; when both have run the barrier, the other shard's change of the type is followed."""
    lock, shard = stuck(task, order)
    give(task.work().meta, Skip(lock, shard), "operator", "test", "because")
    task.run()
    assert coordinate.views(task.work().meta) == ()
    assert not [state for state in task.states() if state.queue or state.held]
    assert task.target.run(f"SELECT id FROM {task.table('t')} ORDER BY id") == [(1,), (2,), (11,), (21,)]
    for each in (FIRST, SECOND):
        run(task, each, "ALTER TABLE {} ADD COLUMN c INT")
    task.run()
    task.assert_equal("t")


@pytest.mark.mariadb_only("TiDB changes no clustered primary key")
def test_a_barrier_and_a_conflict_of_a_shard_that_is_dropped(task: JoinedTask) -> None:
    lock, shard = stuck(task, 1)
    give(task.work().meta, DropShard(lock, shard), "operator", "test", "because")
    task.run()
    assert coordinate.views(task.work().meta) == ()
    assert task.target.run(f"SELECT id FROM {task.table('t')} ORDER BY id") == [(1,), (2,), (11,)]
