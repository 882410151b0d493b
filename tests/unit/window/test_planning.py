"""Planning of a window: the table of the module's docstring, case by case."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from unshard.core.ddl.effects import (
    Coordinated,
    Effect,
    Ignored,
    Joins,
    Leaves,
    Moves,
    Renamed,
    Together,
    Truncates,
    Undecided,
    UnreadIgnored,
)
from unshard.core.ddl.queue import HeldFile, QueueEntry, ShardState, WholeChange
from unshard.core.model import Location, Shard, TableId
from unshard.core.relay.segment import ByteRange, Commit, Prepared, Segment, Statement
from unshard.core.rules.reshaping import Extracted
from unshard.core.rules.shardrows import ShardRows
from unshard.core.window.plan import Contradiction, Plan, Rename, WindowLimits
from unshard.core.window.planning import plan_window
from unshard.core.window.shardchanges import PlanRules
from unshard.core.window.suspension import held_behind, withheld
from unshard.errors.ddl import DdlUnreadable
from unshard.errors.locks import SegmentGap, UnknownShard

T1, T2, OTHER = TableId("shop_1", "t_1"), TableId("shop_1", "t_2"), TableId("other", "x")
TARGET = TableId("shop", "t")
FILE = "b.000001"
SIZE = 100
NAMED = ShardRows((Extracted("c", "1"),))


def at(number: int) -> Location:
    return Location(FILE, number * SIZE)


def rows(number: int, *tables: TableId, size: int = SIZE) -> Segment:
    ranges = (ByteRange(0, size, tuple((table, 1) for table in tables)),)
    return Segment(
        "s1", FILE, number * SIZE, (number + 1) * SIZE, f"seg-{number}", f"g{number}", 7, 10 + number, ranges
    )


def ddl(number: int, text: str) -> Segment:
    statement = Statement(text, "shop_1", 0, "utf8mb4", 1, "SYSTEM")
    return Segment("s1", FILE, number * SIZE, (number + 1) * SIZE, f"seg-{number}", "", 0, 0, (), statement)


def entry(table: TableId, seq: int, before: str = "A", after: str = "B", source: str = "s1") -> QueueEntry:
    statement = Statement("alter", "", 0, "utf8mb4", 1, "SYSTEM")
    shard = Shard(source, table)
    return QueueEntry(shard, TARGET, seq, at(0), statement, "routed", "agreed", before, after)


def held(table: TableId, seq: int, window: int = 1, size: int = 10, safe: bool = False) -> HeldFile:
    return HeldFile(Shard("s1", table), seq, window, 0, f"{table}/{seq}/{window}", 1, size, "B", safe)


def state(table: TableId, structure: str = "A", source: str = "s1", **parts: object) -> ShardState:
    body: dict[str, object] = {"start": None, "queue": (), "last_seq": 0, "held": ()}
    return ShardState(Shard(source, table), TARGET, structure, **(body | parts))  # type: ignore[arg-type]


def effects(statement: Statement, present) -> Sequence[Effect]:
    """`alter t_1 B`, `create t_1 B`, `drop t_1`, … with the structure after it."""
    verb, name, *rest = statement.text.split()
    if name in ("table", "sequence"):
        return []
    table = TableId("shop_1" if name.startswith("t_") else "other", name)
    others = [TableId("shop_1", one) for one in (name, *rest)]
    found: dict[str, Callable[[], Sequence[Effect]]] = {
        "alter": lambda: [
            Coordinated(table, f"alter shop.t {rest[0]}", f"alter {rest[0]}", rest[0] if present.get(table) else "")
        ],
        "odd": lambda: [Undecided(table, "odd", statement.text, "odd")],
        "odd-new": lambda: [Undecided(table, "odd", statement.text, "odd", is_new=True)],
        "create": lambda: [Joins(table, rest[0], statement.text)],
        "replace": lambda: [Leaves(table), Joins(table, rest[0], statement.text)],
        "drop": lambda: [Leaves(one) for one in others],
        "rename": lambda: [Renamed(*pair) for pair in zip(others[::2], others[1::2], strict=True)],
        "move": lambda: [Leaves(table), Renamed(*others[2:])],
        "truncate": lambda: [Ignored(table)],
        "clear": lambda: [Truncates(one, is_whole=False, removes_rows=True) for one in others],
        "remove": lambda: [Leaves(one, removes_rows=True) for one in others],
        "anew": lambda: [Leaves(table, removes_rows=True), Joins(table, rest[0], statement.text)],
        "nothing": lambda: [UnreadIgnored()],
    }
    if verb not in found:
        raise DdlUnreadable(statement.text, "what?")
    return found[verb]()


def plan(segments: Sequence[Segment], shards: Sequence[ShardState], size: int = 10 * SIZE, **rules: object) -> Plan:
    given = {"target_of": {T1: TARGET, T2: TARGET}.get, "effects": effects, "window_bytes": size} | rules
    begins = segments[0].begins if segments else at(0)
    return plan_window("s1", 5, begins, segments, shards, PlanRules(**given))  # type: ignore[arg-type]


def holds(made: Plan) -> list[tuple[str, str, str, int | None]]:
    return [(read.segment, d.shard.table.name, d.structure, d.hold) for read in made.reads for d in read.dispositions]


def test_rows_are_applied_and_other_tables_are_passed_over() -> None:
    made = plan([rows(0, T1, OTHER), rows(1, OTHER), rows(2, T2)], [state(T1), state(T2, "B")])
    assert holds(made) == [("seg-0", "t_1", "A", None), ("seg-2", "t_2", "B", None)]
    assert (made.begins, made.ends, made.gtid, made.last_time, made.safe) == (at(0), at(3), "g2", 12, False)
    assert made.targets == {TARGET} and made.moves_rows and not made.is_empty


def test_nothing_to_do_is_an_empty_plan() -> None:
    made = plan([], [state(T1)])
    assert made.is_empty and not made.moves_rows


def test_rows_behind_a_ddl_of_this_window_are_held_behind_it() -> None:
    made = plan(
        [rows(0, T1), ddl(1, "alter t_1 B"), rows(2, T1, T2), ddl(3, "alter t_1 C"), rows(4, T1)],
        [state(T1, last_seq=3), state(T2)],
    )
    assert holds(made) == [
        ("seg-0", "t_1", "A", None),
        ("seg-2", "t_1", "B", 4),
        ("seg-2", "t_2", "A", None),
        ("seg-4", "t_1", "C", 5),
    ]
    assert [(e.seq, e.before, e.after, e.location) for e in made.queued] == [(4, "A", "B", at(2)), (5, "B", "C", at(4))]
    assert [(c.structure, c.location, c.joins) for c in made.structures] == [("B", at(2), False), ("C", at(4), False)]


def test_a_shard_with_a_pending_ddl_is_held() -> None:
    made = plan([rows(0, T1)], [state(T1, "B", queue=(entry(T1, 2),), last_seq=2)])
    assert holds(made) == [("seg-0", "t_1", "B", 2)]
    assert made.targets == frozenset()


def test_released_rows_come_first_and_the_shard_goes_on_behind_them() -> None:
    files = (held(T1, 1, 3), held(T1, 2, 4))
    made = plan([rows(0, T1)], [state(T1, "B", last_seq=2, held=files)])
    assert [release.files for release in made.releases] == [files]
    assert holds(made) == [("seg-0", "t_1", "B", None)]


def test_only_what_stands_before_the_pending_ddl_is_released() -> None:
    files = (held(T1, 1, 3), held(T1, 2, 4))
    made = plan([rows(0, T1)], [state(T1, "B", queue=(entry(T1, 2),), last_seq=2, held=files)])
    assert [release.files for release in made.releases] == [files[:1]]
    assert holds(made) == [("seg-0", "t_1", "B", 2)]


def test_a_shard_stays_held_while_a_part_of_its_rows_is_left() -> None:
    files = (held(T1, 1, 3, size=60), held(T1, 1, 4, size=60))
    made = plan([rows(0, T1), rows(1, T1)], [state(T1, "B", last_seq=1, held=files)], size=100)
    assert [release.files for release in made.releases] == [files[:1]]
    assert holds(made) == [("seg-0", "t_1", "B", 1)]
    assert made.ends == at(1), "the window is full, yet it moves on"


def test_the_oldest_rows_of_all_shards_are_released_first() -> None:
    shards = [
        state(T1, last_seq=1, held=(held(T1, 1, 5), held(T1, 1, 7))),
        state(T2, last_seq=1, held=(held(T2, 1, 6),)),
    ]
    made = plan([], shards, size=25)
    assert [(release.shard.table, release.files) for release in made.releases] == [
        (T1, (held(T1, 1, 5),)),
        (T2, (held(T2, 1, 6),)),
    ]


def test_one_file_larger_than_a_window_is_released_nevertheless() -> None:
    made = plan([], [state(T1, last_seq=1, held=(held(T1, 1, size=10**9),))])
    assert len(made.releases) == 1


def test_rows_that_were_held_in_safe_mode_are_released_in_safe_mode() -> None:
    assert plan([], [state(T1, last_seq=1, held=(held(T1, 1, safe=True),))]).safe


@pytest.mark.parametrize(("until", "safe"), [(None, False), (at(0), False), (at(1), True)])
def test_windows_are_safe_until_the_dump_has_ended(until: Location | None, safe: bool) -> None:
    assert plan([rows(0, T1)], [state(T1)], safe_until=until).safe is safe
    assert plan([rows(0, T1)], [state(T1)], safe_until=until, force_safe=True).safe


@pytest.mark.parametrize(("size", "ends"), [(1, 1), (SIZE, 1), (2 * SIZE, 2), (10 * SIZE, 6)])
def test_a_window_ends_at_its_size_but_passes_at_least_one_segment(size: int, ends: int) -> None:
    segments = [rows(0, T1), rows(1, T1), rows(2, T1), rows(3, T1), rows(4, T1), rows(5, OTHER)]
    assert plan(segments, [state(T1)], size).ends == at(ends)


def test_segments_of_no_interest_weigh_nothing() -> None:
    assert plan([rows(n, OTHER) for n in range(50)], [state(T1)], SIZE).ends == at(50)


def test_rows_that_the_dump_has_are_passed_over() -> None:
    made = plan([rows(0, T1), rows(1, T1, T2), rows(2, T1)], [state(T1, start=Location(FILE, 150)), state(T2)])
    starts = [(read.segment, d.shard.table.name, d.start) for read in made.reads for d in read.dispositions]
    assert starts == [("seg-1", "t_1", Location(FILE, 150)), ("seg-1", "t_2", None), ("seg-2", "t_1", None)]


def test_what_was_prepared_before_is_read_where_it_is_committed() -> None:
    prepared = Prepared("x", "seg-old", "b.000000", 40, 90, ((T1, 1), (T2, 2), (OTHER, 1)))
    segment = replace(rows(1, T1), commits=(Commit(prepared, 150),))
    states = [state(T1, start=Location(FILE, 160)), state(T2, start=Location(FILE, 149))]
    first, second = plan([rows(0, OTHER), segment], states).reads
    assert (first.segment, first.file, first.ranges, first.committed) == ("seg-old", "b.000000", ((40, 90),), True)
    assert [(d.shard.table, d.start) for d in first.dispositions] == [(T2, None)], "the dump has what ends before"
    assert (second.segment, second.committed, [d.shard.table for d in second.dispositions]) == ("seg-1", False, [T1])
    held_back = plan([segment], [state(T1, queue=(entry(T1, 3),), last_seq=3), state(T2, is_dropped=True)])
    assert holds(held_back) == [("seg-old", "t_1", "A", 3), ("seg-1", "t_1", "A", 3)] and held_back.passed == 2


def contradiction(table: TableId, segment: str, location: Location, committed: bool = False) -> Contradiction:
    return Contradiction(Shard("s1", table), segment, 40 if committed else 0, location, "LONG", "differs", 0, committed)


def test_rows_are_held_raw_from_where_they_contradict_their_structure() -> None:
    segments, border = [rows(0, T1, T2), rows(1, T1, T2), ddl(2, "alter t_1 C"), rows(3, T1)], Location(FILE, 150)
    states = [state(T1, last_seq=4, start=Location(FILE, 120)), state(T2)]
    made = plan(segments, states, contradictions=(contradiction(T1, "seg-1", border),) * 2)
    assert holds(made) == [
        ("seg-0", "t_2", "A", None),
        ("seg-1", "t_1", "A", None),
        ("seg-1", "t_1", "", 5),
        ("seg-1", "t_2", "A", None),
        ("seg-3", "t_1", "", 6),
    ]
    cut = [(d.start, d.until) for read in made.reads for d in read.dispositions if read.segment == "seg-1"]
    assert cut == [(Location(FILE, 120), border), (border, None), (None, None)]
    first, second = made.queued
    assert (first.seq, first.location, first.before, first.after) == (5, border, "A", "")
    assert "[US-3032]" in first.reason and "shop_1.t_1" in first.reason and second.reason == ""
    assert "shop_1.t_1" in first.statement.text and "shop.t " in first.routed
    assert made.ends == at(4) and len(made.contradictions) == 2


def test_a_contradiction_at_the_beginning_leaves_no_rows_before_it() -> None:
    made = plan([rows(1, T1)], [state(T1)], contradictions=(contradiction(T1, "seg-1", at(1)),))
    assert holds(made) == [("seg-1", "t_1", "", 1)] and made.queued[0].location == at(1)
    dropped = plan([rows(1, T1)], [state(T1, is_dropped=True)], contradictions=(contradiction(T1, "seg-1", at(1)),))
    assert dropped.queued == () and dropped.reads == ()
    unknown = plan([rows(1, T1)], [state(T1, "", last_seq=3)], contradictions=(contradiction(T1, "seg-1", at(1)),))
    assert unknown.queued == () and holds(unknown) == [("seg-1", "t_1", "", 3)]


def test_prepared_rows_that_contradict_are_held_raw_from_the_segment_of_their_commit() -> None:
    prepared = Prepared("x", "seg-old", "b.000000", 40, 90, ((T1, 1), (T2, 1)))
    segment = replace(rows(1, T1), commits=(Commit(prepared, 150),))
    found = contradiction(T1, "seg-old", Location("b.000000", 30), committed=True)
    made = plan([rows(0, T1), segment], [state(T1), state(T2)], contradictions=(found,))
    assert holds(made) == [
        ("seg-0", "t_1", "A", None),
        ("seg-old", "t_1", "", 1),
        ("seg-old", "t_2", "A", None),
        ("seg-1", "t_1", "", 1),
    ]
    assert made.queued[0].location == at(1)
    assert [(d.start, d.until) for read in made.reads for d in read.dispositions] == [(None, None)] * 4


def test_a_gap_is_an_error() -> None:
    with pytest.raises(SegmentGap):
        plan([rows(0, T1), rows(2, T1)], [state(T1)])


def test_rows_of_a_table_that_is_routed_and_unknown_are_an_error() -> None:
    with pytest.raises(UnknownShard, match=r"s1 shop_1\.t_2"):
        plan([rows(0, T1, T2)], [state(T1)])


def test_a_ddl_of_an_unknown_table_holds_this_table_only() -> None:
    made = plan([ddl(0, "alter t_2 B"), rows(1, T1, T2)], [state(T1)])
    (found,) = made.queued
    assert (found.shard.table, found.is_alone, found.after) == (T2, True, "") and "[US-5002]" in found.reason
    assert holds(made) == [("seg-1", "t_1", "A", None), ("seg-1", "t_2", "", 1)]


def test_what_cannot_be_read_and_names_no_shard_ends_the_window_before_it() -> None:
    assert plan([rows(0, T1), ddl(1, "nonsense t_1")], [state(T1)]).ends == at(1)
    with pytest.raises(DdlUnreadable):
        plan([ddl(1, "nonsense t_1")], [state(T1)])


def test_half_of_a_statement_is_never_planned() -> None:
    made = plan([rows(0, T1), ddl(1, "drop t_1 t_2"), rows(2, T1)], [state(T1), state(T2)])
    assert (made.ends, [c.shard.table for c in made.structures]) == (at(2), [T1, T2])
    assert not holds(made)[1:]


def test_what_concerns_no_shard_is_written_down_without_its_strings() -> None:
    made = plan([rows(0, T1), ddl(1, "nothing 'to \\'do' with \"it\" 'or"), rows(2, T1)], [state(T1)])
    assert [(passed.location, passed.text) for passed in made.unread] == [(at(2), "nothing '…' with '…' '…'")]
    assert (holds(made), made.ends) == ([("seg-0", "t_1", "A", None), ("seg-2", "t_1", "A", None)], at(3))


def test_rows_of_sequences_are_left_out_whatever_they_are_called() -> None:
    segments = [
        rows(0, T1, T2),
        ddl(1, "rename table t_2 to x"),
        rows(2, T1),
        ddl(3, "create sequence t_2"),
        rows(4, T2),
    ]
    made = plan(segments, [state(T1)], sequences=frozenset({T2}))
    assert [hold[:2] for hold in holds(made)] == [("seg-0", "t_1"), ("seg-2", "t_1")]
    assert (made.passed, made.sequences) == (2, (TableId("shop_1", "t_2"), TableId("shop_1", "x")))
    assert plan(segments[:1], [state(T1)], sequences=frozenset({T2})).sequences is None


def test_truncate_is_counted() -> None:
    made = plan([ddl(0, "truncate t_1"), ddl(1, "truncate x")], [state(T1)])
    assert (made.ignored, made.queued, made.ends) == (1, (), at(2))


def test_ddl_of_a_table_that_is_not_routed_is_nobodys() -> None:
    made = plan([ddl(0, "alter x B"), ddl(1, "create x B"), ddl(2, "drop x"), ddl(3, "odd x")], [state(T1)])
    assert (made.ends, made.queued, made.structures, made.ignored) == (at(4), (), (), 0)


PENDING = (entry(T1, 4, "A", "B"), entry(T1, 5, "B", "C"))


@pytest.mark.parametrize(("structure", "queued"), [("A", 0), ("B", 1), ("C", 2)])
def test_a_new_shard_joins_behind_as_many_ddls_as_its_structure_shows(structure: str, queued: int) -> None:
    peer = state(T1, "C", queue=PENDING, last_seq=5)
    made = plan([ddl(0, f"create t_2 {structure}"), rows(1, T2)], [peer])
    assert [(e.shard.table, e.seq, e.before, e.after) for e in made.queued] == [
        (T2, number, e.before, e.after) for number, e in enumerate(PENDING[:queued], 1)
    ]
    assert holds(made) == [("seg-1", "t_2", structure, queued or None)]
    (change,) = made.structures
    assert (change.joins, change.peer, change.expects) == (True, peer.shard, (4, 5))


def test_a_new_shard_may_look_like_the_shards_of_another_source() -> None:
    peer = state(T1, "C", "s2", queue=(entry(T1, 1, "A", "C", "s2"),), last_seq=1)
    assert len(plan([ddl(0, "create t_2 C")], [peer]).queued) == 1


def strange(made: Plan) -> tuple[int, str, str, str, str, bool]:
    (queued,) = made.queued
    assert queued.is_alone and made.structures[0].is_mismatched and made.ends > at(1)
    return queued.seq, queued.before, queued.after, queued.reason[:9], queued.routed, made.structures[0].joins


def test_a_new_shard_of_a_strange_structure_waits_for_an_operator_alone() -> None:
    peer = state(T1, "C", "s2", queue=(entry(T1, 1, "A", "C", "s2"),), last_seq=1)
    made = plan([ddl(0, "create t_2 B"), rows(1, T2), ddl(2, "create t_2 B")], [peer])
    assert strange(made) == (1, "", "B", "[US-5003]", "create t_2 B", True)
    assert (holds(made), made.ignored) == ([("seg-1", "t_2", "B", 1)], 1)
    stranger = replace(peer, queue=(replace(peer.queue[0], before="B", after="B", is_alone=True),))
    assert plan([ddl(0, "create t_2 B")], [stranger]).queued[0].is_alone  # a stranger is no measure for others


def test_what_nobody_can_tell_is_queued_and_what_follows_is_unknown() -> None:
    made = plan(
        [rows(0, T1, T2), ddl(1, "odd t_1"), rows(2, T1, T2), ddl(3, "alter t_1 B"), rows(4, T1)],
        [state(T1), state(T2)],
    )
    assert [(e.seq, e.before, e.after, e.reason) for e in made.queued] == [(1, "A", "", "odd"), (2, "", "", "")]
    assert holds(made) == [
        ("seg-0", "t_1", "A", None),
        ("seg-0", "t_2", "A", None),
        ("seg-2", "t_1", "", 1),
        ("seg-2", "t_2", "A", None),
        ("seg-4", "t_1", "", 2),
    ]
    assert [change.structure for change in made.structures] == ["", ""]


def test_rows_of_an_unknown_structure_are_held_even_if_nothing_is_queued() -> None:
    """A decision came between two windows, or between a window's plan and its end."""
    unknown = state(T1, "", last_seq=3)
    assert holds(plan([rows(0, T1)], [unknown])) == [("seg-0", "t_1", "", 3)]
    files = (held(T1, 3), replace(held(T1, 3, 2), structure="", is_raw=True), held(T1, 3, 3))
    assert [f.window for f in plan([], [replace(unknown, held=files)]).releases[0].files] == [1]


