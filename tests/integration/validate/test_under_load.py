"""Under writes, `unshard validate` reports exactly the rows that are wrong, and no row that is on its way."""

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tests.dying import Died, mortal
from tests.lifetask import LifeTask, task
from unshard.adapters.meta.windowrecords import Windows
from unshard.core.model import TableId
from unshard.core.validate.rowdifferences import Because, DifferenceKind
from unshard.units.validate.evidence import held_keys
from unshard.units.validate.validate import KeysPending, Settings, TableResult, validate
from unshard_demo.servers import MariaDb

__all__ = ["task"]
pytestmark = [pytest.mark.integration, pytest.mark.on_tidb]
ROWS = 600
HOT = 5
"""Rows that change all the time, forth and back."""
SETTINGS = Settings(chunk_rows=100, limit=1000, wait=20.0, rests=0)


@contextlib.contextmanager
def repeated(act) -> Iterator[None]:
    """Call the function again and again, in a thread, until the end of the block; it gets the number of the call."""
    is_over = threading.Event()

    def run() -> None:
        for number in itertools.count():
            if is_over.is_set():
                return
            act(number)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        try:
            yield
        finally:
            is_over.set()
            running.result()


def writes(server: MariaDb, shard: str, first: int):
    """Return a function that changes rows of a shard; the rows from `first + HOT` on stay as they are."""

    def write(number: int) -> None:
        fresh = first + ROWS + number
        server.run(
            f"INSERT INTO {shard} (id, v) VALUES ({fresh}, 'new')",
            f"UPDATE {shard} SET v = IF(v = 'a', 'b', 'a') WHERE id < {first + HOT} AND id >= {first}",
            f"UPDATE {shard} SET v = 'changed' WHERE id = {fresh - 3} AND {number} > 3",
            f"DELETE FROM {shard} WHERE id = {fresh - 9} AND {number} > 9",
        )

    return write


@contextlib.contextmanager
def under_load(task: LifeTask) -> Iterator[None]:
    """Write into the shards for the block, and apply windows one after the other."""

    def windows(_: int) -> None:
        with contextlib.suppress(Died):
            task.go()

    with contextlib.ExitStack() as stack:
        stack.enter_context(repeated(windows))
        for number, (source, (shard,)) in enumerate(task.shards.items()):
            stack.enter_context(repeated(writes(task.sources[source], shard, 1 + number * 1_000_000)))
        yield


@pytest.fixture
def loaded(task: LifeTask) -> LifeTask:
    for number, (source, (shard,)) in enumerate(task.shards.items()):
        first = 1 + number * 1_000_000
        task.sources[source].run(
            f"DELETE FROM {shard}",
            f"INSERT INTO {shard} SELECT {first} + seq, CONCAT('row ', seq) FROM {task.name}.seq_0_to_{ROWS - 1}",
        )
    task.go()
    return task


def judged(
    task: LifeTask, wait: float = SETTINGS.wait, watch: Callable[[object], None] = lambda _: None
) -> TableResult:
    with task.work() as work:
        (verdict,) = validate(work, settings=replace(SETTINGS, wait=wait), watch=watch)
    return verdict


def test_exactly_the_planted_differences_are_reported(loaded: LifeTask) -> None:
    into = f"{loaded.name}_to.t"
    planted = {
        "100": f"UPDATE {into} SET v = 'wrong' WHERE id = 100",
        "101": f"UPDATE {into} SET v = NULL WHERE id = 101",
        "102": f"UPDATE {into} SET v = CONCAT(v, ' ') WHERE id = 102",
        "103": f"UPDATE {into} SET v = UPPER(v) WHERE id = 103",
        "104": f"DELETE FROM {into} WHERE id = 104",
        "900000": f"INSERT INTO {into} VALUES (900000, 'extra')",
        "1000200": f"UPDATE {into} SET v = 'row 300' WHERE id = 1000200",
    }
    with under_load(loaded):
        before = judged(loaded)
        assert (before.error, before.differences) == (None, ())
        loaded.target.run(*planted.values())
        for _ in range(3):
            found = judged(loaded)
            assert {each.key[0] for each in found.differences} == {*planted}
    assert {each.key[0]: each.kind for each in found.differences if each.kind is not DifferenceKind.DIFFERENT} == {
        "104": DifferenceKind.MISSING,
        "900000": DifferenceKind.EXTRA,
    }
    loaded.go()
    last = judged(loaded)
    assert ({each.key[0] for each in last.differences}, last.pending) == ({*planted}, ())


