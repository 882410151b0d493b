"""Random rollouts in optimistic mode with the real coordinator: windows, deaths, zombies, shards that come and go.

`UNSHARD_EXAMPLES=10000` plays 10,000.
"""

import contextlib
import os
import random

import pytest

from tests.scenario import IS_FAST
from tests.scenario.joinedworld import JoinedWorld
from tests.scenario.world import EVENT_BYTES, Killed
from tests.unit.join.paper import create
from tests.unit.join.rollout import Play
from tests.unit.join.test_rollouts import TABLE, Rollout
from unshard.core.model import Shard, TableId
from unshard.errors.locks import LockBusy
from unshard.errors.window import FencedOut, WindowMismatch

EXAMPLES = int(os.environ.get("UNSHARD_EXAMPLES", "20" if IS_FAST else "60"))
PART = 20
BARRIER = "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id, b)"


class JoinedGame:
    """A rollout of `tests.unit.join.test_rollouts`, played by units.ddl.joining; its number determines everything."""

    def __init__(self, number: int, has_barrier: bool = False) -> None:
        made = Rollout(number)
        self.texts = {shard: [*texts] for shard, texts in made.texts.items()}
        self.dice = random.Random(f"game {number}")
        self.has_barrier = has_barrier
        for texts in self.texts.values() if has_barrier else ():
            texts.insert(self.dice.randrange(len(texts) + 1), BARRIER)
        self.deaths = {self.dice.randrange(1, 300) for _ in range(self.dice.randrange(6))}
        self.takeovers = {self.dice.randrange(1, 300) for _ in range(self.dice.randrange(3))}
        self.ticks = 0
        size = self.dice.choice((1, 3, 50)) * EVENT_BYTES
        self.world = JoinedWorld(dict.fromkeys(self.texts, create(TABLE)), self.tick, size)
        self.key = 0

    value = Play.value

    def tick(self, name: str) -> None:
        self.ticks += 1
        if self.ticks in self.deaths:
            raise Killed(name)
        if self.ticks in self.takeovers:
            self.alive(self.world.run)

    def alive(self, action) -> None:
        try:
            action()
        except (Killed, FencedOut, WindowMismatch, LockBusy):
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
            if "NOT NULL" in text and "MODIFY b" in text and row["b"] is None:
                self.world.write(shard, key, {**row, "b": key})
            if "MODIFY e ENUM" in text and row["e"] is not None and f"'{row['e']}'" not in text:
                self.world.write(shard, key, {**row, "e": "x"})
        with contextlib.suppress(KeyError):  # the source refuses it: an index went with its column
            self.world.ddl(shard, text.removeprefix("ALTER TABLE t "))

    def newcomer(self) -> None:
        """Create a shard with the structure and the remaining DDL of another one."""
        peer = self.dice.choice(sorted(self.texts))
        shard = Shard(peer.source, TableId("d", f"new{len(self.texts)}"))
        if shard not in self.texts:
            self.world.create(shard, self.world.sources[peer.source].tables[peer.table].table)
            self.texts[shard] = [*self.texts[peer]]

    def leave(self) -> None:
        if len(self.texts) > 2:
            shard = self.dice.choice(sorted(self.texts))
            self.world.drop(shard)
            del self.texts[shard]

    def play(self) -> None:
        while any(self.texts.values()):
            shard = self.dice.choice(sorted(self.texts))
            chosen = self.dice.randrange(60)
            if chosen < 12:
                self.ddl(shard)
            elif chosen < 28:
                self.rows(shard)
            elif chosen < 44:
                self.alive(lambda: self.world.window(self.dice.choice(sorted(self.world.sources))))
            elif chosen < 58:
                self.alive(self.world.follow)
            elif chosen == 58 and not self.has_barrier:
                self.newcomer()
            elif chosen == 59:
                self.leave()
        for _ in range(12):
            self.alive(self.world.run)
            self.alive(self.world.give_up_left_shards)
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


def changes_key(number: int) -> bool:
    """Whether a rollout changes column b, which the barrier takes into the primary key."""
    texts = (text for some in Rollout(number).texts.values() for text in some)
    return any(word.strip("(),") in ("b", "u") for text in texts for word in text.split())


@pytest.mark.parametrize("start", range(0, EXAMPLES, PART))
def test_random_rollouts_with_a_barrier(start: int) -> None:
    for number in range(start, start + PART):
        if not changes_key(number):
            play(number, has_barrier=True)
