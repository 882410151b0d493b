"""Rows by identity on real servers: shards that lack, dropped, renamed, widened or narrowed columns."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.joinedtask import JoinedTask, joined_task
from unshard.core.join.changekind import ChangeKind
from unshard.core.join.joined import JoinStatement
from unshard.core.model import Shard, TableId
from unshard.errors.ddl import TargetChanged
from unshard.errors.locks import JoinChanging
from unshard.units.rows.joinedrows import joined_rows
from unshard.units.validate.validate import validate
from unshard.units.window import sync
from unshard.units.window.reloading import reload_columns
from unshard.units.window.sync import run_job
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration
ONE, TWO, THREE, FOUR = ("s1", 11), ("s1", 12), ("s2", 21), ("s2", 22)
ALL = (ONE, TWO, THREE, FOUR)
SWAPS = pytest.mark.mariadb_only("TiDB refuses a statement that swaps two names")


class Rollout:
    """Four shards of `t` on two sources."""

    def __init__(self, task: JoinedTask) -> None:
        self.task, self.last = task, 0

    def name(self, shard: tuple[str, int]) -> str:
        return f"{self.task.name}.t_{shard[1]}"

    def on(self, shard: tuple[str, int], *statements: str) -> None:
        """Run statements on a shard; {t} is its name, {n} the next free key."""
        for text in statements:
            self.last += 1
            self.task.sources[shard[0]].run(text.format(t=self.name(shard), n=self.last))

    def rows(self) -> None:
        """Insert a row into each shard, and change and delete others, by the columns that it has."""
        for shard in ALL:
            self.on(shard, "INSERT INTO {t} (id, a, b) VALUES ({n}, 5, 'x')", "INSERT INTO {t} (id, a) VALUES ({n}, 6)")
            self.on(shard, "UPDATE {t} SET a = a + 1 WHERE id % 2", "DELETE FROM {t} WHERE id = {n} - 5")

    def run(self) -> None:
        self.task.run()
        self.task.assert_union("t")


BODY = "id INT PRIMARY KEY, a INT, b VARCHAR(20)"


@pytest.fixture
def rollout(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[Rollout]:
    with joined_task(unique, tmp_path, (source_1, source_2, target), BODY) as task:
        yield Rollout(task)


def test_a_canary_adds_a_column_writes_and_the_others_follow(rollout: Rollout):
    rollout.rows()
    rollout.run()
    rollout.on(ONE, "ALTER TABLE {t} ADD c INT NOT NULL DEFAULT 7", "INSERT INTO {t} (id, a, c) VALUES ({n}, 1, 8)")
    rollout.rows()
    rollout.run()
    assert {c for (c,) in rollout.task.target.run(f"SELECT c FROM {rollout.task.table('t')}")} == {7, 8}
    for shard in ALL[1:]:
        rollout.on(
            shard, "ALTER TABLE {t} ADD c INT NOT NULL DEFAULT 7", "INSERT INTO {t} (id, a, c) VALUES ({n}, 1, 9)"
        )
        rollout.rows()
        rollout.run()
    rollout.task.assert_equal("t")


def test_a_canary_goes_back_and_no_trace_is_left(rollout: Rollout):
    before = rollout.task.target.run(f"SHOW CREATE TABLE {rollout.task.table('t')}")
    rollout.on(ONE, "ALTER TABLE {t} ADD c INT", "INSERT INTO {t} (id, c) VALUES ({n}, 1)")
    rollout.rows()
    rollout.run()
    rollout.on(ONE, "ALTER TABLE {t} DROP c")
    rollout.rows()
    rollout.run()
    rollout.task.assert_equal("t")
    assert rollout.task.target.run(f"SHOW CREATE TABLE {rollout.task.table('t')}") == before


def test_a_column_is_dropped_shard_by_shard(rollout: Rollout):
    rollout.rows()
    for shard in ALL:
        rollout.on(shard, "ALTER TABLE {t} DROP b", "INSERT INTO {t} (id, a) VALUES ({n}, 1)", "UPDATE {t} SET a = 3")
        rollout.run()
    rollout.task.assert_equal("t")
    assert len(rollout.task.target.run(f"DESC {rollout.task.table('t')}")) == 2


def test_a_column_is_renamed_and_widened_shard_by_shard(rollout: Rollout):
    rollout.rows()
    for shard in reversed(ALL):
        rollout.on(shard, "ALTER TABLE {t} CHANGE a c BIGINT", "INSERT INTO {t} (id, c) VALUES ({n}, 1 << 40)")
        rollout.on(shard, "UPDATE {t} SET c = c + 1", "DELETE FROM {t} WHERE id = 3")
        rollout.run()
    rollout.task.assert_equal("t")


@SWAPS
def test_two_names_are_swapped_shard_by_shard(rollout: Rollout):
    for shard in ALL:
        rollout.on(shard, "ALTER TABLE {t} ADD c INT")
    rollout.run()
    for shard in ALL:
        rollout.on(shard, "INSERT INTO {t} VALUES ({n}, 1, 'x', 2)", "INSERT INTO {t} VALUES ({n}, 1, 'x', 3)")
        rollout.on(shard, "ALTER TABLE {t} RENAME COLUMN a TO c, RENAME COLUMN c TO a")
        rollout.on(shard, "INSERT INTO {t} VALUES ({n}, 1, 'y', 2)", "UPDATE {t} SET a = 9 WHERE c = 2")
        rollout.run()
    rollout.task.assert_equal("t")


@SWAPS
def test_a_change_of_the_target_between_the_read_and_the_write_is_noticed(
    rollout: Rollout, monkeypatch: pytest.MonkeyPatch
):
    """The names are swapped on the target while a window has converted its rows for the names before."""
    for shard in ALL:
        rollout.on(shard, "ALTER TABLE {t} ADD c INT")
    rollout.run()
    rollout.on(ONE, "ALTER TABLE {t} RENAME COLUMN a TO c, RENAME COLUMN c TO a")
    rollout.on(TWO, "INSERT INTO {t} VALUES ({n}, 1, 'x', 2)")
    rollout.on(THREE, "INSERT INTO {t} VALUES ({n}, 3, 'x', 4)")
    rollout.task.pull("s1")
    rollout.task.pull("s2")
    rollout.task.window("s1")
    runs = []

    def run_after_a_change(*args: object) -> object:
        runs.append(None)
        if len(runs) == 1:
            assert rollout.task.coordinate()
        return run_job(*args)

    monkeypatch.setattr(sync, "run_job", run_after_a_change)
    rollout.task.window("s2")
    assert len(runs) == 2
    rollout.task.assert_union("t")


def test_a_window_waits_while_statements_are_executed(rollout: Rollout):
    """A process has died in a change: the columns of the target are unknown until the change is ended."""
    rollout.run()
    joined, _ = rollout.task.joined("t")
    joins, target = rollout.task.work().meta.joins, TableId(f"{rollout.task.name}_to", "t")
    change = joins.intend(joined, joined.group, ChangeKind.EXPAND, "a test", (JoinStatement("ALTER", "", "", ()),))
    with pytest.raises(JoinChanging):
        joined_rows(rollout.task.work(), {target}, set())
    rollout.on(ONE, "INSERT INTO {t} VALUES ({n}, 1, 'x')")
    with pytest.raises(TargetChanged):  # the statement of this test is neither before nor after the target
        rollout.run()
    assert change is not None
    joins.give_up(target, change)
    rollout.run()


def test_two_shards_widen_in_different_order(rollout: Rollout):
    rollout.on(ONE, "ALTER TABLE {t} MODIFY a BIGINT", "INSERT INTO {t} VALUES ({n}, 1 << 40, 'x')")
    rollout.on(THREE, "ALTER TABLE {t} MODIFY b VARCHAR(30)", "INSERT INTO {t} VALUES ({n}, 1, repeat('y', 30))")
    rollout.run()
    rollout.on(ONE, "ALTER TABLE {t} MODIFY b VARCHAR(30)")
    rollout.on(THREE, "ALTER TABLE {t} MODIFY a BIGINT")
    for shard in (TWO, FOUR):
        rollout.on(
            shard, "ALTER TABLE {t} MODIFY a BIGINT, MODIFY b VARCHAR(30)", "INSERT INTO {t} VALUES ({n}, 1, 'z')"
        )
    rollout.run()
    rollout.task.assert_equal("t")


@SWAPS
def test_held_rows_keep_the_ids_that_they_were_written_with(rollout: Rollout):
    """Rows before and after a swap of names wait for two DDLs, which are accepted before the first row is released."""
    swap = "ALTER TABLE {t} RENAME COLUMN a TO c, RENAME COLUMN c TO a"
    rollout.on(ONE, "ALTER TABLE {t} ADD c INT", "INSERT INTO {t} VALUES ({n}, 1, 'x', 2)")
    rollout.on(ONE, swap, "INSERT INTO {t} VALUES ({n}, 2, 'x', 1)")
    rollout.on(ONE, "ALTER TABLE {t} DROP b", "INSERT INTO {t} VALUES ({n}, 2, 1)", "UPDATE {t} SET a = 3 WHERE a = 2")
    rollout.task.pull("s1")
    assert rollout.task.window("s1").rows_held == 4
    while rollout.task.coordinate():
        pass
    assert len(rollout.task.work().meta.joins.history(TableId(f"{rollout.task.name}_to", "t"))) == 4 + 3
    rollout.run()


def test_columns_are_followed_where_only_changed_values_are_logged(rollout: Rollout):
    """With binlog_row_image=MINIMAL an UPDATE of a shard that lacks a column leaves the column as it is."""
    rollout.on(ONE, "ALTER TABLE {t} ADD c INT NOT NULL DEFAULT 7", "ALTER TABLE {t} RENAME COLUMN a TO d")
    for shard in ALL:
        names = "id, d, b" if shard == ONE else "id, a, b"
        rollout.on(shard, f"INSERT INTO {{t}} ({names}) VALUES ({{n}}, 1, 'x')")
    rollout.run()
    for shard in ALL:
        name = "d" if shard == ONE else "a"
        minimal = "SET STATEMENT binlog_row_image = MINIMAL FOR"
        rollout.on(shard, f"{minimal} UPDATE {{t}} SET {name} = 5", f"{minimal} UPDATE {{t}} SET b = 'y'")
    rollout.run()


@SWAPS
def test_validate_compares_by_identity(rollout: Rollout):
    """Shards that lack columns are compared with the fill, renamed ones under the target's name."""
    for shard in ALL:
        rollout.on(shard, "INSERT INTO {t} VALUES ({n}, 1, 'x')", "INSERT INTO {t} VALUES ({n}, 2, 'y')")
    rollout.on(
        ONE,
        "ALTER TABLE {t} ADD c DECIMAL(5,2) NOT NULL, ADD d VARCHAR(9) DEFAULT 'it''s',"
        " ADD e DATETIME(3) DEFAULT '2020-01-02', ADD f DATE,"
        " ADD g BINARY(3) NOT NULL, ADD h ENUM('p', 'q') NOT NULL, ADD i TIME DEFAULT '01:00:00'",
        "ALTER TABLE {t} RENAME COLUMN a TO b, RENAME COLUMN b TO a",
        "INSERT INTO {t} (id, a, b, c, g, h) VALUES ({n}, 'z', 3, 4.25, 'abc', 'q')",
    )
    rollout.on(THREE, "INSERT INTO {t} VALUES ({n}, 4, 'z')", "UPDATE {t} SET a = 9 WHERE a = 2")
    rollout.run()
    (found,) = validate(rollout.task.work())
    assert (found.error, found.differences, found.left_out) == (None, (), ())
    assert set(found.compared) == set("abcdefghi") | {"id"}
    rollout.task.target.run(f"UPDATE {rollout.task.table('t')} SET c = 1 WHERE b = 9")
    (found,) = validate(rollout.task.work())
    assert found.differing_chunks == 1 and len(found.differences) == 1
    rollout.on(TWO, "ALTER TABLE {t} DROP b")
    rollout.run()
    (found,) = validate(rollout.task.work())
    assert [each.column for each in found.left_out] == ["a"]


