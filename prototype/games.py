"""Random games: agreeing shards, shards with an operator who does not wait, shards that run different DDL."""

import contextlib
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from prototype import group as one
from prototype import paper
from prototype.group import Policy
from prototype.world import RowWithoutPlace, World, change_of
from tests.unit.join import rollout
from unshard.core.model import Shard

rollout.World = World  # type: ignore[misc]
from tests.unit.join import test_rollouts  # noqa: E402


class Together(rollout.Play):
    """All shards run the same DDL; in `with_operator`, commands do not wait for late shards."""

    def __init__(self, number: int, with_operator: bool, in_order: bool = True) -> None:
        self.dice, self.with_operator, self.key = random.Random(number), with_operator, 0
        self.shards = rollout.shards(self.dice.randrange(1, 5))
        texts = self.script()
        self.texts = dict.fromkeys(self.shards, texts)
        table = paper.create(test_rollouts.TABLE)
        self.world = World(dict.fromkeys(self.shards, table), self.dice, Policy.TOGETHER, in_order)
        self.world.deaths = 0.05
        self.counts = Counter[str]()

    def script(self) -> list[str]:
        numbers = self.dice.sample(range(len(test_rollouts.MIGRATIONS)), 4)
        chosen = [numbers[0]]
        chosen += [n for n in numbers[1:] if all(test_rollouts.Rollout.is_apart(n, each) for each in chosen)]
        texts = list[str]()
        for number in chosen[:3]:
            migration = test_rollouts.MIGRATIONS[number]
            texts += test_rollouts.statements(migration.forth(self.dice), self.dice)
            if self.dice.random() < 0.3 and (back := migration.back(self.dice)):
                texts += test_rollouts.statements(back, self.dice)
        return texts

    def play(self) -> None:
        left = {shard: [*texts] for shard, texts in self.texts.items()}
        while any(left.values()):
            shard = self.dice.choice(self.shards)
            match self.dice.randrange(9):
                case 0 | 1:
                    if left[shard]:
                        self.prepare(shard, left[shard][0])
                        with contextlib.suppress(KeyError):  # a statement that every shard's server refuses
                            self.world.ddl(shard, left[shard].pop(0))
                case 2 | 3:
                    self.rows(shard)
                case 4 | 5 | 6:
                    self.world.window(shard, self.dice.randrange(1, 6), defer=self.dice.random() < 0.2)
                case 7:
                    self.world.check_rows()
                    if not self.with_operator:
                        self.world.check_together(with_target=False)  # it may have died between two statements
                    self.world.reload(shard)
                case 8 if self.with_operator:
                    self.operate()
        self.world.run()
        while self.with_operator and (changes := self.world.changes()):
            # A shard waits for others that have gone forth and back already: the operator does not wait.
            self.counts["unlock at the end"] += 1
            assert self.world.unlock(changes[0]), changes[0]
            self.world.run()
        self.world.check_end()
        assert not self.world.changes() and not self.world.held()
        group = self.world.group
        for shard, marks in group.apart.items():  # of values that a shard had before the command: they do no harm
            own = one.values(group.members[shard])
            assert all({one.values(m).get(u) for m in group.members.values()} == {own.get(u)} for u in marks), marks

    def operate(self) -> None:
        changes = self.world.changes()
        if not changes or self.world.hindering():
            return
        change = self.dice.choice(changes)
        if self.dice.random() < 0.7:
            self.counts["unlock" if self.world.unlock(change) else "not possible"] += 1
        elif change.lacks and change is changes[0]:
            self.counts["exempted"] += self.world.skip_shard(self.dice.choice(change.lacks))


