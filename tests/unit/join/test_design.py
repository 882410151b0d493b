"""What must work in optimistic mode, and what is known to fail in DM's: on paper, in random order, with deaths.

In DM each of them is impossible, needs an operator, or loses values. Numbers are issues of tiflow, or of dm.
"""

import random
from collections.abc import Mapping, Sequence

import pytest

from tests.unit.join.paper import create
from tests.unit.join.rollout import Play, World, shards
from unshard.core.join.decision import Decision
from unshard.core.join.states import State

TABLE = "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, e ENUM('x','y'), UNIQUE KEY uk (b))"
ONE, TWO, THREE = shards(3)
SCRIPTS: Mapping[str, Sequence[Sequence[str]]] = {
    "a canary that adds and drops": (["ADD c INT", "DROP c"], [], []),
    "only the last one on the others": (["ADD c INT", "DROP c", "ADD c FLOAT"], ["ADD c FLOAT"], ["ADD c FLOAT"]),
    "two columns in another order": (["ADD x INT", "ADD y INT"], ["ADD y INT", "ADD x INT"], ["ADD y INT, ADD x INT"]),
    "different defaults": (
        ["ADD c INT DEFAULT 0", "MODIFY c INT"],
        ["ADD c INT DEFAULT -1", "MODIFY c INT"],
        ["ADD c INT"],
    ),
    "the time of the DDL": (["ADD c DATETIME DEFAULT now()"],) * 3,
    "RENAME and MODIFY": (
        ["RENAME COLUMN a TO c", "MODIFY c BIGINT"],
        ["MODIFY a BIGINT", "RENAME COLUMN a TO c"],
        ["CHANGE a c BIGINT"],
    ),
    "a swap": (
        ["RENAME COLUMN a TO b, RENAME COLUMN b TO a"],
        ["RENAME COLUMN a TO s", "RENAME COLUMN b TO a", "RENAME COLUMN s TO b"],
        ["RENAME COLUMN b TO a, RENAME COLUMN a TO b"],
    ),
    "rename and rename back": (["RENAME COLUMN a TO c", "RENAME COLUMN c TO a"],) * 3,
    "a column dropped and added by all": (["DROP a", "ADD a INT"], ["DROP a, ADD a INT"], ["DROP a", "ADD a INT"]),
    "labels in another order": (
        ["MODIFY e ENUM('x','y','z')", "MODIFY e ENUM('x','y','z','w')"],
        ["MODIFY e ENUM('x','y','w')", "MODIFY e ENUM('x','y','z','w')"],
        ["MODIFY e ENUM('x','y','z','w')"],
    ),
    "NOT NULL without a default": (["ADD c INT NOT NULL"],) * 3,
    "UNIQUE last": (["ADD c INT", "MODIFY c BIGINT", "ADD UNIQUE KEY uc (c, id)"],) * 3,
    "ADD, DROP, ADD, DROP (dm 1554)": (["ADD c INT", "DROP c", "ADD c INT", "DROP c"], ["ADD c INT", "DROP c"], []),
    "another index with the same name (dm 1598)": (["DROP INDEX uk, ADD INDEX uk (b, a)"],) * 3,
    "ADD and DROP in one statement (dm 613)": (["ADD c INT, DROP a"],) * 3,
    "RENAME to the name of a dropped column": (
        ["DROP a, RENAME COLUMN b TO a"],
        ["DROP a", "RENAME COLUMN b TO a"],
        ["DROP a, RENAME COLUMN b TO a"],
    ),
    "RENAME here, ADD and DROP there": (
        ["RENAME COLUMN a TO c"],
        ["ADD c INT", "DROP a"],
        ["DROP a", "ADD c INT"],
    ),
    "a canary that changes its mind": (
        ["ADD c INT", "MODIFY c VARCHAR(9)"],
        ["ADD c VARCHAR(9)"],
        ["ADD c VARCHAR(9)"],
    ),
    "another type, by all": (["MODIFY a VARCHAR(9)"],) * 3,
    "another type and another column, by all": (
        ["MODIFY a VARCHAR(9)", "ADD c INT"],
        ["ADD c INT", "MODIFY a VARCHAR(9)"],
        ["MODIFY a VARCHAR(9), ADD c INT"],
    ),
    "a conflict in one source (12840, 12844)": (
        ["ADD c INT"],
        ["ADD c INT"],
        ["ADD c VARCHAR(5)", "DROP c", "ADD c INT"],
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_ends_equal(name: str) -> None:
    for seed in range(6):
        texts = {
            shard: [f"ALTER TABLE t {text}" for text in script]
            for shard, script in zip((ONE, TWO, THREE), SCRIPTS[name], strict=True)
        }
        Play(create(TABLE), texts, random.Random(f"{name} {seed}")).play()


def world(count: int = 3) -> World:
    made = World({shard: create(TABLE) for shard in shards(count)})
    for number, shard in enumerate(made.upstream):
        row(made, shard, number)
    made.run()
    return made


def row(made: World, shard: object, key: object) -> None:
    up = made.upstream[shard]  # type: ignore[index]
    values = {c.name.lower(): 7 if "int" in c.type else None for c in up.table.columns}
    made.write(shard, key, {**values, "id": key})  # type: ignore[arg-type]


def states(made: World) -> dict[str, State]:
    return {each.subject: each.state for each in made.open()}


def test_a_rollout_from_the_first_shard_to_the_last() -> None:
    made = world()
    made.ddl(ONE, "ALTER TABLE t ADD c INT, DROP a")
    row(made, ONE, "one")
    made.window(ONE)
    made.window(ONE)
    assert made.rows["one"][5] == 7
    assert str(made.open()[0]) == "column a: open (2 of 3 shards)"
    assert str(made.open()[1]) == "column c: open (1 of 3 shards)"
    made.ddl(TWO, "ALTER TABLE t DROP a, ADD c INT")
    made.ddl(THREE, "ALTER TABLE t DROP a")
    made.window(TWO)
    made.window(THREE)
    assert states(made) == {"column a": State.CONTRACTING, "column c": State.OPEN}
    made.ddl(THREE, "ALTER TABLE t ADD c INT")
    made.check_end()


def test_a_canary_that_goes_back_is_reversed() -> None:
    made = world()
    made.ddl(ONE, "ALTER TABLE t ADD c INT")
    made.ddl(ONE, "ALTER TABLE t DROP c")
    made.window(ONE)
    made.window(ONE)
    assert states(made) == {"column c": State.REVERSED}
    made.check_end()


def test_a_column_is_not_dropped_before_late_rows_of_other_shards_are_written() -> None:
    """DROP outruns rows of other workers (3461, dm 1961)."""
    made = world(2)
    row(made, TWO, "late")
    made.ddl(TWO, "ALTER TABLE t DROP a")
    made.window(TWO, defer=True)
    made.ddl(ONE, "ALTER TABLE t DROP a")
    made.window(ONE)
    assert made.hindering() == (TWO,) and not made.contract()
    made.write_deferred(TWO)
    assert made.rows["late"][2] == 7
    assert made.contract() and 2 not in made.target.names
    made.check_end()


def test_a_source_that_is_stopped_delays_the_drop_only() -> None:
    """One source stopped: DROP never reaches the target (3629)."""
    made = world(2)
    for shard in (ONE, TWO):
        made.ddl(shard, "ALTER TABLE t DROP a")
        row(made, shard, f"{shard}")
    made.run([ONE])
    assert states(made) == {"column a": State.OPEN} and str(ONE) in made.rows
    made.check_end()
    assert 2 not in made.target.names


def test_a_conflict_holds_only_its_shard_and_ends_when_the_others_agree() -> None:
    """Rows lost after a resolved conflict (8253); the list of locks is wrong after a conflict (10061)."""
    made = world()
    made.ddl(ONE, "ALTER TABLE t ADD c INT")
    row(made, ONE, "one")
    made.run()
    made.ddl(TWO, "ALTER TABLE t ADD c VARCHAR(5)")
    row(made, TWO, "held")
    row(made, THREE, "three")
    made.run()
    assert made.waiting[TWO].decision is Decision.CONFLICT
    assert "type of column c: c varchar(5)" in str(made.open()[0])
    assert states(made)[f"DDL of {TWO}"] is State.CONFLICT
    assert "held" not in made.rows and "three" in made.rows
    made.ddl(ONE, "ALTER TABLE t DROP c")
    made.ddl(ONE, "ALTER TABLE t ADD c VARCHAR(5)")
    made.ddl(THREE, "ALTER TABLE t ADD c VARCHAR(5)")
    made.check_end()
    assert "held" in made.rows


def test_a_barrier_concerns_only_its_statement() -> None:
    made = world(2)
    made.ddl(ONE, "ALTER TABLE t CHANGE id id INT, DROP PRIMARY KEY, ADD PRIMARY KEY (id, b)")
    row(made, ONE, "one")
    row(made, TWO, "two")
    made.run()
    assert made.waiting[ONE].decision is Decision.BARRIER and "two" in made.rows and "one" not in made.rows
    made.ddl(TWO, "ALTER TABLE t CHANGE id id INT, DROP PRIMARY KEY, ADD PRIMARY KEY (id, b)")
    made.run()
    made.barrier([ONE, TWO])
    made.run()
    assert not made.waiting and "one" in made.rows


def test_shards_come_and_go_while_a_change_is_open() -> None:
    made = world(2)
    made.ddl(ONE, "ALTER TABLE t ADD c INT")
    made.run()
    new, renamed = shards(5)[3:]
    made.create(new, create("CREATE TABLE t (id INT PRIMARY KEY, a INT, b BIGINT, e ENUM('x'), UNIQUE KEY uk (b))"))
    row(made, new, "new")
    made.run()
    made.rename(new, renamed)
    made.ddl(renamed, "ALTER TABLE t ADD c INT")
    made.ddl(renamed, "ALTER TABLE t MODIFY b INT, MODIFY e ENUM('x','y')")
    made.drop(TWO)
    made.check_end()
    assert "new" in made.rows


def test_a_task_begins_while_a_rename_is_on_some_shards_only() -> None:
    """Nobody knows that it is one column until the last shard has the name; then its values are read again."""
    renamed, old = (create(f"CREATE TABLE t (id INT PRIMARY KEY, {name} INT)") for name in ("c", "a"))
    made = World({ONE: renamed, TWO: old, THREE: old})
    for number, shard in enumerate((ONE, TWO, THREE)):
        row(made, shard, number)
    for number, (shard, old, new) in enumerate(((ONE, "c", "a"), (ONE, "a", "c"), (TWO, "a", "c"), (THREE, "a", "c"))):
        made.run()
        made.ddl(shard, f"ALTER TABLE t RENAME COLUMN {old} TO {new}")
        row(made, shard, f"{number}")
    made.check_end()
    assert {*made.target.names.values()} == {"id", "c"}


def test_a_task_begins_while_shards_differ() -> None:
    tables = {
        ONE: "CREATE TABLE t (id INT PRIMARY KEY, a BIGINT NOT NULL, c INT)",
        TWO: "CREATE TABLE t (id INT PRIMARY KEY, a INT, KEY k (a))",
        THREE: "CREATE TABLE t (a SMALLINT, id INT PRIMARY KEY, d VARCHAR(5))",
    }
    made = World({shard: create(text) for shard, text in tables.items()})
    names = {made.target.names[id]: column for id, column in made.target.table.columns.items()}
    assert [*names] == ["id", "a", "c", "d"]
    assert str(names["a"].type) == "bigint" and names["a"].nullable  # type: ignore[union-attr]
    assert len(made.target.table.keys) == 1
    assert {str(each) for each in made.open()} == {
        "column a: open (0 of 3 shards)",
        "column c: open (1 of 3 shards)",
        "column d: open (1 of 3 shards)",
        "index k: open (1 of 3 shards)",
    }
    row(made, ONE, 1)
    row(made, THREE, 3)
    made.ddl(ONE, "ALTER TABLE t MODIFY a BIGINT, DROP c, ADD INDEX k (a)")
    made.ddl(TWO, "ALTER TABLE t MODIFY a BIGINT")
    made.ddl(THREE, "ALTER TABLE t DROP d, MODIFY a BIGINT, ADD INDEX k (a)")
    made.check_end()
