"""Random games in which shards run what they should not, the target refuses, and an operator gives every kind of order.

| what goes wrong                                   | what the operator orders                               |
|---------------------------------------------------|--------------------------------------------------------|
| the target refuses a DDL of all shards            | skip, or replace by two statements                     |
| a shard runs its DDL in other words               | replace for that shard: they agree again               |
| a shard runs a DDL that no other runs             | skip for that shard                                    |
| a shard does not come                             | unlock, with an owner; or skip for that shard          |
| a shard is of no use any more                     | drop-shard; upstream it may be dropped and made again  |

The operator looks and orders again and again; the rows of all shards that were not dropped are right in
the end, and the target has executed the DDLs of the groups in their order, each once.
"""

from itertools import groupby
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.scenario.test_random import SETTINGS, Game
from tests.scenario.world import changes_in
from unshard.core.ddllock import LockState
from unshard.core.model import Shard, TableId
from unshard.core.orders import DropShard, Force, Order, Replace, Skip
from unshard.core.window import Verdict
from unshard.errors.orders import OrderError
from unshard.units import coordinate, orders
from unshard.units.coordinate import LockView


class OrderedGame(Game):
    """A game with an operator."""

    def __init__(self, random: Random, meta: object = None) -> None:
        super().__init__(random, True, meta)
        self.is_wild = random.random() < 0.6
        """Shards run DDL in other words, and DDL of their own; then no shard is created."""
        self.excuses = random.random() < 0.5
        """Shards are excused that have not come; then none goes, so that somebody brings the DDL in the end."""
        self.ways = self.refusals()
        self.world.refused = frozenset(self.ways)
        self.meant: dict[str, str] = {}
        """DDL in other words → as it should be."""
        self.strays: list[tuple[str, TableId]] = []
        self.stray_keys: set[str] = set()

    def refusals(self) -> dict[str, tuple[str, ...]]:
        """DDL that the target refuses → what the operator lets it execute instead; nothing: a skip."""
        found: dict[str, tuple[str, ...]] = {}
        for number, ddl in enumerate({ddl: None for ddls in self.sequences.values() for ddl in ddls}):
            if ddl.startswith("add") and self.random.random() < 0.3:
                instead = (f"add column x{number} int", f"{ddl} comment 'x'")
                found[ddl] = instead if self.random.random() < 0.6 else ()
        return found

    # --- what goes wrong

    def ddl(self) -> None:
        behind = [shard for shard, done in sorted(self.done.items()) if done < len(self.sequences[shard[1].name[0]])]
        if not behind:
            return
        source, table = self.random.choice(behind)
        ddl = self.sequences[table.name[0]][self.done[source, table]]
        if self.is_wild and self.random.random() < 0.2:
            self.next += 1
            self.wrong(source, table, f"add column z{self.next} int")
        if self.is_wild and " int" in ddl and self.random.random() < 0.2:
            self.meant[ddl.replace(" int", " bigint")] = ddl
            self.wrong(source, table, ddl.replace(" int", " bigint"))
        else:
            self.world.change(source, table, "ddl", ddl)
        self.done[source, table] += 1

    def wrong(self, source: str, table: TableId, ddl: str) -> None:
        """Run a DDL that should not be; if nobody is there to disagree, the target does."""
        self.world.refused |= {ddl}
        self.world.change(source, table, "ddl", ddl)

    def newcomer(self) -> None:
        if not self.is_wild:
            self.gone -= {table for _, table in self.strays}
            super().newcomer()

    def drop(self) -> None:
        if not self.excuses:
            super().drop()

    def stray(self) -> None:
        """Something happens to a shard that an operator has dropped."""
        if not self.strays:
            return
        source, table = self.random.choice(self.strays)
        what = self.random.choice(("rows", "ddl", "again", "again"))
        if what == "rows":
            self.last_key += 1
            self.stray_keys.add(str(self.last_key))
            self.world.change(source, table, "+", str(self.last_key))
        elif what == "ddl":
            self.world.change(source, table, "ddl", f"add column y{self.last_key} int")
        else:
            self.strays.remove((source, table))
            self.world.change(source, table, "drop", "")
            self.gone.add(table)
            peers = [s for s in sorted(self.done) if s[0] == source and s[1].name[0] == table.name[0]]
            if peers and not self.is_wild:
                self.make_again(source, table, self.random.choice(peers))

    def make_again(self, source: str, table: TableId, peer: tuple[str, TableId]) -> None:
        letter, done = table.name[0], self.done[peer]
        known = self.structures[letter]
        if known.count(known[done]) == 1:
            self.world.change(source, table, "create", known[done])
            self.done[source, table] = done

    # --- the operator

    def force(self) -> None:
        """Look at a lock and do something about it."""
        views = coordinate.views(self.world.meta)
        if views and (order := self.wish(self.random.choice(views))):
            self.give(order)

    def wish(self, view: LockView) -> Order | None:
        others = self.unlock, self.excuse if self.excuses else self.dismiss
        early = self.dismiss(view) if self.random.random() < 0.2 else None
        return early or self.remedy(view) or self.random.choice(others)(view)

    def remedy(self, view: LockView) -> Order | None:
        """Return what must be ordered, or the lock is never resolved as it should be."""
        heads = {state.shard: state.queue[0] for state in self.world.meta.structures.shards() if state.queue}
        for shard in (*view.conflicts, *view.ready):
            text = changes_in(heads[shard].routed)
            if text in self.meant:
                return Replace(view.id, (f"alter table {view.target} {self.meant[text]}",), shard)
            if text.startswith("add column z"):
                return Skip(view.id, shard)
        instead = self.ways.get(changes_in(view.ddl))
        if instead is None or view.verdict is not Verdict.NONE:
            return None
        statements = tuple(f"alter table `{view.target.schema}`.{view.target.name} {ddl}" for ddl in instead)
        return Replace(view.id, statements) if instead else Skip(view.id)

    def unlock(self, view: LockView) -> Order | None:
        sources = sorted({shard.source for shard in view.ready})
        return Force(view.id, self.random.choice([None, *sources])) if view.state is not LockState.RESOLVED else None

    def excuse(self, view: LockView) -> Order | None:
        return Skip(view.id, self.random.choice(view.missing)) if self.excuses and view.missing else None

    def dismiss(self, view: LockView) -> Order | None:
        mine = [shard for shard in sorted(self.done) if self.world.target_of(shard[1]) == view.target]
        if self.excuses or len(mine) < 2:
            return None
        source, table = self.random.choice(mine)
        if any(map(self.is_busy, self.world.sources)):
            return None
        return DropShard(view.id, Shard(source, table))

    def is_busy(self, source: str) -> bool:
        """Whether a RENAME is on its way, as an order means the name that is known, or a shard made like another."""
        location = self.world.meta.checkpoints.get(source).location
        waiting = (segment.statement for segment in self.world.sources[source].segments(source, location))
        return any(one and ("alter" not in one.text or "rename" in one.text) for one in waiting)

    def give(self, order: Order) -> None:
        """Give an order; who dies of it or is too late looks again."""
        self.alive(lambda: self.world.order(orders.pinned(self.world.meta, order)) and True)
        dropped = {state.shard for state in self.world.meta.structures.shards() if state.is_dropped}
        if isinstance(order, DropShard) and order.shard in dropped:
            shard = order.shard.source, order.shard.table
            self.strays.append(shard)
            self.stray_keys |= self.ever.pop(shard, set())
            self.keys.pop(shard, None)
            del self.done[shard]

    def alive(self, action) -> bool:
        try:
            return super().alive(action)
        except OrderError:
            return False  # somebody else was faster

    def play(self) -> None:
        weighted = [self.rows] * 6 + [self.ddl] * 3 + [self.step] * 8 + [self.force] * 3 + [self.rename] * 2
        weighted += [self.newcomer, self.drop, self.stray, self.stray]
        for _ in range(self.random.randrange(90)):
            self.alive(self.random.choice(weighted))
        while any(done < len(self.sequences[shard[1].name[0]]) for shard, done in self.done.items()):
            self.ddl()
            self.alive(self.random.choice((self.rows, self.step, self.force)))
        calm = 0
        while calm < 12:
            # Until neither deaths nor takeovers are left; one more after them ends everything.
            self.alive(self.world.run)
            wishes = [order for view in coordinate.views(self.world.meta) if (order := self.remedy(view))]
            for order in wishes:
                self.give(order)
            calm = 0 if wishes else calm + 1

    def check(self) -> None:
        world = self.world
        self.assert_nothing_waits()
        for target, found in world.target.items():
            assert self.known(found.listing()) == self.known(world.union(target)), target
            wanted = [one for ddl in self.sequences[target.name] for one in self.ways.get(ddl, (ddl,))]
            # What changes nothing, because the column was never added, may be executed again after a death.
            assert [ddl for ddl, _ in groupby(ddl for one, ddl in world.executed if one == target)] == wanted

    def known(self, rows: tuple[tuple[str, ...], ...]) -> list[tuple[str, ...]]:
        """Leave out the rows of shards that were dropped by an order: they stay as they happened to be."""
        stray = {f"id={key}" for key in self.stray_keys}
        return [row for row in rows if not stray & set(row)]


@SETTINGS
@given(st.integers(0, 2**48))
def test_every_lock_has_a_way_out(seed: int) -> None:
    game = OrderedGame(Random(seed))
    game.play()
    game.check()