@SWAPS
def test_a_column_of_a_shard_is_read_again_into_the_column_of_its_id(rollout: Rollout):
    for shard in ALL:
        rollout.on(shard, "INSERT INTO {t} VALUES ({n}, {n}, 'x')", "INSERT INTO {t} VALUES ({n}, {n}, 'y')")
    swap = "ALTER TABLE {t} RENAME COLUMN a TO b, RENAME COLUMN b TO a"
    rollout.on(ONE, swap, "INSERT INTO {t} (id, a, b) VALUES ({n}, 'z', 3)")
    rollout.run()
    there = rollout.task.table("t")
    rollout.task.target.run(f"UPDATE {there} SET a = 'lost', b = -1")
    for shard in ALL:
        for column in ("a", "b"):
            reload_columns(rollout.task.work(), Shard(shard[0], TableId(rollout.task.name, f"t_{shard[1]}")), [column])
    rollout.task.assert_union("t")


@pytest.mark.mariadb_only("TiDB adds no STORED column to a table")
def test_a_column_that_is_generated_in_some_shards_and_plain_in_others_has_the_values_of_the_rows(rollout: Rollout):
    generated = "ALTER TABLE {t} ADD c INT AS (a * 2) STORED"
    for shard in ALL:
        rollout.on(shard, "INSERT INTO {t} (id, a) VALUES ({n}, 1)", generated)
    rollout.run()
    rollout.task.assert_equal("t")
    rollout.on(ONE, "ALTER TABLE {t} MODIFY c INT", "INSERT INTO {t} (id, a, c) VALUES ({n}, 3, 77)")
    for shard in ALL[1:]:
        rollout.on(shard, "INSERT INTO {t} (id, a) VALUES ({n}, 4)", "UPDATE {t} SET a = 5 WHERE a = 1")
    rollout.run()
    for shard in ALL[1:]:
        rollout.on(shard, "ALTER TABLE {t} MODIFY c INT", "INSERT INTO {t} (id, a, c) VALUES ({n}, 3, 78)")
    rollout.run()
    rollout.task.assert_equal("t")


