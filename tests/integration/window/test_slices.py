"""Windows that are written while they are read: the result is the same for every cut, and an error leaves no rows."""

import contextlib
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cutting import bound_transactions, cut_at_commit, interrupted_at, open_transactions, waiting_sessions
from tests.integration.rows.test_target_apply import TABLES, Change, Shop, Target, _until, insert, make
from tests.livetask import LiveTask, living
from unshard.adapters.target import Applied, Committed, Fence, Slice, Slices, Writer, apply_slices
from unshard.adapters.target.fencesteps import Bounds
from unshard.core.ddl.queue import HeldFile
from unshard.core.model import Shard
from unshard.core.rows.compaction import CollisionPolicy, Op
from unshard.core.rules.filters import Judged
from unshard.core.rules.reshaping import Reshaping
from unshard.errors import UnshardError
from unshard.errors.meta import FencedOut
from unshard.errors.relay import DamagedEvent
from unshard.errors.rows import Collision, RowRefused
from unshard.errors.source import ConnectionLost, ServerBusy
from unshard.units.rows.targetwork import changes_of
from unshard.units.rows.windowjob import HeldPart
from unshard.units.window import tasks as windowslices
from unshard.units.window.tasks import fence_of
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.writes_rows]
__all__ = ["make"]
Cut = list[dict[Shard, list[Change]]]
KEYED = [name for name in TABLES if name != "without key"]
SHARED = ["integer", "unsigned"]
"""The tables whose slices several sessions may write."""


@pytest.fixture(params=[1, 3], ids=["one session", "three sessions"])
def sessions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    bound_transactions(monkeypatch, Bounds(100_000, 1 << 30, 1, request.param, least_keys=1, spread=9))
    return request.param


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> None:
    bound_transactions(monkeypatch, Bounds(100_000, 1 << 30, 1, sessions=3, least_keys=1, spread=9))


def connections(target: Target) -> int:
    """Return the number of sessions of the target; the first slice is made when one of the window is open."""
    ((count,),) = target.server.run("SELECT COUNT(*) FROM information_schema.processlist WHERE command <> 'Daemon'")
    return int(count)


def steps(target: Target) -> list[tuple[object, ...]]:
    sql = f"SELECT number, kind, done FROM {target.meta}.fence_step ORDER BY number"
    return [tuple(row) for row in target.server.run(sql)]


def filled(target: Target) -> Target:
    """Give the first shard so many rows that the server finds rows by their key, and locks no others."""
    rows = [(b"%d" % number, b"filled", b"1.00") for number in range(5_000, 9_000)]
    values = ", ".join(f"({int(key)}, 'filled', 1)" for key, *_ in rows)
    target.server.run(f"INSERT INTO {target.table} VALUES {values}", f"ANALYZE TABLE {target.table}")
    target.rows[target.shards[0]] = rows
    return target


def hundreds(target: Target, count: int) -> Cut:
    """Return slices of a hundred new rows each."""
    return [{target.shards[0]: insert(*range(each * 100, each * 100 + 100))} for each in range(count)]


def sliced(
    target: Target, cut: Cut, between: Callable[[int], object] = lambda _: None, diverts: bool = False
) -> Applied | None:
    """Apply the next window in these slices; `between` is called before each of them is made."""
    target.window += 1
    job = replace(target.job(), diverts=diverts)

    def made() -> Iterator[Slice]:
        for number, some in enumerate(cut, 1):
            between(number)
            yield Slice(0, changes_of(job, 0, target.runs(some, random.Random(number))), number / len(cut))

    return total(list(apply_slices(job.writer, [fence_of(job, 0)], lambda _: made())))


def total(committed: Sequence[Committed]) -> Applied | None:
    return sum((each.applied for each in committed), Applied()) if committed else None


def whole(target: Target, cut: Cut) -> Applied:
    """Apply the same window again, without slices."""
    target.window -= 1
    return target.apply(joined(cut), random.Random(1))


def joined(cut: Cut) -> dict[Shard, list[Change]]:
    return {shard: [change for some in cut for change in some.get(shard, [])] for each in cut for shard in each}


def union(target: Target) -> Counter:
    return Counter(row for rows in target.rows.values() for row in rows)


