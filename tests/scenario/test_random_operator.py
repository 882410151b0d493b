"""Random games with an operator: shards run any DDL in any order, some of them unreadable, the target refuses some, and
the operator issues commands of every kind. In the end nothing waits, and no row is lost or invented.

The test compares only the key and a column that no DDL changes, because the other columns of the targets depend on the
commands.
"""

import contextlib
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.scenario.test_random import SETTINGS, Game
from unshard.core.ddl.lock import LockState, Way
from unshard.core.model import Shard, TableId
from unshard.errors.locks import CommandError
from unshard.operate import issuing
from unshard.operate.command import DropShard, Force, LockCommand, Replace, Skip
from unshard.units.ddl import coordinate
from unshard.units.ddl.scene import LockView

DDLS = ("add column c1 int", "add column c2 int default 7", "add column c3 int", "comment x")
ROUNDS, CALM = 300, 10


class OrderedGame(Game):
    """A game with shards that need not agree, and an operator who resolves the conflicts."""

    def __init__(self, random: Random) -> None:
        super().__init__(random, forces=True)
        self.dropped: set[tuple[str, TableId]] = set()
        self.ran: dict[tuple[str, TableId], list[str]] = {}
        self.written: dict[TableId, set[str]] = {}
        self.replaced = 0

    def sequence(self) -> list[str]:
        return []

    def rows(self) -> None:
        super().rows()
        for (_, table), keys in self.keys.items():
            self.written.setdefault(self.target(table), set()).update(keys)

    def target(self, table: TableId) -> TableId:
        found = self.world.target_of(table)
        assert found is not None
        return found

    def ddl(self) -> None:
        source, table = shard = self.random.choice(sorted(self.done))
        left = [one for one in DDLS if one not in self.ran.setdefault(shard, [])]
        if left:
            self.ran[shard].append(self.random.choice(left))
            self.world.change(source, table, self.random.choice(("ddl", "ddl", "ddl", "odd")), self.ran[shard][-1])

    def refuse(self) -> None:
        self.world.refused = frozenset(self.random.sample(DDLS, self.random.randrange(3)))

    def give(self) -> None:
        """Issue a random command for a random lock; a command that is not possible fails with an error code."""
        views = coordinate.views(self.world.meta)
        if views:
            with contextlib.suppress(CommandError):
                self.world.order(self.order(self.random.choice(views)))

    def order(self, view: LockView) -> LockCommand:
        """Return a random command. An unreadable DDL is replaced by its real effect, which an operator can look up."""
        shards = (*view.ready, *view.missing, *view.conflicts)
        if shards and self.random.random() < 0.06:
            shard = self.random.choice(shards)
            self.dropped.add((shard.source, shard.table))
            return DropShard(view.id, shard)
        if view.ddl.startswith("odd"):
            ddl = view.ddl.split(" ", 2)[2]
            if view.state is not LockState.UNDECIDED:
                return Force(view.id)
            return Skip(view.id) if ddl.startswith("comment") else Replace(view.id, (self.statement(view, ddl),))
        return self.random.choice(self.orders(view, [shard for shard in shards if not self.is_odd(shard)]))

    def orders(self, view: LockView, shards: list[Shard]) -> list[LockCommand]:
        self.replaced += 1
        other = self.statement(view, f"add column r{self.replaced} int")
        some = (other, self.statement(view, "comment y"))[: self.random.randrange(1, 3)]
        orders: list[LockCommand] = [Force(view.id), Force(view.id), Skip(view.id), Replace(view.id, some)]
        if shards:
            orders.append(Skip(view.id, self.random.choice(shards)))
        if view.conflicts and view.conflicts[0] in shards:
            orders.append(Replace(view.id, (view.ddl,), view.conflicts[0]))
        return orders

    def is_odd(self, shard: Shard) -> bool:
        states = {state.shard: state for state in self.world.meta.structures.shards()}
        return any(not entry.after for entry in states[shard].queue)

    @staticmethod
    def statement(view: LockView, ddl: str) -> str:
        return f"alter table `{view.target.schema}`.`{view.target.name}` {ddl}"

    def play(self) -> None:
        weighted = [self.rows] * 6 + [self.ddl] * 4 + [self.step] * 8 + [self.give] * 2 + [self.refuse]
        for _ in range(self.random.randrange(100)):
            self.alive(self.random.choice(weighted))
        self.world.refused = frozenset()
        for number in range(ROUNDS):
            if number == CALM:
                self.deaths, self.takeovers = set(), set()
            self.alive(self.world.run)
            if number > CALM and not coordinate.views(self.world.meta):
                return
            self.alive(self.give)
        raise AssertionError([(view.id, view.state) for view in coordinate.views(self.world.meta)])

    def check(self) -> None:
        world = self.world
        assert not [state for state in world.meta.structures.shards() if state.queue or state.held]
        for target, found in world.target.items():
            wanted = {}
            for source, upstream in world.sources.items():
                for table, own in upstream.tables.items():
                    if self.target(table) == target and (source, table) not in self.dropped:
                        wanted |= {key: row["v"] for key, row in own.rows.items()}
            rows = {key: row["v"] for key, row in found.rows.items()}
            assert {key: rows.get(key) for key in wanted} == wanted, target
            assert rows.keys() - wanted.keys() <= self.written.get(target, set())
            if not self.dropped:
                assert rows == wanted, target


