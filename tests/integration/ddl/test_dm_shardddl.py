"""Shard DDL of DM's directories shardddl1 to shardddl4_1 that `ddl_cases.json` does not have: target = union.

All cases run in one task, each with a target table of its own. In most of DM's cases the shards run a DDL one after
another and write a row after each; `DDLS` has the DDLs of these cases, and the test writes the rows.
"""

import contextlib
import dataclasses
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from tests.livetask import LiveTask, living
from tests.oracle import rows
from tests.suite.portions import portion
from tests.tidbsettings import is_tidb
from unshard.cli import main
from unshard.core.ddl.steps import steps
from unshard.operate.advice import advice_lines
from unshard.units.ddl import coordinate
from unshard.units.ddl.scene import LockView
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

ID = "id INT PRIMARY KEY"
PARTS = "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (100000))"
OPTIONS = {"c073": "CHARACTER SET utf8mb3 COLLATE utf8mb3_bin", "c141": PARTS, "c142": PARTS, "c144": PARTS}
"""Options of the shards' tables."""
DDLS: dict[str, tuple[str, tuple[str, ...]]] = {
    "c006": (ID, ("ADD COLUMN n INT",)),
    "c046": ("a INT PRIMARY KEY, b VARCHAR(10)", ("DROP COLUMN b",)),
    "c049": ("a INT PRIMARY KEY, b VARCHAR(10)", ("CHANGE a c INT",)),
    "c057": (ID, ("CHANGE id n INT DEFAULT 1",)),
    "c059": ("id INT PRIMARY KEY, a DATETIME", ("CHANGE a n DATETIME DEFAULT NOW()",)),
    "c064": (ID, ("MODIFY id INT(30)",)),
    "c066": (ID, ("MODIFY id INT DEFAULT 1",)),
    "c068": ("a INT PRIMARY KEY, id DATETIME", ("MODIFY id DATETIME DEFAULT NOW()",)),
    "c073": ("a INT PRIMARY KEY, b VARCHAR(10)", ("CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",)),
    "c082": ("a INT UNIQUE KEY, b VARCHAR(10)", ("RENAME INDEX a TO c",)),
    "c113": (ID, ("ADD COLUMN (b INT, c INT)",)),
    "c116": ("a INT PRIMARY KEY, c INT", ("ADD COLUMN b INT, DROP COLUMN c",)),
    "c122": ("a INT PRIMARY KEY, c1 INT, c2 INT, KEY i1 (c1), KEY i2 (c2)", ("DROP INDEX i1, DROP INDEX i2",)),
    "c128": ("a INT PRIMARY KEY, b INT", ("MODIFY b INT NOT NULL", "MODIFY b INT")),
    "c133": ("a INT, b INT, PRIMARY KEY (a, b)", ("DROP PRIMARY KEY, ADD PRIMARY KEY (a)",)),
    "c134": ("a INT, b INT, PRIMARY KEY (a)", ("DROP PRIMARY KEY, ADD PRIMARY KEY (b)",)),
    "c136": ("id INT PRIMARY KEY, a INT, b INT, UNIQUE uk (a)", ("DROP INDEX uk, ADD UNIQUE uk (a, b)",)),
    "c137": ("id INT PRIMARY KEY, a INT, b INT, UNIQUE uk (a, b)", ("DROP INDEX uk, ADD UNIQUE uk (a)",)),
    "c138": ("id INT PRIMARY KEY, a INT", ("ADD UNIQUE uk (a)",)),
    "c139": ("id INT PRIMARY KEY, a INT, UNIQUE uk (a)", ("DROP INDEX uk",)),
    "c140": (ID, ("PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (100000))",)),
    "c141": (ID, ("REMOVE PARTITIONING",)),
    "c142": (ID, ("ADD PARTITION (PARTITION p1 VALUES LESS THAN (200000))",)),
    "c144": (ID, ("REORGANIZE PARTITION p0 INTO (PARTITION p0 VALUES LESS THAN (900000))",)),
    "c146": (ID, ("ROW_FORMAT = COMPACT",)),
    "c148": ("id INT PRIMARY KEY, a INT", ("ADD COLUMN b INT AFTER id, ADD COLUMN c INT AFTER b",)),
    "c149": ("id INT PRIMARY KEY, a VARCHAR(10)", ("MODIFY a VARCHAR(20)",)),
    "c150": ("id INT PRIMARY KEY, a VARCHAR(20)", ("MODIFY a VARCHAR(10)",)),
    "c152": (
        ID,
        (
            "ADD COLUMN a INT, ADD COLUMN b VARCHAR(20), ADD COLUMN c DOUBLE",
            "ADD UNIQUE INDEX u (a), ADD INDEX i (b)",
            "DROP INDEX i, ADD INDEX j (c)",
            "DROP COLUMN b, ADD COLUMN d INT",
            "DROP INDEX u, DROP INDEX j",
            "DROP COLUMN a, DROP COLUMN c, DROP COLUMN d",
        ),
    ),
    "twice": (ID, ("ADD n INT", "DROP n", "ADD n INT", "DROP n", "ADD n INT")),
    "uniques": (
        "id INT PRIMARY KEY, a INT, b VARCHAR(10)",
        (
            *("ADD UNIQUE KEY i_a (a)", "ADD UNIQUE KEY i_b (b)", "ADD UNIQUE KEY i_ab (a, b)"),
            *("DROP INDEX i_a", "DROP INDEX i_b", "DROP INDEX i_ab"),
        ),
    ),
}
"""Columns of the shards, and the DDLs that each shard runs, by DM's number (081 and SAME_DDL_TWICE: words)."""
NOT_ON_TIDB = frozenset({"c133", "c134", "c146"})
"""TiDB refuses to change a clustered primary key, and ROW_FORMAT; an operator decides (docs/ddl-on-tidb.md)."""
DIFFERENT: dict[str, tuple[str, str, str]] = {
    "d011": (ID, "ADD n INT", "ADD n FLOAT"),
    "d031": (ID, "ADD n INT", "ADD n VARCHAR(10)"),
    "d036": ("a INT PRIMARY KEY, b VARCHAR(10)", "ADD n INT FIRST", "ADD n INT AFTER a"),
    "d037": (ID, "ADD n INT DEFAULT 0", "ADD n INT DEFAULT -1"),
    "d040": (ID, "ADD n VARCHAR(10) CHARACTER SET utf8mb3", "ADD n VARCHAR(10) CHARACTER SET utf8mb4"),
    "d043": (ID, "ADD n INT AS (id + 1)", "ADD n INT AS (id + 2)"),
    "d050": ("a INT PRIMARY KEY, b VARCHAR(10)", "CHANGE a c INT", "CHANGE a d INT"),
    "d051": ("a INT PRIMARY KEY, b INT", "CHANGE a c INT", "CHANGE b c INT"),
    "d056": ("a INT PRIMARY KEY, b INT", "CHANGE a c INT AFTER b", "CHANGE a c INT FIRST"),
    "d058": (ID, "CHANGE id n INT DEFAULT 1", "CHANGE id n INT DEFAULT 2"),
    "d063": ("id SMALLINT PRIMARY KEY", "MODIFY id MEDIUMINT", "MODIFY id BIGINT"),
    "d067": (ID, "MODIFY id INT DEFAULT 1", "MODIFY id INT DEFAULT 2"),
    "d108": (ID, "ADD n DECIMAL(5, 2)", "ADD n DECIMAL(7, 4)"),
    "d109": (ID, "ADD n VARCHAR(3)", "ADD n VARCHAR(4)"),
    "d110": (ID, "ADD n VARCHAR(5)", "ADD n VARCHAR(4)"),
    "d111": (ID, "ADD n INT ZEROFILL", "ADD n INT"),
    "d112": (ID, "ADD n INT UNSIGNED", "ADD n INT"),
    "d119": ("a INT PRIMARY KEY, c1 INT, c2 INT, c3 INT", "ADD INDEX i (c1, c2)", "ADD INDEX i (c1, c3)"),
    "d121": ("a INT PRIMARY KEY, c1 INT, c2 INT", "ADD INDEX i (c1)", "ADD INDEX i (c1, c2)"),
}
FILLED = {"d037": {"n"}, "d043": {"n"}}
"""Columns whose values come from the definition of the target: in old rows the default of the owner, as in DM."""
"""Columns of the shards, the DDL of the first source, and that of the second; DM stops or loses rows in these cases."""
Case = TypeVar("Case")
SHARDS = (("s1", 1), ("s2", 2), ("s2", 3))
STEPS = max(len(ddls) for _, ddls in DDLS.values())


