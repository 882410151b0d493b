"""Random play with an operator: shards run what they like in any order, some of it nobody can read, the target refuses
some of it, and an operator gives orders of every kind. Nothing waits for ever, and no row is lost or made up.

What the targets' other columns hold depends on what was executed; the key and a column that no DDL touches do not.
"""

import contextlib
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.scenario.test_random import SETTINGS, Game
from unshard.core.ddllock import LockState
from unshard.core.model import Shard, TableId
from unshard.core.orders import DropShard, Force, Order, Replace, Skip
from unshard.errors.orders import OrderError
from unshard.units import coordinate
from unshard.units.coordinate import LockView

DDLS = ("add column c1 int", "add column c2 int default 7", "add column c3 int", "comment x")
ROUNDS, CALM = 300, 10


class OrderedGame(Game):
    """Shards that agree on nothing, and an operator who answers for it."""

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
        """Give a random order to a random lock; one that cannot be carried out is refused with a code."""
        views = coordinate.views(self.world.meta)
        if views:
            with contextlib.suppress(OrderError):
                self.world.order(self.order(self.random.choice(views)))

    def order(self, view: LockView) -> Order:
        """What nobody can read is answered by what it really did: whoever looks at the shard sees that."""
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

    def orders(self, view: LockView, shards: list[Shard]) -> list[Order]:
        self.replaced += 1
        other = self.statement(view, f"add column r{self.replaced} int")
        some = (other, self.statement(view, "comment y"))[: self.random.randrange(1, 3)]
        orders: list[Order] = [Force(view.id), Force(view.id), Skip(view.id), Replace(view.id, some)]
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


@SETTINGS
@given(st.integers(0, 2**48))
def test_no_order_loses_a_row_or_leaves_a_lock(seed: int) -> None:
    game = OrderedGame(Random(seed))
    game.play()
    game.check()