def test_a_table_that_becomes_a_shard_without_a_structure_waits_alone() -> None:
    made = plan([ddl(0, "odd-new t_2"), rows(1, T2)], [state(T1)])
    assert strange(made) == (1, "", "", "odd", "odd-new t_2", True)
    assert holds(made) == [("seg-1", "t_2", "", 1)]
    assert plan([ddl(0, "odd-new t_1")], [state(T1)]).ignored == 1


def test_the_first_shard_of_a_target_may_look_as_it_likes() -> None:
    made = plan([ddl(0, "create t_2 Z"), rows(1, T2)], [])
    assert holds(made) == [("seg-1", "t_2", "Z", None)] and made.structures[0].peer is None


def test_creating_a_table_that_is_there_changes_nothing() -> None:
    made = plan([ddl(0, "create t_1 Z"), rows(1, T1)], [state(T1)])
    assert (made.structures, made.ignored, holds(made)) == ((), 1, [("seg-1", "t_1", "A", None)])


def test_a_dropped_shard_leaves_and_its_held_rows_are_still_released() -> None:
    left = state(T1, "B", last_seq=1, held=(held(T1, 1),), has_left=True)
    assert len(plan([], [left]).releases) == 1
    made = plan([ddl(0, "drop t_1"), ddl(1, "drop t_1")], [state(T1)])
    assert [c.structure for c in made.structures] == [None]


