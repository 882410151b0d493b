"""Columns that must be read again and are in a unique key, in optimistic mode: no difference stays in `reload`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.joinedtask import FIRST, SECOND, JoinedTask, joined_task, run
from unshard.core.ddl.issuedcommands import IssuedCommand
from unshard.core.join.states import State
from unshard.core.model import Shard, TableId
from unshard.errors.locks import ReloadNotDue
from unshard.units.ddl import coordinate
from unshard.units.ddl.differences import DifferenceView, differences
from unshard.units.ddl.execute import OnTarget
from unshard.units.task.optimistic import accept_values, follow_rules
from unshard.units.task.status import status
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.writes_rows]

SLACK = 300
"""A machine may be that slow, in seconds."""
COLUMNS = "id DECIMAL(8,2) PRIMARY KEY, a INT, d DECIMAL(8,2) NOT NULL, UNIQUE KEY u (d)"


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[JoinedTask]:
    with joined_task(unique, tmp_path, (source_1, source_2, target), COLUMNS, shards=1) as task:
        run(task, FIRST, "INSERT INTO {} VALUES (1, 1, 1.25), (2, 2, 2.25), (3, 3, 3.25)")
        run(task, SECOND, "INSERT INTO {} VALUES (11, 1, 11.25), (12, 2, 12.25)")
        task.run()
        yield task


def shown(task: JoinedTask) -> tuple[DifferenceView, ...]:
    work = task.work()
    return differences(work.meta, OnTarget(work.target, work.task.meta_schema), follow_rules(work))


def unique_keys(task: JoinedTask) -> set[str]:
    work, table = task.work(), TableId(f"{task.name}_to", "t")
    return {index.name for index in work.target_schema(table).indexes if index.unique}


def test_a_unique_column_that_was_converted_forth_and_back(task: JoinedTask) -> None:
    """The values of the shard are rounded; the target loses its unique key until it has them, too."""
    run(task, FIRST, "ALTER TABLE {} MODIFY d DECIMAL(8,1) NOT NULL", "UPDATE {} SET d = 9 WHERE id = 3")
    run(task, FIRST, "UPDATE {} SET d = 1.3 + d WHERE id = 2", "INSERT INTO {} VALUES (4, 4, 2.3)")
    task.run()
    assert not any(member.reloads for member in task.joined("t")[0].group.members.values())
    assert unique_keys(task) == {"PRIMARY", "u"}
    run(task, FIRST, "ALTER TABLE {} MODIFY d DECIMAL(8,2) NOT NULL")
    task.run()
    task.assert_equal("t")
    assert shown(task) == ()


def test_a_unique_column_that_was_dropped_and_added_again(task: JoinedTask) -> None:
    run(task, FIRST, "ALTER TABLE {} DROP COLUMN d")
    task.run()
    assert unique_keys(task) == {"PRIMARY"}
    run(task, FIRST, "ALTER TABLE {} ADD COLUMN d DECIMAL(8,2) NOT NULL", "UPDATE {} SET d = id + 0.75")
    run(task, FIRST, "ALTER TABLE {} ADD UNIQUE KEY u (d)")
    task.run()
    task.assert_equal("t")
    assert unique_keys(task) == {"PRIMARY", "u"}


@pytest.mark.mariadb_only("TiDB changes no column of a clustered primary key")
def test_values_of_the_key_are_converted_by_all_together(task: JoinedTask) -> None:
    run(task, FIRST, "UPDATE {} SET id = 1.26 WHERE id = 1", "ALTER TABLE {} MODIFY id DECIMAL(8,1)")
    run(task, FIRST, "UPDATE {} SET a = 7 WHERE id = 1.3")
    task.run()
    (lock,) = coordinate.views(task.work().meta)
    (difference,) = shown(task)
    assert (difference.state, lock.ready) == (State.BARRIER, (Shard("s1", TableId(task.name, "t_11")),))
    assert "converts values of the key that identifies rows" in difference.reason
    run(task, SECOND, "ALTER TABLE {} MODIFY id DECIMAL(8,1)", "INSERT INTO {} VALUES (13.1, 1, 5)")
    task.run()
    task.assert_equal("t")
    assert shown(task) == ()


def test_a_default_of_the_server_s_clock_is_no_value_of_a_shard_without_one(task: JoinedTask) -> None:
    """The target gives all old rows the moment of its own ALTER TABLE; the rows of the second shard have NULL."""
    run(task, FIRST, "ALTER TABLE {} ADD COLUMN at DATETIME DEFAULT CURRENT_TIMESTAMP")
    task.run()
    run(task, SECOND, "ALTER TABLE {} ADD COLUMN at DATETIME")
    run(task, FIRST, "ALTER TABLE {} MODIFY at DATETIME")
    task.run()
    task.assert_equal("t")


def test_a_unique_key_of_the_target_alone(task: JoinedTask) -> None:
    """Its column cannot be read again; the difference says so, and the reload continues when the key is gone."""
    stuck(task)
    task.target.run(f"ALTER TABLE {task.table('t')} DROP KEY own")
    task.run()
    run(task, SECOND, "ALTER TABLE {} MODIFY d DECIMAL(8,1) NOT NULL")
    task.run()
    assert shown(task) == ()
    task.assert_union("t")


def test_values_that_must_be_read_again_are_lag(task: JoinedTask) -> None:
    assert lag(task) == 0
    stuck(task)
    hours = "accepted_at = accepted_at - INTERVAL 2 HOUR WHERE source"
    task.target.run(*(f"UPDATE {task.meta_schema}.join_member SET {hours} = '{source}'" for source in task.sources))
    assert 7200 <= lag(task) < 7200 + SLACK
    run(task, FIRST, "UPDATE {} SET d = d + 100")
    task.run()
    assert lag(task) >= 7200, "rows that have changed since do not replace the reload"
    command = IssuedCommand("accept-values", "operator", "test", "they are right")
    accept_values(task.work(), Shard("s1", TableId(task.name, "t_11")), ["d"], command)
    assert lag(task) == 0
    run(task, FIRST, "ALTER TABLE {} MODIFY d DECIMAL(8,2) NOT NULL", "ALTER TABLE {} MODIFY d DECIMAL(8,1) NOT NULL")
    task.run()
    assert lag(task) > 0
    run(task, FIRST, "ALTER TABLE {} DROP COLUMN d")
    task.run()
    assert lag(task) == 0, "a dropped column is not read again"


def lag(task: JoinedTask) -> int:
    first, second = status(task.work().task)
    assert second.lag_seconds == 0 and first.lag_seconds is not None
    return first.lag_seconds


def test_values_that_an_operator_accepts(task: JoinedTask) -> None:
    stuck(task)
    command = IssuedCommand("accept-values", "operator", "test", "they are right")
    shard = Shard("s1", TableId(task.name, "t_11"))
    with pytest.raises(ReloadNotDue):
        accept_values(task.work(), shard, ["a"], command)
    run(task, FIRST, "UPDATE {} SET d = d + 100")
    task.run()
    accept_values(task.work(), shard, ["d"], command)
    assert [action.action for action in task.work().meta.locks.actions("", None)] == ["accept-values"]
    run(task, SECOND, "ALTER TABLE {} MODIFY d DECIMAL(8,1) NOT NULL")
    task.run()
    assert shown(task) == ()
    task.assert_union("t")


def stuck(task: JoinedTask) -> None:
    """Let a shard convert a column that is in a unique key with a column of the target's own."""
    table = task.table("t")
    task.target.run(f"ALTER TABLE {table} ADD COLUMN mark INT", f"CREATE UNIQUE INDEX own ON {table} (d, mark)")
    run(task, FIRST, "ALTER TABLE {} MODIFY d DECIMAL(8,1) NOT NULL")
    task.run()
    found = next(each for each in shown(task) if each.reason)
    assert "[US-5091]" in found.reason and "unique key own of the target" in found.reason
    assert any(each.needs_operator and "--accept" in each.when for each in shown(task)), shown(task)


def test_a_fill_that_the_later_type_does_not_hold(task: JoinedTask) -> None:
    """The shard that has the column makes its type narrower; rows of the other one get the fill, as the target can."""
    run(task, FIRST, "ALTER TABLE {} ADD COLUMN c DECIMAL(8,2) DEFAULT 1.25")
    task.run()
    run(task, FIRST, "ALTER TABLE {} MODIFY c INT DEFAULT 1")
    run(task, SECOND, "UPDATE {} SET a = 9", "INSERT INTO {} VALUES (13, 3, 13)")
    task.run()
    assert task.stopped() == {}
    run(task, SECOND, "ALTER TABLE {} ADD COLUMN c INT DEFAULT 1")
    task.run()
    task.assert_equal("t")
