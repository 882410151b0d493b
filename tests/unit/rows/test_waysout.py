"""Which ways out of a conflict are offered: those after which the rows of all shards have a place in the target."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from unshard.core.ddl.lock import USUAL_WAYS, DdlLock, PendingSkip, Way
from unshard.core.ddl.queue import HeldFile, OperatorDecision, QueueEntry, ShardState
from unshard.core.ddl.waysout import LockConflict, WaysOut, extension, is_same_change, ways_of_waiting, ways_out
from unshard.core.model import Column, Location, Shard, TableId, TableSchema
from unshard.core.relay.segment import Statement

NOW, TARGET = datetime(2026, 1, 1, tzinfo=UTC), TableId("shop", "orders")
START = "id int, a int"


def structure(columns: str) -> TableSchema:
    parts = [part.split() for part in columns.split(", ")]
    made = tuple(Column(name, kind.split("(")[0], kind, True, None, None, None, "") for name, kind in parts)
    return TableSchema(made, (), columns)


def shard(source: str, *ddls: tuple[str, str], held: tuple[int, ...] = ()) -> ShardState:
    """Return a shard with these DDLs, each with the columns after it, and with rows held after the DDLs `held`."""
    own, before = Shard(source, TableId("shop_1", "t")), START
    queue = []
    for seq, (spec, after) in enumerate(ddls, 1):
        ddl = f"ALTER TABLE t {spec}"
        statement = Statement(ddl, "", 0, "utf8mb4", seq, "SYSTEM")
        queue.append(QueueEntry(own, TARGET, seq, Location("b.1", seq), statement, ddl, ddl, before, after))
        before = after
    files = tuple(HeldFile(own, seq, 1, part, "", 1, 1, "") for part, seq in enumerate(held))
    return ShardState(own, TARGET, before, None, tuple(queue), len(ddls), files)


def conflict(first: ShardState, *others: ShardState) -> LockConflict:
    lock = DdlLock("x", TARGET, 1, first.queue[0], NOW, NOW)
    texts = {START, *(text for state in (first, *others) for e in state.queue for text in (e.before, e.after) if text)}
    schemas = {text: structure(text) for text in texts}
    different = (state for state in others if state.queue and state.queue[0].fingerprint != lock.fingerprint)
    return LockConflict((first, *others), lock, {}, tuple(state.shard for state in different), schemas)


ADD_C, ADD_D = ("ADD c INT", f"{START}, c int"), ("ADD d INT", f"{START}, d int")
C_THEN_D = ADD_C, ("ADD d INT", f"{START}, c int, d int")
D_THEN_C = ADD_D, ("ADD c INT", f"{START}, d int, c int")
A_TO_C, A_TO_D = ("CHANGE a c INT", "id int, c int"), ("CHANGE a d INT", "id int, d int")
D_WIDER, D_TO_E = ("MODIFY d BIGINT", "id int, d bigint"), ("CHANGE d e INT", "id int, e int")
BACK = ("CHANGE d c INT", "id int, c int")
CASES = [
    ("another default", shard("s1", ADD_C), shard("s2", ("ADD c INT DEFAULT -1", ADD_C[1])), (Way.UNLOCKED, Way.SAME)),
    ("different order", shard("s1", *C_THEN_D), shard("s2", *D_THEN_C, held=(1,)), (Way.UNLOCKED,)),
    ("another column", shard("s1", ADD_C), shard("s2", ADD_D), (Way.UNLOCKED,)),
    ("another name", shard("s1", A_TO_C), shard("s2", A_TO_D), (Way.SAME,)),
    ("another name, then changed", shard("s1", A_TO_C), shard("s2", A_TO_D, D_WIDER, held=(1,)), (Way.SAME,)),
    ("another name, then another", shard("s1", A_TO_C), shard("s2", A_TO_D, D_TO_E, held=(1,)), (Way.SAME,)),
    ("a dropped column, renamed", shard("s1", ("DROP a", "id int")), shard("s2", A_TO_D), (Way.SKIPPED,)),
    ("another name, changed without rows", shard("s1", A_TO_C), shard("s2", A_TO_D, BACK), (Way.SAME,)),
    ("another name, changed with rows", shard("s1", A_TO_C), shard("s2", A_TO_D, BACK, held=(1,)), (Way.SAME,)),
    ("a renamed column, changed", shard("s1", A_TO_C), shard("s2", ("MODIFY a INT", START)), (Way.SAME, Way.NOTHING)),
    ("an index", shard("s1", ADD_C), shard("s2", ("ADD INDEX (a)", START)), USUAL_WAYS),
]


@pytest.mark.parametrize(("first", "other", "ways"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_only_ways_that_succeed_are_returned(first: ShardState, other: ShardState, ways: tuple[Way, ...]) -> None:
    assert ways_out(conflict(first, other)).offered == ways
    assert ways_out(conflict(first, other, shard("s3"))).offered == ways


def test_a_column_that_a_later_lock_names_otherwise_is_followed() -> None:
    first = shard("s1", ("COMMENT 'x'", START), ("CHANGE a q INT", "id int, q int"), held=(1,))
    other = shard("s2", ("CHANGE a r BIGINT", "id int, r bigint"), ("CHANGE r p INT", "id int, p int"), held=(1,))
    assert Way.UNLOCKED in ways_out(conflict(first, other)).offered


def test_extended_statements_add_the_columns_of_the_other_shards() -> None:
    found = conflict(shard("s1", A_TO_C), shard("s2", A_TO_D))
    assert extension(found) == ("ALTER TABLE t CHANGE a c INT", "ALTER TABLE `shop`.`orders` ADD COLUMN `d` int")
    assert extension(conflict(shard("s1", ADD_C), shard("s2", ("ADD c BIGINT", ADD_C[1])))) == ()


def test_unknown_structure_cannot_be_simulated() -> None:
    unknown = shard("s2", ("an unknown DDL", ""))
    assert ways_out(conflict(shard("s1", ADD_C), unknown)).offered == USUAL_WAYS
    assert not is_same_change(conflict(shard("s1", ADD_C), unknown), unknown)


def test_a_wider_column_stays_a_ddl_of_its_own() -> None:
    wider, other = ("MODIFY a BIGINT", "id int, a bigint"), ("MODIFY id BIGINT", "id bigint, a int")
    for ddl, is_same in ((wider, False), (("MODIFY a INT COMMENT 'x'", START), True)):
        state = shard("s2", ddl)
        assert is_same_change(conflict(shard("s1", other), state), state) is is_same


def test_statements_of_an_operator_cover_a_ddl_whose_columns_they_add() -> None:
    state = shard("s2", A_TO_D)
    found = conflict(shard("s1", A_TO_C), state)
    assert not is_same_change(found, state)
    texts = "ALTER TABLE t CHANGE a c INT", "ALTER TABLE t ADD d INT, ADD (e INT, f INT)"
    replaced = replace(found.lock, verdict=OperatorDecision.REPLACE, replacement=texts)
    assert is_same_change(replace(found, lock=replaced), state)
    assert ways_out(replace(found, lock=replaced)).offered == (Way.UNLOCKED, Way.SAME)


def test_each_way_that_is_not_offered_has_a_reason() -> None:
    found = ways_out(conflict(shard("s1", A_TO_C), shard("s2", A_TO_D)))
    assert dict(found.barred) == {
        Way.UNLOCKED: "the target would not have column a any more, which the DDL of s2 shop_1.t changes",
        Way.NOTHING: "column a of s2 shop_1.t would be two columns of the target",
    }


def test_if_every_way_ends_at_a_later_ddl_the_ddl_of_the_lock_alone_is_offered() -> None:
    first = shard("s1", ("COMMENT 'x'", START), ("CHANGE a r INT", "id int, r int"))
    other = shard("s2", ADD_D, ("CHANGE d r INT", f"{START}, r int"))
    found = ways_out(conflict(first, other))
    assert found.offered == (Way.UNLOCKED,)
    assert [way for way, _ in found.barred] == [Way.SAME, Way.NOTHING]


A_TO_R, ADD_R = ("CHANGE a r INT", "id int, r int"), ("ADD r INT", f"{START}, r int")


def test_two_columns_of_a_shard_are_never_one_column_of_the_target() -> None:
    other = shard("s2", ADD_D, ("CHANGE d r INT", f"{START}, r int"))
    for first, second in ((shard("s1", A_TO_R), other), (shard("s1", A_TO_R), shard("s2", ADD_R))):
        assert not {Way.SAME, Way.NOTHING} & {*ways_out(conflict(first, second)).offered}
    later = shard("s1", ("ADD c BIGINT", f"{START}, c bigint"), ("CHANGE a r INT", "id int, r int, c bigint"))
    found = ways_out(conflict(later, shard("s2", ADD_R, ("COMMENT 'x'", ADD_R[1]))))
    assert found.offered == (Way.UNLOCKED,)
    assert dict(found.barred)[Way.NOTHING] == "rows of s2 shop_1.t would have two values for column r"


def test_a_column_that_has_another_name_in_the_target_has_no_place_once_the_target_renames_it() -> None:
    """The random game 0x1a6426: rows of s2 stopped after a way that was offered."""
    first, wider = shard("s1", ("CHANGE a r BIGINT", "id int, r bigint")), "id int, x bigint, a int"
    other = shard("s2", ("MODIFY x BIGINT", wider))
    other = replace(other, queue=(replace(other.queue[0], before="id int, x int, a int"),))
    skip = PendingSkip(other.shard, "x", 1, "alter table t change x a int")
    found = ways_out(replace(conflict(first, other), pending_skips={other.shard: (skip,)}))
    assert dict(found.barred)[Way.SAME] == "rows of s2 shop_1.t have column x, which the target would not have"


def test_one_column_of_a_shard_is_never_two_columns_of_the_target() -> None:
    found = ways_out(conflict(shard("s1", ADD_R), shard("s2", A_TO_R, ("ADD c INT", "id int, r int, c int"))))
    assert found.offered == (Way.UNLOCKED,)
    assert {why for _, why in found.barred} == {"column a of s2 shop_1.t would be two columns of the target"}


def test_ddl_that_add_different_columns_do_not_count_as_one() -> None:
    found = ways_out(conflict(shard("s1", ADD_C), shard("s2", ADD_D, ("COMMENT 'x'", ADD_D[1]))))
    assert dict(found.barred)[Way.SAME] == "column d of s2 shop_1.t would be column c of the target"


def test_a_waiting_ddl_about_a_column_that_the_target_has_renamed_cannot_be_unlocked() -> None:
    state = shard("s2", ("CHANGE a d INT", "id int, d int"))
    schemas = {text: structure(text) for text in (START, "id int, d int")}
    for text, told in (("CHANGE a c INT", "c"), ("DROP a", "dropped")):
        skip = PendingSkip(state.shard, "x", 1, f"alter table t {text.lower()}")
        found = ways_of_waiting(state.queue[0], schemas, (skip,), frozenset({"id", "c"}))
        assert found == WaysOut(
            (), ((Way.UNLOCKED, f"column a of s2 shop_1.t is {told} in the target, and must stay so"),)
        )
    assert ways_of_waiting(state.queue[0], schemas, (), frozenset({"id", "a"})) == WaysOut(())


def test_the_statements_of_a_lock_name_the_columns_of_its_shards() -> None:
    found = conflict(shard("s1", A_TO_R), shard("s2", ADD_D))
    for text, target in (("ALTER TABLE t CHANGE a z INT", "z"), ("ALTER TABLE t MODIFY a INT", "a")):
        lock = replace(found.lock, verdict=OperatorDecision.REPLACE, replacement=(text,))
        assert Way.UNLOCKED in ways_out(replace(found, lock=lock)).offered, target
