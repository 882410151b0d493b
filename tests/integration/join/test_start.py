"""The start of a task in optimistic mode whose target exists: what it keeps, and what `check` and `run` refuse."""

from pathlib import Path

import pytest

from tests.dmtask import ONE, SHARDS, THREE, UNCHECKED, DmTask, dm_task
from tests.joinedtask import FIRST, SECOND, joined_task, run
from unshard.errors import UnshardError
from unshard.errors.rows import ColumnTypesDiffer
from unshard.units.full.snapshot import take_snapshot
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.writes_rows]
Servers = tuple[MariaDb, MariaDb, MariaDb]

REFUSED = {
    "number and text": ("a VARCHAR(20)", "a INT", "US-6004", "MODIFY a INT"),
    "text and number": ("a INT", "a VARCHAR(20)", "US-6004", "MODIFY a VARCHAR(20)"),
    "moments": ("a DATETIME", "a TIMESTAMP NULL", "US-6004", "MODIFY a TIMESTAMP NULL"),
    "times": ("a TIMESTAMP NULL", "a DATETIME", "US-6004", "MODIFY a DATETIME"),
    "signs": ("a BIGINT UNSIGNED", "a BIGINT", "US-6004", "MODIFY a BIGINT"),
    "fractions": ("a DOUBLE", "a INT", "US-6004", "MODIFY a INT"),
    "bits": ("a INT", "a BIT(8)", "US-6004", "MODIFY a BIT(8)"),
    "documents": ("a JSON", "a INT", "US-6004", "MODIFY a INT"),
    "virtual": ("a INT AS (id + 1) VIRTUAL", "a INT", "US-6004", "DROP COLUMN a"),
    "plain": ("a INT", "a INT AS (id + 1) VIRTUAL", "US-6004", ""),
    "stored": ("a INT", "a INT AS (id + 1) STORED", "US-6004", ""),
    "expressions": ("a INT AS (id + 2) VIRTUAL", "a INT AS (id + 1) VIRTUAL", "US-6004", ""),
    "a value of nobody": ("a INT, own INT NOT NULL", "a INT", "US-6802", "MODIFY own INT NOT NULL DEFAULT 5"),
}
"""The target's columns, the shards', the code, and the clause with which an operator ends it; else a new table."""
FOLLOWED = {
    "wider": ("a BIGINT", "a INT", "bigint"),
    "narrower": ("a INT", "a BIGINT", "bigint"),
    "NOT NULL": ("a INT NOT NULL", "a INT", "int"),
    "labels": ("a ENUM('x')", "a ENUM('y','x')", "enum('x','y')"),
    "characters": ("a VARCHAR(20) CHARACTER SET latin1", "a VARCHAR(30) CHARACTER SET utf8mb4", "varchar(30)"),
    "a column of its own": ("a INT, own INT DEFAULT 5", "a INT", "int"),
}


def made(task: DmTask, columns: str) -> None:
    """Create the target before the task begins."""
    task.target.run(
        f"CREATE DATABASE {task.name}_to COLLATE utf8mb4_general_ci",
        f"CREATE TABLE {task.name}_to.tb (id INT PRIMARY KEY, {columns})",
    )


@pytest.fixture
def servers(source_1: MariaDb, source_2: MariaDb, target: MariaDb) -> Servers:
    return source_1, source_2, target


def refusals(task: DmTask) -> set[str]:
    """Take the snapshots without the prechecks; return the codes of the errors."""
    found = set[str]()
    with task.work() as work:
        for source in work.task.sources:
            try:
                take_snapshot(work, source)
            except UnshardError as error:
                found.add(error.code)
    return found


