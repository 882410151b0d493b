"""Windows of tables that foreign keys connect: in several transactions, of partial rows, and with diverted rows."""

from collections.abc import Callable, Sequence

import pytest

from tests.cutting import bound_transactions
from tests.dying import Died
from tests.integration.window.test_foreign_keys import PLAIN, World, two, world
from unshard.adapters.target import applyinorder, fencesteps
from unshard.adapters.target.fencesteps import Bounds
from unshard.errors.source import ServerBusy
from unshard.units.full.dump import dump
from unshard.units.full.load import handover, load
from unshard.units.full.snapshot import take_snapshot

pytestmark = pytest.mark.integration
__all__ = ["two", "world"]
CHILD = "c (id INT PRIMARY KEY, p_id INT, v VARCHAR(20), FOREIGN KEY (p_id) REFERENCES p (id) {})"
CASCADES = "ON DELETE CASCADE ON UPDATE CASCADE"
CHANGES = (
    *(f"INSERT INTO p VALUES ({n}, {n}, 'p')" for n in range(1, 9)),
    "INSERT INTO c VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c'), (4, 4, 'd'), (5, 5, 'e')",
    "UPDATE c SET v = 'moved', p_id = 8 WHERE id <= 2",
    "DELETE FROM p WHERE id IN (1, 3)",
    "INSERT INTO p VALUES (1, 3, 'again')",
    "INSERT INTO c VALUES (6, 1, 'f')",
    "UPDATE p SET id = 20 WHERE id = 4",
    "DELETE FROM c WHERE id = 6",
    "DELETE FROM p WHERE id = 5",
    "INSERT INTO c VALUES (6, 20, 'g')",
)


def begin(world: World, actions: str = CASCADES, **keys: object) -> None:
    world.tables = ("p", "c")
    world.change(f"CREATE TABLE {PLAIN}", f"CREATE TABLE {CHILD.format(actions)}")
    world.write(**keys)  # type: ignore[arg-type]
    world.go()


def done(world: World) -> list[tuple[object, ...]]:
    """Return how many row images of the open window each target has."""
    return world.target.run(f"SELECT target_table, CAST(upper_key AS UNSIGNED), done FROM {world.name}_meta.fence_step")


def dies(patch: pytest.MonkeyPatch, number: int, when: str, error: type[BaseException] = Died) -> None:
    """Let the process die at a COMMIT of rows in the order of the binlog."""
    calls, commit = list[int](), applyinorder._Attempts.commit

    def replacement(self: object, connection: object, written: object, reached: int) -> None:
        calls.append(reached)
        if len(calls) != number:
            commit(self, connection, written, reached)  # type: ignore[arg-type]
            return
        self.committing, self.reached = written, reached  # type: ignore[attr-defined]
        if when == "after":
            connection.query("COMMIT")  # type: ignore[attr-defined]
        raise error("target", "s", "the answer is lost") if error is ServerBusy else error

    patch.setattr(applyinorder._Attempts, "commit", replacement)


@pytest.mark.on_tidb
@pytest.mark.sample(reason="the tables and the way of writing do not interact")
@pytest.mark.parametrize("safe", [True, False], ids=["safe", "plain"])
@pytest.mark.parametrize("bounds", [Bounds(1, 1 << 20, 1), Bounds(7, 1 << 20, 1), Bounds(1000, 40, 1)], ids=str)
def test_a_large_window_is_several_transactions(
    world: World, monkeypatch: pytest.MonkeyPatch, bounds: Bounds, safe: bool
) -> None:
    begin(world, safe=safe)
    bound_transactions(monkeypatch, bounds)
    advanced: list[int] = []
    advance = fencesteps.advance
    monkeypatch.setattr(fencesteps, "advance", lambda *given: advanced.append(given[3].images) or advance(*given))
    world.change(*CHANGES)
    world.go()
    world.assert_same()
    assert len(set(advanced)) > 1 and advanced == sorted(advanced)
    assert done(world) == []