def test_a_shard_that_is_dropped_while_something_of_it_waits_frees_its_name() -> None:
    waiting = state(T1, "B", queue=(entry(T1, 2),), last_seq=2)
    made = plan([rows(0, T1), ddl(1, "drop t_1"), ddl(2, "create t_1 A")], [waiting])
    aside = TableId("shop_1", "t_1 (dropped at 1:200)")
    assert made.renames == (Rename(waiting.shard, aside, at(2)),)
    assert (made.ends, made.structures[0].structure) == (at(2), None)
    left = state(aside, "B", queue=waiting.queue, last_seq=2, has_left=True)
    (joined,) = plan([ddl(2, "create t_1 B")], [left]).queued
    assert (joined.shard.table, joined.seq, joined.after) == (T1, 1, "B")


def test_a_shard_that_is_replaced_while_something_of_it_waits_goes_on_behind_that() -> None:
    waiting = state(T1, "B", queue=(entry(T1, 2),), last_seq=2)
    same = plan([ddl(0, "replace t_1 B"), rows(1, T1)], [waiting])
    assert (same.queued, same.renames, holds(same)) == ((), (), [("seg-1", "t_1", "B", 2)])
    other = plan([ddl(0, "replace t_1 A"), rows(1, T1)], [waiting])
    (queued,) = other.queued
    assert (queued.seq, queued.before, queued.after, queued.is_alone) == (3, "B", "A", True)
    assert queued.reason.startswith("[US-5007]") and not other.structures[1].joins
    assert (holds(other), other.renames) == ([("seg-1", "t_1", "A", 3)], ())


