"""Shards on paper that follow one group with either policy: DDL, rows, windows, an operator, shards that come and go."""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from prototype import group as one
from prototype import paper
from prototype.group import Accepted, Group, OpenChange, Policy, Queued
from tests.unit.join import rollout
from tests.unit.join.paper import PaperTable
from tests.unit.join.rollout import STRICT, Deferred, Event
from unshard.core.ddl.lineage import ExecutedDdl, names_after
from unshard.core.join import decision
from unshard.core.join.decision import Change, Decided, Decision, contracting, group_after
from unshard.core.join.difference import AddColumn, ChangeColumn, DropColumn, Step, Target, is_equal, target_with_ids
from unshard.core.join.group import (
    ColumnHistory,
    ColumnToReload,
    Member,
    ReloadReason,
    conversion_text,
    converted,
    intended,
    joined_by,
)
from unshard.core.join.places import places_of
from unshard.core.model import Shard, TableId

rollout.alter = paper.alter
NOT_YET = Decided(Decision.BARRIER, Group({}, {}), reason="not all shards have it")


class RowWithoutPlace(AssertionError):
    """A row has a value that its target has no place for."""


@dataclass
class Answer:
    """An operator's decision about one queued DDL of a shard."""

    is_skipped: bool = False
    statements: tuple[str, ...] = ()
    instead: tuple[str, ...] = ()
    without: frozenset[Shard] = frozenset()


