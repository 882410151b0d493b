"""The decisions about a lock: the table of the module's docstring, and the laws behind it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unshard.core.ddllock import (
    DdlLock,
    LockState,
    Owed,
    decide,
    lock_id,
    opening,
    resolution,
    script,
    settlements,
    void,
)
from unshard.core.model import Location, Shard, TableId
from unshard.core.newcomers import Admission, admissions, is_expected
from unshard.core.segment import Statement
from unshard.core.shardgroup import complete_sources, groups, releasable
from unshard.core.window import HeldFile, QueueEntry, ShardState, Verdict

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TARGET = TableId("shop", "orders")


def entry(shard: Shard, ddl: str = "add c", seq: int = 1, moment: int = 0) -> QueueEntry:
    statement = Statement(ddl, "", 0, "utf8mb4", moment, "SYSTEM")
    return QueueEntry(shard, TARGET, seq, Location("b.1", seq), statement, ddl, ddl, "before", "after")


def member(name: str, *ddls: str, held: Sequence[int] = (), left: bool = False) -> ShardState:
    """A shard `s1.t1` with those DDLs pending and files held behind the numbers `held`; the first DDL is number 2."""
    source, table = name.split(".")
    shard = Shard(source, TableId("shop_1", table))
    queue = tuple(entry(shard, ddl, seq) for seq, ddl in enumerate(ddls, 2))
    files = tuple(HeldFile(shard, seq, 1, part, "", 1, 1, "") for part, seq in enumerate(held))
    return ShardState(shard, TARGET, "after", None, queue, 1 + len(ddls), files, left)


LOCK = DdlLock("x", TARGET, 1, entry(Shard("s1", TableId("shop_1", "t1"))), NOW, NOW)


def owed(name: str, *ddls: str) -> dict[Shard, tuple[Owed, ...]]:
    shard = member(name).shard
    return {shard: tuple(Owed(shard, f"old-{n}", n, ddl) for n, ddl in enumerate(ddls))}


READY, BEHIND = member("s1.t1", "add c"), member("s2.t1")
UNDECIDED = replace(READY, queue=(replace(READY.queue[0], after="", reason="unreadable"),))
UNSETTLED = replace(READY, queue=(replace(READY.queue[0], before="", after=""),))
NEW = member("s3.t9", "create t9")
STRANGER = replace(NEW, queue=(replace(NEW.queue[0], before="x", after="x", reason="strange", is_alone=True),))
STRANGE = replace(LOCK, entry=STRANGER.queue[0])
CASES: list[tuple[str, list[ShardState], DdlLock, LockState, bool]] = [
    ("one is behind", [READY, BEHIND], LOCK, LockState.WAITING, False),
    ("all have it", [READY, member("s2.t1", "add c", "add d")], LOCK, LockState.SYNCED, True),
    ("another DDL", [READY, member("s2.t1", "drop c")], LOCK, LockState.CONFLICT, False),
    ("another DDL and one behind", [READY, member("s2.t1", "x"), BEHIND], LOCK, LockState.CONFLICT, False),
    ("older rows wait", [READY, member("s2.t1", "add c", held=[1])], LOCK, LockState.DRAINING, False),
    ("later rows wait", [READY, member("s2.t1", "add c", held=[2, 2])], LOCK, LockState.SYNCED, True),
    ("the one behind was dropped", [READY, member("s2.t1", left=True)], LOCK, LockState.SYNCED, True),
    ("rows of a dropped one wait", [READY, member("s2.t1", held=[1], left=True)], LOCK, LockState.DRAINING, False),
    ("only a dropped one has it", [member("s1.t1", "add c", left=True), BEHIND], LOCK, LockState.WAITING, False),
    ("nobody has it", [BEHIND], LOCK, LockState.RESOLVED, False),
    ("forced", [READY, BEHIND], replace(LOCK, is_forced=True), LockState.FORCED, True),
    ("forced in conflict", [READY, member("s2.t1", "x")], replace(LOCK, is_forced=True), LockState.FORCED, True),
    ("forced and draining", [member("s1.t1", "add c", held=[1]), BEHIND], replace(LOCK, is_forced=True),
     LockState.DRAINING, False),
    ("refused", [READY], replace(LOCK, error="no"), LockState.FAILED, True),
    ("refused, then one more", [READY, BEHIND], replace(LOCK, error="no"), LockState.WAITING, False),
    ("begun, then one more", [READY, BEHIND], replace(LOCK, started_at=NOW), LockState.SYNCED, True),
    ("begun, nobody left", [], replace(LOCK, started_at=NOW), LockState.SYNCED, True),
    ("not understood", [UNDECIDED, BEHIND], LOCK, LockState.UNDECIDED, False),
    ("not understood on one shard", [READY, replace(UNDECIDED, shard=BEHIND.shard)], LOCK, LockState.UNDECIDED, False),
    ("not understood, forced", [UNDECIDED], replace(LOCK, is_forced=True), LockState.UNDECIDED, False),
    ("not understood, replaced", [UNDECIDED], replace(LOCK, verdict=Verdict.REPLACE), LockState.SYNCED, True),
    ("its structure is still to be found", [UNSETTLED], LOCK, LockState.DRAINING, False),
    ("a stranger in the group", [READY, STRANGER], LOCK, LockState.SYNCED, True),
    ("the lock of a stranger", [READY, BEHIND, STRANGER], STRANGE, LockState.UNDECIDED, False),
    ("a stranger was replaced", [READY, BEHIND, STRANGER], replace(STRANGE, verdict=Verdict.REPLACE), LockState.SYNCED,
     True),
    ("resolved", [READY], replace(LOCK, resolved_at=NOW), LockState.RESOLVED, False),
    ("the one behind is excused", [READY, BEHIND], replace(LOCK, excused=frozenset({BEHIND.shard})), LockState.SYNCED,
     True),
    ("the one in conflict is excused", [READY, member("s2.t1", "x")], replace(LOCK, excused=frozenset({BEHIND.shard})),
     LockState.SYNCED, True),
    ("only an excused one has it", [READY, BEHIND], replace(LOCK, excused=frozenset({READY.shard})), LockState.RESOLVED,
     False),
    ("the one behind was dropped by an order", [READY, replace(BEHIND, is_dropped=True)], LOCK, LockState.SYNCED, True),
    ("not understood, its shard's own DDL replaced", [replace(UNDECIDED, queue=(replace(
        UNDECIDED.queue[0], verdict=Verdict.REPLACE),))], LOCK, LockState.SYNCED, True),
    ("replaced, one is behind", [READY, BEHIND], replace(LOCK, verdict=Verdict.REPLACE), LockState.WAITING, False),
    ("refused and still begun", [READY], replace(LOCK, error="no", started_at=NOW), LockState.FAILED, True),
]  # fmt: skip


@pytest.mark.parametrize(("members", "lock", "state", "executable"), [case[1:] for case in CASES],
                         ids=[case[0] for case in CASES])  # fmt: skip
def test_case(members: list[ShardState], lock: DdlLock, state: LockState, executable: bool) -> None:
    decision = decide(members, lock, {})
    assert (decision.state, decision.is_executable) == (state, executable)


def test_skipped_lock_is_resolved_whoever_is_behind_but_never_once_it_was_begun() -> None:
    skipped = replace(LOCK, verdict=Verdict.SKIP)
    for members in ([READY, BEHIND], [UNDECIDED], [BEHIND], []):
        decision = decide(members, skipped, {})
        assert decision.is_skipped and not decision.is_executable and not decision.is_withdrawn
    assert not decide([READY], replace(skipped, started_at=NOW), {}).is_skipped


def test_skip_that_is_owed_to_an_open_lock_is_settled_when_it_is_resolved() -> None:
    debt = Owed(READY.shard, LOCK.id, 1, LOCK.agreement, is_open=True)
    assert settlements([READY], {READY.shard: (debt,)}) == ()
    (settled,) = settlements([READY], {READY.shard: (replace(debt, is_open=False),)})
    assert (settled.shard, settled.lock) == (READY.shard, LOCK.id)


def test_withdrawn_lock_keeps_the_debts_of_those_who_stand_at_its_ddl() -> None:
    owing = {state.shard: (Owed(state.shard, LOCK.id, 1, LOCK.agreement),) for state in (READY, BEHIND)}
    assert void([READY, BEHIND], LOCK, owing) == (BEHIND.shard,)


def test_script_is_what_was_ordered_for_all_then_for_the_owner_then_its_own() -> None:
    replaced = replace(READY, queue=(replace(READY.queue[0], replacement=("x", "y")),))
    assert script([READY], LOCK, "s1")[1] == (READY.queue[0].routed,)
    assert script([replaced], LOCK, "s1")[1] == ("x", "y")
    assert script([replaced], replace(LOCK, replacement=("z",)), "s1")[1] == ("z",)


def test_the_lock_of_one_shard_makes_no_other_owe_it_a_skip() -> None:
    what = resolution([READY, BEHIND, STRANGER], STRANGE, {})
    assert (what.resolved, what.owing) == (((STRANGER.shard, 2),), ())
    assert resolution([READY, STRANGER], LOCK, {}).owing == ()


def test_a_stranger_is_admitted_when_its_group_has_its_structure_and_not_asked_about_before() -> None:
    ahead = replace(STRANGER, queue=(replace(STRANGER.queue[0], before="after", after="after"),))
    lock = replace(LOCK, entry=ahead.queue[0])
    assert is_expected([READY, ahead], ahead) and not admissions([READY, ahead])
    assert opening([ahead, READY], {}) == READY.queue[0] and opening([ahead, replace(READY, has_left=True)], {})
    assert decide([READY, ahead], lock, {}).is_withdrawn
    assert admissions([BEHIND, ahead]) == (Admission(ahead.shard, 2, BEHIND.shard),)
    assert admissions([BEHIND, STRANGER]) == () == admissions([ahead])
    decided = replace(ahead, queue=(replace(ahead.queue[0], verdict=Verdict.REPLACE),))
    assert admissions([BEHIND, decided]) == () and not decide([READY, decided], lock, {}).is_withdrawn


def test_a_stranger_that_has_the_ddl_further_behind_owes_it_a_skip() -> None:
    later = replace(STRANGER, queue=(*STRANGER.queue, entry(STRANGER.shard, "add c", 3)))
    assert resolution([READY, later], LOCK, {}).owing == (STRANGER.shard,)


def test_a_lock_of_one_shard_is_opened_last() -> None:
    late = replace(READY, queue=(entry(READY.shard, "late", 2, 9),))
    assert opening([STRANGER, late], {}) == late.queue[0]
    assert opening([STRANGER, BEHIND], {}) == STRANGER.queue[0]


def test_a_source_that_is_not_in_sync_is_waited_for() -> None:
    decision = decide([READY], LOCK, {}, absent=("s9",))
    assert (decision.state, decision.absent) == (LockState.WAITING, ("s9",))


def test_a_shard_that_owes_a_skip_is_in_conflict_with_any_other_ddl() -> None:
    members = [READY, member("s2.t1", "add c")]
    assert decide(members, LOCK, owed("s2.t1", "drop x")).conflicts == (members[1].shard,)


def test_the_owed_ddl_itself_does_not_count_for_the_next_lock_of_the_same_words() -> None:
    members = [READY, member("s2.t1", "add c")]
    decision = decide(members, LOCK, owed("s2.t1", "add c"))
    assert (decision.state, decision.missing) == (LockState.WAITING, (members[1].shard,))
    assert resolution(members, LOCK, owed("s2.t1", "add c")).owing == (members[1].shard,)


def test_debts_are_settled_in_order_one_head_at_a_time() -> None:
    debtor = member("s2.t1", "add c", "add d")
    assert [(s.seq, s.lock) for s in settlements([debtor], owed("s2.t1", "add c", "add d"))] == [(2, "old-0")]
    assert settlements([debtor], owed("s2.t1", "add d", "add c")) == ()
    assert settlements([BEHIND], owed("s2.t1", "add c")) == ()


def test_a_lock_is_opened_for_the_oldest_head_that_is_no_debt() -> None:
    old, new = READY.shard, BEHIND.shard
    states = [replace(READY, queue=(entry(old, "late", 2, 9),)), replace(BEHIND, queue=(entry(new, "early", 2, 5),))]
    assert opening(states, {}) == states[1].queue[0]
    assert opening(states, owed("s2.t1", "early")) == states[0].queue[0]
    assert opening([BEHIND], {}) is None


def test_owner_is_the_first_complete_source_and_stays() -> None:
    members = [member("s1.t1", "add c"), member("s1.t2"), member("s3.t1", "add c"), member("s2.t1", "add c")]
    assert decide(members, LOCK, {}).owner == "s2"
    assert decide(members, replace(LOCK, owner="s3"), {}).owner == "s3"
    assert decide(members, replace(LOCK, owner="gone"), {}).owner == "s2"
    assert decide([READY, member("s1.t2")], LOCK, {}).owner is None
    assert decide([READY, member("s1.t2")], replace(LOCK, is_forced=True), {}).owner == "s1"


NAMES = st.sampled_from(["s1.t1", "s1.t2", "s2.t1", "s3.t1"])
STATES = st.builds(
    lambda name, ddls, held, left: member(name, *ddls, held=held, left=left),
    NAMES,
    st.lists(st.sampled_from(["add c", "add d"]), max_size=2),
    st.lists(st.integers(1, 3), max_size=2),
    st.booleans(),
)
GROUPS = st.lists(STATES, max_size=4, unique_by=lambda state: state.shard)


@given(GROUPS, st.booleans(), st.randoms())
def test_order_does_not_matter_and_repetition_changes_nothing(members, forced, random) -> None:
    lock = replace(LOCK, is_forced=forced)
    first = decide(members, lock, {})
    random.shuffle(members)
    again = decide(members, replace(lock, owner=first.owner, state=first.state), {})
    assert again == first
    assert opening(members, {}) == opening(members[::-1], {})


@given(GROUPS)
def test_only_what_every_present_shard_has_is_executed(members) -> None:
    decision = decide(members, LOCK, {})
    if decision.is_executable:
        assert all(state.queue[0].agreement == "add c" for state in members if not state.has_left)
        assert not [state for state in members if state.has_left and releasable(state)]
        assert resolution(members, LOCK, {}).owing == ()


@given(GROUPS)
def test_every_present_shard_is_named_once(members) -> None:
    decision = decide(members, LOCK, {})
    named = [*decision.ready, *decision.missing, *decision.conflicts]
    if decision.state is not LockState.RESOLVED:
        assert sorted(named) == sorted(set(named))
        assert {state.shard for state in members if not state.has_left} <= set(named)


def test_groups_and_sources() -> None:
    other = replace(member("s2.u1"), target=TableId("shop", "items"))
    assert groups([READY, other, BEHIND]) == {TARGET: (READY, BEHIND), TableId("shop", "items"): (other,)}
    assert complete_sources([READY, member("s1.t2"), BEHIND], {READY.shard, BEHIND.shard}) == ("s2",)


@pytest.mark.parametrize(
    ("task", "target", "name"),
    [
        ("orders-merge", TableId("shop", "orders"), "orders-merge-shop.orders-3"),
        ("a", TableId("a.b", "c"), "a-a~2Eb.c-3"),
        ("a", TableId("a", "b.c"), "a-a.b~2Ec-3"),
        ("ä b", TableId("x", "y~z"), "~C3~A4~20b-x.y~7Ez-3"),
    ],
)
def test_lock_id_fits_a_run_id(task: str, target: TableId, name: str) -> None:
    assert lock_id(task, target, 3) == name


def test_long_names_stay_apart_and_short_enough() -> None:
    ids = {lock_id("t" * 60, TableId("ü" * 60, "x" * 60 + end), 12345) for end in "ab"}
    assert len(ids) == 2
    assert max(map(len, ids)) <= 200
