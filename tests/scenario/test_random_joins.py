"""Random rollouts in optimistic mode with the real coordinator.

Windows, deaths, zombies, processes that follow at the same time, shards that are created, dropped and renamed, a start
with different shards, `contract-delay`, `strict-optimistic-shard-mode`. `UNSHARD_EXAMPLES=10000` plays 10,000.
"""

import contextlib
import random
import re

import pytest

from tests.scenario.joinedworld import JoinedWorld
from tests.scenario.turns import Turns
from tests.scenario.world import EVENT_BYTES, Killed
from tests.suite.portions import examples
from tests.unit.join.paper import PaperTable, alter, create
from tests.unit.join.rollout import Play, convertible
from tests.unit.join.test_rollouts import TABLE, Rollout
from unshard.core.join.decision import conflicts_of
from unshard.core.join.group import begin_group
from unshard.core.model import Shard, TableId
from unshard.errors.locks import LockBusy, TargetBeingChanged
from unshard.errors.meta import FencedOut, WindowMismatch
from unshard.units.ddl import coordinate
from unshard.units.ddl.joining import JoinRules

EXAMPLES = examples(1, 8, 10_000)
PART = 10
BARRIER = "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id, b)"


class JoinedGame:
    """A rollout of `tests.unit.join.test_rollouts`, played by units.ddl.joining; its number determines everything."""

    def __init__(self, number: int, has_barrier: bool = False) -> None:
        self.dice = random.Random(f"game {number}")
        made = Rollout(number, self.dice.choice((1, 2, 2, 3)))
        self.texts = {shard: [*texts] for shard, texts in made.texts.items()}
        self.has_barrier = has_barrier
        for texts in self.texts.values() if has_barrier else ():
            texts.insert(self.dice.randrange(len(texts) + 1), BARRIER)
        self.deaths = {self.dice.randrange(1, 300) for _ in range(self.dice.randrange(6))}
        self.takeovers = {self.dice.randrange(1, 300) for _ in range(self.dice.randrange(3))}
        self.ticks = 0
        size = self.dice.choice((1, 3, 50)) * EVENT_BYTES
        self.world = JoinedWorld(self.begun(), self.tick, size)
        self.world.turns = Turns(lambda _, me, left: self.dice.choice([me, me, *left]))
        self.world.meta.reading = self.world.turns.step
        delay, is_strict = self.dice.choice((0, 0, 0, 60)), self.dice.random() < 0.1
        self.world.rules = JoinRules(contract_delay=delay, is_strict=is_strict)
        self.world.is_busy = lambda: self.dice.random() < 0.2
        self.key, self.names, self.free = 0, 0, list[TableId]()

    value = Play.value

    def begun(self) -> dict[Shard, PaperTable]:
        """Return the shards at the start: in some games they differ already, but not in the middle of a swap."""
        tables = dict.fromkeys(self.texts, create(TABLE))
        renames = [name for texts in self.texts.values() for text in texts for name in re.findall(r"\bTO (\w+)", text)]
        if (
            {*renames} <= {"a", "a2", "d", "d2"}
            and "RENAME COLUMN g" not in str(self.texts)
            and self.dice.random() < 0.5
        ):
            counts = {shard: self.dice.randrange(len(texts) + 1) for shard, texts in self.texts.items()}
            others = {shard: self.after(self.texts[shard][:count]) for shard, count in counts.items()}
            if not conflicts_of(begin_group({shard: table.structure for shard, table in others.items()})):
                self.texts = {shard: texts[counts[shard] :] for shard, texts in self.texts.items()}
                return others
        return tables

    def after(self, texts: list[str]) -> PaperTable:
        table = create(TABLE)
        for text in texts:
            with contextlib.suppress(KeyError):
                table = alter(table, text)
        return table

    def tick(self, name: str) -> None:
        self.ticks += 1
        if self.ticks in self.deaths:
            raise Killed(name)
        if self.ticks in self.takeovers:
            self.alive(self.chosen())
        self.world.turns.step(name)

    def chosen(self):
        """Return what a process does."""
        source = self.dice.choice(sorted(self.world.sources))
        return self.dice.choice(
            (self.world.run, self.world.follow, self.world.follow, lambda: self.world.window(source))
        )

    def race(self) -> None:
        """Let processes run at the same time."""
        actions = [self.chosen() for _ in range(self.dice.choice((2, 2, 3)))]
        self.world.turns.run([lambda action=action: self.alive(action) for action in actions])

    def alive(self, action) -> None:
        try:
            action()
        except (Killed, FencedOut, WindowMismatch, LockBusy, TargetBeingChanged):
            return

    def rows(self, shard: Shard) -> None:
        own = self.world.sources[shard.source].tables[shard.table]
        if own.rows and self.dice.random() < 0.2:
            self.world.delete(shard, self.dice.choice(sorted(own.rows)))
            return
        if not own.rows or self.dice.random() < 0.6:
            self.key += 1
            key = self.key
        else:
            key = self.dice.choice(sorted(own.rows))
        self.world.write(shard, key, {c.name.lower(): self.value(c.type, c.nullable, key) for c in own.table.columns})

    def ddl(self, shard: Shard) -> None:
        if not self.texts.get(shard):
            return
        text = self.texts[shard].pop(0)
        rows = self.world.sources[shard.source].tables[shard.table].rows
        for key, row in [*rows.items()]:
            if (changed := convertible(row, text)) != row:
                self.world.write(shard, key, changed)
        with contextlib.suppress(KeyError):  # the source refuses it: an index went with its column
            self.world.ddl(shard, text.removeprefix("ALTER TABLE t "))

    def newcomer(self) -> None:
        """Create a shard like another one, with its remaining DDL; its name may have been another shard's."""
        peer = self.dice.choice(sorted(self.texts))
        name = self.free.pop() if self.free and self.dice.random() < 0.5 else self.name()
        shard = Shard(peer.source, name)
        if shard not in self.texts:
            self.world.create(shard, self.world.sources[peer.source].tables[peer.table].table)
            self.texts[shard] = [*self.texts[peer]]

    def leave(self) -> None:
        if len(self.texts) > 2:
            shard = self.dice.choice(sorted(self.texts))
            self.world.drop(shard)
            del self.texts[shard]
            self.free.append(shard.table)

    def name(self) -> TableId:
        self.names += 1
        return TableId("d", f"new{self.names}")

    def rename(self) -> None:
        shard = self.dice.choice(sorted(self.texts))
        to = Shard(shard.source, self.name())
        self.world.rename(shard, to.table)
        self.texts[to] = self.texts.pop(shard)
        self.free.append(shard.table)

    def step(self) -> None:
        shard, source = self.dice.choice(sorted(self.texts)), self.dice.choice(sorted(self.world.sources))
        actions = (
            (12, lambda: self.ddl(shard)),
            (16, lambda: self.rows(shard)),
            (14, lambda: self.alive(lambda: self.world.window(source))),
            (14, lambda: self.alive(self.world.follow)),
            (5, self.race),
            (0 if self.has_barrier else 1, self.newcomer),
            (1, self.leave),
            (1, self.rename),
        )
        self.dice.choices([action for _, action in actions], [weight for weight, _ in actions])[0]()

    def play(self) -> None:
        while any(self.texts.values()):
            self.step()
        self.world.rules, self.world.is_busy = JoinRules(), lambda: False
        for _ in range(12):
            self.alive(self.world.run)
            self.alive(self.world.give_up_left_shards)
        if self.has_barrier and any(view.conflicts for view in coordinate.views(self.world.meta)):
            return  # one shard waits for all, another one for that shard to go on: an operator decides
        self.world.check_end()