@pytest.mark.on_tidb
@pytest.mark.on_tidb
@pytest.mark.parametrize("safe", [True, False], ids=["safe", "plain"])
@pytest.mark.parametrize("most", [4, 1000], ids=["several transactions", "one transaction"])
def test_children_that_come_before_their_parents(
    world: World, monkeypatch: pytest.MonkeyPatch, safe: bool, most: int
) -> None:
    """As `mysqldump` writes tables: sorted by name, in a session without checks."""
    world.tables = ("p", "c")
    world.change(
        f"CREATE TABLE {PLAIN}", "CREATE TABLE c (id INT PRIMARY KEY, p_id INT, FOREIGN KEY (p_id) REFERENCES p (id))"
    )
    world.write(safe=safe)
    world.go()
    bound_transactions(monkeypatch, Bounds(most, 1 << 20, 1))
    off = "SET foreign_key_checks = 0"
    rows = ", ".join(f"({n}, {n})" for n in range(1, 10))
    world.change(off, f"INSERT INTO c VALUES {rows}", *(f"INSERT INTO p VALUES ({n}, {n}, 'p')" for n in range(1, 10)))
    world.go()
    world.assert_same()
    moved = ("UPDATE c SET p_id = 70 WHERE id = 1", "DELETE FROM c WHERE id = 7", "UPDATE p SET id = 70 WHERE id = 7")
    world.change(off, *moved)
    world.go()
    world.assert_same()
    world.change(off, "INSERT INTO c VALUES (50, 50)", "UPDATE c SET p_id = 51 WHERE id = 2")
    found = {stop.error.code: str(stop.error) for stop in world.run().errors}
    assert found.keys() == {"US-6070", "US-6072"} and "references id = 50" in found["US-6070"], found
    world.change("INSERT INTO p VALUES (50, 50, 'late'), (51, 51, 'late')")
    world.go()
    world.assert_same()


@pytest.mark.sample(reason="the moment and the way of writing do not interact")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_process_that_dies_in_a_large_window(
    world: World, monkeypatch: pytest.MonkeyPatch, number: int, when: str
) -> None:
    """The statements without safe mode fail if they run twice."""
    begin(world)
    bound_transactions(monkeypatch, Bounds(5, 1 << 20, 1))
    world.change(*CHANGES)
    for death in ((number, when), (1, "before")):  # the next COMMIT may be the last one
        with monkeypatch.context() as patch:
            dies(patch, *death)
            with pytest.raises(Died):
                world.run()
        found = done(world)
        assert [row[0] for row in found] == ["c", "p"] and found[0][1:] == found[1][1:]
        assert (int(str(found[0][1])) > 0) == (number > 1 or when == "after")
    world.go()
    world.assert_same()
    assert done(world) == []


@pytest.mark.sample(reason="the moment and the way of writing do not interact")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", [1, 3, 6])
def test_an_answer_to_a_commit_that_is_lost(
    world: World, monkeypatch: pytest.MonkeyPatch, number: int, when: str
) -> None:
    begin(world)
    bound_transactions(monkeypatch, Bounds(5, 1 << 20, 1))
    world.change(*CHANGES)
    with monkeypatch.context() as patch:
        dies(patch, number, when, ServerBusy)
        world.go()
    world.assert_same()
    assert done(world) == []


def begun_in_part(
    world: World, monkeypatch: pytest.MonkeyPatch, actions: str = CASCADES, changes: Sequence[str] = CHANGES
) -> None:
    begin(world, actions)
    bound_transactions(monkeypatch, Bounds(5, 1 << 20, 1))
    world.change(*changes)
    with monkeypatch.context() as patch:
        dies(patch, 4, "after")
        with pytest.raises(Died):
            world.run()
    assert done(world)