@dataclasses.dataclass
class Upstream:
    """The shards of all cases, each with rows of its own."""

    task: LiveTask
    number: int = 100

    def write(self) -> None:
        """Write a row with new values into every shard, whatever its columns are now."""
        query = (
            "SELECT table_name, GROUP_CONCAT(column_name), COUNT(*) FROM information_schema.columns WHERE data_type <>"
            f" 'datetime' AND is_generated = 'NEVER' AND table_schema = '{self.task.name}' GROUP BY table_name"
        )
        for server in self.task.sources.values():
            statements = []
            for table, columns, count in server.run(query):
                self.number += 1
                values = ", ".join([str(self.number)] * int(count))
                statements.append(f"INSERT INTO {self.task.name}.{table} ({columns}) VALUES ({values})")
            server.run("BEGIN", *statements, "COMMIT")

    def alter(self, source: str, number: int, ddls: Mapping[str, str]) -> None:
        """Let a shard of every case run its DDL."""
        statements = (f"ALTER TABLE {self.task.name}.{case}_{number} {ddl}" for case, ddl in ddls.items())
        self.task.sources[source].run("DO 1", *statements)


def part(cases: Mapping[str, Case]) -> dict[str, Case]:
    """Return a third of the cases; `make test-all` takes all."""
    return dict(list(cases.items())[:: portion(3, 3, 1)])


@pytest.fixture
def servers(source_1: MariaDb, source_2: MariaDb, target: MariaDb) -> tuple[MariaDb, ...]:
    return source_1, source_2, target


