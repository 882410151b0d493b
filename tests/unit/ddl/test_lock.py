"""The decisions about a lock: the table in the module's docstring, and the properties that they must have."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unshard.core.ddl.lock import (
    DdlLock,
    LockState,
    PendingSkip,
    decide,
    lock_id,
    opening,
    resolution,
    script,
    skip_resolutions,
    void,
)
from unshard.core.ddl.queue import (
    Admission,
    HeldFile,
    OperatorDecision,
    QueueEntry,
    ShardState,
    admissions,
    complete_sources,
    groups,
    is_expected,
    releasable,
)
from unshard.core.model import Location, Shard, TableId
from unshard.core.relay.segment import Statement

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TARGET = TableId("shop", "orders")


def entry(shard: Shard, ddl: str = "add c", seq: int = 1, moment: int = 0) -> QueueEntry:
    statement = Statement(ddl, "", 0, "utf8mb4", moment, "SYSTEM")
    return QueueEntry(shard, TARGET, seq, Location("b.1", seq), statement, ddl, ddl, "before", "after")


def member(name: str, *ddls: str, held: Sequence[int] = (), left: bool = False) -> ShardState:
    """Return a shard with these pending DDLs and with files held after the DDLs `held`; the first DDL is number 2."""
    source, table = name.split(".")
    shard = Shard(source, TableId("shop_1", table))
    queue = tuple(entry(shard, ddl, seq) for seq, ddl in enumerate(ddls, 2))
    files = tuple(HeldFile(shard, seq, 1, part, "", 1, 1, "") for part, seq in enumerate(held))
    return ShardState(shard, TARGET, "after", None, queue, 1 + len(ddls), files, left)


LOCK = DdlLock("x", TARGET, 1, entry(Shard("s1", TableId("shop_1", "t1"))), NOW, NOW)


def pending_skips(name: str, *ddls: str) -> dict[Shard, tuple[PendingSkip, ...]]:
    shard = member(name).shard
    return {shard: tuple(PendingSkip(shard, f"old-{n}", n, ddl) for n, ddl in enumerate(ddls))}


READY, MISSING = member("s1.t1", "add c"), member("s2.t1")
UNDECIDED = replace(READY, queue=(replace(READY.queue[0], after="", reason="unreadable"),))
UNRESOLVED = replace(READY, queue=(replace(READY.queue[0], before="", after=""),))
NEW = member("s3.t9", "create t9")
MISMATCHED = replace(NEW, queue=(replace(NEW.queue[0], before="x", after="x", reason="mismatched", is_alone=True),))
LOCK_OF_MISMATCHED = replace(LOCK, entry=MISMATCHED.queue[0])
CASES: list[tuple[str, list[ShardState], DdlLock, LockState, bool]] = [
    ("one shard is missing", [READY, MISSING], LOCK, LockState.WAITING, False),
    ("all have it", [READY, member("s2.t1", "add c", "add d")], LOCK, LockState.SYNCED, True),
    ("another DDL", [READY, member("s2.t1", "drop c")], LOCK, LockState.CONFLICT, False),
    ("another DDL and one shard missing", [READY, member("s2.t1", "x"), MISSING], LOCK, LockState.CONFLICT, False),
    ("older rows wait", [READY, member("s2.t1", "add c", held=[1])], LOCK, LockState.DRAINING, False),
    ("later rows wait", [READY, member("s2.t1", "add c", held=[2, 2])], LOCK, LockState.SYNCED, True),
    ("the missing shard was dropped", [READY, member("s2.t1", left=True)], LOCK, LockState.SYNCED, True),
    ("rows of a dropped shard wait", [READY, member("s2.t1", held=[1], left=True)], LOCK, LockState.DRAINING, False),
    ("only a dropped shard has it", [member("s1.t1", "add c", left=True), MISSING], LOCK, LockState.WAITING, False),
    ("no shard has it", [MISSING], LOCK, LockState.RESOLVED, False),
    ("forced", [READY, MISSING], replace(LOCK, is_forced=True), LockState.FORCED, True),
    ("forced in conflict", [READY, member("s2.t1", "x")], replace(LOCK, is_forced=True), LockState.FORCED, True),
    (
        "forced and draining",
        [member("s1.t1", "add c", held=[1]), MISSING],
        replace(LOCK, is_forced=True),
        LockState.DRAINING,
        False,
    ),
    ("refused", [READY], replace(LOCK, error="no"), LockState.FAILED, True),
    ("refused, then a new shard", [READY, MISSING], replace(LOCK, error="no"), LockState.WAITING, False),
    ("begun, then a new shard", [READY, MISSING], replace(LOCK, started_at=NOW), LockState.SYNCED, True),
    ("begun, no shard left", [], replace(LOCK, started_at=NOW), LockState.SYNCED, True),
    ("undecided", [UNDECIDED, MISSING], LOCK, LockState.UNDECIDED, False),
    ("undecided on one shard", [READY, replace(UNDECIDED, shard=MISSING.shard)], LOCK, LockState.UNDECIDED, False),
    ("undecided, forced", [UNDECIDED], replace(LOCK, is_forced=True), LockState.UNDECIDED, False),
    ("undecided, replaced", [UNDECIDED], replace(LOCK, verdict=OperatorDecision.REPLACE), LockState.SYNCED, True),
    ("its structure is not known yet", [UNRESOLVED], LOCK, LockState.DRAINING, False),
    ("a mismatched shard in the group", [READY, MISMATCHED], LOCK, LockState.SYNCED, True),
    ("the lock of a mismatched shard", [READY, MISSING, MISMATCHED], LOCK_OF_MISMATCHED, LockState.UNDECIDED, False),
    (
        "the DDL of a mismatched shard was replaced",
        [READY, MISSING, MISMATCHED],
        replace(LOCK_OF_MISMATCHED, verdict=OperatorDecision.REPLACE),
        LockState.SYNCED,
        True,
    ),
    ("resolved", [READY], replace(LOCK, resolved_at=NOW), LockState.RESOLVED, False),
    (
        "the missing shard is exempted",
        [READY, MISSING],
        replace(LOCK, exempted=frozenset({MISSING.shard})),
        LockState.SYNCED,
        True,
    ),
    (
        "the shard in conflict is exempted",
        [READY, member("s2.t1", "x")],
        replace(LOCK, exempted=frozenset({MISSING.shard})),
        LockState.SYNCED,
        True,
    ),
    (
        "only an exempted shard has it",
        [READY, MISSING],
        replace(LOCK, exempted=frozenset({READY.shard})),
        LockState.RESOLVED,
        False,
    ),
    (
        "the missing shard was dropped by operator",
        [READY, replace(MISSING, is_dropped=True)],
        LOCK,
        LockState.SYNCED,
        True,
    ),
    (
        "undecided, its shard's own DDL replaced",
        [replace(UNDECIDED, queue=(replace(UNDECIDED.queue[0], verdict=OperatorDecision.REPLACE),))],
        LOCK,
        LockState.SYNCED,
        True,
    ),
    (
        "replaced, one shard is missing",
        [READY, MISSING],
        replace(LOCK, verdict=OperatorDecision.REPLACE),
        LockState.WAITING,
        False,
    ),
    ("refused and still begun", [READY], replace(LOCK, error="no", started_at=NOW), LockState.FAILED, True),
]


@pytest.mark.parametrize(
    ("members", "lock", "state", "executable"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_case(members: list[ShardState], lock: DdlLock, state: LockState, executable: bool) -> None:
    decision = decide(members, lock, {})
    assert (decision.state, decision.is_executable) == (state, executable)


def test_skipped_lock_is_resolved_with_any_missing_shards_but_not_after_it_was_begun() -> None:
    skipped = replace(LOCK, verdict=OperatorDecision.SKIP)
    for members in ([READY, MISSING], [UNDECIDED], [MISSING], []):
        decision = decide(members, skipped, {})
        assert decision.is_skipped and not decision.is_executable and not decision.is_withdrawn
    assert not decide([READY], replace(skipped, started_at=NOW), {}).is_skipped


def test_pending_skip_of_an_open_lock_is_used_when_the_lock_is_resolved() -> None:
    pending_skip = PendingSkip(READY.shard, LOCK.id, 1, LOCK.fingerprint, is_open=True)
    assert skip_resolutions([READY], {READY.shard: (pending_skip,)}) == ()
    (settled,) = skip_resolutions([READY], {READY.shard: (replace(pending_skip, is_open=False),)})
    assert (settled.shard, settled.lock) == (READY.shard, LOCK.id)


def test_withdrawn_lock_keeps_the_pending_skips_of_shards_with_its_ddl_at_their_head() -> None:
    skips = {state.shard: (PendingSkip(state.shard, LOCK.id, 1, LOCK.fingerprint),) for state in (READY, MISSING)}
    assert void([READY, MISSING], LOCK, skips) == (MISSING.shard,)


def test_script_is_the_replacement_for_all_then_that_for_the_owner_then_the_owners_ddl() -> None:
    replaced = replace(READY, queue=(replace(READY.queue[0], replacement=("x", "y")),))
    assert script([READY], LOCK, "s1")[1] == (READY.queue[0].routed,)
    assert script([replaced], LOCK, "s1")[1] == ("x", "y")
    assert script([replaced], replace(LOCK, replacement=("z",)), "s1")[1] == ("z",)


def test_the_lock_of_one_shard_gives_no_other_a_pending_skip() -> None:
    what = resolution([READY, MISSING, MISMATCHED], LOCK_OF_MISMATCHED, {})
    assert (what.resolved, what.skipping) == (((MISMATCHED.shard, 2),), ())
    assert resolution([READY, MISMATCHED], LOCK, {}).skipping == ()


def test_a_mismatched_shard_is_admitted_when_its_group_has_its_structure() -> None:
    ahead = replace(MISMATCHED, queue=(replace(MISMATCHED.queue[0], before="after", after="after"),))
    lock = replace(LOCK, entry=ahead.queue[0])
    assert is_expected([READY, ahead], ahead) and not admissions([READY, ahead])
    assert opening([ahead, READY], {}) == READY.queue[0] and opening([ahead, replace(READY, has_left=True)], {})
    assert decide([READY, ahead], lock, {}).is_withdrawn
    assert admissions([MISSING, ahead]) == (Admission(ahead.shard, 2, MISSING.shard),)
    assert admissions([MISSING, MISMATCHED]) == () == admissions([ahead])
    decided = replace(ahead, queue=(replace(ahead.queue[0], verdict=OperatorDecision.REPLACE),))
    assert admissions([MISSING, decided]) == () and not decide([READY, decided], lock, {}).is_withdrawn


def test_a_mismatched_shard_with_the_ddl_later_in_its_queue_gets_a_pending_skip() -> None:
    later = replace(MISMATCHED, queue=(*MISMATCHED.queue, entry(MISMATCHED.shard, "add c", 3)))
    assert resolution([READY, later], LOCK, {}).skipping == (MISMATCHED.shard,)


def test_a_lock_of_one_shard_is_opened_last() -> None:
    late = replace(READY, queue=(entry(READY.shard, "late", 2, 9),))
    assert opening([MISMATCHED, late], {}) == late.queue[0]
    assert opening([MISMATCHED, MISSING], {}) == MISMATCHED.queue[0]


def test_a_source_that_is_not_in_sync_is_waited_for() -> None:
    decision = decide([READY], LOCK, {}, absent=("s9",))
    assert (decision.state, decision.absent) == (LockState.WAITING, ("s9",))


def test_a_shard_with_a_pending_skip_is_in_conflict_with_any_other_ddl() -> None:
    members = [READY, member("s2.t1", "add c")]
    assert decide(members, LOCK, pending_skips("s2.t1", "drop x")).conflicts == (members[1].shard,)


def test_the_pending_skip_itself_is_not_ready_for_the_next_lock_of_the_same_ddl() -> None:
    members = [READY, member("s2.t1", "add c")]
    decision = decide(members, LOCK, pending_skips("s2.t1", "add c"))
    assert (decision.state, decision.missing) == (LockState.WAITING, (members[1].shard,))
    assert resolution(members, LOCK, pending_skips("s2.t1", "add c")).skipping == (members[1].shard,)


def test_pending_skips_are_used_in_order_one_head_at_a_time() -> None:
    shard = member("s2.t1", "add c", "add d")
    assert [(s.seq, s.lock) for s in skip_resolutions([shard], pending_skips("s2.t1", "add c", "add d"))] == [
        (2, "old-0")
    ]
    assert skip_resolutions([shard], pending_skips("s2.t1", "add d", "add c")) == ()
    assert skip_resolutions([MISSING], pending_skips("s2.t1", "add c")) == ()


def test_a_lock_is_opened_for_the_oldest_head_without_a_pending_skip() -> None:
    old, new = READY.shard, MISSING.shard
    states = [replace(READY, queue=(entry(old, "late", 2, 9),)), replace(MISSING, queue=(entry(new, "early", 2, 5),))]
    assert opening(states, {}) == states[1].queue[0]
    assert opening(states, pending_skips("s2.t1", "early")) == states[0].queue[0]
    assert opening([MISSING], {}) is None


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
        assert all(state.queue[0].fingerprint == "add c" for state in members if not state.has_left)
        assert not [state for state in members if state.has_left and releasable(state)]
        assert resolution(members, LOCK, {}).skipping == ()


@given(GROUPS)
def test_every_present_shard_is_named_once(members) -> None:
    decision = decide(members, LOCK, {})
    named = [*decision.ready, *decision.missing, *decision.conflicts]
    if decision.state is not LockState.RESOLVED:
        assert sorted(named) == sorted(set(named))
        assert {state.shard for state in members if not state.has_left} <= set(named)


def test_groups_and_sources() -> None:
    other = replace(member("s2.u1"), target=TableId("shop", "items"))
    assert groups([READY, other, MISSING]) == {TARGET: (READY, MISSING), TableId("shop", "items"): (other,)}
    assert complete_sources([READY, member("s1.t2"), MISSING], {READY.shard, MISSING.shard}) == ("s2",)


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