@pytest.mark.sample(reason="all of them are decided in memory, too", every=12)
@pytest.mark.parametrize("name", REFUSED)
def test_check_and_run_refuse_a_target(
    name: str, servers: Servers, unique: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The target stays as it is until an operator has changed it; then `run` ends with the union."""
    own, shards, code, clause = REFUSED[name]
    with dm_task(unique, tmp_path, servers, f"id INT PRIMARY KEY, {shards}") as task:
        task.write(UNCHECKED)
        made(task, own)
        before = task.target.run(f"SHOW CREATE TABLE {task.name}_to.tb")
        assert task.command("check") == 1
        told = capsys.readouterr().out
        assert f"[{code}]" in told and ("'a'" in told or "column own" in told), told
        assert refusals(task) == {code}
        assert task.target.run(f"SHOW CREATE TABLE {task.name}_to.tb") == before
        if clause:
            task.target.run(f"ALTER TABLE {task.name}_to.tb {clause}")
        else:
            task.target.run(f"DROP DATABASE {task.name}_to")
            made(task, shards)
        assert task.command("check") == 0
        task.go()
        assert task.assert_union() == 3
        for at in SHARDS:
            task.up(at, "ALTER TABLE {} ADD COLUMN later INT")
        task.assert_settled()


@pytest.mark.parametrize("name", FOLLOWED)
def test_a_target_gets_what_it_lacks_and_keeps_what_it_has(
    name: str, servers: Servers, unique: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, shards, shown = FOLLOWED[name]
    with dm_task(unique, tmp_path, servers, f"id INT PRIMARY KEY, {shards}") as task:
        made(task, own)
        assert task.command("check") == 0
        assert "US-2343" not in capsys.readouterr().out, "columns become wider by themselves"
        task.go()
        assert task.assert_union() == 3
        for at in SHARDS:
            task.up(at, "ALTER TABLE {} ADD COLUMN later INT")
        task.assert_settled()
        kinds = {row[0]: str(row[1]) for row in task.target.run(f"SHOW COLUMNS FROM {task.name}_to.tb")}
        assert kinds["a"].startswith(shown) and ("own" in kinds) == ("own" in own)


def test_a_column_that_only_some_shards_generate(
    servers: Servers, unique: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dump does not have its values; both `check` and `run` say so before a row is loaded."""
    with dm_task(unique, tmp_path, servers, "id INT PRIMARY KEY, a INT") as task:
        task.write(UNCHECKED)
        task.up(THREE, "ALTER TABLE {} DROP COLUMN a", "ALTER TABLE {} ADD COLUMN a INT AS (id + 1) STORED")
        assert task.command("check") == 1 and "[US-6004]" in capsys.readouterr().out
        assert "US-6004" in refusals(task)
        task.up(THREE, "ALTER TABLE {} DROP COLUMN a", "ALTER TABLE {} ADD COLUMN a INT")
        assert task.command("check") == 0
        task.go()
        task.assert_settled()


def test_a_shard_without_a_join_is_routed_to_a_target_of_its_own(
    servers: Servers, unique: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with dm_task(unique, tmp_path, servers) as task:
        task.up(THREE, "ALTER TABLE {} MODIFY a DATE")
        assert task.command("check") == 1 and "[US-5100]" in capsys.readouterr().out
        text = task.path.read_text()
        second = text.index(f'source-id: "{THREE[0]}"')
        task.path.write_text(text[:second] + text[second:].replace('"sharding-table-rules", ', "", 1))
        assert task.command("check") == 0
        task.up(ONE, "ALTER TABLE {} ADD COLUMN c INT")
        task.go()
        source, table = THREE
        mine = task.sources[source].run(f"SELECT * FROM {task.name}.{table}")
        assert task.target.run(f"SELECT * FROM {task.name}_to.{table}") == mine
        assert task.target.run(f"SELECT COUNT(*) FROM {task.name}_to.tb") == [(3,)]


def test_windows_hold_the_rows_of_such_a_target_only(servers: Servers, unique: str, tmp_path: Path) -> None:
    """A task that has begun, whose target someone creates anew with another type before it joins."""
    with joined_task(unique, tmp_path, servers, "id INT PRIMARY KEY, a TIMESTAMP NULL", shards=1) as task:
        task.target.run(f"ALTER TABLE {task.table('t')} MODIFY a DATETIME")
        for shard in (FIRST, SECOND):
            run(task, shard, f"INSERT INTO {{}} VALUES ({shard[1]}, '2026-01-31 12:00:00')")
        with pytest.raises(ColumnTypesDiffer):
            task.run()
        assert {error.code for error in task.stopped().values()} == {"US-6004"}
        task.target.run(f"ALTER TABLE {task.table('t')} MODIFY a TIMESTAMP NULL")
        task.run()
        task.assert_equal("t")