def test_foreign_keys_that_are_gone_in_the_middle_of_a_window(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is written in order too: a compacted window would not delete rows that it inserts itself."""
    begun_in_part(world, monkeypatch, "", (*CHANGES[:10], "DELETE FROM c WHERE id < 4", "DELETE FROM p WHERE id < 4"))
    ((name,),) = world.target.run(
        f"SELECT CONSTRAINT_NAME FROM information_schema.REFERENTIAL_CONSTRAINTS"
        f" WHERE CONSTRAINT_SCHEMA = '{world.name}_to'"
    )
    world.target.run(f"ALTER TABLE {world.name}_to.c DROP FOREIGN KEY `{name}`")
    world.change("DELETE FROM c", "DELETE FROM p")
    world.go()
    world.assert_same()


def test_the_setting_is_gone_in_the_middle_of_a_window(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    begun_in_part(world, monkeypatch)
    world.write(checks=0)
    world.change("DELETE FROM c", "DELETE FROM p")
    world.go()
    world.assert_same()


@pytest.mark.parametrize("deaths", [0, 3])
def test_a_window_that_goes_on_with_other_images_is_written_again(
    world: World, monkeypatch: pytest.MonkeyPatch, deaths: int
) -> None:
    begun_in_part(world, monkeypatch)
    world.target.run(f"UPDATE {world.name}_meta.fence_step SET key_columns = 'of other images'")
    if deaths:
        with monkeypatch.context() as patch:
            dies(patch, deaths, "after")
            with pytest.raises(Died):
                world.run()
    world.go()
    world.assert_same()


@pytest.mark.on_tidb
def test_a_target_that_refuses_a_row_in_the_middle_of_a_window(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both targets are suspended with a part of the window; then the whole window is written again."""
    begin(world)
    to = f"{world.name}_to"
    world.target.run(f"ALTER TABLE {to}.c MODIFY v VARCHAR(3)")
    bound_transactions(monkeypatch, Bounds(5, 1 << 20, 1))
    world.change(*CHANGES)
    assert {error.error.code for error in world.run().errors} == {"US-6002", "US-6072"}
    assert world.rows("p") and done(world) == []
    world.change("INSERT INTO p VALUES (99, 99, 'x')", "DELETE FROM p WHERE id = 2")
    world.run()
    world.target.run(f"ALTER TABLE {to}.c MODIFY v VARCHAR(20)")
    world.go()
    world.assert_same()


def test_a_collision_before_the_first_commit_of_a_window_suspends_the_tables(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of the rows is in the target, so the window that comes again cannot replace the other row."""
    begin(world)
    world.target.run(f"INSERT INTO {world.name}_to.p VALUES (8, 800, 'other')")
    bound_transactions(monkeypatch, Bounds(5, 1 << 20, 1))
    world.change(*CHANGES)
    assert {error.error.code for error in world.run().errors} == {"US-6006", "US-6072"}
    assert world.rows("p") == [(8, 800, "other")] and done(world) == []
    world.change("INSERT INTO p VALUES (99, 99, 'x')", "DELETE FROM p WHERE id = 2")
    world.run()
    assert world.rows("p") == [(8, 800, "other")]
    world.target.run(f"DELETE FROM {world.name}_to.p WHERE id = 8")
    world.go()
    world.assert_same()


def test_a_collision_in_the_middle_of_a_window_suspends_none_of_the_tables(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The window would replace the other row if it came again from its beginning, so the source waits."""
    begin(world)
    world.target.run(f"INSERT INTO {world.name}_to.c VALUES (6, NULL, 'other')")
    bound_transactions(monkeypatch, Bounds(5, 1 << 20, 1))
    world.change(*CHANGES)
    for _ in range(2):
        assert {error.error.code for error in world.run().errors} == {"US-6006"}
        assert done(world) == [("c", 17, 1), ("p", 17, 1)]  # up to the UPDATE of two rows
        assert (6, None, "other") in world.rows("c")
    world.target.run(f"DELETE FROM {world.name}_to.c WHERE id = 6")
    world.go()
    world.assert_same()


@pytest.mark.parametrize("image", ["MINIMAL", "NOBLOB"])
@pytest.mark.parametrize("safe", [True, False], ids=["safe", "plain"])
def test_rows_without_all_columns(world: World, safe: bool, image: str) -> None:
    begin(world, safe=safe)
    world.change(f"SET SESSION binlog_row_image = {image}", *CHANGES)
    world.go()
    world.assert_same()
    world.change(
        f"SET SESSION binlog_row_image = {image}",
        "UPDATE c SET v = NULL WHERE id = 2",
        "UPDATE c SET p_id = NULL WHERE id = 1",
        "UPDATE p SET u = u + 100",
        "UPDATE p SET id = 30 WHERE id = 20",
        "UPDATE c SET id = 77 WHERE id = 6",
        "INSERT INTO c (id) VALUES (80)",
        "DELETE FROM p WHERE id = 8",
    )
    world.go()
    world.assert_same()


@pytest.mark.parametrize("image", ["MINIMAL", "NOBLOB"])
def test_rows_without_all_columns_of_tables_without_a_key(world: World, image: str) -> None:
    """Without a key the BEFORE image has all columns, and the AFTER image is completed from it."""
    world.tables = ("p", "c")
    world.change(
        "CREATE TABLE p (u INT, v VARCHAR(20), w TEXT, UNIQUE KEY (u))",
        "CREATE TABLE c (n INT, u INT, v TEXT, FOREIGN KEY (u) REFERENCES p (u) ON UPDATE CASCADE)",
    )
    world.write()
    world.go()
    world.change(
        f"SET SESSION binlog_row_image = {image}",
        "INSERT INTO p VALUES (1, 'a', 'aa'), (2, 'b', 'bb'), (NULL, 'c', NULL)",
        "INSERT INTO c VALUES (1, 1, 'x'), (2, 2, NULL), (2, 2, NULL)",
        "UPDATE p SET v = 'new' WHERE u = 1",
        "UPDATE c SET n = 5 WHERE n = 2 LIMIT 1",
        "UPDATE p SET u = 11, w = NULL WHERE u = 1",
        "UPDATE c SET u = NULL WHERE n = 5",
        "INSERT INTO c (n) VALUES (9)",
        "DELETE FROM c WHERE n = 2",
        "DELETE FROM p WHERE u = 2",
    )
    world.go()
    world.assert_same()


def test_a_value_that_does_not_fit_in_a_table_without_a_key(world: World) -> None:
    """The error names row and column."""
    world.tables = ("p", "c")
    world.change(
        "CREATE TABLE p (u INT, v VARCHAR(20), UNIQUE KEY (u))",
        "CREATE TABLE c (id INT PRIMARY KEY, u INT, FOREIGN KEY (u) REFERENCES p (u))",
        "INSERT INTO p VALUES (1, 'a')",
    )
    world.write()
    world.go()
    to = f"{world.name}_to"
    world.target.run(f"ALTER TABLE {to}.p MODIFY v VARCHAR(3)")
    world.change("UPDATE p SET u = 2, v = 'longer' WHERE u = 1")
    found = {error.error.code: str(error.error) for error in world.run().errors}
    assert found.keys() == {"US-6002", "US-6072"} and "column 'v'" in found["US-6002"], found
    world.target.run(f"ALTER TABLE {to}.p MODIFY v VARCHAR(20)")
    world.go()
    world.assert_same()


def test_a_key_that_only_the_shard_has_needs_whole_rows(world: World) -> None:
    world.tables = ("p", "c")
    world.change(f"CREATE TABLE {PLAIN}", f"CREATE TABLE {CHILD.format('')}")
    to = f"{world.name}_to"
    world.target.run(
        f"CREATE DATABASE {to}",
        f"CREATE TABLE {to}.p (id INT NOT NULL, u INT, v VARCHAR(20), KEY (id))",
        f"CREATE TABLE {to}.c (id INT NOT NULL, p_id INT, v VARCHAR(20), KEY (id),"
        f" FOREIGN KEY (p_id) REFERENCES {to}.p (id))",
    )
    world.write()
    world.go()
    world.change("INSERT INTO p VALUES (1, 1, 'a')", "INSERT INTO c VALUES (1, 1, 'a')")
    world.change("SET SESSION binlog_row_image = MINIMAL", "UPDATE p SET v = 'new'")
    assert "US-6041" in {error.error.code for error in world.run().errors}


def test_a_partial_row_that_the_target_lacks_is_an_error(world: World) -> None:
    begin(world)
    world.change("INSERT INTO p VALUES (1, 1, 'x'), (2, 2, 'y')")
    world.go()
    world.target.run(f"DELETE FROM {world.name}_to.p WHERE id = 1")
    world.change("SET SESSION binlog_row_image = MINIMAL", "UPDATE p SET v = 'new'")
    assert "US-6042" in {error.error.code for error in world.run().errors}
    world.change("DELETE FROM p WHERE id = 1")
    world.target.run(f"INSERT INTO {world.name}_to.p VALUES (1, 1, 'x')")
    world.go()
    world.assert_same()


def loaded_apart(world: World, rows: Sequence[str], between: Sequence[str], then: Callable[[], None]) -> None:
    """Load tables while rows change; the sessions log only changed columns. `then` changes what the dump saw."""
    world.tables = ("p", "c")
    world.change(f"CREATE TABLE {PLAIN}", f"CREATE TABLE {CHILD.format(CASCADES)}", *rows)
    world.write()
    with world.work() as work:
        take_snapshot(work, "s1")
        world.change("SET SESSION binlog_row_image = MINIMAL", *between)
        dump(work, "s1")
        load(work, "s1")
        handover(work)
    then()


def test_partial_rows_that_the_dump_has_seen_at_another_moment(world: World) -> None:
    """The dump has read rows before and after they got another key, and after they were deleted."""
    to = f"{world.name}_to"
    rows = (
        "INSERT INTO p VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c')",
        "INSERT INTO c VALUES (1, 1, 'x'), (2, 2, 'y')",
    )
    between = (
        "UPDATE p SET v = 'changed'",
        "UPDATE c SET id = 11 WHERE id = 1",
        "UPDATE c SET id = 12 WHERE id = 2",
        "UPDATE c SET v = 'later' WHERE id = 12",
        "DELETE FROM p WHERE id = 3",
    )
    before = (
        "SET foreign_key_checks = 0",
        f"DELETE FROM {to}.c WHERE id = 11",
        f"INSERT INTO {to}.c VALUES (1, 1, 'x')",
    )
    loaded_apart(world, rows, between, lambda: world.target.run(*before) and None)
    world.go()
    world.assert_same()
    assert world.rows("c") == [(11, 1, "x"), (12, 2, "later")]


def diverting(world: World, actions: str = "", **keys: object) -> str:
    options = {"storage-path": str(world.folder / "storage"), "row-errors": "divert"}
    begin(world, actions, unshard=options, **keys)
    to = f"{world.name}_to"
    world.target.run(f"ALTER TABLE {to}.p MODIFY v VARCHAR(3)", f"ALTER TABLE {to}.c MODIFY v VARCHAR(3)")
    return to


def diverted(world: World) -> list[tuple[object, ...]]:
    return world.target.run(
        f"SELECT target_table, key_shown, column_name, state FROM {world.name}_meta.row_error ORDER BY 1, 2"
    )


@pytest.mark.parametrize("safe", [True, False], ids=["safe", "plain"])
def test_a_row_that_does_not_fit_is_diverted(world: World, safe: bool) -> None:
    to = diverting(world, safe=safe)
    world.change(
        "INSERT INTO p VALUES (1, 1, 'x'), (2, 2, 'too long'), (3, 3, 'y')",
        "INSERT INTO c VALUES (1, 1, 'x'), (2, 3, 'too long'), (3, 3, 'y')",
        "UPDATE c SET v = 'too long' WHERE id = 3",
    )
    world.go()
    assert diverted(world) == [
        ("c", "id = 2", "v", "open"),
        ("c", "id = 3", "v", "open"),
        ("p", "id = 2", "v", "open"),
    ]
    assert world.rows("p") == [(1, 1, "x"), (3, 3, "y")] and world.rows("c") == [(1, 1, "x")]
    world.change(
        "UPDATE c SET v = 'ok' WHERE id = 2", "DELETE FROM c WHERE id = 3", "UPDATE p SET v = 'ok' WHERE id = 2"
    )
    world.go()
    assert {row[3] for row in diverted(world)} == {"mended"}
    world.assert_same()
    assert to


NARROW = {
    "text": ("v VARCHAR(20)", "VARCHAR(3)", "'too long'"),
    "decimal": ("v DECIMAL(9,2)", "DECIMAL(5,2)", "12345.67"),
}


@pytest.mark.parametrize("kind", NARROW)
def test_an_update_that_a_column_refuses_names_it(world: World, kind: str) -> None:
    """The messages of TiDB about a length or a DECIMAL name neither row nor column."""
    column, narrow, value = NARROW[kind]
    world.tables = ("p", "c")
    world.change(
        f"CREATE TABLE {PLAIN}",
        f"CREATE TABLE c (id INT PRIMARY KEY, p_id INT, a INT, {column}, FOREIGN KEY (p_id) REFERENCES p (id))",
    )
    world.write(unshard={"storage-path": str(world.folder / "storage"), "row-errors": "divert"})
    world.change("INSERT INTO p VALUES (1, 1, 'x')", "INSERT INTO c VALUES (1, 1, 0, DEFAULT), (2, 1, 0, DEFAULT)")
    world.change("UPDATE c SET v = 1")
    world.go()
    world.target.run(f"ALTER TABLE {world.name}_to.c MODIFY v {narrow}")
    refused = f"UPDATE c SET a = 7, v = {value} WHERE id = 2"
    world.change("SET sql_mode = ''", refused, "UPDATE c SET a = 5 WHERE id = 1")
    world.go()
    assert diverted(world) == [("c", "id = 2", "v", "open")]
    assert [row[:3] for row in world.rows("c")] == [(1, 1, 5)]


@pytest.mark.parametrize("safe", [True, False], ids=["safe", "plain"])
def test_an_enum_without_a_label_does_not_hide_a_value_that_is_too_long(world: World, safe: bool) -> None:
    world.tables = ("p", "c")
    world.change(
        f"CREATE TABLE {PLAIN}",
        "CREATE TABLE c (id INT PRIMARY KEY, p_id INT, e ENUM('a', 'b'), v VARCHAR(20), n DECIMAL(9,3),"
        " FOREIGN KEY (p_id) REFERENCES p (id))",
        "INSERT INTO p VALUES (1, 1, 'x')",
        *(f"INSERT INTO c VALUES ({number}, 1, 'a', 'x', 1)" for number in (1, 2, 3)),
    )
    world.write(safe=safe, unshard={"storage-path": str(world.folder / "storage"), "row-errors": "divert"})
    world.go()
    world.target.run(f"ALTER TABLE {world.name}_to.c MODIFY v VARCHAR(3)")
    world.target.run(f"ALTER TABLE {world.name}_to.c MODIFY n DECIMAL(9,1)")
    world.change(
        "SET sql_mode = ''",
        "UPDATE c SET e = '', v = 'too long' WHERE id = 1",
        "UPDATE c SET e = '', v = 'ok' WHERE id = 2",
        "UPDATE c SET e = '', n = 1.234 WHERE id = 3",
    )
    world.go()
    assert diverted(world) == [("c", "id = 1", "v", "open"), ("c", "id = 3", "n", "open")]
    rows = world.target.run(f"SELECT id, e + 0, v, n * 1e0 FROM {world.name}_to.c")
    assert rows == [(2, 0, "ok", 1)]


def test_a_row_that_fits_in_the_end_is_not_diverted(world: World) -> None:
    diverting(world)
    world.change(
        "INSERT INTO p VALUES (1, 1, 'too long')",
        "UPDATE p SET v = 'x'",
        "INSERT INTO c VALUES (1, 1, 'too long')",
        "DELETE FROM c",
    )
    world.go()
    assert diverted(world) == []
    world.assert_same()


def test_a_row_that_others_reference_is_not_diverted(world: World) -> None:
    to = diverting(world)
    world.change("INSERT INTO p VALUES (1, 1, 'too long')", "INSERT INTO c VALUES (1, 1, 'x')")
    assert {error.error.code for error in world.run().errors} == {"US-6002", "US-6072"}
    assert diverted(world) == [] and world.rows("p") == []
    world.target.run(f"ALTER TABLE {to}.p MODIFY v VARCHAR(20)")
    world.go()
    world.assert_same()


@pytest.mark.parametrize("safe", [True, False], ids=["safe", "plain"])
def test_an_older_version_that_others_reference_stays(world: World, safe: bool) -> None:
    to = diverting(world, "ON DELETE CASCADE", safe=safe)
    world.change("INSERT INTO p VALUES (1, 1, 'x')", "INSERT INTO c VALUES (1, 1, 'x')")
    world.go()
    world.change("UPDATE p SET v = 'too long'")
    assert {error.error.code for error in world.run().errors} == {"US-6002", "US-6072"}
    assert diverted(world) == [] and world.rows("c") == [(1, 1, "x")]
    world.target.run(f"ALTER TABLE {to}.p MODIFY v VARCHAR(20)")
    world.go()
    world.assert_same()
