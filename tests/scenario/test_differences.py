"""What operators see of a rollout: open differences with their progress, their age, and what will run and why."""

from datetime import UTC, datetime

from tests.scenario.joinedworld import JoinedWorld
from tests.unit.join.paper import create
from unshard.cli.locks import difference_document, difference_lines
from unshard.core.join.states import State
from unshard.core.model import Shard, TableId
from unshard.units.ddl import joining
from unshard.units.ddl.differences import DifferenceView, differences
from unshard.units.ddl.joining import JoinRules

ONE, TWO, THREE = (Shard(f"s{n}", TableId("d", f"t{n}")) for n in (1, 2, 3))


def world() -> JoinedWorld:
    made = JoinedWorld(dict.fromkeys((ONE, TWO, THREE), create("CREATE TABLE t (id INT PRIMARY KEY, a INT)")))
    made.run()
    return made


def seen(made: JoinedWorld) -> list[DifferenceView]:
    return [*differences(made.meta, made, JoinRules())]


def test_equal_shards_have_no_differences():
    assert seen(world()) == []


def test_a_rollout_shows_how_far_it_is():
    made = world()
    made.ddl(ONE, "ADD c INT NOT NULL DEFAULT 7")
    made.run()
    (view,) = seen(made)
    assert (view.subject, view.progress, view.have, view.lack) == (
        "column c",
        "open (1 of 3 shards)",
        (ONE,),
        (TWO, THREE),
    )
    assert view.since == datetime.fromtimestamp(1, UTC)
    assert (view.statements, view.when) == ((), "nothing is left to do: the target holds the rows of all shards")
    made.ddl(TWO, "ADD c INT NOT NULL DEFAULT 7")
    made.run()
    (later,) = seen(made)
    assert (later.id, later.progress) == (view.id, "open (2 of 3 shards)")
    made.ddl(THREE, "ADD c INT NOT NULL DEFAULT 7")
    made.run()
    assert seen(made) == []


def test_what_contracts_when_the_others_have_it_is_shown_as_sql():
    made = world()
    made.ddl(ONE, "MODIFY a INT NOT NULL")
    made.run()
    (view,) = seen(made)
    assert view.state is State.OPEN
    assert (view.statements, view.when) == ((), "nothing is left to do: the target holds the rows of all shards")
    assert view.forms == {"a int(11) DEFAULT NULL": (TWO, THREE), "a int(11) NOT NULL": (ONE,)}
    made.ddl(TWO, "ADD UNIQUE KEY u (a)")
    made.run()
    assert {view.subject: view.progress for view in seen(made)} == {
        "column a": "open (2 of 3 shards)",
        "index u": "open (1 of 3 shards)",
    }


def test_a_conflict_names_both_sides_the_rows_that_wait_and_the_way_out():
    made = world()
    made.ddl(ONE, "ADD c INT")
    made.run()
    made.ddl(TWO, "ADD c VARCHAR(5)")
    made.write(TWO, 1, {"id": 1, "a": 1, "c": "x"})
    made.run()
    view = next(view for view in seen(made) if view.needs_operator)
    assert (view.subject, view.lack, view.held_rows) == (f"DDL of {TWO}", (TWO,), 1)
    assert "c int(11)" in view.reason and "c varchar(5)" in view.reason
    assert view.when == "when the shards agree, or this shard goes back; its lock has the other ways out"
    assert view.ddl == "ALTER TABLE shop.t ADD c VARCHAR(5)"
    lines = difference_lines(view)
    assert lines[0].startswith(f"shop.t DDL of {TWO}: conflict, open for ")
    assert "  held     1 rows" in lines
    assert difference_document(view)["state"] == "conflict"


def test_a_later_rollout_of_the_same_column_has_another_id():
    made = world()
    for text in ("ADD c INT", "MODIFY c BIGINT"):
        made.ddl(ONE, text)
        made.run()
        (first,) = seen(made)
        for shard in (TWO, THREE):
            made.ddl(shard, text)
        made.run()
        assert seen(made) == []
        yield_id = first.id
    made.ddl(ONE, "MODIFY c DECIMAL(20,0)")
    made.run()
    assert all(view.id != yield_id for view in seen(made))


def test_strict_mode_executes_only_the_statement_of_a_shard():
    made = world()
    rules = JoinRules(is_strict=True)
    made.ddl(ONE, "ADD c INT")
    made.ddl(TWO, "ADD c BIGINT, ADD d INT")
    while made.window("s1") or made.window("s2") or joining.follow(made.meta, made, rules):
        pass
    assert made.executed == ["ALTER TABLE shop.t ADD c INT"]
    view = next(view for view in differences(made.meta, made, rules) if view.state is State.BARRIER)
    assert view.lack == (TWO,) and "strict-optimistic-shard-mode" in view.reason
    made.run()
    assert not [view for view in seen(made) if view.state is State.BARRIER]
