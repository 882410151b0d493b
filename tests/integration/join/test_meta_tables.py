"""The groups of optimistic mode in the meta tables: every step changes the target's version, or nothing."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.unit.join.paper import create
from unshard.adapters.meta import Meta
from unshard.core.ddl.lineage import ExecutedDdl
from unshard.core.join.changekind import ChangeKind
from unshard.core.join.decision import Change, decide_change, wanted
from unshard.core.join.group import Group, begin_group, intended
from unshard.core.join.joined import Accepted, Completion, JoinedTarget, JoinStatement, ShardStep
from unshard.core.model import Location, Shard, TableId, TableSchema
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

TARGET = TableId("shop", "orders")
ONE, TWO = (Shard("s1", TableId("shop_1", name)) for name in ("orders_1", "orders_2"))
P1 = Location("mysql-bin.000001", 100)
ADDED = "ALTER TABLE orders_1 ADD c INT DEFAULT 7"
BEFORE = create("CREATE TABLE t (id INT PRIMARY KEY, a INT)").structure
AFTER = create("CREATE TABLE t (id INT PRIMARY KEY, a INT, c INT DEFAULT 7)").structure


@pytest.fixture
def meta(target: MariaDb, unique: str) -> Iterator[Meta]:
    made = Meta(target.server, unique, "orders")
    made.create_tables()
    for schema in (BEFORE, AFTER):
        made.structures.put(schema)
    yield made
    made.close()
    target.run(f"DROP DATABASE {unique}")


def begun(meta: Meta) -> JoinedTarget:
    group = begin_group({ONE: BEFORE, TWO: BEFORE})
    accepted = {shard: Accepted(0, None, "uid") for shard in (ONE, TWO)}
    meta.joins.begin(JoinedTarget(TARGET, group, wanted(group).names, accepted=accepted))
    return found(meta)


def found(meta: Meta) -> JoinedTarget:
    joined = meta.joins.get(TARGET)
    assert joined is not None
    return joined


def added(joined: JoinedTarget, shard: Shard = ONE, after: TableSchema = AFTER) -> Group:
    target = wanted(joined.group)
    return decide_change(joined.group, target, shard, Change((ExecutedDdl(ADDED, 0),), after)).group


def statement(group: Group) -> JoinStatement:
    names = {name: id for id, name in wanted(group).names.items()}
    return JoinStatement("ALTER …", BEFORE.digest, AFTER.digest, tuple(names.items()))


def test_a_group_is_read_as_it_was_written(meta: Meta) -> None:
    joined = begun(meta)
    assert joined.group == begin_group({ONE: BEFORE, TWO: BEFORE})
    assert (joined.version, joined.names, joined.change) == (1, {1: "id", 2: "a"}, None)
    assert joined.accepted[ONE] == Accepted(0, None, "uid")
    assert meta.joins.all() == (joined,)
    meta.joins.begin(JoinedTarget(TARGET, begin_group({ONE: AFTER}), {}))
    assert found(meta) == joined, "a group was begun twice"


def test_a_change_is_stored_before_it_is_executed(meta: Meta) -> None:
    joined = begun(meta)
    after = added(joined)
    known = intended(joined.group, after)
    change = meta.joins.intend(joined, known, ChangeKind.EXPAND, ADDED, (statement(after),))
    assert change is not None and found(meta).change == change
    assert found(meta).group == known and known.members == joined.group.members
    assert meta.joins.intend(joined, known, ChangeKind.EXPAND, ADDED, ()) is None, "another process was first"
    meta.joins.advance(TARGET, change)
    once = found(meta)
    assert once.names == {1: "id", 2: "a", 3: "c"} and once.change == replace(change, done=1)
    meta.joins.advance(TARGET, change)
    assert found(meta) == once

    step = ShardStep(ONE, Accepted(1, P1, "uid"), after.members[ONE])
    assert not meta.joins.complete(joined, Completion(after, once.names, (step,)))
    assert meta.joins.complete(once, Completion(after, once.names, (step,), ((ONE, 1),)))
    done = found(meta)
    assert done.group == after and done.change is None and done.accepted[ONE] == Accepted(1, P1, "uid")
    history = meta.joins.history(TARGET)
    assert history[ONE, 0] == joined.group.members[ONE] and history[ONE, 1] == after.members[ONE]


def test_a_refused_change_is_shown(meta: Meta) -> None:
    joined = begun(meta)
    change = meta.joins.intend(joined, joined.group, ChangeKind.CONTRACT, "no shard has it", (statement(joined.group),))
    assert change is not None and meta.joins.last_error(TARGET) == ""
    meta.joins.fail(TARGET, change, "no space")
    assert found(meta).change is None and meta.joins.last_error(TARGET) == "no space"
    assert meta.joins.last_error(TARGET, "no shard has it") == "no space" and meta.joins.last_error(TARGET, "x") == ""
    again = meta.joins.intend(found(meta), joined.group, ChangeKind.CONTRACT, "", (statement(joined.group),))
    assert again is not None and again.id > change.id
    meta.joins.give_up(TARGET, change)
    assert found(meta).change == again, "a change that has ended is not the present one"
    meta.joins.give_up(TARGET, again)
    assert found(meta).change is None and meta.joins.last_error(TARGET) == ""


def test_a_shard_that_leaves_takes_its_history_along(meta: Meta) -> None:
    joined = begun(meta)
    group = replace(joined.group, members={TWO: joined.group.members[TWO]})
    assert meta.joins.complete(joined, Completion(group, joined.names))
    assert [shard for shard, _ in meta.joins.history(TARGET)] == [TWO]


def test_a_settled_target_has_the_hash_of_its_shards_until_it_changes(meta: Meta) -> None:
    joined = begun(meta)
    assert meta.joins.resting() == {TARGET: ""}
    meta.joins.note_settled(joined, "a hash", {})
    assert meta.joins.resting() == {TARGET: "a hash"}
    change = meta.joins.intend(joined, joined.group, ChangeKind.CONTRACT, "a cause", (statement(joined.group),))
    assert change is not None and meta.joins.resting() == {}
    meta.joins.fail(TARGET, change, "no space")
    assert meta.joins.resting() == {TARGET: ""} and meta.joins.refused(TARGET) == {"a cause"}


def test_a_settled_target_keeps_the_states_that_waiting_rows_need(meta: Meta) -> None:
    joined = begun(meta)
    for seq in (1, 2, 3, 4):
        for shard in (ONE, TWO):
            step = ShardStep(shard, Accepted(seq, P1, "uid"), joined.group.members[shard])
            assert meta.joins.complete(found(meta), Completion(joined.group, joined.names, (step,)))
    meta.joins.note_settled(joined, "a hash", {ONE: 4, TWO: 4})
    assert len(meta.joins.history(TARGET)) == 10, "the target has changed since it was read"
    meta.joins.note_settled(found(meta), "a hash", {ONE: 4, TWO: 2})
    assert {*meta.joins.history(TARGET)} == {(ONE, 4), (TWO, 2), (TWO, 3), (TWO, 4)}
    assert meta.joins.resting() == {TARGET: "a hash"}
    rows = meta.joins.rows(TARGET, (ONE, TWO))
    assert rows is not None and rows[0].of_rows(TWO, 2).seq == 2 and rows[0].of_rows(ONE, None).seq == 4
    meta.joins.note_settled(found(meta), "another", {ONE: 4, TWO: 4})
    assert {*meta.joins.history(TARGET)} == {(ONE, 4), (TWO, 4)}