def planted(task: LifeTask) -> set[str]:
    """Spoil 104 rows of the target, of each kind of difference about as many; return their keys."""
    into, second = f"{task.name}_to.t", 1_000_000
    spoilt = {
        "UPDATE {} SET v = 'wrong' WHERE id IN ({})": range(100, 115),
        "UPDATE {} SET v = NULL WHERE id IN ({})": range(second + 120, second + 135),
        "UPDATE {} SET v = CONCAT(v, ' ') WHERE id IN ({})": range(140, 155),
        "UPDATE {} SET v = UPPER(v) WHERE id IN ({})": range(second + 160, second + 175),
        "DELETE FROM {} WHERE id IN ({})": range(180, 195),
        "UPDATE {} SET v = CONCAT('row ', 999 - RIGHT(v, 3)) WHERE id IN ({})": [
            *range(401, 408),
            *range(second + 401, second + 408),
        ],
    }
    extra = range(800_000, 800_015)
    task.target.run(
        *(statement.format(into, ", ".join(map(str, keys))) for statement, keys in spoilt.items()),
        *(f"INSERT INTO {into} (id, v) VALUES ({key}, 'extra')" for key in extra),
    )
    return {str(key) for keys in (*spoilt.values(), extra) for key in keys}


@pytest.mark.on_mysql
def test_a_hundred_planted_differences_under_ddl_and_deaths(loaded: LifeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    deaths = mortal(monkeypatch, Windows, "begin", "commit")
    wrong, exact = planted(loaded), 0

    def reported() -> TableResult:
        found = judged(loaded)
        keys = {each.key[0] for each in found.differences if not each.because}
        assert keys <= wrong <= keys | {each.key[0] for each in (*found.pending, *found.differences)}
        return found

    with under_load(loaded):
        for number in range(3):
            for source, (shard,) in loaded.shards.items():
                loaded.sources[source].run(f"ALTER TABLE {shard} ADD w{number} INT DEFAULT {number}")
                reported()
        while exact < 3:
            found = reported()
            exact += {each.key[0] for each in found.differences if not each.because} == wrong
    assert sum(deaths.values()) > 10
    monkeypatch.undo()
    loaded.go()
    last = judged(loaded)
    assert ({each.key[0] for each in last.differences}, last.pending) == (wrong, ())


def test_rows_that_no_window_has_applied_are_pending(loaded: LifeTask) -> None:
    (shard,) = loaded.shards["s1"]
    loaded.insert("s1", shard, 700_001)
    loaded.target.run(f"DELETE FROM {loaded.name}_to.t WHERE id = 50")
    told: list[object] = []
    found = judged(loaded, wait=0, watch=told.append)
    assert told[-1] == KeysPending(found.target, 1)
    assert [each.key for each in found.differences] == [("50",)]
    assert [each.key for each in found.pending] == [("700001",)]
    loaded.sources["s1"].run(f"ALTER TABLE {shard} ADD w INT")
    found = judged(loaded, wait=0)
    assert not found.differences and {each.key[0] for each in found.pending} == {"50", "700001"}
    assert "ADD w INT" in found.why_pending or "structure" in found.why_pending


def test_a_column_is_lost_only_if_no_ddl_is_on_its_way(loaded: LifeTask) -> None:
    (one,), (other,) = loaded.shards.values()

    def columns(wait: float = 0.0) -> tuple[bool, bool, tuple[str, ...], tuple[str, ...]]:
        found = judged(loaded, wait=wait)
        return found.equal, found.differs, found.coming_columns, found.lost_columns

    loaded.sources["s1"].run(f"ALTER TABLE {one} ADD w INT DEFAULT 1")
    assert columns() == (False, False, ("w",), ())
    loaded.go()
    assert columns() == (True, False, (), ()), "its lock explains it"
    with under_load(loaded):
        loaded.sources["s2"].run(f"ALTER TABLE {other} ADD w INT DEFAULT 1")
        for number in range(5):
            for source, shard in (("s1", one), ("s2", other)):
                assert columns(SETTINGS.wait)[2:] == ((), ()), "windows bring it"
                loaded.sources[source].run(f"ALTER TABLE {shard} ADD x{number} INT DEFAULT 1")
    loaded.go()
    assert columns() == (True, False, (), ())
    loaded.target.run(f"ALTER TABLE {loaded.name}_to.t DROP w")
    assert columns() == (False, True, (), ("w",))


@pytest.mark.mariadb_only("TiDB gives AUTO_INCREMENT to no column that is there")
def test_numbers_on_their_way_are_not_too_small(loaded: LifeTask) -> None:
    into = f"{loaded.name}_to.t"
    for source, (shard,) in loaded.shards.items():
        loaded.sources[source].run(f"ALTER TABLE {shard} MODIFY id INT AUTO_INCREMENT")
    loaded.go()
    assert judged(loaded).structure == ()
    loaded.insert("s1", loaded.shards["s1"][0], 5_000_000)
    assert judged(loaded, wait=0).structure == (), "the row is on its way"
    with under_load(loaded):
        for _ in range(10):
            assert judged(loaded).structure == ()
    (shard,) = loaded.shards["s2"]
    loaded.sources["s2"].run("BEGIN", f"INSERT INTO {shard} VALUES (6000000, 'x')", "ROLLBACK")
    loaded.go()
    (said,) = judged(loaded).structure
    assert f"too small for s2 {shard}" in said and f"ALTER TABLE {into}" in said.replace("`", "")


def test_of_a_shard_that_holds_rows_only_their_keys_are_explained(loaded: LifeTask) -> None:
    (shard,), into = loaded.shards["s1"], f"{loaded.name}_to.t"
    loaded.sources["s1"].run(
        f"ALTER TABLE {shard} ADD w INT FIRST",
        f"INSERT INTO {shard} VALUES (1, 700001, 'held')",
        f"UPDATE {shard} SET v = 'held' WHERE id = 60",
        f"DELETE FROM {shard} WHERE id = 61",
    )
    loaded.go()
    loaded.target.run(f"UPDATE {into} SET v = 'wrong' WHERE id = 100", f"INSERT INTO {into} VALUES (900000, 'extra')")
    found = judged(loaded)
    assert {each.key[0]: each.because for each in found.differences} == {
        **dict.fromkeys(("700001", "60", "61"), Because.HELD),
        **dict.fromkeys(("100", "900000")),
    }
    with under_load(loaded):
        found = judged(loaded)
    assert {each.key[0] for each in found.differences if not each.because} == {"100", "900000"}


def test_rows_that_are_released_during_the_comparison_were_held_when_it_began(loaded: LifeTask) -> None:
    """One window releases a part of the held rows, so the keys of the others alone would not explain a difference."""
    (one,), (other,) = loaded.shards["s1"], loaded.shards["s2"]
    for number in (1, 2):
        loaded.sources["s1"].run(
            f"ALTER TABLE {one} ADD w{number} INT", f"INSERT INTO {one} (id, v) VALUES (70000{number}, 'held')"
        )
    loaded.go()
    target = TableId(f"{loaded.name}_to", "t")
    with loaded.work() as work:
        states = work.meta.structures.shards()
        before = held_keys(work, states, target, ("id",))
        loaded.sources["s2"].run(f"ALTER TABLE {other} ADD w1 INT")
        loaded.go()
        now = held_keys(work, work.meta.structures.shards(), target, ("id",))
        after = held_keys(work, states, target, ("id",))
    shard = f"s1 {one}"
    assert (before[shard], now[shard]) == ({("700001",), ("700002",)}, {("700002",)})
    assert after[shard] is None or after[shard] == before[shard], "None: every key is explained"
    loaded.sources["s2"].run(f"ALTER TABLE {other} ADD w2 INT")
    loaded.go()
    loaded.assert_union()