class World(rollout.World):
    """All shards of one target."""

    def __init__(
        self,
        tables: dict[Shard, PaperTable],
        dice: random.Random | None = None,
        policy: Policy = Policy.JOIN,
        in_order: bool = True,
    ) -> None:
        super().__init__(tables, dice)
        self.policy, self.in_order = policy, in_order
        self.group: Group = one.of(self.group)
        self.paper = dict(tables)
        """The structure of each shard after its accepted DDLs."""
        self.moment = 0
        self.moments: dict[tuple[Shard, int], int] = {}
        self.unknown: set[tuple[Shard, int]] = set()
        self.answers: dict[tuple[Shard, int], Answer] = {}
        self.answers_for_all: dict[str, Answer] = {}
        """An operator's decisions about statements of unknown effect, for every shard that runs them."""
        self.gone: set[Shard] = set()
        """Shards that were dropped upstream while DDL and rows of them wait."""
        self.new: dict[Shard, PaperTable] = {}
        """Shards that were created with a structure that no shard of the group has yet."""
        self.refuses = self.is_strict = False
        self.deaths = 0.0
        """How often a process dies after a statement, before its DDL is accepted."""
        self.refused = set[tuple[Shard, int]]()
        self.forced = set[tuple[Shard, int]]()
        self.strangers = set[Shard]()
        """Shards that wait for an operator: a table that was not a shard has got the name of one."""
        self.texts: list[str] = []
        """The statements that the target has executed, as unshard would show them."""
        self.left: dict[object, Mapping[str, object]] = {}
        self.rest = next((one.values(m)[("rest",)] for m in self.group.members.values()), None)

    # --- upstream

    def ddl(self, shard: Shard, sql: str, is_unknown: bool = False) -> None:
        self.moment += 1
        at = len(self.upstream[shard].log)
        self.moments[shard, at] = self.moment
        self.unknown |= {(shard, at)} if is_unknown else set()
        if re.fullmatch(r"ALTER TABLE \w+ (exchange partition|florble)", sql):
            self.upstream[shard].log.append(Event(ddl=sql, after=self.upstream[shard].table))
        else:
            super().ddl(shard, sql)

    def create(self, shard: Shard, table: PaperTable) -> None:
        if self.policy is Policy.JOIN:
            super().create(shard, table)
            self.paper[shard] = table
            return
        self.upstream[shard] = rollout.Upstream(table)
        self.done[shard], self.paper[shard] = 0, table
        self.moment += 1
        self.new[shard] = table
        self.admit()

    def admit(self) -> bool:
        """Let new shards join whose structure another shard has by now."""
        found = False
        for shard, table in [*self.new.items()]:
            if shard in self.strangers:
                continue
            if self.group.members:
                after = one.joined(self.group, shard, table.structure)
            else:  # the target knows columns of the shards that have left
                ids = {name: id for id, name in self.target.names.items()}
                member = Member(table.structure, {n: ids[n] for n in table.structure.by_name if n in ids})
                after = replace(self.group, members={shard: member})
            if after is not None:
                self.group, found = after, True
                del self.new[shard]
        return found

    def drop(self, shard: Shard) -> None:
        """A table is dropped; its rows stay, and what waits of it still goes into the target."""
        if self.policy is Policy.JOIN:
            for key in self.upstream[shard].rows:
                self.owners.pop(key, None)
            self.paper.pop(shard, None)
            super().drop(shard)
            return
        self.window(shard)
        self.left |= {key: dict(row) for key, row in self.upstream[shard].rows.items()}
        if self.done[shard] < len(self.upstream[shard].log):
            self.moment += 1
            kept = Shard(shard.source, TableId(shard.table.schema, f"{shard.table.name} (dropped at {self.moment})"))
            self.move({shard: kept})
            self.gone.add(kept)
        else:
            self.forget(shard)

    def forget(self, shard: Shard) -> None:
        self.strangers.discard(shard)
        for known in (self.upstream, self.done, self.paper, self.waiting, self.new):
            known.pop(shard, None)
        self.gone.discard(shard)
        self.deferred = [each for each in self.deferred if each.shard != shard]
        self.owners = {key: owner for key, owner in self.owners.items() if owner != shard}
        if shard in self.group.members:
            self.group = one.left(self.group, shard)

    def rename(self, shard: Shard, to: Shard) -> None:
        if self.policy is Policy.JOIN:
            self.paper[to] = self.paper.pop(shard)
            super().rename(shard, to)
        else:
            self.move({shard: to})

    def move(self, names: Mapping[Shard, Shard]) -> None:
        """Give shards other names, several at once."""
        for known in (self.upstream, self.done, self.paper, self.waiting, self.new):
            moved = {names.get(shard, shard): value for shard, value in known.items()}
            known.clear()
            known.update(moved)
        self.answers = {
            at: replace(answer, without=frozenset(names.get(s, s) for s in answer.without))
            for at, answer in self.answers.items()
        }
        for known in (self.moments, self.answers):
            moved = {(names.get(s, s), at): value for (s, at), value in known.items()}
            known.clear()
            known.update(moved)
        self.unknown = {(names.get(s, s), at) for s, at in self.unknown}
        self.gone = {names.get(s, s) for s in self.gone}
        self.strangers = {names.get(s, s) for s in self.strangers}
        self.refused = {(names.get(s, s), at) for s, at in self.refused}
        self.forced = {(names.get(s, s), at) for s, at in self.forced}
        members = {names.get(s, s): m for s, m in self.group.members.items()}
        apart = {names.get(s, s): m for s, m in self.group.apart.items()}
        self.group = replace(self.group, members=members, apart=apart)
        self.owners = {key: names.get(owner, owner) for key, owner in self.owners.items()}
        self.deferred = [replace_shard(each, names) for each in self.deferred]

    # --- rows

    def put(self, group: Group, shard: Shard, events: Sequence[Event]) -> None:
        """Write rows by ids; a column has no place only if its shard stands apart in it."""
        member = group.members[shard]
        ids = {n: id for n, id in member.ids.items() if id in self.target.names}
        lost = [n for n, id in member.ids.items() if n not in ids and not self.may_lack(group, shard, id)]
        if lost and events:
            raise RowWithoutPlace(f"{shard}: {', '.join(lost)}")
        names = {name: id for id, name in self.target.names.items()}
        where = [(names[place.target_column], place) for place in places_of(ids, group.fills, self.target)]
        for event in events:
            if event.row is None:
                self.rows.pop(event.key, None)
                continue
            old = self.rows.get(event.key)
            row = dict(old) if old is not None else {}
            for id, place in where:
                definition = self.target.table.columns[id]
                assert definition is not None
                value = event.row[place.shard_column] if place.shard_column else rollout._value(place.fill)
                if not place.shard_column and place.fill == "":
                    value = None if definition.nullable else rollout._zero(definition)
                if isinstance(value, int) and "char" in str(definition.type):
                    value = str(value)
                if not rollout.fits(value, definition):
                    raise RowWithoutPlace(f"{shard}: {value!r} in {place.target_column}")
                row[id] = value
            self.rows[event.key] = row
            self.owners[event.key] = shard

    def execute(self, step: Step, group: Group) -> None:
        """Run one step; a strict server refuses it if a row does not fit."""
        if isinstance(step, ChangeColumn) and not step.after.is_generated:
            for row in self.rows.values():
                value = rollout.converted_value(row.get(step.id), step.after) if row.get(step.id) is not None else None
                if not rollout.fits(value, step.after):
                    raise RowWithoutPlace(f"the target refuses {step}: {value!r} in {step.name}")
        super().execute(step, group)

    def may_lack(self, group: Group, shard: Shard, id: int) -> bool:
        return self.group.is_apart(shard, ("column", id)) or group.is_apart(shard, ("column", id))

    # --- the DDLs that shards have reached

    def reached(self, shard: Shard) -> list[Queued]:
        """Return the queue of a shard: it is empty while rows before its first DDL are not applied."""
        log, at, before = self.upstream[shard].log, self.done[shard], self.paper[shard]
        if at >= len(log) or not log[at].ddl or shard in self.new:
            return []
        found, known = list[Queued](), True
        for number in range(at, len(log)):
            event = log[number]
            if not event.ddl:
                continue
            answer = self.answers.get((shard, number)) or self.answers_for_all.get(event.ddl, Answer())
            counted, change = None, None
            is_unknown = (shard, number) in self.unknown
            if is_unknown and not (answer.is_skipped or answer.statements):
                known = False
            if known and is_unknown:
                texts = answer.statements
                after = before
                for text in texts:
                    after = paper.alter(after, text)
                change, before = change_of(texts, after), after
            elif known:
                assert event.after is not None
                change = change_of((event.ddl,), event.after)
                if answer.statements:
                    after = before
                    for text in answer.statements:
                        after = paper.alter(after, text)
                    counted = change_of(answer.statements, after)
                before = event.after
            found.append(
                Queued(event.ddl, self.moments[shard, number], change, counted, answer.instead, answer.without)
            )
        return found

    def queues(self) -> dict[Shard, list[Queued]]:
        found = {shard: self.reached(shard) for shard in self.upstream if shard in self.group.members}
        return {shard: queue for shard, queue in found.items() if queue}

    @property
    def needed(self) -> frozenset[Shard]:
        return frozenset(self.group.members.keys() - self.gone)

    def changes(self) -> tuple[OpenChange, ...]:
        found = one.open_changes(self.group, self.queues(), self.needed)
        new = (OpenChange(s, "CREATE TABLE", (s,), is_unknown=True, lacks=()) for s in sorted(self.new))
        return (*found, *new)

    # --- decisions

    def decide(self, shard: Shard) -> bool:
        if self.policy is Policy.TOGETHER:
            self.waiting.setdefault(shard, NOT_YET)
            return self.advance()
        if self.is_strict and shard not in self.waiting and not self.leads(shard):
            self.waiting[shard] = NOT_YET
            return True
        if (shard not in self.waiting or self.waiting[shard] is not NOT_YET) and super().decide(shard):
            if shard not in self.waiting:
                self.paper = {s: self.upstream_paper(s) for s in self.upstream}
            return True
        head = self.waiting.get(shard)
        if head is None or self.hindering():
            return False
        found = one.together(self.group, self.queues(), shard, self.needed, self.in_order)
        return found is not None and head.decision is Decision.BARRIER and self.follow(found)

    def leads(self, shard: Shard) -> bool:
        """Whether a DDL that joins needs nothing in the target but what its own text does."""
        (head, *_) = self.queue(shard)
        decided = decision.decide_change(self.group, self.target, shard, head[1])
        if decided.decision is not Decision.EXPAND:
            return True
        own = one.values(decided.group.members[shard])
        subjects = one.changed(one.values(self.group.members[shard]), own)
        there = one.wanted_by(decided.group, self.target).table
        return all(
            kind != "column" or there.columns.get(id) == own.get((kind, id)) for kind, *rest in subjects for id in rest
        )

    def upstream_paper(self, shard: Shard) -> PaperTable:
        log = self.upstream[shard].log[: self.done[shard]]
        return next(
            (e.after for e in reversed(log) if e.ddl and e.after), self.paper.get(shard, self.upstream[shard].table)
        )

    def advance(self) -> bool:
        """Accept the DDLs that are due, or let a new shard join."""
        if self.admit():
            return True
        found = self.due(self.queues())
        if found is None or self.hindering():
            return False
        if self.refuses and self.steps(found):
            self.refused.add((found.seed, self.done[found.seed]))
            return self.advance()
        return self.follow(found)

    def due(self, queues: one.Queues) -> Accepted | None:
        for seed in sorted(queues, key=lambda s: (queues[s][0].moment, s)):
            found = one.together(self.group, queues, seed, self.needed, self.in_order)
            if found is not None and not any((s, self.done[s]) in self.refused for s in found.taken):
                return found
        return next((each for s in sorted(queues) if (each := one.back(self.group, queues, s)) is not None), None)

    @property
    def is_failed(self) -> bool:
        """Whether the target has refused the oldest DDL; it is tried again on request only."""
        return bool(self.refused & {(s, self.done[s]) for s in self.queues()})

    def steps(self, found: Accepted) -> tuple[object, ...]:
        each = decision.steps_to_join(found.group, self.target)
        return (*each.first, *each.expanding, *each.contracting, *found.instead)

    def follow(self, found: Accepted) -> bool:
        """Change the target, then go on after the DDLs."""
        chains = {s: self.reached(s)[:n] for s, n in found.taken.items()}
        own = [each.text.partition(" t ")[2] or each.text for each in chains[found.seed]]
        if found.instead:
            self.group = intended(self.group, found.group)
            self.execute_instead(found)
            group = self.replaced_group
        else:
            group = found.group
            each = decision.steps_to_join(group, self.target)
            early = [s for s in each.contracting if decision._is_early(group, s)]
            steps = (*each.first, *each.expanding, *(s for s in each.contracting if s not in early))
            self.group = intended(self.group, group)
            for step in steps:
                self.execute(step, group)
                if self.deaths and self.dice.random() < self.deaths:
                    return True  # a death between two statements: nothing else was committed
            rest = self.rest_of(group)
            if (
                steps
                or rest != self.rest
                or any(u[0] == "statement" for u in found.subjects)
                or group.table.primary != self.target.table.primary
            ):
                self.texts += own
            self.rest = rest
            if ("primary",) not in group.unled:
                self.target = replace(self.target, table=replace(self.target.table, primary=group.table.primary))
            group = group_after(group, steps)
            added = {step.id for step in steps if isinstance(step, AddColumn)}
            late = {s: m for s, m in group.members.items() if s not in found.taken and added & {*m.ids.values()}}
            for shard, member in late.items():  # its values were left out until now
                due = {ColumnToReload(id, ReloadReason.ADDED_AGAIN) for id in added & {*member.ids.values()}}
                group = replace(group, members={**group.members, shard: replace(member, reloads=member.reloads | due)})
        self.group = group
        for shard, number in found.taken.items():
            last = [e for e in self.upstream[shard].log[self.done[shard] :] if e.ddl][number - 1]
            answered = self.structure_after(shard, number)
            self.release(shard, found.between.get(shard, ()))
            self.paper[shard] = answered or last.after
        return True

    def structure_after(self, shard: Shard, number: int) -> PaperTable | None:
        """Return the structure that an operator's decision gives a shard after an unknown DDL."""
        log, before = self.upstream[shard].log, self.paper[shard]
        for at in [i for i in range(self.done[shard], len(log)) if log[i].ddl][:number]:
            if (shard, at) in self.unknown:
                for text in (self.answers.get((shard, at)) or self.answers_for_all[log[at].ddl]).statements:
                    before = paper.alter(before, text)
            else:
                before = log[at].after
        return before

    def rest_of(self, group: Group) -> object:
        counting = group.counting(("rest",))
        found = {one.values(group.members[s])[("rest",)] for s in counting}
        return next(iter(found)) if len(found) == 1 else self.rest

    def execute_instead(self, found: Accepted) -> None:
        """Run an operator's statements: columns that only they add are the target's own."""
        before = paper.of(self.target)
        after: PaperTable = before
        for text in found.instead:
            after = paper.alter(after, text)
        ran = [ExecutedDdl(text, STRICT) for text in found.instead]
        ids = {name: id for id, name in self.target.names.items()}
        kept = {new: ids[old] for old, new in names_after(ids, ran).items() if new in after.structure.by_name}
        seed, group = found.group.members[found.seed], found.group
        for column in after.columns:
            name = column.name.lower()
            if name in kept:
                continue
            id = seed.ids.get(name, 0)
            if not id:
                id = group.last_id + 1
                history = {**group.columns, id: ColumnHistory((name,))}
                marks: one.Paths = {("column", id): (), ("name", id): ()}
                apart = {s: {**group.apart.get(s, {}), **marks} for s in group.members}
                group = replace(group, columns=history, last_id=id, apart=apart)
            kept[name] = id
            default = rollout._value(column.default) if column.default else None
            for row in self.rows.values():
                row[id] = default
        for row in self.rows.values():
            for id in [id for id in row if id not in kept.values()]:
                del row[id]
        there = target_with_ids(after.structure, {id: name for name, id in kept.items()})
        self.target = Target(
            replace(
                there.table, primary=self.target.table.primary, keys={**self.target.table.keys, **there.table.keys}
            ),
            there.names,
        )
        self.texts += [text.partition(" t ")[2] or text for text in found.instead]
        self.replaced_group = one.tidy(group)

    def release(self, shard: Shard, between: Sequence[Member]) -> None:
        super().release(shard, between)
        if shard in self.gone:
            self.window(shard)
            if shard in self.upstream and self.done[shard] >= len(self.upstream[shard].log):
                self.forget(shard)

    # --- an operator

    def change(self) -> OpenChange:
        return self.changes()[0]

    def unlock(self, change: OpenChange | None = None) -> bool:
        change = change or self.change()
        if change.seed in self.new:
            return self.give_place(change.seed)
        self.refused.clear()
        found = one.unlock(self.group, self.queues(), change.seed)
        if found is None or self.refuses:
            return False
        self.forced.add((change.seed, self.done[change.seed]))  # the command is stored before anything else
        return self.follow(found)

    def resume(self) -> None:
        """Go on with a command whose process has died; no row is written before."""
        for seed, at in [*self.forced]:
            while seed in self.upstream and self.done[seed] == at and self.queues().get(seed):
                found = one.unlock(self.group, self.queues(), seed)
                if found is None:
                    break
                self.follow(found)
            self.forced.discard((seed, at))

    def give_place(self, shard: Shard) -> bool:
        """Let a new shard with other columns join: the target gets them, all other shards stand apart in them."""
        after = joined_by(self.group, shard, self.new[shard].structure)
        own = one.values(after.members[shard])
        peer = next(iter(sorted(self.group.members)))
        want = {u: own.get(u) for u in one.changed(one.values(self.group.members[peer]), own)}
        for other in self.group.members:
            after = one.apart_in(after, other, want)
        if one.conflicts_by(after):
            return False
        each = decision.steps_to_join(after, self.target)
        for step in (*each.first, *each.expanding, *each.contracting):
            self.execute(step, after)
            self.texts.append(re.sub(r"(\w+)\(\d+\)", r"\1", str(step)))
        self.group = after
        del self.new[shard]
        return True

    def give_late(self, shard: Shard) -> bool:
        """Let a new shard join that lacks DDLs of its group: it stands apart where it differs from the others."""
        after = joined_by(self.group, shard, self.new[shard].structure)
        peer = next(s for s in sorted(self.group.members))
        own, theirs = one.values(after.members[shard]), one.values(after.members[peer])
        self.group = one.apart_in(after, shard, {u: theirs.get(u) for u in one.changed(own, theirs)})
        del self.new[shard]
        return True

    def skip(self, change: OpenChange | None = None) -> bool:
        change = change or self.change()
        self.refused.clear()
        if change.seed in self.new:
            self.strangers.discard(change.seed)
            return self.admit()
        if change.is_unknown:
            self.answers_for_all[change.text] = Answer(is_skipped=True)
            for shard in change.has:
                self.answer(shard, Answer(is_skipped=True))
            return True
        found = one.skip(self.group, self.queues(), change.seed)
        return found is not None and self.follow_nothing(found)

    def follow_nothing(self, found: Accepted) -> bool:
        self.group = found.group
        for shard, number in found.taken.items():
            answered = self.structure_after(shard, number)
            self.release(shard, found.between.get(shard, ()))
            self.paper[shard] = answered
        return True

    def skip_shard(self, shard: Shard) -> bool:
        change = self.change()
        if change.is_unknown and shard in change.has:
            self.answer(shard, Answer(is_skipped=True))
            return True
        if shard in change.has or shard not in self.queues():
            at = change.seed, self.done[change.seed]
            before = self.answers.get(at, Answer())
            self.answers[at] = replace(before, without=before.without | {shard})
            return True
        found = one.skip_shard(self.group, self.queues(), shard)
        return found is not None and self.follow_nothing(found)

    def replace_all(self, *statements: str) -> bool:
        change = self.change()
        self.refused.clear()
        if change.is_unknown:
            return all(self.replace_shard(shard, *statements) for shard in change.has)
        self.answer(change.seed, Answer(instead=statements))
        return True

    def replace_shard(self, shard: Shard, *statements: str) -> bool:
        if shard in self.new:
            return self.give_place(shard)
        self.answer(shard, Answer(statements=statements))
        return True

    def answer(self, shard: Shard, answer: Answer) -> None:
        """Store a decision about the first DDL of a shard, unless rows after it contradict it."""
        log, at = self.upstream[shard].log, self.done[shard]
        without = self.answers.get((shard, at), Answer()).without
        self.answers[shard, at] = replace(answer, without=answer.without | without)
        if (shard, at) not in self.unknown:
            return
        after = self.paper[shard]
        for text in answer.statements:
            after = paper.alter(after, text)
        names = {c.name.lower() for c in after.columns if not c.generated}
        for event in log[at + 1 :]:
            if event.ddl:
                break
            if event.row is not None and event.row.keys() != names:
                del self.answers[shard, at]
                return

    def drop_shard(self, shard: Shard) -> None:
        self.window(shard)
        self.deferred = [each for each in self.deferred if each.shard != shard]
        self.left |= {key: {} for key, owner in self.owners.items() if owner == shard and key in self.rows}
        self.forget(shard)

    # --- the end

    def held(self) -> int:
        """The rows that wait."""
        return sum(not event.ddl for shard, up in self.upstream.items() for event in up.log[self.done[shard] :]) + sum(
            len(each.events) for each in self.deferred
        )

    def window(self, shard: Shard, size: int = 1_000_000, defer: bool = False) -> bool:
        self.resume()
        if shard not in self.upstream or shard in self.new:
            return False
        return super().window(shard, size, defer)

    def reload(self, shard: Shard) -> bool:
        return shard in self.group.members and super().reload(shard)

    def contract(self) -> bool:
        if not self.group.members:
            return False
        steps = contracting(self.group, self.target)
        if not steps or self.hindering():
            return False
        for step in steps:
            self.execute(step, self.group)
        changed = {s.id: conversion_text(s.after) for s in steps if hasattr(s, "after") and hasattr(s, "id")}
        dropped = [s.id for s in steps if isinstance(s, DropColumn) and not self.group.holders(s.id)]
        self.group = decision.without(converted(self.group, changed), dropped)
        return True

    def run(self, shards: Sequence[Shard] | None = None) -> None:
        super().run(shards)
        while self.policy is Policy.TOGETHER and shards is None and self.advance():
            super().run()

    def check_rows(self) -> None:
        """Compare the target with the rows of all shards that have no events left."""
        for shard, up in self.upstream.items():
            is_late = any(d.shard == shard for d in self.deferred)
            if (
                shard in self.new
                or shard in self.gone
                or shard in self.waiting
                or self.done[shard] < len(up.log)
                or is_late
            ):
                continue
            member = self.group.members[shard]
            late = {each.column for each in member.reloads}
            mine = {key for key, owner in self.owners.items() if owner == shard and key in self.rows}
            assert mine == {*up.rows}, (shard, mine, {*up.rows})
            for key, row in up.rows.items():
                for name, id in member.ids.items():
                    if id in late or name not in row:
                        continue
                    if id not in self.target.names:
                        assert self.may_lack(self.group, shard, id), (shard, name)
                        continue
                    definition = self.target.table.columns[id]
                    assert definition is not None
                    if not definition.is_generated:
                        is_apart = self.group.is_apart(shard, ("column", id))  # its values are converted before its DDL
                        assert self.rows[key][id] == row[name] or is_apart, (shard, key, name, row)

    def check_together(self, with_target: bool = True) -> None:
        """Check that nothing is accepted that a shard lacks: the shards that count are equal, and so is the target."""
        for subject in {subject for m in self.group.members.values() for subject in one.values(m)}:
            counting = [s for s in self.group.counting(subject) if s not in self.gone]
            found = {one.values(self.group.members[s]).get(subject) for s in counting}
            assert len(found) < 2, f"accepted before all shards have it: {subject} {found}"
        late = any(each.reloads for each in self.group.members.values())
        if with_target and self.group.members and self.target.names and not late:
            assert is_equal(self.target, one.wanted_by(self.group, self.target)), (
                "the target is not what its shards are"
            )

    def check_end(self) -> None:
        """Check that nothing waits, all shards and the target are equal, and that no shard stands apart."""
        self.run()
        assert not self.waiting and not self.new, {str(shard): str(each) for shard, each in self.waiting.items()}
        assert is_equal(self.target, one.wanted_by(self.group, self.target))
        if self.policy is Policy.JOIN:
            assert not [str(each) for each in self.open()]
        self.check_rows()


def change_of(texts: Sequence[str], after: PaperTable) -> Change:
    return Change(tuple(ExecutedDdl(text, STRICT) for text in texts), after.structure)


def replace_shard(each: Deferred, names: Mapping[Shard, Shard]) -> Deferred:
    return replace(each, shard=names.get(each.shard, each.shard))
