"""Online DDL on real binlogs: pt-online-schema-change itself, and the statements of gh-ost."""

import contextlib
import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen, TimeoutExpired

import pytest
from pymysql.constants import ER
from pymysql.err import OperationalError

from tests.livetask import LiveTask, living
from unshard.cli import main
from unshard.core.ddl.lock import LockState
from unshard.core.ddl.online import OnlineRole
from unshard.core.model import Shard
from unshard.core.sql.lastwrites import NAME
from unshard.operate.command import Replace
from unshard.operate.issuing import give
from unshard.units.ddl import coordinate
from unshard.units.full.snapshot import retake_snapshot
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

COLUMNS = "id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(40), n INT, KEY k_n (n)"
CHANGE = "ADD COLUMN c INT NOT NULL DEFAULT 7, DROP COLUMN n"


def run(task: LiveTask, source: str, *statements: str) -> None:
    task.sources[source].run(f"USE {task.name}", *statements)


@contextmanager
def pt_osc(server: MariaDb, schema: str, table: str, change: str) -> Iterator[Popen[str]]:
    """Run the tool as an operator would, and check that it has succeeded."""
    about = server.server
    dsn = f"h={about.host},P={about.port},u={about.user},p={about.password},D={schema},t={table}"
    command = [
        "pt-online-schema-change",
        "--execute",
        "--alter",
        change,
        "--recursion-method=none",
        "--no-version-check",
        "--chunk-size=40",
        "--critical-load=Threads_running=500",
        "--max-load=Threads_running=500",
        dsn,
    ]
    with Popen(command, stdout=PIPE, stderr=STDOUT, text=True) as tool:
        yield tool
        told, _ = tool.communicate()
        assert tool.returncode == 0, told


def write_while(tool: Popen[str], task: LiveTask, shards: Sequence[tuple[str, int]]) -> None:
    """Change rows of all shards until the tool ends, and run windows meanwhile."""
    for step in itertools.count(1):
        for source, number in shards:
            write(task, source, number, step)
        if step % 5 == 0:
            task.pull("s1")
            task.window("s1")
        with contextlib.suppress(TimeoutExpired):
            tool.wait(0.05)
        if tool.poll() is not None:
            return


def write(task: LiveTask, source: str, number: int, step: int) -> None:
    """Change rows of a shard, in the columns that it always has; the locks of a tool may undo a change."""
    first = number * 100_000
    for change in (
        f"INSERT INTO t_{number} (v) VALUES ('new {step}')",
        f"UPDATE t_{number} SET v = 'step {step}' WHERE id = {first + step % 200}",
        f"DELETE FROM t_{number} WHERE id = {first + step * 7 % 200}",
    ):
        try:
            run(task, source, change)
        except OperationalError as error:
            if error.args[0] not in (ER.LOCK_DEADLOCK, ER.LOCK_WAIT_TIMEOUT):
                raise


@contextmanager
def merging(name: str, folder: Path, servers: Sequence[MariaDb]) -> Iterator[LiveTask]:
    """Create a task with two shards in the first source and one in the second, with rows that are in the target."""
    numbers = {("s1", "t"): (1, 2), ("s2", "t"): (3,)}
    with living(name, folder, servers, "t", columns={"t": COLUMNS}, numbers=numbers, window_bytes=1 << 20) as task:
        for source, number in (("s1", 1), ("s1", 2), ("s2", 3)):
            run(
                task,
                source,
                f"INSERT INTO t_{number} SELECT {number * 100_000} + seq, CONCAT('v', seq), seq FROM seq_1_to_200",
            )
        task.run()
        yield task


def online_tables(task: LiveTask, source: str) -> dict[str, OnlineRole]:
    return {online_table.table.name: online_table.role for online_table in task.work().meta.online.of(source)}


def tables_of(target: MariaDb, task: LiveTask) -> set[object]:
    """Return the tables of the target that are not unshard's own."""
    return {
        name
        for (name,) in target.run(
            f"SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA IN ('{task.name}', '{task.name}_to')"
        )
        if name != NAME
    }