@pytest.mark.sample(reason="the cut and the form of rows do not interact")
@pytest.mark.parametrize("name", KEYED)
def test_any_cut_ends_in_the_union(make, sessions, name):
    """Among them keys that change, rows that go and come again, and unique values that move, from slice to slice."""
    chance, target = random.Random(name), make(TABLES[name])
    if name in SHARED and sessions > 1:
        filled(target)
    shops = {shard: Shop(name, target, shard, chance) for shard in target.shards}
    for _ in range(18):
        cut = [
            {shard: shop.changes(chance.choice([0, 1, 5, 30])) for shard, shop in shops.items()}
            for _ in range(chance.randint(1, 5))
        ]
        assert sliced(target, cut) is not None
        assert target.stored() == union(target)
        assert target.fence() == (target.window, 1)


@pytest.mark.parametrize("name", ["integer", "unique"])
def test_rows_of_two_shards_that_meet_end_as_without_slices(make, name):
    """A row that moves with its INSERT first is followed; where both shards keep the key, both ways name it."""
    chance, target = random.Random(name), make(TABLES[name])
    for number in range(6):
        target.server.run(f"DELETE FROM {target.table}")
        target.rows = {shard: [] for shard in target.shards}
        first, second = (Shop(name, target, shard, chance) for shard in target.shards)
        cut: Cut = [{first.shard: first.changes(20)}]
        assert sliced(target, cut) is not None
        row = chance.choice(target.rows[first.shard])
        moves = [{second.shard: [(Op.INSERT, row)]}, {}, {first.shard: [(Op.DELETE, row)] if number % 2 else []}]
        before = target.stored()
        with pytest.raises(Collision):
            sliced(target, moves)
        assert target.stored() == before
        if number % 2:
            whole(target, moves)
            assert target.fence() == (target.window, 1)
        else:
            with pytest.raises(Collision):
                whole(target, moves)
            target.window -= 1
        assert target.stored() == before


def _too_long(target: Target) -> Cut:
    return [{target.shards[0]: insert(1)}, {target.shards[0]: insert(2, v=b"x" * 21)}, {target.shards[0]: insert(3)}]


@pytest.mark.parametrize("diverts", [False, True])
def test_a_row_that_does_not_fit_leaves_nothing(make, diverts):
    """It is not diverted either: a later slice may correct it."""
    target = make(TABLES["integer"])
    with pytest.raises(RowRefused):
        sliced(target, _too_long(target), diverts=diverts)
    assert not target.stored() and target.fence() == (0, 1)


def test_a_window_beyond_one_transaction_is_left_whole(make, monkeypatch):
    """Reading notices it, and the written slices are rolled back."""
    bound_transactions(monkeypatch, Bounds(10, 1 << 20, 1))
    target, made = make(TABLES["integer"]), list[int]()
    shard = target.shards[0]
    assert sliced(target, [{shard: insert(*range(6))}, {shard: insert(7)}, {}], made.append) is None
    assert made == [1]
    cut: Cut = [{shard: insert(1)}, {shard: insert(2)}, {shard: insert(*range(10, 30))}, {}]
    target.window = 0
    assert sliced(target, cut, made.append) is None
    assert made == [1, 1, 2, 3]
    assert not target.stored() and target.fence() == (0, 1)
    assert whole(target, cut).written == 22
    target.window = 0
    assert sliced(target, cut) is None, "it is applied"


def test_a_window_that_is_cut_by_key_already_is_left_so(make):
    target = make(TABLES["integer"])
    columns = "task, source, target_schema, target_table, `window`, number, kind, upper_key, key_columns, done"
    target.server.run(
        f"INSERT INTO {target.meta}.fence_step ({columns}) VALUES ('task', 's1', '{target.table.schema}',"
        " 't', 1, 0, 'all', NULL, 'id int(11)', 0)"
    )
    assert sliced(target, [{target.shards[0]: insert(1)}]) is None
    assert whole(target, [{target.shards[0]: insert(1)}]).written == 1


def test_another_run_between_two_slices_fences_this_one_out(make):
    target = make(TABLES["integer"])
    cut: Cut = [{target.shards[0]: insert(number)} for number in range(3)]

    def overtaken(number: int) -> None:
        if number == 2:
            target.server.run(f"UPDATE {target.meta}.fence SET epoch = 2")

    assert sliced(target, cut, overtaken) is None
    assert not target.stored()
    with pytest.raises(FencedOut):
        whole(target, cut)