class ShownGame(OrderedGame):
    """The operator follows only ways out that a lock shows, and no row may lack a place in the target.

    Nothing happens upstream any more when the operator decides: a later row may need what a skip has left out.
    """

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.world.lossy = False

    def sequence(self) -> list[str]:
        return []

    def ddl(self) -> None:
        source, table = shard = self.random.choice(sorted(self.done))
        ran = self.ran.setdefault(shard, [])
        left = [one for one in ADDED if one.split()[2] not in [other.split()[2] for other in ran]]
        if left:
            ran.append(self.random.choice(left))
            self.world.change(source, table, "ddl", ran[-1])

    def play(self) -> None:
        for _ in range(self.random.randrange(100)):
            self.alive(self.random.choice([self.rows] * 6 + [self.ddl] * 4 + [self.step] * 8))
        self.deaths, self.takeovers = set(), set()
        for _ in range(ROUNDS):
            self.alive(self.world.run)
            if not coordinate.views(self.world.meta):
                return
            self.give()
        raise AssertionError([(view.id, view.state) for view in coordinate.views(self.world.meta)])

    def give(self) -> None:
        views = coordinate.views(self.world.meta)
        if not views:
            return
        view = self.random.choice(views)
        if view.state is not LockState.CONFLICT:
            self.issue(Skip(view.id) if view.state is LockState.FAILED else Force(view.id))
            return
        others = [shard for shard in view.conflicts if shard not in view.ready]
        if others:
            self.follow(view, others)
        else:
            self.issue(Force(view.id))

    def follow(self, view: LockView, others: list[Shard]) -> None:
        assert view.ways, view
        match self.random.choice(view.ways):
            case Way.SAME:
                for shard in others:
                    self.issue(Replace(view.id, (view.ddl,), shard))
            case Way.NOTHING:
                for shard in others:
                    self.issue(Skip(view.id, shard))
            case Way.UNLOCKED:
                self.issue(Force(view.id))
            case Way.SKIPPED:
                self.issue(Skip(view.id))
            case Way.EXTENDED:
                self.issue(Replace(view.id, view.extension))
                self.issue(Force(view.id))

    def issue(self, command: LockCommand) -> None:
        with contextlib.suppress(CommandError):
            self.world.order(issuing.pinned(self.world.meta, command))


ADDED = ("add column c1 int", "add column c2 int default 7", "add column c2 int", "add column c3 int", "comment x y z")


@SETTINGS
@given(st.integers(0, 2**48))
def test_every_way_that_a_lock_shows_leads_the_rows_into_the_target(seed: int) -> None:
    game = ShownGame(Random(seed))
    game.play()
    game.check()


@SETTINGS
@given(st.integers(0, 2**48))
def test_no_order_loses_a_row_or_leaves_a_lock(seed: int) -> None:
    game = OrderedGame(Random(seed))
    game.play()
    game.check()