def test_a_rename_ends_the_window_and_comes_last() -> None:
    segments = [rows(0, T1), ddl(1, "alter t_1 B"), ddl(2, "rename t_1 t_2"), rows(3, T2)]
    made = plan(segments, [state(T1, last_seq=3)])
    assert (made.ends, made.renames) == (at(3), (Rename(Shard("s1", T1), T2, at(3)),))
    assert [(e.shard.table, e.seq) for e in made.queued] == [(T1, 4)]


def test_shards_may_change_their_names_at_once() -> None:
    made = plan([ddl(0, "rename t_1 t_2 t_2 t_1")], [state(T1), state(T2)])
    assert [(r.shard.table, r.to) for r in made.renames] == [(T1, T2), (T2, T1)]


def test_a_shard_that_gets_the_name_of_one_that_leaves_with_rows_behind_a_ddl() -> None:
    left = state(T2, "B", queue=(entry(T2, 1),), last_seq=1)
    made = plan([ddl(0, "move t_2 away t_1 t_2")], [state(T1), left])
    assert [(r.shard.table, r.to.name) for r in made.renames] == [(T2, "t_2 (dropped at 1:100)"), (T1, "t_2")]


def test_a_rename_of_a_table_that_is_not_known_is_an_error() -> None:
    with pytest.raises(UnknownShard):
        plan([ddl(0, "rename t_1 t_2")], [])