class GhOst:
    """The statements of gh-ost about one table, in its order."""

    def __init__(self, task: LiveTask, source: str, table: str) -> None:
        self._task, self._source, self._table = task, source, table
        self._names = {name: f"`{task.name}`.`_{table}_{name}`" for name in ("gho", "ghc", "del")}

    def _run(self, *statements: str) -> None:
        named = {**self._names, "numbered": f"{self._table[2:]}50000", "t": f"`{self._task.name}`.`{self._table}`"}
        run(self._task, self._source, *(text.format(**named) for text in statements))

    def begin(self, *changes: str) -> None:
        self._run(
            "drop /* gh-ost */ table if exists {gho}",
            "drop /* gh-ost */ table if exists {ghc}",
            "create /* gh-ost */ table {ghc} (id bigint unsigned auto_increment, last_update timestamp not null"
            " DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, hint varchar(64) charset ascii not null,"
            " value varchar(4096) charset ascii not null, primary key(id), unique key hint_uidx(hint))"
            " auto_increment=256",
            "create /* gh-ost */ table {gho} like {t}",
            *(f"alter /* gh-ost */ table {{gho}} {change}" for change in changes),
            "alter /* gh-ost */ table {gho} AUTO_INCREMENT={numbered}",
            "insert /* gh-ost */ into {ghc} (id, hint, value)"
            " values (NULLIF(2, 0), 'state', 'GhostTableMigrated')"
            " on duplicate key update last_update=NOW(), value=VALUES(value)",
        )

    def copy(self) -> None:
        self._run(
            "replace /* gh-ost */ into {gho} (id, v) select id, v from {t}",
            "delete /* gh-ost */ from {gho} where id not in (select id from {t})",
        )

    def cut_over(self, at_once: bool = True) -> None:
        """Swap the tables; the lock with which the tool keeps writers away is not needed here."""
        sentry = "create /* gh-ost */ table {del} (id int auto_increment primary key) comment='ghost-cut-over-sentry'"
        swap = ("rename /* gh-ost */ table {t} to {del}, {gho} to {t}",)
        if not at_once:
            swap = ("alter /* gh-ost */ table {t} rename {del}", "alter /* gh-ost */ table {gho} rename {t}")
        self._run(sentry, "drop /* gh-ost */ table if exists {del}", *swap)

    def clean(self, *names: str) -> None:
        self._run(*(f"drop /* gh-ost */ table if exists {{{name}}}" for name in names))


def test_pt_online_schema_change_on_one_shard_after_another(
    source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path
) -> None:
    shards = [("s1", 1), ("s2", 3), ("s1", 2)]
    with merging(unique, tmp_path, (source_1, source_2, target)) as task:
        for source, number in shards:
            with pt_osc(task.sources[source], task.name, f"t_{number}", CHANGE) as tool:
                write_while(tool, task, shards)
            task.run()
            assert len(task.executed("t")) == (number == 2)
        task.assert_settled()
        assert re.search("ADD COLUMN c INT NOT NULL DEFAULT 7, DROP COLUMN n", *task.executed("t"))
        assert [online_tables(task, source) for source in task.sources] == [{}, {}]
        assert tables_of(target, task) == {"t"}


def drop_swap(task: LiveTask, source: str, table: str, *changes: str) -> None:
    """Run the statements of pt-osc with --alter-foreign-keys-method=drop_swap, which it refuses on MariaDB 10.11."""
    run(
        task,
        source,
        f"CREATE TABLE _{table}_new LIKE {table}",
        *(f"ALTER TABLE `{task.name}`.`_{table}_new` {change}" for change in changes),
        f"CREATE TRIGGER pt_osc_{table}_del AFTER DELETE ON `{task.name}`.`{table}` FOR EACH ROW"
        f" DELETE IGNORE FROM `{task.name}`.`_{table}_new` WHERE `_{table}_new`.`id` <=> OLD.`id`",
        f"INSERT LOW_PRIORITY IGNORE INTO _{table}_new (id, v) SELECT id, v FROM {table}",
        f"DROP TABLE IF EXISTS {table}",
        f"RENAME TABLE _{table}_new TO {table}",
    )


def test_statements_of_gh_ost(
    source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path
) -> None:
    with merging(unique, tmp_path, (source_1, source_2, target)) as task:
        first, last = GhOst(task, "s1", "t_1"), GhOst(task, "s2", "t_3")
        first.begin("ADD COLUMN wrong INT")
        first.copy()
        task.run()
        assert online_tables(task, "s1") == {"_t_1_gho": OnlineRole.SHADOW, "_t_1_ghc": OnlineRole.TRASH}
        first.clean("gho", "ghc")  # abandoned
        first.begin(CHANGE.split(", ", maxsplit=1)[0], CHANGE.split(", ")[1])
        for step in range(1, 4):
            write(task, "s1", 1, step)
            first.copy()
            task.run()
            task.restart()
        first.cut_over()
        write(task, "s1", 1, 4)
        task.run()
        assert [view.missing for view in coordinate.views(task.work().meta)] != []
        assert online_tables(task, "s1") == {"_t_1_ghc": OnlineRole.TRASH, "_t_1_del": OnlineRole.TRASH}
        first.clean("ghc", "del")
        last.begin(*CHANGE.split(", "))
        last.copy()
        last.cut_over(at_once=False)
        write(task, "s2", 3, 5)
        drop_swap(task, "s1", "t_2", *CHANGE.split(", "))
        write(task, "s1", 2, 6)
        task.run()
        task.assert_settled()
        assert len(task.executed("t")) == 2
        assert online_tables(task, "s2") == {
            "_t_3_ghc": OnlineRole.TRASH,
            "_t_3_del": OnlineRole.TRASH,
        }  # they remain, as by default
        assert tables_of(target, task) == {"t"}


