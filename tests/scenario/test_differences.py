"""What operators see of a rollout: open differences with their progress, their age, and what will run and why."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from tests.scenario.joinedworld import JoinedWorld
from tests.unit.join.paper import alter, create
from unshard.core.join.states import State
from unshard.core.model import Shard, TableId
from unshard.errors.locks import TargetColumnsGone
from unshard.operate.documents import difference_document, difference_lines
from unshard.units.ddl import joining
from unshard.units.ddl.differences import DifferenceView, differences
from unshard.units.ddl.joining import JoinRules

ONE, TWO, THREE = (Shard(f"s{n}", TableId("d", f"t{n}")) for n in (1, 2, 3))


def world(tick: Callable[[str], None] = lambda _: None) -> JoinedWorld:
    table = create("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    is_begun = False
    made = JoinedWorld(dict.fromkeys((ONE, TWO, THREE), table), lambda text: tick(text) if is_begun else None)
    made.run()
    is_begun = True
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
    assert (view.statements, view.when) == ((), "the target has it already; settled when 2 more shards have it")
    made.ddl(TWO, "ADD c INT NOT NULL DEFAULT 7")
    made.run()
    (later,) = seen(made)
    assert (later.id, later.progress) == (view.id, "open (2 of 3 shards)")
    assert later.when == "the target has it already; settled when 1 more shard has it"
    made.ddl(THREE, "ADD c INT NOT NULL DEFAULT 7")
    made.run()
    assert seen(made) == []


def test_what_contracts_when_the_others_have_it_is_shown_as_sql():
    made = world()
    made.ddl(ONE, "MODIFY a INT NOT NULL")
    made.run()
    (view,) = seen(made)
    assert (view.state, view.have, view.lack) == (State.OPEN, (ONE,), (TWO, THREE))
    assert (view.statements, view.when) == ((), "the target follows when 2 more shards have it")
    assert view.forms == {"a int(11) DEFAULT NULL": (TWO, THREE), "a int(11) NOT NULL": (ONE,)}
    made.ddl(TWO, "ADD UNIQUE KEY u (a)")
    made.run()
    assert {view.subject: view.progress for view in seen(made)} == {
        "column a": "open (1 of 3 shards)",
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
    assert lines[0].startswith(f"difference {view.id}: shop.t DDL of {TWO}: conflict, open for ")
    assert "  held     1 rows" in lines
    assert difference_document(view)["state"] == "conflict"


@pytest.mark.parametrize(
    ("text", "state"),
    [("MODIFY a JSON", State.CONFLICT), ("DROP PRIMARY KEY, ADD PRIMARY KEY (id, a)", State.BARRIER)],
)
def test_a_ddl_that_waits_is_shown_although_the_shards_are_equal(text: str, state: State):
    made = world()
    made.ddl(ONE, text)
    made.run()
    (view,) = seen(made)
    assert (view.state, view.lack) == (state, (ONE,)) and view.ddl.endswith(text)


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
    while made.window("s1") or made.window("s2") or joining.follow_each(made.meta, made, rules).raised():
        pass
    assert made.executed == ["ALTER TABLE shop.t ADD c INT"]
    view = next(view for view in differences(made.meta, made, rules) if view.state is State.BARRIER)
    assert view.lack == (TWO,) and "strict-optimistic-shard-mode" in view.reason
    made.run()
    assert not [view for view in seen(made) if view.state is State.BARRIER]


def rollout(text: str) -> list[tuple[Shard, str]]:
    return [(shard, text) for shard in (ONE, TWO, THREE)]


ROLLOUTS = {
    "a column comes": rollout("ADD c INT"),
    "a column goes": rollout("DROP a"),
    "a wider type": rollout("MODIFY a BIGINT"),
    "a narrower type": rollout("MODIFY a SMALLINT"),
    "no NULL": rollout("MODIFY a INT NOT NULL"),
    "a name": rollout("RENAME COLUMN a TO b"),
    "an index": rollout("ADD KEY k (a)"),
    "a unique index": rollout("ADD UNIQUE KEY k (a)"),
    "wider on the way": [(ONE, "ADD c INT"), *rollout("ADD c BIGINT")[1:], (ONE, "MODIFY c BIGINT")],
    "own fills": [(ONE, "ADD c INT DEFAULT 1"), (TWO, "ADD c INT DEFAULT 2"), (THREE, "ADD c INT DEFAULT 3")],
}


@pytest.mark.parametrize("texts", ROLLOUTS.values(), ids=ROLLOUTS)
def test_a_difference_has_one_id_from_the_first_shard_to_the_target(texts: list[tuple[Shard, str]]):
    found = list[DifferenceView]()
    made = world(lambda _: found.extend(seen(made)))
    for shard, text in texts:
        made.ddl(shard, text)
        made.run()
    assert not seen(made) and found
    assert len({view.id for view in found if not view.is_change}) == 1, [(view.progress, view.since) for view in found]


def test_a_column_that_someone_has_dropped_from_the_target_is_not_added_again_without_its_values():
    made = world()
    made.target = alter(made.target, "ALTER TABLE shop.t DROP a")
    made.ddl(ONE, "ADD c INT")
    made.window("s1")
    with pytest.raises(TargetColumnsGone):
        made.follow()
    assert made.executed == []
    (view,) = [view for view in seen(made) if view.subject == "column a"]
    assert "lacks the column" in view.reason and view.statements == ()
    made.target = alter(made.target, "ALTER TABLE shop.t ADD a INT")
    made.run()
    assert [view.subject for view in seen(made)] == ["column c"]


@pytest.mark.parametrize(
    ("first", "text", "subject"), [("ADD c INT", "DROP c", "column c"), ("ADD KEY k (a)", "DROP KEY k", "index k")]
)
def test_a_drop_counts_the_shards_that_have_dropped(first: str, text: str, subject: str):
    made = world()
    for shard, clause in rollout(first):
        made.ddl(shard, clause)
    made.run()
    made.ddl(ONE, text)
    made.run()
    (view,) = seen(made)
    assert (view.subject, view.progress) == (f"drop of {subject}", "open (1 of 3 shards)")
    assert (view.have, view.lack) == ((ONE,), (TWO, THREE))
    assert view.when == "the target drops it when 2 more shards have dropped it"


def test_a_change_under_way_is_shown_as_such():
    found = list[DifferenceView]()
    made = world(lambda _: found.extend(seen(made)))
    made.ddl(ONE, "ADD c INT")
    made.run()
    changes = [view for view in found if view.is_change]
    assert {view.state for view in changes} == {State.EXPANDING} and len({view.id for view in changes}) == 1
    assert changes[0].statements == ("ALTER TABLE shop.t ADD c INT",)
    assert {view.subject for view in found if not view.is_change} == {"column c"}