WIDER = {
    "a": ("TINYINT", "SMALLINT UNSIGNED", "-5", "40000"),
    "b": ("DECIMAL(5,2)", "DECIMAL(6,4)", "123.45", "12.3456"),
    "c": ("CHAR(3)", "VARCHAR(10)", "'x'", "'x y'"),
    "d": ("BINARY(3)", "BINARY(5)", "x'0100'", "x'00ff000000'"),
    "e": ("DATETIME", "DATETIME(6)", "'2020-01-02 03:04:05'", "'2020-01-02 03:04:05.000006'"),
    "f": ("ENUM('p','q')", "ENUM('r','q','p')", "'q'", "'r'"),
    "g": ("SET('p','q')", "SET('q','p','r')", "'p,q'", "'r,q'"),
    "h": ("VARCHAR(9) CHARACTER SET latin1", "VARCHAR(9) CHARACTER SET utf8mb4", "'äß'", "'äж€'"),
    "i": ("TINYTEXT CHARACTER SET latin1", "MEDIUMTEXT CHARACTER SET utf8mb4", "'ä'", "repeat('ж', 300)"),
    "j": ("VARBINARY(4)", "BLOB", "x'01'", "repeat('y', 300)"),
    "k": ("TIMESTAMP NULL", "TIMESTAMP(3) NULL", "'2020-01-02 03:04:05'", "'2020-01-02 03:04:05.006'"),
    "l": ("TIME", "TIME(2)", "'-01:02:03'", "'01:02:03.04'"),
    "m": ("INT UNSIGNED", "BIGINT", "4000000000", "-5000000000"),
    "n": ("VARCHAR(5)", "VARCHAR(30) NOT NULL", "'x'", "repeat('n', 30)"),
}
"""The type that all shards have, the one of the canary, and a value of each."""


