"""A lock's DDL on a target that differs from its shards, with a death at every step of its execution."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.dying import Died
from tests.openlocks import open_locks
from unshard.adapters.meta import Meta
from unshard.adapters.meta.lockrecords import Locks
from unshard.adapters.mysql import table_name
from unshard.core.ddl.lock import LockState
from unshard.core.ddl.queue import QueueEntry
from unshard.core.ddl.statement import fingerprint, read_ddl, retarget
from unshard.core.model import Column, Index, Location, Shard, TableId, TableSchema
from unshard.core.relay.segment import Statement
from unshard.core.window.plan import Plan
from unshard.operate import issuing
from unshard.operate.command import Force, LockCommand, Replace, Skip
from unshard.operate.issuing import give
from unshard.units.ddl import coordinate, execute
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

SHARD = Shard("s1", TableId("shard_1", "t_1"))


@pytest.fixture
def table(target: MariaDb, unique: str) -> Iterator[TableId]:
    """A target table with more columns, another charset and another index name than the shards."""
    name = TableId(unique, "orders")
    target.run(
        f"CREATE DATABASE {unique}",
        f"CREATE TABLE {table_name(name)} (id BIGINT PRIMARY KEY, v VARCHAR(50), "
        "loaded_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, KEY mine (v)) CHARSET utf8mb4",
    )
    target.run(f"INSERT INTO {table_name(name)} (id, v) VALUES (1, 'x'), (2, 'y')")
    yield name
    target.run(f"DROP DATABASE {unique}")


@pytest.fixture
def meta(target: MariaDb, unique: str) -> Iterator[Meta]:
    made = Meta(target.server, f"{unique}_meta", "orders")
    made.create_tables()
    yield made
    made.close()
    target.run(f"DROP DATABASE {unique}_meta")


def structure(*names: str) -> TableSchema:
    columns = tuple(Column(name, "int", "int(11)", False, None, None, None, "") for name in names)
    return TableSchema(columns, (Index("PRIMARY", names[:1], True),), "CREATE TABLE `t` (`id` int)")


def lock_for(meta: Meta, table: TableId, spec: str) -> str:
    """Let the only shard of the target reach a DDL, so that its lock is synced."""
    before, after = structure("id", "v"), structure("id", "v", "c")
    for one in (before, after):
        meta.structures.put(one)
    start, end = Location("b.000001", 4), Location("b.000001", 100)
    meta.sources.add("s1", "uuid", "mariadb")
    meta.structures.record(SHARD, table, start, before.digest)
    meta.checkpoints.start("s1", start, "0-1-1")
    statement = Statement(f"ALTER TABLE t_1 {spec}", "shard_1", 0, "utf8mb4", 1_700_000_000, "+00:00")
    routed = retarget(read_ddl(statement.text, 0, "shard_1"), {SHARD.table: table})
    entry = QueueEntry(SHARD, table, 1, end, statement, routed, fingerprint(routed), before.digest, after.digest)
    plan = Plan(
        "s1", 1, start, end, safe=False, releases=(), reads=(), queued=(entry,), structures=(), gtid="", last_time=0
    )
    meta.windows.commit(meta.windows.begin("s1", plan), (), 0)
    (view,) = open_locks(meta)
    return view.id


def dying(function: Callable[..., object], *, after: bool) -> Callable[..., object]:
    def replacement(*args: object, **names: object) -> object:
        if after:
            function(*args, **names)
        raise Died

    return replacement


DEATHS = [
    ("ADD INDEX (v)", "intent", False),
    ("ADD INDEX (v)", "intent", True),
    ("ADD INDEX (v)", "execute_ddl", False),
    ("ADD INDEX (v)", "_run", False),
    ("ADD INDEX (v)", "_run", True),
    ("ADD INDEX (v)", "execute_ddl", True),
    ("ADD c INT", "_run", True),
    ("RENAME COLUMN v TO w", "_run", True),
    ("DROP v", "_run", True),
]


@pytest.mark.sample(reason="deaths at every step by simulation, a part on servers")
@pytest.mark.parametrize(("spec", "step", "after"), DEATHS)
def test_executed_once_wherever_it_dies(
    target: MariaDb, meta: Meta, table: TableId, monkeypatch: pytest.MonkeyPatch, spec: str, step: str, *, after: bool
) -> None:
    lock = lock_for(meta, table, spec)
    with monkeypatch.context() as patch:
        patch.setattr(execute, step, dying(getattr(execute, step), after=after))
        with pytest.raises(Died):
            coordinate.execute(meta, target.server, lock)
    assert coordinate.execute(meta, target.server, lock).state is LockState.RESOLVED
    names = [row[0] for row in target.run(f"SHOW COLUMNS FROM {table_name(table)}")]
    indexes = {row[2] for row in target.run(f"SHOW INDEX FROM {table_name(table)}")}
    want = {
        "ADD c INT": ["id", "v", "loaded_at", "c"],
        "RENAME COLUMN v TO w": ["id", "w", "loaded_at"],
        "DROP v": ["id", "loaded_at"],
        "ADD INDEX (v)": ["id", "v", "loaded_at"],
    }
    assert names == want[spec]
    assert indexes - {"mine"} == ({"PRIMARY", "v"} if "INDEX" in spec else {"PRIMARY"})
    outcomes = [execution.outcome for execution in meta.locks.executions(lock)]
    was_there = after and step in ("_run", "execute_ddl")
    assert outcomes == ["present" if was_there else "executed"]


STEPS = "ADD c INT, ADD (d INT AS (c + 1), KEY made (d)), ADD UNIQUE other (c, id), DROP KEY mine, ALGORITHM=DEFAULT"
STEP_DEATHS = [
    (Locks, "split", 1, False),
    (Locks, "split", 1, True),
    *((Locks, "start", n, True) for n in (1, 3, 5)),
    *((execute, "_run", n, after) for n in (1, 2, 4, 5) for after in (False, True)),
    *((Locks, "advance", n, after) for n in (1, 4) for after in (False, True)),
    (Locks, "resolve", 1, False),
]


def dying_at(function: Callable[..., object], call: int, *, after: bool) -> Callable[..., object]:
    """Return the function with a death at one of its calls."""
    calls = iter(range(1, 100))

    def replacement(*args: object, **names: object) -> object:
        if next(calls) != call:
            return function(*args, **names)
        if after:
            function(*args, **names)
        raise Died

    return replacement


@pytest.mark.sample(reason="deaths at every step by simulation, a part on servers")
@pytest.mark.on_tidb
@pytest.mark.parametrize(("place", "step", "call", "after"), STEP_DEATHS)
def test_a_ddl_in_steps_is_executed_once_wherever_it_dies(
    target: MariaDb,
    meta: Meta,
    table: TableId,
    monkeypatch: pytest.MonkeyPatch,
    place: Any,
    step: str,
    call: int,
    *,
    after: bool,
) -> None:
    """TiDB takes this statement only one change at a time; MariaDB takes it whole and never reaches most deaths."""
    lock = lock_for(meta, table, STEPS)
    is_dead = True
    with monkeypatch.context() as patch, contextlib.suppress(Died):
        patch.setattr(place, step, dying_at(getattr(place, step), call, after=after))
        coordinate.execute(meta, target.server, lock)
        is_dead = False
    assert is_dead or "MariaDB" in str(target.run("SELECT VERSION()")), "the death was reached"
    assert coordinate.execute(meta, target.server, lock).state is LockState.RESOLVED
    names = [row[0] for row in target.run(f"SHOW COLUMNS FROM {table_name(table)}")]
    assert names == ["id", "v", "loaded_at", "c", "d"]
    assert {row[2] for row in target.run(f"SHOW INDEX FROM {table_name(table)}")} == {"PRIMARY", "made", "other"}
    ran = [(each.ddl, each.outcome) for each in meta.locks.executions(lock)]
    if len(ran) > 1:
        heads = ["ADD c INT", "ADD d INT", "ADD KEY made", "ADD UNIQUE other", "DROP KEY mine"]
        assert [head in text for head, (text, _) in zip(heads, ran, strict=True)] == [True] * 5
    is_present = is_dead and ((step == "_run" and after) or (step in LATE and not after))
    assert sum(outcome == "present" for _, outcome in ran) == is_present
    assert sum(outcome == "executed" for _, outcome in ran) == len(ran) - is_present


LATE = ("advance", "resolve")
"""The step before these is done and not recorded."""


@pytest.mark.on_tidb
def test_a_refused_step_is_tried_again_and_the_ones_before_it_are_not(
    target: MariaDb, meta: Meta, table: TableId
) -> None:
    target.run(f"UPDATE {table_name(table)} SET v = 'same'")
    lock = lock_for(meta, table, "ADD c INT, ADD KEY (c), ADD UNIQUE u (v)")
    view = coordinate.execute(meta, target.server, lock)
    assert view.state is LockState.FAILED and "Duplicate entry" in str(view.error)
    target.run(f"UPDATE {table_name(table)} SET v = id")
    issuing.give(meta, Force(lock), "operator", "test", "once more")
    assert coordinate.execute(meta, target.server, lock).state is LockState.RESOLVED
    assert {row[2] for row in target.run(f"SHOW INDEX FROM {table_name(table)}")} == {"PRIMARY", "mine", "c", "u"}
    texts = [each.ddl for each in meta.locks.executions(lock) if each.outcome == "executed"]
    assert len(texts) == len(set(texts)), "nothing is executed twice"


TEXT_ONLY = ["COMMENT 'x'", "MODIFY v VARCHAR(50) COMMENT 'x'", "PARTITION BY HASH (id) PARTITIONS 3"]
NOT_ON_TIDB = [
    "ADD CHECK (id > 0)",
    "DROP CONSTRAINT positive",
    "ADD CONSTRAINT c CHECK (v <> ''), ALGORITHM=COPY",
    "ROW_FORMAT=DYNAMIC",
]


@pytest.mark.parametrize("spec", TEXT_ONLY)
def test_what_changes_only_the_text_is_recognised_after_a_death(
    target: MariaDb, meta: Meta, table: TableId, monkeypatch: pytest.MonkeyPatch, spec: str
) -> None:
    check_text_only(target, meta, table, monkeypatch, spec)


@pytest.mark.mariadb_only("TiDB leaves out CHECK constraints unless it is told otherwise, and refuses ROW_FORMAT")
@pytest.mark.parametrize("spec", NOT_ON_TIDB)
def test_a_check_is_recognised_after_a_death(
    target: MariaDb, meta: Meta, table: TableId, monkeypatch: pytest.MonkeyPatch, spec: str
) -> None:
    check_text_only(target, meta, table, monkeypatch, spec)


def check_text_only(target: MariaDb, meta: Meta, table: TableId, monkeypatch: pytest.MonkeyPatch, spec: str) -> None:
    target.run(f"ALTER TABLE {table_name(table)} ADD CONSTRAINT positive CHECK (id > 0)")
    lock = lock_for(meta, table, spec)
    shown = f"SHOW CREATE TABLE {table_name(table)}"
    before = target.run(shown)
    with monkeypatch.context() as patch:
        patch.setattr(execute, "_run", dying(execute._run, after=True))
        with pytest.raises(Died):
            coordinate.execute(meta, target.server, lock)
    once = target.run(shown)
    assert once != before
    assert coordinate.execute(meta, target.server, lock).state is LockState.RESOLVED
    assert target.run(shown) == once
    assert [execution.outcome for execution in meta.locks.executions(lock)] == ["present"]


@pytest.mark.parametrize(
    ("spec", "meddling"),
    [
        ("ADD INDEX (v)", "DROP INDEX mine"),
        ("ADD CHECK (id > 0)", "COMMENT 'mine'"),
        ("ADD c INT", "DROP c, ADD d INT"),
        ("ENGINE=InnoDB", "COMMENT 'mine'"),
    ],
)
def test_altered_by_someone_after_a_death_is_never_executed_twice(
    target: MariaDb, meta: Meta, table: TableId, monkeypatch: pytest.MonkeyPatch, spec: str, meddling: str
) -> None:
    lock = lock_for(meta, table, spec)
    with monkeypatch.context() as patch:
        patch.setattr(execute, "_run", dying(execute._run, after=True))
        with pytest.raises(Died):
            coordinate.execute(meta, target.server, lock)
    target.run(f"ALTER TABLE {table_name(table)} {meddling}")
    altered = target.run(f"SHOW CREATE TABLE {table_name(table)}")
    view = coordinate.execute(meta, target.server, lock)
    assert view.state is LockState.FAILED and "US-4006" in str(view.error)
    issuing.give(meta, Force(lock), "operator", "test", "once more")
    assert coordinate.execute(meta, target.server, lock).state is LockState.FAILED, "the intent stays what it was"
    assert target.run(f"SHOW CREATE TABLE {table_name(table)}") == altered


def test_a_column_made_anew_is_made_anew_again(
    target: MariaDb, meta: Meta, table: TableId, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = lock_for(meta, table, "DROP KEY mine, DROP v, ADD v VARCHAR(50) AFTER id, ADD KEY mine (v)")
    with monkeypatch.context() as patch:
        patch.setattr(execute, "_run", dying(execute._run, after=True))
        with pytest.raises(Died):
            coordinate.execute(meta, target.server, lock)
    assert coordinate.execute(meta, target.server, lock).state is LockState.RESOLVED
    assert target.run(f"SELECT id, v FROM {table_name(table)}") == [(1, None), (2, None)]


def test_structures_of_one_shape_keep_their_texts(meta: Meta) -> None:
    one = structure("id", "v")
    other = replace(one, create_sql="CREATE TABLE `t` (`id` int, CHECK (`id` > 0))")
    digests = meta.structures.put(one), meta.structures.put(other)
    assert one.shape == other.shape and meta.structures.get(digests) == dict(zip(digests, (one, other), strict=True))


def test_refusal_fails_the_lock_and_the_next_try_asks_again(target: MariaDb, meta: Meta, table: TableId) -> None:
    lock = lock_for(meta, table, "ADD loaded_at INT")
    view = coordinate.execute(meta, target.server, lock)
    assert view.state is LockState.FAILED
    assert "Duplicate column name 'loaded_at'" in str(view.error)
    target.run(f"ALTER TABLE {table_name(table)} DROP loaded_at")
    assert coordinate.execute(meta, target.server, lock).state is LockState.RESOLVED


def test_intent_stays_while_the_target_is_away(target: MariaDb, meta: Meta, table: TableId) -> None:
    lock = lock_for(meta, table, "ADD c INT")
    away = replace(target.server, port=1)
    with pytest.raises(Exception, match="US-2001"):
        coordinate.execute(meta, away, lock)
    assert coordinate.execute(meta, target.server, lock).state is LockState.RESOLVED


WAYS_OUT: list[tuple[tuple[str, ...], list[str]]] = [
    ((), ["PRIMARY", "mine"]),
    (("ALTER TABLE orders ADD INDEX other (v)",), ["PRIMARY", "mine", "other"]),
    (("ALTER TABLE orders DROP KEY mine", "ALTER TABLE orders ADD INDEX mine (id, v)"), ["PRIMARY", "mine"]),
]


@pytest.mark.parametrize(("texts", "indexes"), WAYS_OUT)
@pytest.mark.parametrize("is_altered", [False, True])
def test_orders_end_a_lock_whose_ddl_cannot_be_executed(
    target: MariaDb,
    meta: Meta,
    table: TableId,
    monkeypatch: pytest.MonkeyPatch,
    texts: tuple[str, ...],
    indexes: list[str],
    *,
    is_altered: bool,
) -> None:
    """The target refused it because of its rows, or was altered after a crash in it: the lock waits and shows the
    message.
    """
    target.run(f"UPDATE {table_name(table)} SET v = 'same'")
    lock = lock_for(meta, table, "ADD UNIQUE u (v)")
    if is_altered:
        with monkeypatch.context() as patch:
            patch.setattr(execute, "_run", dying(execute._run, after=False))
            with pytest.raises(Died):
                coordinate.execute(meta, target.server, lock)
        target.run(f"ALTER TABLE {table_name(table)} ADD meddled INT")
    view = coordinate.execute(meta, target.server, lock)
    assert view.state is LockState.FAILED and view.error
    error = view.error.replace("'orders.u'", "'u'")  # MySQL and TiDB name the table, too
    assert ("US-4006" if is_altered else "Duplicate entry 'same' for key 'u'") in error
    order: LockCommand = Replace(lock, texts) if texts else Skip(lock)
    give(meta, order, "operator", "test", "it cannot be executed")
    assert coordinate.execute(meta, target.server, lock).state is LockState.RESOLVED
    found = sorted({str(row[2]) for row in target.run(f"SHOW INDEX FROM {table_name(table)}")})
    assert found == indexes
    assert all(one.done_at for one in meta.locks.executions(lock))
    assert meta.structures.shards()[0].queue == ()