def test_a_shard_that_comes_back_with_nothing_waiting_begins_anew() -> None:
    made = plan([ddl(0, "drop t_1"), ddl(1, "create t_1 A"), ddl(2, "alter t_1 B")], [state(T1, last_seq=9), state(T2)])
    assert [e.seq for e in made.queued] == [1] and made.structures[1].joins


def test_arguments_are_not_changed_and_the_plan_is_the_same_again() -> None:
    segments, shards = [rows(0, T1), ddl(1, "alter t_1 B")], [state(T1)]
    assert plan(segments, shards) == plan(segments, [replace(one) for one in shards])


def test_rows_for_a_stopped_target_are_held_and_none_released() -> None:
    shards = [state(T1, held=(held(T1, 0),)), state(T2, "B", last_seq=3)]
    made = plan([rows(0, T1, T2), ddl(1, "alter t_2 C"), rows(2, T2)], shards, stopped=frozenset({TARGET}))
    assert made.releases == () and made.targets == frozenset()
    assert holds(made) == [("seg-0", "t_1", "A", 0), ("seg-0", "t_2", "B", 3), ("seg-2", "t_2", "C", 4)]


SECOND, T9 = TableId("shop", "u"), TableId("shop_1", "t_9")


@pytest.mark.parametrize(
    ("together", "released"),
    [
        (WindowLimits(1000, 9, 0), {T1: 3, T9: 2}),
        (WindowLimits(40, 9, 0), {T1: 3}),
        (WindowLimits(1000, 4, 0), {T1: 3}),
        (WindowLimits(1000, 2, 0), {T1: 2}),
        (WindowLimits(15, 9, 0), {T1: 1}),
        (WindowLimits(0, 0, 0), {T1: 1}),
    ],
    ids=str,
)
def test_what_a_retried_target_has_missed_is_released_as_a_whole_where_a_window_may_hold_it(together, released) -> None:
    """Otherwise a correction after the refused row would not be compacted with it; other targets keep their share."""
    shards = [
        state(T1, last_seq=1, held=tuple(held(T1, 1, window) for window in (1, 2, 3))),
        replace(state(T9, last_seq=1, held=tuple(held(T9, 1, window) for window in (4, 5))), target=SECOND),
    ]
    made = plan([], shards, size=1, retried=(TARGET, SECOND), together=together)
    assert {release.shard.table: len(release.files) for release in made.releases} == released
    third = replace(state(T2, last_seq=1, held=(held(T2, 1, 6), held(T2, 1, 7))), target=TableId("shop", "v"))
    more = plan([], [*shards, third], size=1, retried=(TARGET, SECOND), together=together)
    assert {release.shard.table: len(release.files) for release in more.releases} == {**released, T2: 1}


