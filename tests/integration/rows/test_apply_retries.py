"""Errors between a writer and the target are retried with the fence: no row is lost or written twice."""

import contextlib
import random
import threading
from collections import Counter

import pytest

from tests.cutting import LOOKUP, bound_transactions, cut_at_commit, interrupted_at, waiting_sessions
from tests.integration.rows.test_target_apply import TABLES, Change, Target, _until, insert, make
from unshard.adapters.target import Applied
from unshard.adapters.target.fencesteps import Bounds
from unshard.core.rows.compaction import CollisionPolicy, Op
from unshard.errors import UnshardError
from unshard.errors.meta import FencedOut

pytestmark = [pytest.mark.integration, pytest.mark.writes_rows]
__all__ = ["make"]
BAG = b"1", b"x", b"1"


class Writer(threading.Thread):
    """Applies a window of the first shard on a thread."""

    def __init__(self, target: Target, changes: list[Change]) -> None:
        super().__init__()
        self.target, self.changes = target, {target.shards[0]: changes}
        self.applied: Applied | None = None
        self.error: UnshardError | None = None
        self.start()

    def run(self) -> None:
        try:
            self.applied = self.target.apply(self.changes, random.Random(1))
        except UnshardError as error:
            self.error = error


@pytest.mark.mariadb_only("it needs the deadlocks that InnoDB counts, and its choice of the victim")
@pytest.mark.parametrize("name", ["integer", "without key"])
def test_a_deadlock_with_another_session_is_tried_again(make, name):
    """The other session waits for a row of the writer, which waits for the fence; it has done more work, so it
    survives.
    """
    target, change = make(TABLES[name]), insert(1) if name == "integer" else [(Op.INSERT, BAG)]
    count = "SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'"
    before = int(str(target.server.run(count)[0][1]))
    schema = target.table.schema
    target.server.run(f"CREATE TABLE {schema}.work (id INT PRIMARY KEY)")
    with contextlib.closing(target.server.connect()) as other, other.cursor() as cursor:
        other.begin()
        cursor.execute(f"INSERT INTO {schema}.work SELECT seq FROM {schema}.seq_1_to_1000")
        cursor.execute(f"SELECT * FROM {target.meta}.fence FOR UPDATE")
        writer = Writer(target, change)
        _until(lambda: waiting_sessions(target.server))
        cursor.execute(f"SELECT * FROM {target.table} FOR UPDATE")
        other.rollback()
        writer.join()
    assert int(str(target.server.run(count)[0][1])) == before + 1
    assert writer.error is None and writer.applied.written == 1
    assert target.stored() == Counter([row for _, row in change]) and target.fence() == (1, 1)


@pytest.mark.mariadb_only("TiDB keeps the locks of rows at a ROLLBACK TO SAVEPOINT")
@pytest.mark.parametrize("policy", CollisionPolicy)
def test_a_key_that_becomes_free_while_its_owner_is_looked_for_is_no_collision(make, policy):
    """The row moves from another source, whose window commits its DELETE between the two statements."""
    target = make(TABLES["integer"])
    target.collisions = policy
    target.apply({target.shards[1]: insert(1, v=b"old")}, random.Random(1))
    server = target.server
    with interrupted_at(server, lambda: server.run(f"DELETE FROM {target.table} WHERE id = 1"), LOOKUP) as way:  # type: ignore[arg-type,return-value]
        target.server = way
        applied = target.apply({target.shards[0]: insert(1, 2)}, random.Random(1))
        target.server = server
    assert (applied.written, applied.collided) == (2, False)
    assert target.stored() == Counter([row for _, row in insert(1, 2)]) and target.fence() == (2, 1)


@pytest.mark.parametrize("arrives", [False, True], ids=["before it arrives", "before its answer"])
@pytest.mark.parametrize("name", ["integer", "without key"])
def test_a_connection_that_is_lost_at_commit(make, name, arrives):
    target = make(TABLES[name])
    change = insert(1, 2) if name == "integer" else [(Op.INSERT, BAG), (Op.INSERT, BAG)]
    with cut_at_commit(target.server, arrives=arrives) as (cut, way):
        target.server, real = cut, target.server
        applied = target.apply({target.shards[0]: change}, random.Random(1))
        target.server = real
    assert way.broken.is_set() and way.answered.is_set() == arrives
    assert (applied.written, applied.before) == (2, False)
    assert target.stored() == Counter([row for _, row in change]) and target.fence() == (1, 1)


@pytest.mark.sample(reason="the moment and the way of writing do not interact")
@pytest.mark.parametrize("arrives", [False, True], ids=["before it arrives", "before its answer"])
@pytest.mark.parametrize("number", [1, 3, 5])
def test_a_connection_that_is_lost_at_any_commit_of_a_large_window(make, monkeypatch, number, arrives):
    bound_transactions(monkeypatch, Bounds(2, 1 << 20, 1))
    target = make(TABLES["integer"])
    with cut_at_commit(target.server, arrives=arrives, number=number) as (cut, way):
        target.server, real = cut, target.server
        applied = target.apply({target.shards[0]: insert(*range(6))}, random.Random(1))
        target.server = real
    assert way.broken.is_set(), "the steps themselves, each of them, the fence"
    assert applied.written == 6 and sum(target.stored().values()) == 6 and target.fence() == (1, 1)
    assert target.server.run(f"SELECT COUNT(*) FROM {target.meta}.fence_step") == [(0,)]


@pytest.mark.parametrize(
    ("name", "policy"),
    [("integer", CollisionPolicy.ERROR), ("integer", CollisionPolicy.IGNORE), ("without key", CollisionPolicy.ERROR)],
)
def test_a_commit_that_comes_through_while_it_is_tried_again(make, name, policy):
    """The fence was read before the lost COMMIT completed: then the rows that exist, or are missing, are our own."""
    target = make(TABLES[name], collisions=policy)
    old = insert(1)[0][1] if name == "integer" else BAG
    target.apply({target.shards[0]: [(Op.INSERT, old)]}, random.Random(1))
    gone, new = [(Op.DELETE, old)], insert(2) if name == "integer" else []
    with contextlib.closing(target.server.connect()) as lost, lost.cursor() as cursor:
        lost.begin()
        cursor.execute(f"DELETE FROM {target.table}")
        if new:
            cursor.execute(f"INSERT INTO {target.table} VALUES (2, 'x', 1)")
        cursor.execute(f"UPDATE {target.meta}.fence SET `window` = 2")
        writer = Writer(target, [*gone, *new])
        _until(lambda: waiting_sessions(target.server))
        lost.commit()
        writer.join()
    assert writer.error is None and writer.applied.before
    assert target.stored() == Counter(row for _, row in new) and target.fence() == (2, 1)
    assert target.server.run(f"SELECT COUNT(*) FROM {target.meta}.collision") == [(0,)]


def test_a_writer_that_is_overtaken_by_its_successor_meets_no_collision(make):
    target = make(TABLES["integer"])
    with contextlib.closing(target.server.connect()) as successor, successor.cursor() as cursor:
        successor.begin()
        cursor.execute(f"INSERT INTO {target.table} VALUES (1, 'x', 1)")
        writer = Writer(target, insert(1))
        _until(lambda: waiting_sessions(target.server))
        target.server.run(f"UPDATE {target.meta}.fence SET epoch = 2")
        successor.commit()
        writer.join()
    assert isinstance(writer.error, FencedOut)