def test_a_deadlock_rolls_back_the_slices_that_wait_too(make):
    """The server ends the transaction of the first slice: the second one, which waits for it, must not be committed."""
    target = filled(make(TABLES["integer"]))
    rows, shard = target.rows[target.shards[0]], target.shards[0]
    cut: Cut = [{shard: [(Op.DELETE, rows[0]), (Op.DELETE, rows[10])]}, {shard: insert(*range(100))}, {}]
    with contextlib.closing(target.server.connect()) as other, other.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute(f"UPDATE {target.table} SET n = 2 WHERE id >= 5010")

        def cross(number: int) -> None:
            if number == 3:
                _until(lambda: bool(waiting_sessions(target.server)))
                cursor.execute(f"DELETE FROM {target.table} WHERE id = 5000")

        with pytest.raises(ServerBusy):
            sliced(target, cut, cross)
        other.rollback()
    assert target.stored() == union(target)
    assert whole(target, cut).written == 100


@pytest.mark.parametrize("arrives", [False, True], ids=["before it arrives", "before its answer"])
def test_a_commit_that_is_lost_is_seen_by_the_fence(make, arrives):
    target = make(TABLES["integer"])
    cut: Cut = [{target.shards[0]: insert(number)} for number in range(3)]
    with cut_at_commit(target.server, arrives=arrives) as (way, _):
        target.server, real = way, target.server
        with pytest.raises(ConnectionLost):
            sliced(target, cut)
        target.server = real
    _until(lambda: not open_transactions(target.server))
    assert whole(target, cut).before == arrives
    assert sum(target.stored().values()) == 3 and target.fence() == (1, 1)


@pytest.mark.sample(reason="the moment and the form of rows do not interact")
@pytest.mark.parametrize("number", [2, 4])
def test_a_process_killed_between_two_slices_leaves_nothing(make, sessions, number):
    target = make(TABLES["integer"])
    cut: Cut = [{target.shards[0]: insert(*range(each * 100, each * 100 + 100))} for each in range(4)]
    if not (child := os.fork()):
        sliced(target, cut, lambda at: os.kill(os.getpid(), signal.SIGKILL) if at == number else None)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    _until(lambda: not open_transactions(target.server))
    assert not target.stored() and target.fence() == (0, 1)
    assert sliced(target, cut).written == 400


# --- several sessions ---------------------------------------------------------------------------------------


