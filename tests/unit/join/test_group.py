"""The ids of columns: renames, swaps, and columns that are dropped and added again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.join.paper import PaperTable, alter, create
from tests.unit.join.rollout import World, shards
from unshard.core.ddl.lineage import ExecutedDdl
from unshard.core.join.decision import Change, Decision, decide_change, wanted
from unshard.core.join.group import Group, ReloadReason, begin_group, fill_of, held_fill, is_same_fill, moved
from unshard.core.model import Shard

TABLE = "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)"
ONE, TWO, THREE = shards(3)


class Paper:
    """Three shards, whose DDL is accepted without a target."""

    def __init__(self, count: int = 3) -> None:
        self.tables = {shard: create(TABLE) for shard in (ONE, TWO, THREE)[:count]}
        self.group = begin_group({shard: table.structure for shard, table in self.tables.items()})

    def run(self, shard: Shard, *clauses: str) -> Group:
        for clause in clauses:
            sql = f"ALTER TABLE t {clause}"
            after: PaperTable = alter(self.tables[shard], sql)
            self.group, conflicts = moved(self.group, shard, (ExecutedDdl(sql, 0),), after.structure)
            assert not conflicts
            self.tables[shard] = after
        return self.group

    def ids(self, shard: Shard) -> dict[str, int]:
        return dict(self.group.members[shard].ids)


def test_rename_and_back() -> None:
    paper = Paper()
    before = paper.group
    assert paper.run(ONE, "RENAME COLUMN a TO x").columns[2].names == ("a", "x")
    assert paper.ids(ONE) == {"id": 1, "x": 2, "b": 3}
    assert paper.run(ONE, "RENAME COLUMN x TO a") == before


def test_a_shard_catches_up_and_the_last_name_is_the_targets() -> None:
    paper = Paper()
    paper.run(ONE, "RENAME COLUMN a TO x", "RENAME COLUMN x TO y")
    assert wanted(paper.group).names[2] == "y"
    paper.run(TWO, "RENAME COLUMN a TO x")
    assert wanted(paper.group).names[2] == "y"
    paper.run(ONE, "RENAME COLUMN y TO a")
    assert wanted(paper.group).names[2] == "x"
    paper.run(TWO, "RENAME COLUMN x TO a")
    assert wanted(paper.group).names[2] == "a"
    assert paper.group.columns[2].names == ("a",)


def test_a_swap_keeps_the_ids() -> None:
    paper = Paper()
    paper.run(ONE, "RENAME COLUMN a TO b, RENAME COLUMN b TO a")
    assert paper.ids(ONE) == {"id": 1, "b": 2, "a": 3}
    assert paper.ids(TWO) == {"id": 1, "a": 2, "b": 3}
    assert wanted(paper.group).names == {1: "id", 2: "b", 3: "a"}
    paper.run(TWO, "RENAME COLUMN b TO a, RENAME COLUMN a TO b")
    paper.run(THREE, "RENAME COLUMN b TO a, RENAME COLUMN a TO b")
    assert paper.ids(ONE) == paper.ids(TWO) == paper.ids(THREE)


def test_a_swap_in_three_statements_is_accepted_with_the_last_of_them() -> None:
    world = World({shard: create(TABLE) for shard in (ONE, TWO)})
    world.write(TWO, 1, {"id": 1, "a": 10, "b": 20})
    world.ddl(ONE, "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a")
    world.run()
    for number, clause in enumerate(("a TO s", "b TO a", "s TO b"), 2):
        world.ddl(TWO, f"ALTER TABLE t RENAME COLUMN {clause}")
        names = [column.name for column in world.upstream[TWO].table.columns]
        world.write(TWO, number, dict.fromkeys(names, number * 10))
        world.run()
        assert bool(world.waiting) is (number < 4)
    world.check_end()
    assert world.rows[1] == {1: 1, 2: 10, 3: 20}


@pytest.mark.parametrize("clauses", [("DROP COLUMN a, ADD COLUMN a INT",), ("DROP COLUMN a", "ADD COLUMN a INT")])
def test_a_column_that_is_dropped_and_added_is_another_one(clauses: tuple[str, ...]) -> None:
    paper = Paper(1)
    assert paper.run(ONE, *clauses).members[ONE].ids == {"id": 1, "b": 3, "a": 4}


@pytest.mark.parametrize("clauses", [("DROP COLUMN a, ADD COLUMN a INT",), ("DROP COLUMN a", "ADD COLUMN a INT")])
def test_it_is_that_of_the_others_if_they_have_it_still_and_is_read_again(clauses: tuple[str, ...]) -> None:
    paper = Paper()
    member = paper.run(ONE, *clauses).members[ONE]
    assert member.ids == {"id": 1, "a": 2, "b": 3}
    assert [reload.reason for reload in member.reloads] == [ReloadReason.ADDED_AGAIN]


def test_a_shard_adds_the_column_of_another_shard() -> None:
    paper = Paper()
    paper.run(ONE, "ADD COLUMN x INT")
    paper.run(TWO, "ADD COLUMN y INT, ADD COLUMN x BIGINT")
    paper.run(ONE, "ADD COLUMN y INT")
    assert paper.ids(ONE) == paper.ids(TWO) == {"id": 1, "a": 2, "b": 3, "x": 4, "y": 5}


def test_a_shard_adds_a_column_that_another_one_has_renamed_since() -> None:
    paper = Paper()
    paper.run(ONE, "ADD COLUMN x INT", "RENAME COLUMN x TO y")
    assert paper.run(TWO, "ADD COLUMN x INT").members[TWO].ids["x"] == 4
    assert paper.run(THREE, "ADD COLUMN y INT").members[THREE].ids["y"] == 4


def test_a_renamed_column_and_a_new_one_of_its_old_name_are_two() -> None:
    paper = Paper()
    paper.run(ONE, "RENAME COLUMN a TO x", "ADD COLUMN a INT")
    assert paper.ids(ONE) == {"id": 1, "x": 2, "b": 3, "a": 4}
    assert wanted(paper.group).names == {1: "id", 2: "x", 3: "b", 4: "a"}
    paper.run(TWO, "RENAME COLUMN a TO x, ADD COLUMN a INT")
    assert paper.ids(TWO) == paper.ids(ONE)


def test_the_target_keeps_the_old_name_until_the_new_one_is_free() -> None:
    """DM renames b to a although the target has both, and old values remain."""
    paper = Paper()
    paper.run(ONE, "DROP COLUMN a, RENAME COLUMN b TO a")
    assert wanted(paper.group).names == {1: "id", 2: "a", 3: "b"}
    paper.run(TWO, "DROP COLUMN a", "RENAME COLUMN b TO a")
    paper.run(THREE, "DROP COLUMN a", "RENAME COLUMN b TO a")
    assert wanted(paper.group).names == {1: "id", 3: "a"}


def test_two_new_names_conflict_until_one_shard_follows() -> None:
    paper = Paper()
    paper.run(ONE, "RENAME COLUMN a TO x")
    sql = "ALTER TABLE t RENAME COLUMN a TO y"
    change = Change((ExecutedDdl(sql, 0),), alter(paper.tables[TWO], sql).structure)
    decided = decide_change(paper.group, wanted(paper.group), TWO, change)
    assert decided.decision is Decision.CONFLICT
    assert str(decided.conflicts[0]) == "new name of column x: y (s2 d.t2) and x (s1 d.t1)"
    paper.run(ONE, "RENAME COLUMN x TO y")
    assert decide_change(paper.group, wanted(paper.group), TWO, change).decision is Decision.NOTHING


@pytest.mark.parametrize(
    "definition, fill",
    [
        ("INT", "NULL"),
        ("INT DEFAULT 5", "5"),
        ("INT NOT NULL", "0"),
        ("VARCHAR(5) NOT NULL", "''"),
        ("VARCHAR(5) DEFAULT 'x'", "'x'"),
        ("ENUM('y','x') NOT NULL", "'y'"),
        ("DATETIME DEFAULT now()", None),
        ("GEOMETRY NOT NULL", None),
        ("DATETIME", "NULL"),
    ],
)
def test_fills(definition: str, fill: str | None) -> None:
    table = create(f"CREATE TABLE t (id INT PRIMARY KEY, c {definition})")
    assert fill_of(table.structure.columns[1]) == fill


@pytest.mark.parametrize("one, other, same", [("1.5", "1.50", True), ("'1'", "'01'", False), ("0", "NULL", False)])
def test_equal_fills(one: str, other: str, same: bool) -> None:
    assert is_same_fill(one, other) is same


@pytest.mark.parametrize(
    "fill, definition, held",
    [
        ("1000", "TINYINT NOT NULL", "0"),
        ("1000", "TINYINT", "NULL"),
        ("100", "TINYINT", "100"),
        ("-1", "INT UNSIGNED NOT NULL", "0"),
        ("1.50", "INT NOT NULL", "0"),
        ("1.50", "DECIMAL(3,1) NOT NULL", "1.50"),
        ("1.55", "DECIMAL(3,1) NOT NULL", "0.0"),
        ("'abc'", "INT", "NULL"),
        ("'abc'", "VARCHAR(2) NOT NULL", "''"),
        ("'ab'", "VARCHAR(2) NOT NULL", "'ab'"),
        ("'ąb'", "VARCHAR(9) CHARACTER SET latin1", "NULL"),
        ("'x'", "ENUM('y','x') NOT NULL", "'x'"),
        ("'z'", "ENUM('y','x') NOT NULL", "'y'"),
        ("'abc'", "DATE", "NULL"),
        ("'2026-01-31'", "DATE", "'2026-01-31'"),
        ("'abc'", "DOUBLE", "NULL"),
        ("1.5", "DOUBLE", "1.5"),
        ("1.5", "DECIMAL(65,30)", "1.5"),
        (f"{10**34}.5", "DECIMAL(65,30)", f"{10**34}.5"),
        ("'1e300'", "DECIMAL(65,30) NOT NULL", f"0.{'0' * 30}"),
        ("0.0000000000000000000000000000005", "DECIMAL(65,30)", "NULL"),
        ("NULL", "INT NOT NULL", "NULL"),
    ],
)
def test_what_stands_for_a_fill_that_the_type_does_not_hold(fill: str, definition: str, held: str) -> None:
    table = create(f"CREATE TABLE t (id INT PRIMARY KEY, c {definition})")
    assert held_fill(fill, table.structure.columns[1:]) == held


BOTH_FILLED = [(ONE, ReloadReason.FILL), (TWO, ReloadReason.FILL)]


@pytest.mark.parametrize(
    "first, second, reasons",
    [
        ("ADD COLUMN c INT DEFAULT 0", "ADD COLUMN c INT DEFAULT 0", []),
        ("ADD COLUMN c INT DEFAULT 0", "ADD COLUMN c INT DEFAULT -1", [(TWO, ReloadReason.FILL)]),
        ("ADD COLUMN c INT DEFAULT now()", "ADD COLUMN c INT", BOTH_FILLED),
        ("ADD COLUMN c INT DEFAULT now()", "ADD COLUMN c INT DEFAULT now()", BOTH_FILLED),
        ("MODIFY a BIGINT", "MODIFY a BIGINT", []),
        ("MODIFY a SMALLINT", "MODIFY b INT", [(ONE, ReloadReason.CONVERTED)]),
    ],
)
def test_reloads(first: str, second: str, reasons: list[tuple[Shard, ReloadReason]]) -> None:
    paper = Paper()
    paper.run(ONE, first)
    paper.run(TWO, second)
    found = [(shard, each.reason) for shard, member in paper.group.members.items() for each in member.reloads]
    assert found == reasons


clauses = st.sampled_from(["ADD COLUMN c INT", "ADD COLUMN c INT DEFAULT 4", "RENAME COLUMN a TO c", "MODIFY a BIGINT"])
UNDO = {"ADD": "DROP COLUMN c", "RENAME": "RENAME COLUMN c TO a", "MODIFY": "MODIFY a INT"}


@given(st.lists(clauses, min_size=1, max_size=4))
def test_a_canary_that_goes_back_leaves_no_trace(forth: list[str]) -> None:
    """Each clause is undone by the same shard; then the group and the target are as before."""
    world = World({shard: create(TABLE) for shard in (ONE, TWO, THREE)})
    before = world.target
    for key, clause in enumerate(forth):
        world.write(TWO, f"two {key}", {"id": key, "a": key, "b": key})
        world.ddl(ONE, f"ALTER TABLE t {clause}")
        names = [column.name for column in world.upstream[ONE].table.columns]
        world.write(ONE, f"one {key}", dict.fromkeys(names, key))
        world.run()
        assert not world.waiting and world.open()
        world.ddl(ONE, f"ALTER TABLE t {UNDO[clause.split()[0]]}")
        world.check_end()
        assert world.target == before
        assert world.group.columns.keys() == before.table.columns.keys()
        assert all(each.names == (before.names[id],) for id, each in world.group.columns.items())


@given(st.permutations([(ONE, 0), (ONE, 1), (TWO, 0), (TWO, 1), (THREE, 0)]))
def test_the_order_of_reports_does_not_matter(order: list[tuple[Shard, int]]) -> None:
    """Different shards report their DDLs in any order; the structure is the same."""
    texts = {
        ONE: ["ADD COLUMN x INT", "RENAME COLUMN a TO y"],
        TWO: ["MODIFY b BIGINT, ADD COLUMN z INT", "ADD COLUMN x BIGINT"],
        THREE: ["DROP COLUMN b"],
    }
    paper = Paper()
    done = dict.fromkeys(texts, 0)
    for shard, _ in order:
        paper.run(shard, texts[shard][done[shard]])
        done[shard] += 1
    found = wanted(paper.group)
    columns = {found.names[id]: column for id, column in found.table.columns.items()}
    assert sorted(columns) == ["b", "id", "x", "y", "z"]
    assert {name: str(column.type) for name, column in columns.items() if column is not None} == {
        **dict.fromkeys(("id", "y", "z"), "int"),
        **dict.fromkeys(("b", "x"), "bigint"),
    }
    assert all(column is None or column.nullable for name, column in columns.items() if name != "id")