@contextlib.contextmanager
def upstream(servers: Sequence[MariaDb], name: str, folder: Path, columns: Mapping[str, str]) -> Iterator[Upstream]:
    """Create three shards of each case, with a row each."""
    numbers = {(source, case): numbers for case in columns for source, numbers in (("s1", (1,)), ("s2", (2, 3)))}
    with living(name, folder, servers, list(columns), columns=columns, numbers=numbers, options=OPTIONS) as task:
        made = Upstream(task)
        made.write()
        yield made


@pytest.mark.sample(reason="the order of the shards changes no case's end; the games vary it, too", every=8)
@pytest.mark.parametrize("is_ahead", [False, True], ids=["in turn", "one shard ahead of the others"])
def test_shards_that_run_the_same_ddls(
    servers: tuple[MariaDb, ...], unique: str, tmp_path: Path, is_ahead: bool
) -> None:
    """A shard runs a DDL and the others follow, or a shard runs all DDLs before the next one (DM's SAME_DDL_TWICE)."""
    takes_all = not is_tidb(servers[-1])
    cases = part({case: each for case, each in DDLS.items() if takes_all or case not in NOT_ON_TIDB})
    columns = {case: columns for case, (columns, _) in cases.items()}
    plays = [(step, shard) for step in range(STEPS) for shard in SHARDS]
    if is_ahead:
        plays.sort(key=lambda play: play[1])
    with upstream(servers, unique, tmp_path, columns) as shards:
        task = shards.task
        for count, (step, shard) in enumerate(plays, 1):
            shards.alter(*shard, {case: ddls[step] for case, (_, ddls) in cases.items() if step < len(ddls)})
            shards.write()
            if count % STEPS == 0:
                task.run()
        task.run()
        task.assert_settled()
        for case, (_, ddls) in cases.items():
            split = [each for ddl in ddls for each in steps(f"ALTER TABLE t {ddl}", 0)]
            most = len(ddls) if takes_all else len(split)  # TiDB takes some DDLs only in steps
            assert len(ddls) <= len(task.executed(case)) <= most, case


@pytest.mark.parametrize("which", [0, -1], ids=["the first way", "the last way"])
def test_shards_that_run_different_ddls(
    servers: tuple[MariaDb, ...],
    unique: str,
    tmp_path: Path,
    which: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The commands that `unshard locks` prints lead the rows of all shards into the target."""
    cases = part(DIFFERENT)
    columns = {case: columns for case, (columns, *_) in cases.items()}
    with upstream(servers, unique, tmp_path, columns) as shards:
        task = shards.task
        for shard, place in zip(SHARDS, (1, 2, 2), strict=True):
            shards.alter(*shard, {case: different[place] for case, different in cases.items()})
            shards.write()
        task.run()
        assert {view.target.name for view in coordinate.views(task.work().meta)} == set(cases)
        for _ in range(6):
            for view in coordinate.views(task.work().meta):
                follow(task, view, which)
            task.run()
        assert not [(view.id, view.state, view.reason) for view in coordinate.views(task.work().meta)]
        shards.write()
        task.run()
        assert task.stopped() == {}
        assert {case: missing for case in cases if (missing := missing_rows(task, case))} == {}


def follow(task: LiveTask, view: LockView, which: int) -> None:
    """Give one of the commands that are printed for a lock."""
    lines = advice_lines(view, str(task.path))
    print(view.id, view.state, *lines, sep="\n   ")
    commands = [line.partition(": unshard ")[2] for line in lines if ": unshard " in line and "then: " not in line]
    commands = [command for command in commands if not command.startswith("drop-shard")]  # it leaves rows out
    if commands:
        assert main([*shlex.split(commands[which]), "--yes", "--reason", "test"]) == 0


def missing_rows(task: LiveTask, case: str) -> list[object]:
    """Return the rows of the shards that the target lacks, by the columns that it has, and other numbers of rows."""
    there = {row[0] for row in task.target.run(f"SHOW COLUMNS FROM {task.table(case)}")} - FILLED.get(case, set())
    missing, count = list[object](), 0
    for source, shard in task.shards[case]:
        columns = [row[0] for row in task.sources[source].run(f"SHOW COLUMNS FROM {shard}") if row[0] in there]
        lost = texts(task.sources[source], shard, columns) - texts(task.target, task.table(case), columns)
        missing += [(shard, row) for row in lost]
        count += len(task.sources[source].run(f"SELECT 1 FROM {shard}"))
    found = len(task.target.run(f"SELECT 1 FROM {task.table(case)}"))
    return missing if found == count else [*missing, f"{found} rows in place of {count}"]


def texts(server: MariaDb, table: str, columns: Sequence[str]) -> Counter[tuple[str, ...]]:
    """Return the rows as text, because the type of a column may differ between a shard and the target."""
    return Counter({tuple(map(text, row)): count for row, count in rows(server, table, columns).items()})


def text(value: object) -> str:
    """Return a value as text, the same for 234, 234.0 and '234'."""
    try:
        return str(float(str(value)))
    except ValueError:
        return str(value)
