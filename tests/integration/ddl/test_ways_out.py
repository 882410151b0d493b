"""Ways out of conflicts and of undecided DDLs on real servers: each ends with the rows of all shards in the target."""

import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from tests.dying import mortal
from tests.integration.task.test_lock_page import browse
from tests.livetask import LiveTask, living
from tests.openlocks import open_locks
from tests.operator import lock, order, run
from tests.suite.portions import examples
from unshard.cli import main
from unshard.core.ddl.lock import LockState, Way
from unshard.core.model import Shard, TableId
from unshard.operate.advice import Offer, barred, offers
from unshard.operate.command import DropShard, Force, LockCommand, Replace
from unshard.operate.issuing import give
from unshard.units.ddl import coordinate
from unshard.units.ddl.scene import LockView
from unshard.units.validate.validate import validate
from unshard.units.window import sync
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

COLUMNS = "id INT PRIMARY KEY, a INT"


@pytest.fixture(autouse=True)
def deaths(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Let the process die after each step of a window."""
    return mortal(monkeypatch, sync, "name_columns", "reconcile_structures", "_move", "_sweep")


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LiveTask]:
    numbers = {("s1", "t"): (1,), ("s2", "t"): (2,)}
    with living(unique, tmp_path, (source_1, source_2, target), "t", columns={"t": COLUMNS}, numbers=numbers) as made:
        yield made


def upstream(task: LiveTask, source: str, *statements: str) -> None:
    task.sources[source].run(f"USE {task.name}", *statements)


def columns(task: LiveTask) -> list[str]:
    return [row[0] for row in task.target.run(f"SHOW COLUMNS FROM {task.table('t')}")]


def no_lock(task: LiveTask) -> bool:
    return not open_locks(task.work().meta)


def test_unlock_of_a_conflict_resolves_both_and_later_ddl_agree(task: LiveTask) -> None:
    upstream(task, "s1", "ALTER TABLE t_1 ADD nc1 INT DEFAULT 0", "INSERT INTO t_1 (id, a) VALUES (1, 1)")
    upstream(task, "s2", "ALTER TABLE t_2 ADD nc1 INT DEFAULT -1", "INSERT INTO t_2 (id, a) VALUES (2, 2)")
    run(task)
    assert lock(task).state is LockState.CONFLICT
    order(task, Force(lock(task).id))
    run(task)
    assert no_lock(task) and task.work().meta.locks.pending_skips() == {}
    assert task.assert_union("t") == 2 and task.target.run(f"SELECT nc1 FROM {task.table('t')} ORDER BY id") == [
        (0,),
        (-1,),
    ]
    upstream(task, "s1", "ALTER TABLE t_1 ADD nc2 INT", "INSERT INTO t_1 VALUES (3, 3, 3, 3)")
    run(task)
    assert (lock(task).state, [shard.source for shard in lock(task).missing]) == (LockState.WAITING, ["s2"])
    upstream(task, "s2", "ALTER TABLE t_2 ADD nc2 INT", "INSERT INTO t_2 VALUES (4, 4, 4, 4)")
    run(task)
    task.assert_settled()
    assert len(task.executed("t")) == 2 and columns(task) == ["id", "a", "nc1", "nc2"]


def test_unlock_of_two_ddl_in_different_order_executes_both(task: LiveTask) -> None:
    first, second = "ADD nc1 INT DEFAULT 1", "ADD nc2 INT DEFAULT 2"
    for source, changes in (("s1", (first, second)), ("s2", (second, first))):
        number = source[1]
        for place, change in enumerate(changes):
            upstream(
                task,
                source,
                f"ALTER TABLE t_{number} {change}",
                f"INSERT INTO t_{number} (id) VALUES (1{number}{place})",
            )
    run(task)
    assert lock(task).state is LockState.CONFLICT
    order(task, Force(lock(task).id))
    run(task)
    task.assert_settled()
    assert no_lock(task) and task.work().meta.locks.pending_skips() == {}
    assert len(task.executed("t")) == 2 and columns(task) == ["id", "a", "nc1", "nc2"]


def follow(task: LiveTask, offer: Offer) -> None:
    for command in offer.commands:
        order(task, command)


def follow_all(task: LiveTask, text: str) -> None:
    """Follow the offers of this text for all shards in conflict, and run."""
    for offer in offers(lock(task)):
        if offer.text == text:
            follow(task, offer)
    run(task)


def rows_of(task: LiveTask, **names: str) -> list[tuple[object, ...]]:
    """Return id and one column of all shards: `names` is the column of each source's shard."""
    found: list[tuple[object, ...]] = []
    for source, name in names.items():
        for at, table in task.shards["t"]:
            found += task.sources[source].run(f"SELECT id, {name} FROM {table}") if at == source else []
    return sorted(found)


def target_rows(task: LiveTask, name: str) -> list[tuple[object, ...]]:
    return sorted(task.target.run(f"SELECT id, {name} FROM {task.table('t')}"))


def renamed_otherwise(task: LiveTask, *queued: str) -> None:
    """Let both shards rename one column, each to another name; rows before and after it; `queued` follows on s2."""
    for source, name in (("s1", "c"), ("s2", "d")):
        number = source[1]
        upstream(
            task,
            source,
            f"INSERT INTO t_{number} VALUES ({number}, {number}1)",
            f"ALTER TABLE t_{number} CHANGE a {name} INT",
            f"INSERT INTO t_{number} VALUES ({number}0, {number}2)",
        )
    upstream(task, "s2", *queued)
    run(task)
    view = lock(task)
    assert (view.state, view.ways) == (LockState.CONFLICT, (Way.SAME,))
    assert [why.partition(":")[0] for why in barred(view)] == ["unlock", "as nothing"]
    follow_all(task, "as this one")


def assert_equal(task: LiveTask) -> None:
    (found,) = validate(task.work())
    assert found.equal, (found.differences, found.lost_columns, found.error)


def test_a_column_with_another_name_in_one_shard_stays_one_column(task: LiveTask) -> None:
    renamed_otherwise(task)
    assert no_lock(task) and columns(task) == ["id", "c"]
    assert target_rows(task, "c") == rows_of(task, s1="c", s2="d")
    assert_equal(task)
    upstream(task, "s1", "ALTER TABLE t_1 MODIFY c BIGINT", f"INSERT INTO t_1 VALUES (100, {1 << 40})")
    upstream(
        task,
        "s2",
        "ALTER TABLE t_2 MODIFY d BIGINT",
        f"INSERT INTO t_2 VALUES (200, {1 << 41})",
        "CREATE TABLE t_3 LIKE t_2",
        "INSERT INTO t_3 VALUES (300, 5)",
        "UPDATE t_2 SET d = 7 WHERE id = 2",
    )
    task.shards["t"].append(("s2", f"{task.name}.t_3"))
    run(task)
    assert no_lock(task) and task.executed("t")[-1].endswith("MODIFY c BIGINT")
    assert target_rows(task, "c") == rows_of(task, s1="c", s2="d")
    assert_equal(task)
    for number in (2, 3):
        upstream(
            task, "s2", f"ALTER TABLE t_{number} CHANGE d c BIGINT", f"INSERT INTO t_{number} VALUES (40{number}, 1)"
        )
    run(task)
    task.assert_settled()
    assert len(task.executed("t")) == 2
    for source, number in (("s1", 1), ("s2", 2), ("s2", 3)):
        upstream(
            task, source, f"ALTER TABLE t_{number} DROP c, ADD d INT", f"INSERT INTO t_{number} VALUES (50{number}, 9)"
        )
    run(task)
    task.assert_settled()
    assert_equal(task)


def test_ddl_that_were_queued_before_the_decision_follow_it(task: LiveTask) -> None:
    renamed_otherwise(
        task,
        "ALTER TABLE t_2 MODIFY d BIGINT",
        f"INSERT INTO t_2 VALUES (21, {1 << 40})",
        "ALTER TABLE t_2 CHANGE d c BIGINT",
        f"INSERT INTO t_2 VALUES (22, {1 << 41})",
    )
    assert lock(task).ddl.endswith("MODIFY `c` BIGINT")
    upstream(task, "s1", "ALTER TABLE t_1 MODIFY c BIGINT")
    run(task)
    task.assert_settled()
    assert len(task.executed("t")) == 2
    assert_equal(task)


def test_a_statement_that_may_mean_both_names_waits_for_an_operator(task: LiveTask) -> None:
    renamed_otherwise(task, "ALTER TABLE t_2 ADD c INT", "INSERT INTO t_2 VALUES (21, 3, 4)")
    view = lock(task)
    assert view.state is LockState.UNDECIDED and "[US-4010]" in view.reason and "d is c" in view.reason


def test_a_column_that_the_target_has_under_its_name_is_not_added_again(
    task: LiveTask, capsys: pytest.CaptureFixture[str]
) -> None:
    upstream(task, "s1", "ALTER TABLE t_1 ADD x INT", "INSERT INTO t_1 VALUES (1, 1, 1)")
    upstream(
        task, "s2", "ALTER TABLE t_2 COMMENT 'c'", "ALTER TABLE t_2 ADD x BIGINT", "INSERT INTO t_2 VALUES (2, 2, 2)"
    )
    run(task)
    view = lock(task)
    order(task, Replace(view.id, ("ALTER TABLE t ADD x INT",), Shard("s2", TableId(task.name, "t_2"))))
    run(task)
    assert (lock(task).state, lock(task).ways) == (LockState.WAITING, (Way.SKIPPED,))
    assert barred(lock(task)) == (f"unlock: the target has x already, which the DDL of s2 {task.name}.t_2 adds",)
    main(["locks", str(task.path)])
    told = capsys.readouterr().out
    assert "unshard skip" in told and "unshard unlock" not in told
    (offer,) = offers(lock(task))
    follow(task, offer)
    run(task)
    assert no_lock(task) and task.work().meta.locks.pending_skips() == {}
    assert target_rows(task, "x") == [(1, 1), (2, 2)]
    assert_equal(task)


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("name", ["z", "a"])
def test_statements_for_all_shards_name_their_columns(task: LiveTask, name: str, is_late: bool) -> None:
    """The target may keep a name that all shards change, or get another one."""
    text = "CHANGE a r INT", f"CHANGE a {name} INT"
    for source in ("s1", "s2"):
        number = source[1]
        upstream(task, source, f"INSERT INTO t_{number} VALUES ({number}, 1{number})")
        if is_late and source == "s2":
            order(task, Force(lock(task).id))
            run(task)
        upstream(task, source, f"ALTER TABLE t_{number} {text[0]}", f"INSERT INTO t_{number} VALUES ({number}0, 2)")
        run(task)
        if source == "s1":
            order(task, Replace(lock(task).id, (f"ALTER TABLE t {text[1]}",)))
            run(task)
    assert no_lock(task) and task.stopped() == {} and columns(task) == ["id", name]
    assert target_rows(task, name) == rows_of(task, s1="r", s2="r")
    assert_equal(task)


def test_a_new_column_may_have_another_name_in_the_target(task: LiveTask, capsys: pytest.CaptureFixture[str]) -> None:
    upstream(task, "s1", "INSERT INTO t_1 VALUES (1, 11)", "ALTER TABLE t_1 CHANGE a r INT")
    upstream(
        task, "s2", "INSERT INTO t_2 VALUES (2, 12)", "ALTER TABLE t_2 ADD r INT", "INSERT INTO t_2 VALUES (3, 13, 4)"
    )
    run(task)
    assert (lock(task).state, lock(task).ways) == (LockState.CONFLICT, (Way.UNLOCKED,))
    order(task, Force(lock(task).id))
    run(task)
    view = lock(task)
    assert (view.state, view.ways, len(view.barred)) == (LockState.WAITING, (), 1)
    assert (
        main(["replace", str(task.path), view.id, "--sql", "ALTER TABLE t ADD z INT", "--reason", "x", "--dry-run"])
        == 0
    )
    assert "column r is z of the target" in capsys.readouterr().out
    order(task, Replace(view.id, ("ALTER TABLE t ADD z INT",)))
    assert lock(task).barred == ()
    order(task, Force(view.id))
    run(task)
    assert no_lock(task) and task.stopped() == {}
    assert target_rows(task, "z") == [(1, None), (2, None), (3, 4)] and target_rows(task, "r") == [
        (1, 11),
        (2, 12),
        (3, 13),
    ]
    assert_equal(task)


def test_the_same_column_of_another_type(task: LiveTask) -> None:
    upstream(task, "s1", "ALTER TABLE t_1 ADD x INT", "INSERT INTO t_1 VALUES (1, 1, 1)")
    upstream(task, "s2", "ALTER TABLE t_2 ADD x BIGINT", "INSERT INTO t_2 VALUES (2, 2, 2)")
    run(task)
    assert Way.UNLOCKED in lock(task).ways
    follow_all(task, offers(lock(task))[0].text)
    task.assert_settled()
    assert_equal(task)


def test_a_shard_in_conflict_may_be_dropped(task: LiveTask) -> None:
    upstream(task, "s1", "ALTER TABLE t_1 CHANGE a c INT", "INSERT INTO t_1 VALUES (1, 1)")
    upstream(task, "s2", "ALTER TABLE t_2 CHANGE a d INT", "INSERT INTO t_2 VALUES (2, 2)")
    run(task)
    (shard,) = lock(task).conflicts
    order(task, DropShard(lock(task).id, shard))
    run(task)
    task.shards["t"] = [each for each in task.shards["t"] if each[0] == "s1"]
    task.assert_settled()
    assert_equal(task)


def test_the_command_line_shows_the_ways_out_and_why_others_fail(
    task: LiveTask, capsys: pytest.CaptureFixture[str]
) -> None:
    upstream(task, "s1", "ALTER TABLE t_1 CHANGE a c INT")
    upstream(task, "s2", "ALTER TABLE t_2 CHANGE a d INT")
    run(task)
    assert lock(task).ways == (Way.SAME,)
    capsys.readouterr()
    assert main(["locks", str(task.path)]) == 3
    told = capsys.readouterr().out
    assert "as this one: unshard replace" in told and "--shard s2/" in told
    assert (
        "not unlock: the target would not have column a any more" in told and "not as nothing: column a of s2" in told
    )


def test_the_page_offers_only_ways_out_that_succeed(task: LiveTask, monkeypatch: pytest.MonkeyPatch) -> None:
    upstream(task, "s1", "ALTER TABLE t_1 CHANGE a c INT", "INSERT INTO t_1 VALUES (1, 1)")
    upstream(task, "s2", "ALTER TABLE t_2 CHANGE a d INT", "INSERT INTO t_2 VALUES (2, 2)")
    run(task)
    if "airflow" not in sys.modules:
        monkeypatch.setenv("AIRFLOW_HOME", str(task.folder))
    monkeypatch.setenv("UNSHARD_TASKS", str(task.folder))
    view, (shard,) = lock(task), lock(task).conflicts
    at = f"/task/live/lock/{view.id}"
    (page,) = browse(("GET", at, {}))
    assert 'id="unlock"' not in page and 'id="skip"' not in page
    assert 'id="ready-1"' in page and 'id="replace"' in page and 'id="drop-shard"' in page
    assert "unlock: the target would not have column a any more" in page and "as nothing: column a of s2" in page
    chosen = {"action": "replace", "statements": f"{view.ddl};\n", "shard": str(shard)}
    preview, done = browse(("GET", at, {}), ("POST", f"{at}/preview", chosen), ("POST", f"{at}/give", {}))[1:]
    assert "column d is c of the target" in unescape(preview) and "The command is issued" in done
    run(task)
    assert no_lock(task) and target_rows(task, "c") == rows_of(task, s1="c", s2="d")
    upstream(task, "s1", "ALTER TABLE t_1 ADD x INT")
    upstream(task, "s2", "ALTER TABLE t_2 ADD y INT")
    run(task)
    (page,) = browse(("GET", f"/task/live/lock/{lock(task).id}", {}))
    assert 'id="unlock"' in page and 'id="skip"' not in page and 'id="ready-1"' not in page


EXAMPLES = examples(0, 2, 200)
STEPS = 12


class Conflicts:
    """Two shards run random DDL that differ. Each value tells its row and its column, whatever its name.

    `shares`: a column that one shard adds may have the name that another shard gives to another column.
    """

    def __init__(self, task: LiveTask, dice: random.Random, shares: bool) -> None:
        self.task, self.dice, self.serial, self.shares = task, dice, 0, shares
        self.names = {source: {"a": "a"} for source in task.sources}
        """Present name of each column of a source's shard, by the first name."""
        self.rows: dict[int, str] = {}

    def play(self) -> None:
        for _ in range(self.dice.randrange(2, STEPS)):
            source = self.dice.choice(sorted(self.names))
            self.dice.choice((self.ddl, self.ddl, self.insert, self.run))(source)
        for source in self.names:
            self.insert(source)

    def run(self, _: str) -> None:
        run(self.task)

    def insert(self, source: str) -> None:
        self.serial += 1
        self.rows[self.serial] = source
        columns = self.names[source]
        names, values = [*columns.values()], [str(value(self.serial, column)) for column in columns]
        text = f"INSERT INTO t_{source[1]} (id, {', '.join(names)}) VALUES ({self.serial}, {', '.join(values)})"
        upstream(self.task, source, text)

    def ddl(self, source: str) -> None:
        columns = self.names[source]
        pick, kind = self.dice.choice, self.dice.choice(("INT", "BIGINT"))
        column = pick(sorted(columns))
        fresh = pick([name for name in ("p", "q", "r") if name not in columns.values()] or ["z"])
        free = ("p", "q", "r") if self.shares else ("n1", "n2", "n3")
        new = pick([name for name in free if name not in columns and name not in columns.values()] or [""])
        forms = [f"MODIFY {columns[column]} {kind}", f"CHANGE {columns[column]} {fresh} {kind}", "COMMENT 'x'"]
        form = pick([*forms, *([f"ADD {new} {kind}"] * 2 if new else [])])
        if fresh in columns.values() and form.startswith("CHANGE"):
            return
        upstream(self.task, source, f"ALTER TABLE t_{source[1]} {form}")
        if form.startswith("CHANGE"):
            columns[column] = fresh
        elif form.startswith("ADD"):
            columns[new] = new

    def decide(self) -> None:
        for _ in range(100):
            run(self.task)
            found = coordinate.views(self.task.work().meta)
            if not found:
                return
            for command in self.commands(found[0]):
                give(self.task.work().meta, command, "operator", "test", "because")
        raise AssertionError(found)

    def commands(self, view: LockView) -> tuple[LockCommand, ...]:
        assert view.state is not LockState.FAILED, view
        if view.state is LockState.CONFLICT:
            assert offers(view) or (self.shares and barred(view)), (view, barred(view))
        if offers(view):
            return self.dice.choice(offers(view)).commands
        if view.state is LockState.UNDECIDED:
            assert "[US-4010]" in view.reason, view
        if view.state is LockState.UNDECIDED or view.barred:
            if named := re.search(r"is (\w+) in the target, and must stay so", "".join(barred(view))):
                return (Replace(view.id, (f"ALTER TABLE t MODIFY {named[1]} BIGINT",), view.ready[0]),)
            # A second column of the shard has got the target's name of another one: the target gets a third name.
            self.serial += 1
            text = re.sub(r"(CHANGE \S+|ADD) \S+", rf"\1 z{self.serial}", view.ddl)
            if view.state is LockState.UNDECIDED or self.dice.randrange(2):
                return (Replace(view.id, (text,), view.ready[0]),)
            return Replace(view.id, (text,)), Force(view.id)
        return (Force(view.id),)

    def check(self) -> None:
        """Find each column of the shards in the target: all rows have its values in one column."""
        work = self.task.work()
        assert not [state for state in work.meta.structures.shards() if state.queue or state.held]
        assert self.task.stopped() == {}
        names = columns(self.task)[1:]
        found = {row[0]: dict(zip(names, row[1:], strict=True)) for row in self.target_rows(names)}
        assert found.keys() == self.rows.keys()
        everywhere = {(column, (*self.names,)) for own in self.names.values() for column in own}
        alone = {(column, (source,)) for source, own in self.names.items() for column in own}
        for column, sources in alone if self.shares else everywhere:
            rows = [key for key, source in self.rows.items() if source in sources and column in self.names[source]]
            wanted = {key: self.there(key, column) for key in rows}
            places = [name for name in names if all(found[key][name] == wanted[key] for key in rows)]
            assert places, (column, wanted, found)
        (table,) = validate(work)
        assert table.equal, (table.differences, table.lost_columns, table.error)

    def target_rows(self, names: list[str]) -> list[tuple[object, ...]]:
        return self.task.target.run(f"SELECT id, {', '.join(names)} FROM {self.task.table('t')}")

    def there(self, key: int, column: str) -> object:
        source = self.rows[key]
        name = self.names[source][column]
        ((found,),) = self.task.sources[source].run(
            f"SELECT {name} FROM {self.task.name}.t_{source[1]} WHERE id = {key}"
        )
        return found


def value(key: int, column: str) -> int:
    return key * 1000 + sum(map(ord, column))


@pytest.mark.slow
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=EXAMPLES <= 50,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],  # a smaller number is not a simpler game
)
@given(number=st.integers(0, 2**48), shares=st.booleans())
@example(3, False)
@example(1_583_865_520, False)
@example(31, False)
@example(62, False)
@example(2930, False)  # two shards give one name to different columns
@example(329, True)
def test_every_offered_way_leads_the_rows_of_all_shards_into_the_target(
    source_1: MariaDb,
    source_2: MariaDb,
    target: MariaDb,
    tmp_path_factory: pytest.TempPathFactory,
    number: int,
    shares: bool,
) -> None:
    numbers = {("s1", "t"): (1,), ("s2", "t"): (2,)}
    folder, servers = tmp_path_factory.mktemp("conflicts"), (source_1, source_2, target)
    with living(f"way_{number:x}", Path(folder), servers, "t", columns={"t": COLUMNS}, numbers=numbers) as task:
        game = Conflicts(task, random.Random(number), shares)
        game.play()
        game.decide()
        game.check()