def play(number: int, has_barrier: bool = False) -> None:
    game = JoinedGame(number, has_barrier)
    texts = {str(shard): [*some] for shard, some in game.texts.items()}
    try:
        game.play()
    except Exception as error:
        executed = "\n".join(game.world.executed)
        raise AssertionError(f"game {number}:\n{texts}\n{executed}\n{type(error).__name__} {error}") from error


@pytest.mark.parametrize("start", range(0, EXAMPLES, PART))
def test_random_rollouts_end_with_the_union(start: int) -> None:
    for number in range(start, start + PART):
        play(number)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "has_barrier"),
    [
        (89, True),
        (674, False),
        (1461, False),
        (1810, False),
        (2365, True),
        (2907, True),
        (3293, False),
        (3994, True),
        (8127, False),
    ],
)
def test_rollouts_that_failed_once(number: int, has_barrier: bool) -> None:
    """A column that the target lacks yet; a statement that means other columns there; locks; a fill by the server."""
    play(number, has_barrier)


def changes_key(number: int) -> bool:
    """Whether a rollout changes column b, which the barrier takes into the primary key."""
    texts = (text for some in Rollout(number).texts.values() for text in some)
    return any(word.strip("(),") in ("b", "u") for text in texts for word in text.split())


@pytest.mark.parametrize("start", range(0, EXAMPLES, PART))
def test_random_rollouts_with_a_barrier(start: int) -> None:
    for number in range(start, start + PART):
        if not changes_key(number):
            play(number, has_barrier=True)