class Different(rollout.Play):
    """Shards run DDL of their own; an operator follows a way that is offered, at random."""

    def __init__(self, number: int) -> None:
        self.dice, self.key = random.Random(number), 0
        self.shards = rollout.shards(2)
        self.world = World(
            dict.fromkeys(self.shards, paper.create("CREATE TABLE t (id INT PRIMARY KEY, a INT)")),
            self.dice,
            Policy.TOGETHER,
        )
        self.names = {shard: {"a": "a"} for shard in self.shards}
        self.counts = Counter[str]()

    def play(self) -> None:
        for _ in range(self.dice.randrange(2, 12)):
            shard = self.dice.choice(self.shards)
            self.dice.choice((self.ddl, self.ddl, self.insert, lambda _: self.world.run()))(shard)
        for shard in self.shards:
            self.insert(shard)
        self.decide()
        self.check()

    def insert(self, shard: Shard) -> None:
        self.key += 1
        values = {name: self.key * 1000 + sum(map(ord, first)) for first, name in self.names[shard].items()}
        self.world.write(shard, self.key, {"id": self.key, **values})

    def ddl(self, shard: Shard) -> None:
        columns, pick = self.names[shard], self.dice.choice
        kind, column = pick(("INT", "BIGINT")), pick(sorted(columns))
        fresh = pick([name for name in ("p", "q", "r") if name not in columns.values()] or ["z"])
        new = pick([name for name in ("n1", "n2", "n3") if name not in columns] or [""])
        form = pick(
            [
                f"MODIFY {columns[column]} {kind}",
                f"CHANGE {columns[column]} {fresh} {kind}",
                "COMMENT 'x'",
                *([f"ADD {new} {kind}"] * 2 if new else []),
            ]
        )
        if fresh in columns.values() and form.startswith("CHANGE"):
            return
        self.world.ddl(shard, f"ALTER TABLE t {form}")
        if form.startswith("CHANGE"):
            columns[column] = fresh
        elif form.startswith("ADD"):
            columns[new] = new

    def decide(self) -> None:
        for _ in range(100):
            self.world.run()
            changes = self.world.changes()
            if not changes:
                return
            ways = self.ways(changes)
            if not ways:
                raise AssertionError(f"no way out of {[(c.text, str(c.seed), c.state) for c in changes]}")
            name, follow = self.dice.choice(ways)
            self.counts[name] += 1
            assert follow(), name
        raise AssertionError("it never ends")

    def ways(self, changes: Sequence[one.OpenChange]) -> list:
        """Return the ways that are offered: tried on values, one step each, without a simulation to the end."""
        world, found = self.world, []
        for change in changes:
            if one.unlock(world.group, world.queues(), change.seed) is not None:
                found.append(("unlock", lambda c=change: world.unlock(c)))
            for other in change.others:
                if self.can_count(change, other):
                    found.append(("replace --shard", lambda c=change, o=other: world.replace_shard(o, c.text)))
        return found

    def can_count(self, change: one.OpenChange, other: Shard) -> bool:
        """Whether the DDL of a shard in conflict can count as an open one: both change one column, of one id."""
        world = self.world
        head = world.queues()[other][0]
        if head.counted is not None:
            return False
        try:
            after = paper.alter(world.paper[other], change.text)
        except KeyError:
            return False
        tried = replace(head, counted=change_of((change.text,), after))
        queues = {**world.queues(), other: [tried]}
        found = one.together(world.group, queues, change.seed, world.needed, world.in_order)
        if found is None:
            return False
        there = one.wanted_by(found.group, world.target).names
        return {*found.group.members[other].ids.values()} <= there.keys()

    def check(self) -> None:
        world = self.world
        assert not world.held()
        world.check_rows()
        for shard, columns in self.names.items():
            member = world.group.members[shard]
            for name in columns.values():
                assert member.ids[name] in world.target.names, f"{shard}: {name} has no place"
        total = {key for up in world.upstream.values() for key in up.rows}
        assert {*world.rows} == total


def outcome(play, number: int) -> str:
    try:
        play.play()
    except RowWithoutPlace as error:
        return "a value that does not fit" if re.search(r": .* in \w+$", str(error)) else f"WRONG {error}"
    except Exception as error:  # noqa: BLE001
        return f"WRONG {type(error).__name__} {str(error)[:160]}"
    return "right"


class Switching(test_rollouts.Rollout):
    """A rollout with canaries, reversals and different orders, whose task changes its mode again and again."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.counts = Counter[str]()

    def rows(self, shard: Shard) -> None:
        super().rows(shard)
        if self.dice.random() < 0.2:
            self.switch(self.dice.choice((Policy.JOIN, Policy.TOGETHER)))

    def switch(self, policy: Policy) -> None:
        self.counts["changes of mode"] += policy is not self.world.policy
        self.world.policy = policy
        self.world.waiting.clear()  # decisions are made again

    def play(self) -> None:
        ended = self.world.check_end

        def at_the_end() -> None:
            self.switch(Policy.JOIN)
            ended()

        self.world.check_end = at_the_end  # type: ignore[method-assign]
        super().play()
