"""Random games with wrong DDLs on the shards, refusals by the target, and operators' commands of every kind.

| problem                                           | command of the operator                                   |
|---------------------------------------------------|-----------------------------------------------------------|
| the target refuses a DDL of all shards            | skip, or replace by two statements                        |
| a shard runs a different statement for its DDL    | replace for this shard: the shards agree again            |
| a shard runs a DDL that no other shard runs       | skip for this shard                                       |
| a shard does not run the DDL                      | unlock, with an owner; or skip for this shard             |
| a shard is not needed any more                    | drop-shard; upstream it may be dropped and created again  |

The operator looks at the locks and issues commands repeatedly. In the end, the rows of all shards that were not dropped
are correct, and the target has executed the DDLs of each group in order, each of them once.
"""

from itertools import groupby
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.scenario.test_random import SETTINGS, Game
from tests.scenario.world import changes_in
from unshard.core.ddl.lock import LockState
from unshard.core.ddl.queue import OperatorDecision
from unshard.core.model import Shard, TableId
from unshard.errors.locks import CommandError
from unshard.operate import issuing
from unshard.operate.command import DropShard, Force, LockCommand, Replace, Skip
from unshard.units.ddl import coordinate
from unshard.units.ddl.scene import LockView


class OrderedGame(Game):
    """A game with an operator."""

    def __init__(self, random: Random, meta: object = None) -> None:
        super().__init__(random, True, meta)
        self.is_wild = random.random() < 0.6
        """Shards run different statements and DDLs of their own; then no shard is created."""
        self.exempts = random.random() < 0.5
        """Missing shards are exempted; then no shard is dropped, so that some shard runs the DDL in the end."""
        self.ways = self.refusals()
        self.world.refused = frozenset(self.ways)
        self.meant: dict[str, str] = {}
        """A different statement → the correct DDL."""
        self.strays: list[tuple[str, TableId]] = []
        self.stray_keys: set[str] = set()

    def refusals(self) -> dict[str, tuple[str, ...]]:
        """Return each DDL that the target refuses with its replacement by the operator; empty: a skip."""
        found: dict[str, tuple[str, ...]] = {}
        for number, ddl in enumerate({ddl: None for ddls in self.sequences.values() for ddl in ddls}):
            if ddl.startswith("add") and self.random.random() < 0.3:
                instead = (f"add column x{number} int", f"{ddl} comment 'x'")
                found[ddl] = instead if self.random.random() < 0.6 else ()
        return found

    # --- problems

    def ddl(self) -> None:
        late = [shard for shard, done in sorted(self.done.items()) if done < len(self.sequences[shard[1].name[0]])]
        if not late:
            return
        source, table = self.random.choice(late)
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
        """Run a wrong DDL. The target refuses it, for the case that no other shard contradicts it."""
        self.world.refused |= {ddl}
        self.world.change(source, table, "ddl", ddl)

    def newcomer(self) -> None:
        if not self.is_wild:
            self.gone -= {table for _, table in self.strays}
            super().newcomer()

    def drop(self) -> None:
        if not self.exempts:
            super().drop()

    def stray(self) -> None:
        """Change a shard that an operator has dropped."""
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
        """Look at a lock and issue a command for it."""
        views = coordinate.views(self.world.meta)
        if views and (order := self.wish(self.random.choice(views))):
            self.give(order)

    def wish(self, view: LockView) -> LockCommand | None:
        others = self.unlock, self.exempt if self.exempts else self.dismiss
        early = self.dismiss(view) if self.random.random() < 0.2 else None
        return early or self.remedy(view) or self.random.choice(others)(view)

    def remedy(self, view: LockView) -> LockCommand | None:
        """Return the command without which the lock would never be resolved correctly; None if no command is needed."""
        heads = {state.shard: state.queue[0] for state in self.world.meta.structures.shards() if state.queue}
        for shard in (*view.conflicts, *view.ready):
            text = changes_in(heads[shard].routed)
            if text in self.meant:
                return Replace(view.id, (f"alter table {view.target} {self.meant[text]}",), shard)
            if text.startswith("add column z"):
                return Skip(view.id, shard)
        instead = self.ways.get(changes_in(view.ddl))
        if instead is None or view.verdict is not OperatorDecision.NONE:
            return None
        statements = tuple(f"alter table `{view.target.schema}`.{view.target.name} {ddl}" for ddl in instead)
        return Replace(view.id, statements) if instead else Skip(view.id)

    def unlock(self, view: LockView) -> LockCommand | None:
        sources = sorted({shard.source for shard in view.ready})
        return Force(view.id, self.random.choice([None, *sources])) if view.state is not LockState.RESOLVED else None

    def exempt(self, view: LockView) -> LockCommand | None:
        return Skip(view.id, self.random.choice(view.missing)) if self.exempts and view.missing else None

    def dismiss(self, view: LockView) -> LockCommand | None:
        mine = [shard for shard in sorted(self.done) if self.world.target_of(shard[1]) == view.target]
        if self.exempts or len(mine) < 2:
            return None
        source, table = self.random.choice(mine)
        if any(map(self.is_busy, self.world.sources)):
            return None
        return DropShard(view.id, Shard(source, table))

    def is_busy(self, source: str) -> bool:
        """Whether a RENAME is not applied yet, or a new shard: commands refer to the names that are known already."""
        location = self.world.meta.checkpoints.get(source).location
        waiting = (segment.statement for segment in self.world.sources[source].segments(source, location))
        return any(one and ("alter" not in one.text or "rename" in one.text) for one in waiting)

    def give(self, command: LockCommand) -> None:
        """Issue a command; if the process dies or the command is too late, a later round looks again."""
        self.alive(lambda: self.world.order(issuing.pinned(self.world.meta, command)) and True)
        dropped = {state.shard for state in self.world.meta.structures.shards() if state.is_dropped}
        if isinstance(command, DropShard) and command.shard in dropped:
            shard = command.shard.source, command.shard.table
            self.strays.append(shard)
            self.stray_keys |= self.ever.pop(shard, set())
            self.keys.pop(shard, None)
            del self.done[shard]

    def alive(self, action) -> bool:
        try:
            return super().alive(action)
        except CommandError:
            return False  # another command was faster

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
            # Until no deaths and takeovers are left; one more round after them completes everything.
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
            # A statement without effect, because the column was never added, may be executed again after a death.
            assert [ddl for ddl, _ in groupby(ddl for one, ddl in world.executed if one == target)] == wanted

    def known(self, rows: tuple[tuple[str, ...], ...]) -> list[tuple[str, ...]]:
        """Return the rows without those of shards that a command has dropped: these keep an arbitrary state."""
        stray = {f"id={key}" for key in self.stray_keys}
        return [row for row in rows if not stray & set(row)]


@SETTINGS
@given(st.integers(0, 2**48))
def test_every_lock_has_a_way_out(seed: int) -> None:
    game = OrderedGame(Random(seed))
    game.play()
    game.check()
