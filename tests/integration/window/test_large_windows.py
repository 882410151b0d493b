"""Windows that are cut into several transactions by key: the same rows in the end, wherever a process dies."""

import contextlib
import random
from collections import Counter

import pytest

from tests.cutting import bound_transactions
from tests.dying import Died, died
from tests.integration.rows.test_target_apply import TABLES, Change, Shop, Target, make
from unshard.adapters import mysql
from unshard.adapters.structures import read_schema
from unshard.adapters.target import apply, fencesteps
from unshard.adapters.target.fencesteps import Bounds, StepKind
from unshard.core.rows.compaction import CollisionPolicy, Op
from unshard.errors.meta import FencedOut
from unshard.errors.rows import Collision

pytestmark = [pytest.mark.integration, pytest.mark.writes_rows]
__all__ = ["make"]
ONE = Bounds(3, 1 << 20, 1)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch):
    """Let a transaction hold three rows."""

    def chosen(bounds: Bounds = ONE) -> None:
        bound_transactions(monkeypatch, bounds)

    chosen()
    return chosen


def union(target: Target) -> Counter:
    return Counter(row for rows in target.rows.values() for row in rows)


def left(target: Target) -> list[tuple[object, ...]]:
    return target.server.run(f"SELECT kind, done FROM {target.meta}.fence_step ORDER BY number")


@pytest.mark.sample(reason="seeds, tables and ways of writing do not interact")
@pytest.mark.parametrize("bounds", [ONE, Bounds(1000, 20, 1), Bounds(4, 1 << 20, 4)], ids=["rows", "bytes", "ranges"])
@pytest.mark.parametrize("name", TABLES)
def test_random_windows_in_many_transactions_end_in_the_union(make, small, name, bounds, monkeypatch):
    small(bounds)
    chance, marked = random.Random(f"{name}{bounds}"), []
    monkeypatch.setattr(
        fencesteps, "mark", lambda *given, mark=fencesteps.mark: marked.append(given[2]) or mark(*given)
    )
    target = make(TABLES[name])
    shops = {shard: Shop(name, target, shard, chance) for shard in target.shards}
    for _ in range(4):
        target.apply({shard: shop.changes(chance.choice([5, 40])) for shard, shop in shops.items()}, chance)
        assert target.stored() == union(target)
        assert target.fence() == (target.window, 1)
        assert left(target) == []
    kinds = {step.kind for step in marked}
    whole = {"integer": {StepKind.ALL}, "unsigned": {StepKind.ALL}, "without key": set()}
    assert kinds == whole.get(name, {StepKind.DELETES, StepKind.WRITES})


def changes(target: Target, chance: random.Random) -> dict:
    shops = {shard: Shop("unique", target, shard, chance) for shard in target.shards}
    return {shard: shop.changes(40) for shard, shop in shops.items()}


@pytest.mark.sample(reason="the moment and the form of rows do not interact")
@pytest.mark.parametrize("deaths", [(1, 2), (3,)], ids=str)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_window_goes_on_where_it_died(make, small, monkeypatch, when, deaths):
    """Run again with a new epoch after each death; finished steps are not repeated."""
    small(Bounds(1, 1 << 20, 1))
    chance = random.Random(str(deaths))
    target = make(TABLES["unique"])
    target.apply(changes(target, chance), chance)
    some, before, target.window = changes(target, chance), target.stored(), target.window + 1
    job_epoch = target.epoch
    for number in deaths:
        target.window -= 1
        with monkeypatch.context() as patch:
            _die(patch, number, when)
            with pytest.raises(Died):
                target.apply(some, chance)
        job_epoch += 1
        target.epoch = job_epoch
        target.server.run(f"UPDATE {target.meta}.fence SET epoch = {job_epoch}")
    assert before != union(target)
    assert 0 < sum(int(str(done)) for _, done in left(target)) < len(left(target))
    target.window -= 1
    target.apply(some, chance)
    assert target.stored() == union(target)
    assert left(target) == []


def _die(patch: pytest.MonkeyPatch, number: int, when: str) -> None:
    """Let the process die in a step: before its commit, or after it."""
    calls, once = [], apply._step_once

    def replacement(*given):
        calls.append(given)
        if len(calls) < number:
            return once(*given)
        if when == "before":
            patch.setattr(fencesteps, "mark", died)
        once(*given)
        raise Died

    patch.setattr(apply, "_step_once", replacement)


def test_a_writer_that_is_overtaken_between_two_steps_writes_no_more(make, small, monkeypatch):
    target, seen = make(TABLES["integer"]), []
    rows: list[Change] = [(Op.INSERT, (b"%d" % number, b"x", b"1.00")) for number in range(9)]

    def overtaken(*given, once=apply._step_once):
        if seen:
            target.server.run(f"UPDATE {target.meta}.fence SET epoch = 2")
        seen.append(once(*given))
        return seen[-1]

    monkeypatch.setattr(apply, "_step_once", overtaken)
    with pytest.raises(FencedOut):
        target.apply({target.shards[0]: rows}, random.Random(1))
    assert 0 < sum(target.stored().values()) < 9
    monkeypatch.undo()
    target.window, target.epoch = 0, 2
    target.apply({target.shards[0]: rows}, random.Random(1))
    assert sum(target.stored().values()) == 9


@pytest.mark.mariadb_only("TiDB does not change a clustered primary key")
def test_a_key_that_changes_under_a_half_applied_window_lets_it_begin_again(make, small, monkeypatch):
    chance = random.Random(3)
    target = make(TABLES["unique"])
    target.apply(changes(target, chance), chance)
    some = changes(target, chance)
    with monkeypatch.context() as patch:
        _die(patch, 2, "after")
        with pytest.raises(Died):
            target.apply(some, chance)
    target.server.run(f"ALTER TABLE {target.table} DROP PRIMARY KEY, ADD PRIMARY KEY (u)")
    with contextlib.closing(mysql.connect(target.server.server)) as connection:
        target.schema = read_schema(connection, target.table)
    assert target.schema.key == ("u",)
    target.window -= 1
    target.apply(some, chance)
    assert target.stored() == union(target)
    assert left(target) == []


def test_a_collision_stops_a_large_window_in_its_step_and_the_policy_can_be_changed(make, small):
    target = make(TABLES["integer"])
    target.server.run(f"INSERT INTO {target.table} VALUES (7, 'other', 1)")
    rows: list[Change] = [(Op.INSERT, (b"%d" % number, b"x", b"1.00")) for number in range(9)]
    with pytest.raises(Collision) as raised:
        target.apply({target.shards[0]: rows}, random.Random(1))
    assert raised.value.key == "id = 7"
    target.window, target.collisions = 0, CollisionPolicy.REPLACE
    assert target.apply({target.shards[0]: rows}, random.Random(1)).collided
    assert target.stored() == Counter(row for _, row in rows)