@pytest.mark.sample(reason="the session, the moment and the form of rows do not interact")
@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("arrives", [False, True], ids=["before it arrives", "before its answer"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_commit_of_any_session_is_lost(make, three, number, arrives, name):
    """The shares that are committed are known, also if keys changed and rows are gone; a retry writes the others."""
    chance, target = random.Random(number), filled(make(TABLES[name]))
    shops = {shard: Shop(name, target, shard, chance) for shard in target.shards}
    assert sliced(target, [{shard: shop.changes(200) for shard, shop in shops.items()}]) is not None
    cut = [{shard: shop.changes(100) for shard, shop in shops.items()} for _ in range(3)]
    with cut_at_commit(target.server, arrives=arrives, number=number) as (way, _):
        target.server, real = way, target.server
        with pytest.raises(ConnectionLost):
            sliced(target, cut)
        target.server = real
    _until(lambda: not open_transactions(target.server))
    committed = number - 1 + arrives
    found = steps(target)
    assert found == ([] if committed in (0, 3) else [(n, "share", int(n < committed)) for n in range(3)])
    target.window -= 1
    if committed:
        assert sliced(target, cut) is None, "some of its shares are in the target"
        target.window -= 1
    assert target.apply(joined(cut), random.Random(1)).before == (committed == 3)
    assert target.stored() == union(target)
    assert not steps(target) and target.fence() == (target.window, 1)


def test_another_run_between_two_commits_fences_this_one_out(make, three):
    target = make(TABLES["integer"])
    cut, real = hundreds(target, 3), target.server

    def overtaken() -> None:
        real.run(f"UPDATE {target.meta}.fence SET epoch = 2")

    # The fence is written before each COMMIT.
    hold = f"\x03UPDATE `{target.meta}`.`fence`".encode()
    with interrupted_at(real, overtaken, statement=hold, number=2) as way:
        target.server = way
        with pytest.raises(FencedOut):
            sliced(target, cut)
        target.server = real
    assert steps(target) == [(0, "share", 1), (1, "share", 0), (2, "share", 0)]
    target.epoch = 2
    assert 0 < whole(target, cut).written < 300, "the first share was there"
    assert sum(target.stored().values()) == 300 and not steps(target)


@pytest.mark.parametrize("columns", [TABLES[name] for name in KEYED if name not in SHARED])
def test_a_table_whose_keys_cannot_be_divided_gets_one_transaction(make, three, columns):
    target, at_once = make(columns), list[int]()
    shop = Shop(next(n for n in KEYED if TABLES[n] == columns), target, target.shards[0], random.Random(1))
    cut = [{target.shards[0]: shop.changes(100)} for _ in range(3)]
    assert sliced(target, cut, lambda _: at_once.append(connections(target))) is not None
    assert at_once[-1] == at_once[0]
    assert target.stored() == union(target)


@pytest.mark.parametrize(("trigger", "more"), [(False, 2), (True, 0)])
def test_a_trigger_that_needs_a_common_row_gets_one_session(make, three, trigger, more):
    target, at_once = make(TABLES["integer"]), list[int]()
    if trigger and "TiDB" in str(target.server.run("SELECT VERSION()")):
        pytest.skip("TiDB has no triggers")
    if trigger:
        count = f"{target.table.schema}.counted"
        target.server.run(
            f"CREATE TABLE {count} (n INT)",
            f"INSERT INTO {count} VALUES (0)",
            f"CREATE TRIGGER {target.table.schema}.counting AFTER INSERT ON {target.table} FOR EACH ROW"
            f" UPDATE {count} SET n = n + 1",
        )
    cut = hundreds(target, 4)
    assert sliced(target, cut, lambda _: at_once.append(connections(target))).written == 400
    assert at_once[-1] == at_once[0] + more
    assert sum(target.stored().values()) == 400


def test_the_rows_of_a_later_slice_without_a_place_are_no_reason_to_commit_a_part(make, three):
    """Two slices are written; the third one has a row that does not fit."""
    target = make(TABLES["integer"])
    cut = [*hundreds(target, 2), {target.shards[0]: insert(1000, v=b"x" * 21)}]
    with pytest.raises(RowRefused):
        sliced(target, cut)
    assert not target.stored() and not steps(target) and target.fence() == (0, 1)


# --- whole windows, from the binlog -------------------------------------------------------------------------


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Cut windows into slices of one small piece; return the result and the number of slices of each window."""
    return observed(monkeypatch, slice_bytes=1)


def observed(
    monkeypatch: pytest.MonkeyPatch, slice_bytes: int, is_waiting: Callable[[], bool] | None = None
) -> list[object]:
    """Cut windows into small pieces; `is_waiting` tells the reader of a session that waits, instead of the truth."""
    found: list[object] = []

    def apply(writer: Writer, fences: Sequence[Fence], slices: Slices) -> Iterator[Committed]:
        made: list[Slice] = []
        committed: list[Committed] = []
        found.append(made)

        def noted(truth: Callable[[], bool]) -> Iterator[Slice]:
            for each in slices(is_waiting or truth):
                made.append(each)
                yield each

        try:
            for each in apply_slices(writer, fences, noted):
                committed.append(each)
                yield each
            found[-1] = total(committed), len(made)
        except UnshardError as error:
            found[-1] = type(error), len(made)
            raise

    monkeypatch.setattr(windowslices, "PIECE_BYTES", 10_000)
    monkeypatch.setattr(windowslices, "SLICE_BYTES", slice_bytes)
    monkeypatch.setattr(windowslices, "apply_slices", apply)
    return found


@pytest.fixture
def task(source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LiveTask]:
    columns, numbers = {"g": "id INT PRIMARY KEY, v VARCHAR(2000)"}, {("s1", "g"): (1, 2)}
    made = {"columns": columns, "numbers": numbers, "window_bytes": 1 << 24}
    with living(unique, tmp_path, (source_1, target), "g", **made) as opened:
        yield opened


def write(task: LiveTask, *statements: str) -> None:
    task.sources["s1"].run(f"USE {task.name}", *statements)


def fill(first: int, last: int, shard: int = 1) -> list[str]:
    """Return inserts of about a thousand bytes of binlog each."""
    return [f"INSERT INTO g_{shard} VALUES ({n}, REPEAT('x', 1000))" for n in range(first, last)]


def test_a_window_is_written_while_it_is_read(task, ends):
    changes = (
        "UPDATE g_1 SET id = -id WHERE id < 30",
        "DELETE FROM g_1 WHERE id % 3 = 0",
        *fill(0, 1),
        "INSERT INTO g_1 VALUES (3, 'again')",
        "UPDATE g_1 SET v = id WHERE id > 20",
    )
    write(task, *fill(0, 60), *changes)
    task.pull("s1")
    assert task.window("s1").rows_applied == 60 + 29 + 20 + 2 + 20
    assert task.assert_union("g") == 42
    ((applied, slices),) = ends
    assert slices > 5 and applied.written > 60
    write(task, "UPDATE g_1 SET v = 'y' WHERE id = 3")
    task.run()
    assert len(ends) == 1, "a small window is no slices"
    task.assert_union("g")


@pytest.mark.parametrize(
    ("slice_bytes", "is_waiting", "expected"),
    [
        (1 << 20, lambda: False, [2]),
        (1 << 20, lambda: True, [13]),
        (30_000, lambda: False, [4]),
        (1 << 20, None, range(2, 14)),
    ],
    ids=["all sessions are busy", "a session always waits", "a limited size", "as it is"],
)
def test_the_reader_reads_more_into_a_slice_until_a_session_waits(task, monkeypatch, slice_bytes, is_waiting, expected):
    found = observed(monkeypatch, slice_bytes, is_waiting)
    write(task, *fill(0, 40), *(f"UPDATE g_1 SET v = CONCAT(id, v) WHERE id = {n % 7}" for n in range(30)))
    task.pull("s1")
    task.window("s1")
    ((applied, slices),) = found
    assert slices in expected
    if slices == 2:
        assert applied.written == 40 + 7, "keys of the first slice are written once more, and not for each change"
    assert task.assert_union("g") == 40


def test_a_row_that_moves_with_its_insert_first_is_followed(task, ends):
    write(task, *fill(0, 5))
    task.run()
    write(task, *fill(3, 4, shard=2), *fill(10, 40), "DELETE FROM g_1 WHERE id = 3")
    task.pull("s1")
    task.window("s1")
    assert [end for end, _ in ends] == [Collision]
    assert task.assert_union("g") == 35


@pytest.mark.parametrize(("kind", "value"), [("", "REPEAT('y', 1001)"), ("NOT NULL", "NULL")], ids=["server", "here"])
def test_a_row_that_does_not_fit_stops_the_target_with_nothing_of_the_window(task, ends, kind, value):
    task.target.run(f"ALTER TABLE {task.table('g')} MODIFY v VARCHAR(1000) {kind}")
    write(task, *fill(0, 30), f"UPDATE g_1 SET v = {value} WHERE id = 7", *fill(40, 60))
    task.pull("s1")
    (stop,) = task.window("s1").stopped
    assert [end for end, _ in ends] == [RowRefused] and stop.refusal.key == "id = 7"
    assert task.target.run(f"SELECT COUNT(*) FROM {task.table('g')}") == [(0,)]


def test_a_segment_that_cannot_be_read_stops_the_window_with_nothing_written(task, ends):
    write(task, *fill(0, 40))
    task.pull("s1")
    task.damage_segment("s1", -2)
    with pytest.raises(DamagedEvent):
        task.window("s1")
    ((error, slices),) = ends
    assert error is DamagedEvent and slices > 1
    assert task.target.run(f"SELECT COUNT(*) FROM {task.table('g')}") == [(0,)]


def test_what_could_end_otherwise_is_not_cut(make, monkeypatch):
    monkeypatch.setattr(windowslices, "PIECE_BYTES", 10)
    job = make(TABLES["integer"]).job()
    (part,) = job.parts
    assert windowslices.can_be_cut(job)
    job = replace(job, parts=tuple(replace(part, ordinal=n, end=size) for n, size in enumerate((3, 4, 4, 11, 1, 9))))
    assert [[part.end for part in some] for some in windowslices.pieces_of(job.parts)] == [[3, 4], [4], [11], [1, 9]]
    shard = job.shards[0]
    held = HeldPart(0, job.targets[0], HeldFile(shard, 1, 1, 0, "x", 1, 1, "", safe=True))
    keyless, ignored = replace(job.schemas[0], indexes=()), Reshaping(events=(("update", Judged()),))
    for other in (
        replace(job, collisions=CollisionPolicy.REPLACE),
        replace(job, collisions=CollisionPolicy.IGNORE),
        replace(job, begun=replace(job.begun, plan=replace(job.plan, safe=True))),
        replace(job, parts=(held, *job.parts[1:])),
        replace(job, targets=job.targets * 2, schemas=job.schemas * 2),
        replace(job, schemas=(keyless,)),
        replace(job, deferred=frozenset(job.targets)),
        replace(job, reshapings={shard.table: ignored}),
    ):
        assert not windowslices.can_be_cut(other)
