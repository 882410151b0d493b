"""The stages of a window and of the full load, and the sentences that explain a planned window."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.unit.window.test_planning import NAMED, SIZE, T1, T2, TARGET, at, ddl, entry, held, plan, rows, state
from unshard.core.ddl.lock import DdlLock, LockState, decide, lock_stages
from unshard.core.ddl.queue import ShardState
from unshard.core.model import Shard
from unshard.core.stages import evaluate
from unshard.core.task.state import FullMode, Phase, last_stage, source_stages
from unshard.core.window.plan import Contradiction, Plan
from unshard.core.window.suspension import TargetRefused
from unshard.core.window.windowstages import Attempt, Done, LockHold, Surroundings, explain, following
from unshard.errors.rows import NoTargetTable

WINDOW = plan([rows(0, T1)], [state(T1)])
CONTRADICTION = Contradiction(Shard("s1", T1), "seg-0", 0, at(0), "a", "b", 0)
REFUSED = TargetRefused(TARGET, NoTargetTable(str(TARGET)))
ALL = ["begin", "create-targets", "move", "commit", "sweep"]
ATTEMPTS = {
    "has not begun": (Attempt(), ALL),
    "found contradicting rows": (Attempt(contradictions=(CONTRADICTION,)), ["plan-again", *ALL]),
    "found targets that refuse": (Attempt(refused=(REFUSED,)), ["suspend", *ALL]),
    "the targets were altered since": (Attempt(is_again=True), ALL),
    "has moved all rows": (Attempt(Done.MOVED), ["commit", "sweep"]),
    "is committed": (Attempt(Done.COMMITTED), ["sweep"]),
    "is over": (Attempt(Done.SWEPT), []),
}
AFTER = {
    "begin": Done.BEGUN,
    "create-targets": Done.CREATED,
    "move": Done.MOVED,
    "delete-rows": Done.DELETED,
    "commit": Done.COMMITTED,
    "sweep": Done.SWEPT,
}


@pytest.mark.parametrize("case", ATTEMPTS)
def test_stages_that_are_left_follow_from_the_attempt(case: str) -> None:
    attempt, names = ATTEMPTS[case]
    assert [stage.kind for stage in following(WINDOW, attempt)] == names


def test_rows_of_a_dropped_shard_are_deleted_before_the_commit() -> None:
    made = plan([ddl(0, "clear t_1"), rows(1, T2)], [state(T1), state(T2)], rows_of=lambda *_: NAMED)
    assert [stage.kind for stage in following(made)] == [*ALL[:3], "delete-rows", *ALL[3:]]
    assert [stage.kind for stage in following(made, Attempt(Done.MOVED))] == ["delete-rows", *ALL[3:]]
    assert [stage.kind for stage in following(made, Attempt(Done.DELETED))] == ALL[3:]
    (detail,) = (
        each for stage in following(made) for each in explain(stage, made, Surroundings()) if each.action == "delete"
    )
    assert (detail.shard, detail.target, detail.ddl) == (Shard("s1", T1), TARGET, "clear t_1")


def test_empty_plan_has_no_stages() -> None:
    assert following(plan([], [state(T1)])) == ()


def test_evaluator_runs_the_first_stage_and_derives_the_rest_again() -> None:
    """The second attempt begins anew after the first was refused."""
    ran: list[str] = []

    def run(stage, attempt: Attempt) -> Attempt:
        ran.append(stage.kind)
        if stage.kind == "suspend":
            return Attempt(is_again=True)
        if stage.kind == "move" and not attempt.is_again:
            return Attempt(refused=(REFUSED,))
        return replace(attempt, done=AFTER[stage.kind])

    assert evaluate(Attempt(), lambda attempt: following(WINDOW, attempt), run).done is Done.SWEPT
    assert ran == ["begin", "create-targets", "move", "suspend", *ALL]


def test_every_stage_describes_itself_in_one_sentence() -> None:
    for attempt, _ in ATTEMPTS.values():
        for stage in following(WINDOW, attempt):
            assert stage.text and "\n" not in stage.text


def around(*shards: ShardState, **parts: object) -> Surroundings:
    return Surroundings({each.shard: each for each in shards}, **parts)  # type: ignore[arg-type]


def told(made: Plan, found: Surroundings) -> list[tuple[str, str, str]]:
    details = (detail for stage in following(made) for detail in explain(stage, made, found))
    return [(detail.action, detail.lock, detail.text) for detail in details]


LOCK = LockHold("shop-shop.t-1", "agreed", "wait for s1 shop_1.t_2 to reach the DDL")


def test_held_rows_name_the_lock_and_what_it_waits_for() -> None:
    shards = state(T1, queue=(entry(T1, 1),), last_seq=1, held=(held(T1, 1),)), state(T2)
    made = plan([rows(0, T1, T2)], shards)
    assert told(made, around(*shards, locks={TARGET: LOCK})) == [
        ("apply", "", "apply new rows of s1 shop_1.t_2 to shop.t"),
        (
            "hold",
            "shop-shop.t-1",
            "hold new rows of s1 shop_1.t_1 for shop.t: lock shop-shop.t-1 holds them until `routed` is resolved "
            "(wait for s1 shop_1.t_2 to reach the DDL)",
        ),
        (
            "keep",
            "shop-shop.t-1",
            "keep 1 held rows (10 B) of s1 shop_1.t_1 held: lock shop-shop.t-1 holds them until `routed` is resolved "
            "(wait for s1 shop_1.t_2 to reach the DDL)",
        ),
    ]


def test_released_rows_are_named() -> None:
    shard = state(T1, last_seq=1, held=(held(T1, 1),))
    assert told(plan([], [shard]), around(shard)) == [
        ("release", "", "release 1 held rows (10 B) of s1 shop_1.t_1 into shop.t: nothing holds them any more")
    ]


def test_ddl_of_the_window_is_queued_and_holds_the_rows_after_it() -> None:
    shard = state(T1)
    made = plan([ddl(0, "alter t_1 B"), rows(1, T1)], [shard])
    found = around(shard, locks={TARGET: replace(LOCK, fingerprint="alter B")})
    assert [(action, lock) for action, lock, _ in told(made, found)] == [
        ("hold", "shop-shop.t-1"),
        ("queue", "shop-shop.t-1"),
    ]
    assert [text for _, _, text in told(made, around(shard))] == [
        "hold new rows of s1 shop_1.t_1 for shop.t: this window queues `alter shop.t B`",
        "queue `alter shop.t B` of s1 shop_1.t_1, because the group must agree before the target gets it",
    ]


def test_rows_of_a_suspended_target_are_held_with_its_error() -> None:
    shard = state(T1)
    made = plan([rows(0, T1)], [shard], stopped=frozenset({TARGET}))
    ((action, _, text),) = told(made, around(shard, suspended={TARGET: "[US-1] no"}))
    assert (action, text) == (
        "hold",
        "hold new rows of s1 shop_1.t_1 for shop.t: the target is suspended: [US-1] no",
    )


def test_shards_that_join_and_leave_are_named() -> None:
    made = plan([ddl(0, "create t_2 A"), ddl(1, "drop t_1")], [state(T1)], size=10 * SIZE)
    actions = [(action, text.split(",")[0]) for action, _, text in told(made, around(state(T1)))]
    assert actions == [
        ("join", "s1 shop_1.t_2 joins the group of shop.t"),
        ("leave", "s1 shop_1.t_1 leaves the group of shop.t"),
    ]


# --- locks

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def waits_of(*members: ShardState, **parts: object) -> list[tuple[str, str]]:
    lock = replace(DdlLock("l", TARGET, 1, entry(T1, 1), MOMENT, MOMENT), **parts)  # type: ignore[arg-type]
    decision = decide(members, lock, {})
    return [(stage.kind, stage.text) for stage in lock_stages(lock, decision, lock.replacement or ("routed",))]


EXECUTE = ["intent", "execute", "resolve"]


def test_lock_waits_for_shards_then_executes() -> None:
    found = waits_of(state(T1, queue=(entry(T1, 1),)), state(T2))
    assert [name for name, _ in found] == ["wait-for-shards", *EXECUTE]
    assert found[0][1] == "wait for s1 shop_1.t_2 to reach the DDL"


def test_lock_that_drains_waits_for_rows() -> None:
    second = state(T1, queue=(entry(T1, 2),), held=(held(T1, 1),))
    ((name, text), *rest) = waits_of(second)
    assert (name, [each for each, _ in rest]) == ("wait-for-rows", EXECUTE)
    assert text == "wait for the windows that apply the rows of s1 shop_1.t_1 from before the DDL"


def test_lock_in_conflict_and_undecided_waits_for_an_operator() -> None:
    other = replace(entry(T2, 1), fingerprint="other")
    names = [name for name, _ in waits_of(state(T1, queue=(entry(T1, 1),)), state(T2, queue=(other,)))]
    assert names == ["wait-for-operator", *EXECUTE]
    odd = replace(entry(T1, 1), reason="odd")
    assert [name for name, _ in waits_of(state(T1, queue=(odd,)))] == ["wait-for-operator"]


def test_lock_of_several_statements_goes_on_with_the_next() -> None:
    found = waits_of(state(T1, queue=(entry(T1, 1),)), replacement=("a", "b", "c"), done=1)
    assert [name for name, _ in found] == ["intent", "execute", "note", *EXECUTE]
    assert "statement 2/3" in found[0][1] and "execute `b`" in found[1][1]


def test_refused_statement_is_shown_with_the_message() -> None:
    found = waits_of(state(T1, queue=(entry(T1, 1),)), error="no\nroom", state=LockState.FAILED)
    assert found[1][1].endswith("; the target has refused it: no room")


# --- the full load

PHASES = {
    Phase.NEW: ["snapshot", "dump", "load"],
    Phase.SNAPSHOT: ["dump", "load"],
    Phase.DUMPED: ["load"],
    Phase.LOADED: [],
    Phase.SYNC: [],
}


@pytest.mark.parametrize("phase", PHASES)
def test_full_load_goes_on_from_the_phase(phase: Phase) -> None:
    assert [stage.kind for stage in source_stages(phase, FullMode())] == PHASES[phase]


def test_modes_leave_stages_out() -> None:
    only_dump = FullMode(loads=False, ends=False, syncs=False)
    assert [stage.kind for stage in source_stages(Phase.NEW, only_dump)] == ["snapshot", "dump"]
    only_load = FullMode(begins=False)
    assert [stage.kind for stage in source_stages(Phase.DUMPED, only_load)] == ["load"]
    assert last_stage({"s1": Phase.NEW}, only_dump) is None


def test_handover_is_left_until_all_sources_have_it() -> None:
    assert last_stage({"s1": Phase.SYNC, "s2": Phase.LOADED}, FullMode()) is not None
    assert last_stage({"s1": Phase.SYNC, "s2": Phase.SYNC}, FullMode()) is None
    assert last_stage({"s1": Phase.LOADED}, FullMode(syncs=False)) is None