def test_what_a_plan_wants_applied_is_held_before_the_ddl_that_it_queues() -> None:
    made = plan([rows(0, T1, T2), ddl(1, "alter t_2 C"), rows(2, T2)], [state(T1), state(T2, "B", last_seq=3)])
    behind = held_behind(made, {Shard("s1", T1): 0, Shard("s1", T2): 3})
    found = [(d.shard.table, d.hold) for r in made.reads for d in withheld(r.dispositions, {TARGET}, behind)]
    assert found == [(T1, 0), (T2, 3), (T2, 4)]
    assert withheld(made.reads[0].dispositions, set(), behind) == made.reads[0].dispositions


# --- drop-shard-rows: delete


def deleting(segments: Sequence[Segment], shards: Sequence[ShardState], **more: object) -> Plan:
    return plan(segments, shards, rows_of=lambda *_: NAMED, **more)


def test_a_truncate_begins_and_ends_a_window() -> None:
    segments = [rows(0, T1), ddl(1, "clear t_1"), rows(2, T1)]
    first = deleting(segments, [state(T1), state(T2)])
    assert (first.ends, first.deletions) == (at(1), ())
    second = deleting(segments[1:], [state(T1), state(T2)])
    assert second.ends == at(2) and not second.reads and not second.structures
    (deletion,) = second.deletions
    assert (deletion.shard.table, deletion.target, deletion.location, deletion.text) == (T1, TARGET, at(2), "clear t_1")
    assert second.fenced == {TARGET} and second.targets == frozenset() and not second.moves_rows
    third = deleting(segments[2:], [state(T1), state(T2)])
    assert holds(third) == [("seg-2", "t_1", "A", None)] and third.deletions == ()


