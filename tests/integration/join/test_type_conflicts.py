"""Each way out of each kind of conflict in optimistic mode, followed to the union; no other shard waits meanwhile."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.joinedtask import FIRST, SECOND, JoinedTask, joined_task, run
from unshard.core.model import Shard, TableId
from unshard.operate.advice import advice_lines
from unshard.operate.command import DropShard, LockCommand, Skip
from unshard.operate.issuing import give
from unshard.units.ddl import coordinate
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.writes_rows]

BESIDE = ("s1", 12)
"""A shard on the source of the one that waits."""


@dataclass(frozen=True)
class Kind:
    """A conflict: a column, the DDL of the first shard, and what the others and it may run to agree."""

    column: str
    ddl: str
    value: str
    back: str
    agree: str
    before: str = ""
    """A DDL that the other shards have run already."""


KINDS = {
    "signs": Kind("x BIGINT", "MODIFY x BIGINT UNSIGNED", "18446744073709551615", "MODIFY x BIGINT", ""),
    "moments": Kind("x DATETIME", "MODIFY x TIMESTAMP NULL", "'2026-01-31 12:00:00'", "MODIFY x DATETIME", ""),
    "fractions": Kind("x INT", "MODIFY x FLOAT", "1.5", "MODIFY x INT", ""),
    "text": Kind("x INT", "MODIFY x VARCHAR(20)", "'abc'", "MODIFY x INT", ""),
    "expressions": Kind(
        "x INT AS (id + 1) STORED",
        "DROP COLUMN x, ADD COLUMN x INT AS (id + 2) STORED",
        "",
        "DROP COLUMN x, ADD COLUMN x INT AS (id + 1) STORED",
        "",
    ),
    "a changed expression": Kind(
        "x INT AS (id + 1) STORED",
        "MODIFY x INT AS (id + 2) STORED",
        "",
        "MODIFY x INT AS (id + 1) STORED",
        "",
    ),
    "a changed virtual expression": Kind(
        "x INT AS (id + 1) VIRTUAL",
        "MODIFY x INT AS (id + 2) VIRTUAL",
        "",
        "MODIFY x INT AS (id + 1) VIRTUAL",
        "",
    ),
    "two new names": Kind(
        "x INT", "RENAME COLUMN x TO z", "7", "RENAME COLUMN z TO y", "RENAME COLUMN y TO z", "RENAME COLUMN x TO y"
    ),
    "a column of one name": Kind("y INT", "ADD COLUMN x INT", "7", "DROP COLUMN x", "", "ADD COLUMN x DATE"),
}
STORED = pytest.mark.mariadb_only("TiDB neither adds nor changes a STORED column")
NAMES = [pytest.param(name, marks=STORED) if "STORED" in kind.ddl else name for name, kind in KINDS.items()]
OTHERS = (BESIDE, SECOND)
Conflict = tuple[JoinedTask, Kind, str]


@pytest.fixture(params=NAMES)
def conflict(
    request: pytest.FixtureRequest,
    source_1: MariaDb,
    source_2: MariaDb,
    target: MariaDb,
    unique: str,
    tmp_path: Path,
) -> Iterator[Conflict]:
    """The first shard waits with a row; the others have written rows since."""
    kind = KINDS[request.param]
    columns = f"id INT PRIMARY KEY, {kind.column}, a INT"
    with joined_task(unique, tmp_path, (source_1, source_2, target), columns) as task:
        task.sources["s2"].run(f"DROP TABLE {task.name}.t_22")
        task.shards["t"].remove(("s2", f"{task.name}.t_22"))
        for shard in (FIRST, *OTHERS):
            run(task, shard, f"INSERT INTO {{}} (id) VALUES ({shard[1]})")
        task.run()
        for shard in OTHERS if kind.before else ():
            run(task, shard, f"ALTER TABLE {{}} {kind.before}")
        task.run()
        name = "z" if "names" in request.param else "x"
        row = f"(id, {name}) VALUES (3, {kind.value})" if kind.value else "(id) VALUES (3)"
        run(task, FIRST, f"ALTER TABLE {{}} {kind.ddl}", f"INSERT INTO {{}} {row}")
        task.run()
        for shard in OTHERS:
            run(task, shard, f"INSERT INTO {{}} (id) VALUES ({shard[1] + 100})")
        task.run()
        assert ids(task) == [11, 12, 21, 112, 121] and task.stopped() == {}
        (view,) = coordinate.views(task.work().meta)
        assert view.ready == (first(task),)
        yield task, kind, view.id


def first(task: JoinedTask) -> Shard:
    return Shard("s1", TableId(task.name, "t_11"))


def ids(task: JoinedTask) -> list[int]:
    return [int(str(row[0])) for row in task.target.run(f"SELECT id FROM {task.table('t')} ORDER BY id")]


def assert_over(task: JoinedTask) -> None:
    assert coordinate.views(task.work().meta) == () and task.stopped() == {}
    assert not [state for state in task.states() if state.queue or state.held]


def order(task: JoinedTask, command: LockCommand) -> None:
    give(task.work().meta, command, "operator", "test", "because")
    task.run()


def all_agree(task: JoinedTask, kind: Kind) -> None:
    """Let the other shards run the DDL too, so that all are equal."""
    for shard in OTHERS:
        if kind.before and not kind.agree:
            run(task, shard, "ALTER TABLE {} DROP COLUMN x")
        run(task, shard, f"ALTER TABLE {{}} {kind.agree or kind.ddl}")
    task.run()


@pytest.mark.sample(reason="an eighth of the types; all of them run in memory", every=8)
def test_the_others_agree(conflict: Conflict) -> None:
    task, kind, _ = conflict
    all_agree(task, kind)
    assert_over(task)
    task.assert_equal("t")


@pytest.mark.sample(reason="an eighth of the types; all of them run in memory", every=8)
def test_the_shard_goes_back(conflict: Conflict) -> None:
    task, kind, _ = conflict
    if "UNSIGNED" in kind.ddl or "VARCHAR" in kind.ddl:
        run(task, FIRST, "UPDATE {} SET x = 5 WHERE id = 3")
    run(task, FIRST, f"ALTER TABLE {{}} {kind.back}")
    task.run()
    assert_over(task)
    assert task.assert_union("t") == 6
    for shard in (FIRST,) if kind.before.startswith("ADD") else ():
        run(task, shard, f"ALTER TABLE {{}} {kind.before}")
    task.run()
    task.assert_equal("t")


@pytest.mark.sample(reason="an eighth of the types; all of them run in memory", every=8)
def test_the_ddl_is_skipped_until_the_others_agree(conflict: Conflict) -> None:
    """The rows continue at once, without the column. When it fits, it is read again, without a DDL of the shard."""
    task, kind, lock = conflict
    order(task, Skip(lock, first(task)))
    assert_over(task)
    assert ids(task) == [3, 11, 12, 21, 112, 121]
    run(task, FIRST, "INSERT INTO {} (id) VALUES (4)", "UPDATE {} SET a = 7")
    task.run()
    assert task.stopped() == {} and ids(task) == [3, 4, 11, 12, 21, 112, 121]
    all_agree(task, kind)
    assert_over(task)
    joined, _ = task.joined("t")
    assert {*joined.group.members[first(task)].ids} == {"id", "a", *task.joined("t")[0].names.values()}
    task.assert_equal("t")


@pytest.mark.sample(reason="an eighth of the types; all of them run in memory", every=8)
def test_the_shard_is_dropped(conflict: Conflict) -> None:
    task, kind, lock = conflict
    order(task, DropShard(lock, first(task)))
    assert_over(task)
    task.shards["t"].remove(("s1", f"{task.name}.t_11"))
    all_agree(task, kind)
    assert_over(task)
    assert ids(task) == [11, 12, 21, 112, 121]


@pytest.mark.sample(reason="an eighth of the types; all of them run in memory", every=8)
def test_only_ways_that_end_it_are_offered(conflict: Conflict) -> None:
    task, _, _ = conflict
    (view,) = coordinate.views(task.work().meta)
    told = "\n".join(advice_lines(view, "task.yaml"))
    assert "unshard skip" in told and "unshard drop-shard" in told
    assert "unshard replace" not in told and "unshard unlock" not in told