def test_tables_that_are_only_called_so_keep_their_rows(
    source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path
) -> None:
    with merging(unique, tmp_path, (source_1, source_2, target)) as task:
        run(
            task,
            "s1",
            "CREATE TABLE _t_1_new (id INT PRIMARY KEY, guest VARCHAR(9))",
            "CREATE TABLE _t_2_new LIKE t_2",
            "ALTER TABLE _t_2_new ADD COLUMN own INT",
            "CREATE TABLE _t_1_old (id INT PRIMARY KEY)",
        )
        task.run()
        assert online_tables(task, "s1") == {"_t_2_new": OnlineRole.SHADOW}, "nothing has shown what it is"
        run(
            task,
            "s1",
            "INSERT INTO _t_1_new VALUES (1, 'a')",
            "INSERT INTO _t_2_new VALUES (2, 'b', 3, 4)",
            "INSERT INTO _t_1_old VALUES (5)",
        )
        task.run()
        assert online_tables(task, "s1") == {}
        for table, rows in (("_t_1_new", [(1, "a")]), ("_t_2_new", [(2, "b", 3, 4)]), ("_t_1_old", [(5,)])):
            assert target.run(f"SELECT * FROM {task.name}.{table}") == rows
        task.assert_settled()


def test_a_task_that_begins_in_the_middle(
    source_1: MariaDb,
    source_2: MariaDb,
    target: MariaDb,
    unique: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with merging(unique, tmp_path, (source_1, source_2, target)) as task:
        known, unknown = GhOst(task, "s1", "t_1"), GhOst(task, "s1", "t_2")
        unknown.begin(CHANGE)
        known.begin()  # its ALTER comes after the snapshot
        run(task, "s1", "CREATE TABLE _t_1_new LIKE t_1", "INSERT INTO _t_1_new VALUES (9, 'own', 9)")
        task.run()
        task.restart()
        begin_anew(task, "s1")
        assert online_tables(task, "s1") == {
            "_t_1_ghc": OnlineRole.TRASH,
            "_t_1_gho": OnlineRole.SHADOW,
            "_t_2_ghc": OnlineRole.TRASH,
            "_t_2_gho": OnlineRole.SHADOW,
        }
        run(task, "s1", f"ALTER TABLE _t_1_gho {CHANGE}", "INSERT INTO _t_1_new VALUES (10, 'own', 9)")
        assert main(["status", str(task.path)]) == 0
        told = capsys.readouterr().out
        assert f"online DDL of {task.name}.t_2 by {task.name}._t_2_gho (gh-ost) since before the snapshot" in told
        for tool in (known, unknown):
            tool.copy()
            tool.cut_over()
        run(task, "s2", f"ALTER TABLE t_3 {CHANGE}")
        task.run()
        (lock,) = (view for view in coordinate.views(task.work().meta) if view.target.name == "t")
        assert lock.state is LockState.CONFLICT
        ((shard, reason),) = reasons(task)
        assert "a tool began to change it online before the task existed" in reason
        assert "only the first has column n; only the second has column c" in reason
        give(
            task.work().meta, Replace(lock.id, (f"ALTER TABLE t {CHANGE}",), shard), "operator", "test", "asked the DBA"
        )
        task.run()
        task.assert_settled()
        assert len(task.executed("t")) == 1
        assert target.run(f"SELECT id FROM {task.name}._t_1_new ORDER BY id") == [(9,), (10,)]


def begin_anew(task: LiveTask, source: str) -> None:
    """Take a snapshot of a source whose rows are in the target, as if the task began now."""
    work = task.work()
    checkpoint = work.meta.checkpoints.get(source)
    assert checkpoint is not None
    for table in ("online_ddl", "table_schema", "shard", "checkpoint", "source", "window"):
        task.target.run(f"DELETE FROM {task.meta_schema}.{table} WHERE source = '{source}'")
    task.target.run(f"UPDATE {task.meta_schema}.fence SET `window` = 0 WHERE source = '{source}'")
    report = retake_snapshot(work, source)
    work.meta.checkpoints.start(source, report.location)


def reasons(task: LiveTask) -> list[tuple[Shard, str]]:
    states = task.work().meta.structures.shards()
    return [(state.shard, entry.reason) for state in states for entry in state.queue if entry.reason]