@pytest.mark.mariadb_only("TiDB cannot change all these types")
def test_values_of_both_types_fit_the_join(
    source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path
):
    body = ", ".join(["id INT PRIMARY KEY", *(f"{name} {old}" for name, (old, _, _, _) in WIDER.items())])
    old, new = (", ".join(each[place] for each in WIDER.values()) for place in (2, 3))
    with joined_task(unique, tmp_path, (source_1, source_2, target), body) as task:
        game = Rollout(task)

        def write(shard: tuple[str, int], values: str) -> None:
            game.on(shard, f"INSERT INTO {{t}} VALUES ({{n}}, {values})", f"INSERT INTO {{t}} VALUES ({{n}}, {values})")
            game.on(shard, "UPDATE {t} SET b = b / 2 WHERE id % 2", "DELETE FROM {t} WHERE id = {n} - 7")

        for shard in ALL:
            write(shard, old)
        game.run()
        for shard in ALL:
            game.on(shard, "DELETE FROM {t} WHERE a < 0")
            changes = ", ".join(f"MODIFY {name} {wide}" for name, (_, wide, _, _) in WIDER.items())
            game.on(shard, "SET STATEMENT sql_mode = '' FOR ALTER TABLE {t} " + changes)
            write(shard, new)
            for other in ALL[ALL.index(shard) + 1 :]:
                write(other, old)
            game.run()
        task.assert_equal("t")


def test_a_column_that_only_the_target_has_keeps_its_values_through_a_rollout(rollout: Rollout):
    for shard in ALL:
        rollout.on(shard, "INSERT INTO {t} VALUES ({n}, 1, 'x')", "INSERT INTO {t} VALUES ({n}, 2, 'x')")
    rollout.run()
    there = rollout.task.table("t")
    rollout.task.target.run(f"ALTER TABLE {there} ADD note INT DEFAULT 5", f"UPDATE {there} SET note = id * 10")
    for shard in ALL:
        rollout.on(shard, "ALTER TABLE {t} ADD c INT, CHANGE a d BIGINT", "UPDATE {t} SET d = d + 1, c = 4")
        rollout.run()
    assert not rollout.task.target.run(f"SELECT id FROM {there} WHERE note <> id * 10 OR note IS NULL")
    rollout.task.assert_equal("t")
