"""Random groups, DDL sequences, interleavings, new shards, drops, renames, forced locks and deaths.

In the end, every target must equal the union of its shards. `UNSHARD_EXAMPLES=5000` runs 5,000 games.
"""

from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.openlocks import open_locks
from tests.scenario.world import EVENT_BYTES, Killed, World, structure
from tests.suite.portions import examples
from unshard.core.model import TableId
from unshard.errors import UnshardError
from unshard.errors.locks import LockBusy
from unshard.errors.meta import FencedOut, WindowMismatch
from unshard.operate.command import Force, Replace, Skip
from unshard.units.ddl import coordinate

EXAMPLES = examples(5, 12, 10_000)
COLUMNS = "id int, v int"
MEANINGLESS = "exchange partition"


class Game:
    """One random history of one task."""

    def __init__(self, random: Random, forces: bool, meta: object = None, odd: bool = False) -> None:
        self.random, self.forces, self.odd = random, forces, odd
        self.deaths = {random.randrange(1, 400) for _ in range(random.randrange(6))}
        self.takeovers = {random.randrange(1, 400) for _ in range(random.randrange(4))}
        self.ticks = 0
        routes = [("shard_*.t_*", "shard.t"), ("shard_*.u_*", "shard.u")]
        self.world = World(routes, self.tick, meta, random.choice((1, 3, 50)) * EVENT_BYTES)
        self.world.lossy = forces
        self.sequences = {letter: self.sequence() for letter in "tu"}
        self.done: dict[tuple[str, TableId], int] = {}
        self.structures: dict[str, list[str]] = {}
        for letter, ddls in self.sequences.items():
            self.structures[letter] = self.columns(ddls)
        for source in ("s1", "s2", "s3")[: random.randrange(1, 4)]:
            for letter in "tu":
                for number in range(random.randrange(source == "s1", 3)):
                    self.add(source, TableId("shard_1", f"{letter}_{number}"))
        self.next = 10
        self.keys: dict[tuple[str, TableId], list[str]] = {}
        self.ever: dict[tuple[str, TableId], set[str]] = {}
        """Every key that a shard has ever had."""
        self.last_key = 0
        self.gone: set[TableId] = set()

    def tick(self, name: str) -> None:
        self.ticks += 1
        if self.ticks in self.deaths:
            raise Killed(name)
        if self.ticks in self.takeovers:
            # Another process runs everything; then this one continues as a zombie, without knowing that.
            self.alive(self.world.run)

    def sequence(self) -> list[str]:
        """Return DDLs that never add a column again under a dropped name: see docs/limits.md on forced locks."""
        ddls, names = [], ["v"]
        for number in range(self.random.randrange(4)):
            if self.random.random() < 0.3 and names:
                ddls.append(f"drop column {names.pop(self.random.randrange(len(names)))}")
            else:
                names.append(f"c{number}")
                ddls.append(f"add column c{number} int" + self.random.choice(("", " default 7")))
        return ddls

    @staticmethod
    def columns(ddls: list[str]) -> list[str]:
        from tests.scenario.world import altered, columns_of

        found = [COLUMNS]
        for ddl in ddls:
            found.append(columns_of(altered(structure(found[-1]), ddl)))
        return found

    def add(self, source: str, table: TableId) -> None:
        self.world.add_table(source, table, COLUMNS)
        self.done[source, table] = 0

    # --- what can happen

    def rows(self) -> None:
        source, table = self.random.choice(sorted(self.done))
        keys = self.keys.setdefault((source, table), [])
        width = len(self.world.sources[source].tables[table].schema.columns)
        what = self.random.choice("++~-") if keys else "+"
        if what == "+":
            self.last_key += 1
            keys.append(str(self.last_key))
            self.ever.setdefault((source, table), set()).add(str(self.last_key))
        key = keys[-1] if what == "+" else self.random.choice(keys)
        if what == "-":
            keys.remove(key)
        values = (key, *(str(self.random.randrange(100)) for _ in range(width - 1)))
        self.world.change(source, table, what, ", ".join(values))

    def ddl(self) -> None:
        late = [shard for shard, done in sorted(self.done.items()) if done < len(self.sequences[shard[1].name[0]])]
        if late:
            source, table = self.random.choice(late)
            sequence = self.sequences[table.name[0]]
            op = "odd" if self.odd and self.random.random() < 0.4 else "ddl"
            self.world.change(source, table, op, sequence[self.done[source, table]])
            self.done[source, table] += 1

    def nothing(self) -> None:
        """Run a DDL that changes no structure, but whose effect is unknown to unshard."""
        if self.odd:
            source, table = self.random.choice(sorted(self.done))
            self.world.change(source, table, "odd", MEANINGLESS)

    def decide(self) -> None:
        """Let the operator skip a DDL without effect, and replace any other by the statement that it really is."""
        for view in open_locks(self.world.meta):
            asked = {*view.ready, *view.conflicts}
            for state in self.world.meta.structures.shards():
                entry = state.queue[0] if state.queue and state.shard in asked else None
                is_here = entry is None or entry.after == self.world.target[entry.target].schema.digest
                if entry is None or not entry.reason or (entry.is_alone and not is_here):
                    continue
                ddl = entry.routed.removeprefix(f"odd {entry.target} ")
                skip = Skip(view.id, state.shard)
                replacement = Replace(view.id, (f"alter table {entry.target} {ddl}",), state.shard)
                self.world.order(skip if ddl == MEANINGLESS or entry.is_alone else replacement)
                return

    def newcomer(self) -> None:
        source, peer = self.random.choice(sorted(self.done))
        letter, done = peer.name[0], self.done[source, peer]
        others = self.structures[letter][done + 1 :] + self.structures[letter][:done] * (self.forces or self.odd)
        if self.structures[letter][done] in others:
            return  # it would match a shard that has run more DDLs or, with forced or odd ones, fewer
        table = TableId("shard_1", f"{letter}_{self.next}")
        free = [one for one in sorted(self.gone) if one.name[0] == letter and (source, one) not in self.done]
        if free and self.random.random() < 0.5:
            table = self.random.choice(free)
        self.next += 1
        self.world.change(source, table, "create", self.structures[letter][done])
        self.done[source, table] = done

    def drop(self) -> None:
        source, table = self.random.choice(sorted(self.done))
        peers = [t for s, t in self.done if s == source and t.name[0] == table.name[0]]
        if len(peers) > 1:
            self.world.change(source, table, "drop", "")
            del self.done[source, table]
            self.keys.pop((source, table), None)
            self.ever.pop((source, table), None)
            self.gone.add(table)

    def rename(self) -> None:
        """Rename a shard to a new name or to a dropped one, or swap two shards; with a DDL in the same ALTER or not."""
        source, table = self.random.choice(sorted(self.done))
        others = [t for s, t in sorted(self.done) if s == source and t.name[0] == table.name[0] and t != table]
        if others and self.random.random() < 0.4:
            other = self.random.choice(others)
            body = f"no.x, {other} to {table}, no.x to {other}"
        else:
            other = self.random.choice(sorted(self.gone)) if self.gone and self.random.random() < 0.5 else None
            if other is None or other.name[0] != table.name[0] or other in self.world.sources[source].tables:
                other = TableId(self.random.choice(("shard_1", "shard_2")), f"{table.name[0]}_{self.next}")
                self.next += 1
            body = str(other)
        self.gone.add(table)
        one, two = (source, table), (source, other)
        if two not in self.done and self.random.random() < 0.3 and self.done[one] < len(self.sequences[table.name[0]]):
            self.world.change(*one, "ddl", f"{self.sequences[table.name[0]][self.done[one]]}, rename to {other}")
            self.done[one] += 1
        else:
            self.world.change(*one, "rename", body)
        for kept in (self.done, self.keys, self.ever):
            values = {new: kept.pop(old) for old, new in ((one, two), (two, one)) if old in kept}  # type: ignore[attr-defined]
            kept.update(values)  # type: ignore[attr-defined]

    def force(self) -> None:
        views = coordinate.views(self.world.meta)
        if views and self.forces:
            lock = self.random.choice(views)
            self.world.order(Force(lock.id))

    def step(self) -> None:
        self.world.step(self.random.choice([None, *sorted(self.world.sources)]))

    def play(self) -> None:
        weighted = [self.rows] * 6 + [self.ddl] * 3 + [self.step] * 8 + [self.newcomer, self.drop, self.force]
        weighted += [self.rename] * 2 + [self.nothing, self.decide]
        for _ in range(self.random.randrange(80)):
            self.alive(self.random.choice(weighted))
        while any(done < len(self.sequences[shard[1].name[0]]) for shard, done in self.done.items()):
            self.ddl()
            self.alive(self.random.choice((self.rows, self.step)))
        for _ in range(20 + 200 * self.odd):
            # Until no deaths and takeovers are left, and every shard's head is decided.
            self.alive(self.world.run)
            if self.odd and coordinate.views(self.world.meta):
                self.alive(self.decide)

    def alive(self, action) -> bool:
        try:
            found = action()
        except (Killed, FencedOut, LockBusy, WindowMismatch):
            return False
        assert not found or found is True or stops(found) <= {FencedOut, WindowMismatch}, found
        return True

    def check(self) -> None:
        world = self.world
        self.assert_nothing_waits()
        for target, found in world.target.items():
            assert found.listing() == world.union(target), target
            assert [ddl for one, ddl in world.executed if one == target] == self.sequences[target.name]

    def assert_nothing_waits(self) -> None:
        meta = self.world.meta
        assert coordinate.views(meta) == ()
        assert not [state for state in meta.structures.shards() if state.queue or state.held]
        assert not [shard for shard in meta.locks.pending_skips() if (shard.source, shard.table) in self.done]


def stops(errors: dict[str, UnshardError]) -> set[type[UnshardError]]:
    return {type(error) for error in errors.values()}


SETTINGS = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))


@SETTINGS
@given(st.integers(0, 2**48))
def test_target_becomes_the_union(seed: int) -> None:
    game = Game(Random(seed), forces=False)
    game.play()
    game.check()


@SETTINGS
@given(st.integers(0, 2**48))
def test_target_becomes_the_union_with_forced_locks(seed: int) -> None:
    game = Game(Random(seed), forces=True)
    game.play()
    game.check()


@SETTINGS
@given(st.integers(0, 2**48))
def test_target_becomes_the_union_with_ddl_that_an_operator_decides(seed: int) -> None:
    game = Game(Random(seed), forces=False, odd=True)
    game.play()
    game.check()
