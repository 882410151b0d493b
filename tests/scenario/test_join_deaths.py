"""Optimistic mode: the process dies at each of its steps, one by one, and the next attempt ends with the union."""

from collections.abc import Callable

import pytest

from tests.scenario.joinedworld import TARGET, JoinedWorld
from tests.scenario.world import EVENT_BYTES, FILE, Killed
from tests.unit.join.paper import create
from unshard.core.model import Location, Shard, TableId
from unshard.errors.window import FencedOut, WindowMismatch
from unshard.units.ddl import joining

ONE, TWO = (Shard(f"s{number}", TableId("d", f"t{number}")) for number in (1, 2))
TABLE = "CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(9))"
STEPS = (
    *("begin join", "intend join", "advance join", "complete join", "ddl", "reload"),
    *("begin", "rows", "file", "commit"),
)
"""The steps that change the surviving state; each has a point of death before and after it, but `file`."""


class Dying:
    """A canary that goes forth and back, a rename, a rollout with another default, and a drop; with rows."""

    def __init__(self, dies_at: int, is_taken_over: bool) -> None:
        self.dies_at, self.is_taken_over, self.ticks = dies_at, is_taken_over, list[str]()
        self.world = JoinedWorld({ONE: create(TABLE), TWO: create(TABLE)}, self.tick, EVENT_BYTES)
        self.key = 0

    def tick(self, name: str) -> None:
        self.ticks.append(name)
        if len(self.ticks) == self.dies_at:
            if not self.is_taken_over:
                raise Killed(name)
            self.world.run()  # another process does everything, then this one wakes up

    def rows(self) -> None:
        for shard in (ONE, TWO):
            self.key += 1
            table = self.world.sources[shard.source].tables[shard.table].table
            values = {c.name: self.key if c.type.startswith("int") else f"v{self.key}" for c in table.columns}
            self.world.write(shard, self.key, values)

    def run(self) -> None:
        try:
            self.world.run()
        except (Killed, FencedOut, WindowMismatch):
            self.world.run()

    def ddl(self, shard: Shard, clauses: str) -> None:
        self.world.ddl(shard, clauses)
        self.rows()
        self.run()

    def play(self) -> None:
        self.rows()
        self.run()
        self.ddl(ONE, "ADD COLUMN c INT DEFAULT 7")
        self.ddl(ONE, "DROP COLUMN c")
        self.ddl(TWO, "RENAME COLUMN a TO x, ADD COLUMN c INT DEFAULT -1")
        self.ddl(ONE, "RENAME COLUMN a TO x, ADD COLUMN c INT DEFAULT 0")
        self.ddl(ONE, "RENAME COLUMN x TO b, RENAME COLUMN b TO x")
        self.ddl(TWO, "RENAME COLUMN x TO b, RENAME COLUMN b TO x")
        self.ddl(TWO, "DROP COLUMN c")
        self.ddl(ONE, "DROP COLUMN c")


def ticks() -> list[str]:
    whole = Dying(0, is_taken_over=False)
    whole.play()
    return whole.ticks


def test_every_step_is_among_the_points_of_death() -> None:
    found = {*ticks()}
    assert found >= {f"before {step}" for step in STEPS} | {f"after {step}" for step in STEPS if step != "file"}


@pytest.mark.parametrize("is_taken_over", [False, True], ids=["dies", "is taken over"])
def test_the_union_after_each_death(is_taken_over: bool) -> None:
    make: Callable[[int], Dying] = lambda at: Dying(at, is_taken_over)  # noqa: E731
    for at, name in enumerate(ticks(), 1):
        play = make(at)
        try:
            play.play()
            play.world.check_end()
        except Exception as error:
            raise AssertionError(f"death {at}, {name}: {play.world.executed}") from error
        assert {*play.world.target.names} == {"id", "b", "x"}, at
        assert not play.world.meta.joins.get(TARGET).change


def test_a_process_that_another_one_overtakes_goes_on_to_the_end() -> None:
    """The snapshots of two sources end at the same time: each one lets the shards of both join."""
    late = [Shard("s2", TableId("d", f"t{number}")) for number in (2, 3)]
    seen = list[str]()

    def tick(name: str) -> None:
        seen.append(name)
        if seen.count("before complete join") == 1 and name == "before complete join":
            with pytest.raises(Killed):
                joining.follow(world.meta, world)
        elif seen.count("after complete join") == 1 and name == "after complete join":
            raise Killed(name)

    world = JoinedWorld({ONE: create(TABLE)}, tick)
    world.follow()
    digest = world.meta.structures.put(create(TABLE).structure)
    for shard in late:
        world.meta.structures.record(shard, TARGET, Location(FILE, 4), digest)
    joining.follow(world.meta, world)
    assert {*world.meta.joins.get(TARGET).group.members} == {ONE, *late}