def test_statements_without_rows_share_the_window_of_a_deletion() -> None:
    made = deleting(
        [ddl(0, "clear t_1"), ddl(1, "alter t_2 B"), ddl(2, "remove t_1 t_2"), rows(3, OTHER)], [state(T1), state(T2)]
    )
    assert made.ends == at(3)
    assert [(each.shard.table, each.text) for each in made.deletions] == [
        (T1, "clear t_1"),
        (T1, "remove t_1 t_2"),
        (T2, "remove t_1 t_2"),
    ]
    assert [(change.shard.table, change.structure) for change in made.structures][1:] == [(T1, None), (T2, None)]


def test_held_rows_of_a_deleted_shard_do_not_come_back() -> None:
    """A DDL of its group stays in the queue; the rows before and after it are dropped."""
    waiting = state(T1, "B", queue=(entry(T1, 1),), last_seq=1, held=(held(T1, 1),))
    cleared = deleting([ddl(0, "clear t_1"), rows(1, T1)], [waiting])
    assert [each.shard.table for each in cleared.deletions] == [T1] and not cleared.renames
    dropped = deleting([ddl(0, "remove t_1")], [state(T1, held=(held(T1, 0),))], stopped=frozenset({TARGET}))
    assert [each.shard.table for each in dropped.deletions] == [T1]
    assert not dropped.renames, "nothing of it waits, so its name is free at once"


