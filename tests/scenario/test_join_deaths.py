"""Optimistic mode: the process dies at each of its steps, one by one, and the next attempt ends with the union."""

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from tests.scenario.joinedworld import TARGET, JoinedWorld, LockExecutor
from tests.scenario.turns import Turns
from tests.scenario.world import EVENT_BYTES, FILE, NOWHERE, Killed
from tests.suite.portions import portion
from tests.unit.join.paper import create
from unshard.core.model import Location, Shard, TableId
from unshard.errors.locks import LockBusy, TargetBeingChanged
from unshard.errors.meta import FencedOut, WindowMismatch
from unshard.units.ddl import coordinate, joining
from unshard.units.ddl.joining import JoinRules

ONE, TWO = (Shard(f"s{number}", TableId("d", f"t{number}")) for number in (1, 2))
TABLE = "CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(9))"
STEPS = (
    *("begin join", "intend join", "advance join", "complete join", "ddl", "reload"),
    *("begin", "rows", "file", "commit"),
)
"""The steps that change the surviving state; each has a point of death before and after it, but `file`."""
DEATHS_EVERY = portion(36, 16, 1)


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
    for at, name in [*enumerate(ticks(), 1)][::DEATHS_EVERY]:
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
                joining.follow_each_target(world.meta, world).raised()
        elif seen.count("after complete join") == 1 and name == "after complete join":
            raise Killed(name)

    world = JoinedWorld({ONE: create(TABLE)}, tick)
    world.follow()
    digest = world.meta.structures.put(create(TABLE).structure)
    for shard in late:
        world.meta.structures.record(shard, TARGET, Location(FILE, 4), digest)
    joining.follow_each_target(world.meta, world).raised()
    assert {*world.meta.joins.get(TARGET).group.members} == {ONE, *late}


class Overtaken:
    """Two processes: each one stops at the steps of these names and numbers, and the other one goes on."""

    def __init__(self, world: JoinedWorld, *stops: Sequence[tuple[str, int]]) -> None:
        self.world, self.stops = world, stops
        self.counts: list[Counter[str]] = [Counter(), Counter()]
        world.turns = Turns(self.choose)
        world.tick = world.meta.reading = world.turns.step
        world.meta._tick = world.turns.step

    def choose(self, name: str, me: int, left: Sequence[int]) -> int:
        self.counts[me][name] += 1
        return 1 - me if (name, self.counts[me][name]) in self.stops[me] else me

    def run(self, *actions: Callable[[], object]) -> None:
        self.world.turns.run(actions)
        for counts, stops in zip(self.counts, self.stops, strict=True):
            assert all(counts[name] >= number for name, number in stops[:1])


def test_a_change_is_not_given_up_while_its_process_executes_it() -> None:
    """The second process has read the target before the statement, and ends the change after it."""
    world = JoinedWorld({ONE: create(TABLE), TWO: create(TABLE)})
    world.run()
    world.ddl(ONE, "ADD COLUMN c INT DEFAULT 7")
    world.window("s1")
    Overtaken(world, [("before ddl", 1), ("after ddl", 1)], [("join", 2)]).run(world.follow, world.follow)
    assert "c" in world.target.names
    world.ddl(TWO, "ADD COLUMN c INT DEFAULT 7")
    world.check_end()


@pytest.mark.parametrize("stop", ["before start", "after start", "before ddl"])
def test_a_lock_and_a_change_of_the_target_are_not_executed_together(stop: str) -> None:
    """The one that comes second looks at the target again."""
    world = JoinedWorld({ONE: create(TABLE), TWO: create(TABLE)})
    for shard in (ONE, TWO):
        world.ddl(shard, "ADD COLUMN c INT, ADD COLUMN d INT")
    world.run()
    world.rules = JoinRules(contract_delay=60)
    for shard in (ONE, TWO):
        world.ddl(shard, "DROP COLUMN c")
        world.ddl(shard, "DROP PRIMARY KEY, ADD PRIMARY KEY (id, d)")
        world.window(shard.source)
    joining.follow_each_target(world.meta, world, world.rules).raised()
    for shard in (ONE, TWO):
        while world.window(shard.source):
            pass
    joining.follow_each_target(world.meta, world, world.rules).raised()
    world.rules = JoinRules()
    (lock,) = world.meta.locks.open()
    executor = LockExecutor(world)

    def execute() -> None:
        with contextlib.suppress(TargetBeingChanged):
            coordinate.execute(world.meta, NOWHERE, lock.id, executor=executor)

    def follow() -> None:
        with contextlib.suppress(LockBusy):
            world.follow()

    Overtaken(world, [(stop, 1)], [("after intend join", 1)] if stop == "before start" else []).run(execute, follow)
    world.check_end()
    assert {*world.target.names} == {"id", "a", "b", "d"}


@pytest.mark.parametrize("stop", ["before intend join", "before ddl", "before complete join"])
def test_a_shard_is_renamed_while_its_ddl_is_accepted(stop: str) -> None:
    """A window ends between the read of the shards and the completion, which must not use the old name."""
    world = JoinedWorld({ONE: create(TABLE), TWO: create(TABLE)})
    world.run()
    world.ddl(ONE, "ADD COLUMN c INT DEFAULT 7")
    world.window("s1")
    world.rename(ONE, TableId("d", "t3"))
    Overtaken(world, [(stop, 1)], []).run(world.follow, lambda: world.window("s1"))
    world.ddl(TWO, "ADD COLUMN c INT DEFAULT 7")
    world.check_end()
    assert {*world.meta.joins.get(TARGET).group.members} == {Shard("s1", TableId("d", "t3")), TWO}