def test_a_table_that_is_replaced_loses_its_rows_and_joins_again() -> None:
    made = deleting([ddl(0, "anew t_1 A"), rows(1, T1)], [state(T1), state(T2)])
    assert [each.shard.table for each in made.deletions] == [T1] and made.ends == at(1)
    assert [(change.structure, change.joins) for change in made.structures] == [(None, False), ("A", True)]


def test_rows_that_cannot_be_told_apart_wait_for_an_operator() -> None:
    made = plan([ddl(0, "clear t_1"), rows(1, T1, T2)], [state(T1), state(T2)], rows_of=lambda *_: "t_2 is alike")
    assert made.deletions == ()
    assert [(each.reason, each.before, each.after) for each in made.queued] == [("t_2 is alike", "A", "A")]
    assert holds(made) == [("seg-1", "t_1", "A", 1), ("seg-1", "t_2", "A", None)]


def test_a_shard_of_a_group_gives_its_name_and_the_others() -> None:
    asked = []

    def rows_of(state: ShardState, group: Sequence[Shard]) -> ShardRows:
        asked.append((state.shard.table, [other.table for other in group]))
        return NAMED

    plan([ddl(0, "clear t_1")], [state(T1), state(T2), state(T1, source="s2")], rows_of=rows_of)
    assert asked == [(T1, [T1, T2, T1])]


@pytest.mark.parametrize("shard", [state(T1, is_dropped=True), state(T1, start=at(1))])
def test_a_truncate_of_a_shard_that_an_operator_dropped_or_that_is_in_the_dump_deletes_nothing(
    shard: ShardState,
) -> None:
    made = deleting([ddl(0, "clear t_1"), rows(1, T2)], [shard, state(T2)])
    assert made.deletions == () and made.ends == at(2) and made.ignored == 1


# --- Swaps of one-to-one targets


def test_a_swap_is_queued_as_renames_or_not_at_all() -> None:
    between = TableId("shop_1", "between")

    def swap(statement: Statement, present) -> Sequence[Effect]:
        def moves(table: TableId, to: TableId) -> tuple[Moves, TableId]:
            return Moves(table, to, to, Undecided(to, "odd", "odd", "odd", is_new=True), f"create {to}"), table

        steps = (moves(T1, between), moves(T2, T1), moves(between, T2))
        return [Together(T1, steps, ((Leaves(T1), T1), (Ignored(T2), T2)))]

    def own(table: TableId, source: str = "s1") -> ShardState:
        return replace(state(table, source=source), target=table)

    def planned(*shards: ShardState) -> Plan:
        given = {"target_of": lambda table: table, "effects": swap, "window_bytes": SIZE}
        return plan_window("s1", 5, at(0), [ddl(0, "swap")], shards, PlanRules(**given))  # type: ignore[arg-type]

    made = planned(own(T1), own(T2))
    assert [(each.shard.table.name, each.whole, each.seq) for each in made.queued] == [
        ("t_1", WholeChange.RENAME, 1),
        ("between", WholeChange.CREATE, 1),
        ("t_2", WholeChange.RENAME, 1),
        ("t_1", WholeChange.CREATE, 2),
        ("between", WholeChange.RENAME, 2),
        ("t_2", WholeChange.CREATE, 2),
    ]
    assert [(each.shard.table, each.to.name) for each in made.renames] == [(between, "between (dropped at 1:100)")]
    other = planned(own(T1), own(T2), own(T1, "s2"))
    assert not other.queued and [(each.shard.table, each.structure) for each in other.structures] == [(T1, None)]
