"""A task with `shard-mode: optimistic`, run step by step; a minimal coordinator decides its DDL with core.join."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.livetask import LiveTask
from unshard.adapters import mysql
from unshard.adapters.structures import read_schema
from unshard.config import ShardMode
from unshard.core.ddl.queue import EntryState, ShardState
from unshard.core.join.decision import Change, Decision, contracting, decide, executed, steps_to_join, wanted
from unshard.core.join.difference import Step, Target, apply, target_of
from unshard.core.join.group import begin, intended
from unshard.core.join.joined import Accepted, ChangeKind, Completion, JoinedTarget, JoinStatement, ShardStep
from unshard.core.join.statements import alter_texts
from unshard.core.model import TableId
from unshard.core.rows.lineage import ExecutedDdl
from unshard.units.work import Work
from unshard_demo.servers import MariaDb


@dataclasses.dataclass
class JoinedTask(LiveTask):
    """Shards as in LiveTask; their targets follow the join."""

    def work(self) -> Work:
        found = super().work()
        task = dataclasses.replace(found.task, shard_mode=ShardMode.OPTIMISTIC)
        return dataclasses.replace(found, task=task)

    def start(self) -> None:
        """Store the groups of all targets, and make each target the join of its shards."""
        for target in {state.target for state in self.states()}:
            mine = [state for state in self.states() if state.target == target]
            schemas = self.work().structures({state.structure for state in mine})
            group = begin({state.shard: schemas[state.structure] for state in mine})
            present = self.present(target)
            names = {id: name for id, name in wanted(group).names.items() if name in {n.lower() for n in present.names}}
            found = steps_to_join(group, target_of(present, names))
            after = self.alter(target, (*found.first, *found.expanding), target_of(present, names))
            accepted = {state.shard: Accepted(state.last_seq) for state in mine}
            self.work().meta.joins.begin(JoinedTarget(target, group, after.names, accepted=accepted))

    def states(self) -> tuple[ShardState, ...]:
        return self.work().meta.structures.shards()

    def present(self, target: TableId):
        with contextlib.closing(mysql.connect(self.work().target)) as connection:
            return read_schema(connection, target)

    def joined(self, target: TableId) -> tuple[JoinedTarget, Target]:
        found = self.work().meta.joins.get(target)
        return found, target_of(self.present(target), found.names)

    def alter(self, target: TableId, steps: Sequence[Step], present: Target) -> Target:
        after = apply(steps, present)
        texts = alter_texts(target, steps, after.names) if steps else ()
        self.target.run("DO 1", *texts)
        return after

    def coordinate(self) -> bool:
        """Decide the first DDL of each shard, then contract where nothing hinders it; return whether anything moved."""
        moved = False
        for state in self.states():
            pending = [entry for entry in state.queue if entry.state is EntryState.PENDING]
            if pending:
                moved = self.accept(state, pending[0]) or moved
        for target in {state.target for state in self.states()}:
            moved = moved or self.contract(target)
        return moved

    def accept(self, state: ShardState, entry) -> bool:
        joined, present = self.joined(state.target)
        after = self.work().structures({entry.after})[entry.after]
        change = Change((ExecutedDdl(entry.statement.text, entry.statement.sql_mode),), after)
        decided = decide(joined.group, present, state.shard, change)
        if decided.decision not in (Decision.EXPAND, Decision.NOTHING):
            raise AssertionError(f"{state.shard} {entry.statement.text}: {decided} {entry.reason}")
        if decided.first and any(each.held for each in self.states()):
            return False
        steps = (*decided.first, *decided.steps)
        self.change(joined, present, steps, intended(joined.group, decided.group), ChangeKind.EXPAND)
        joined, present = self.joined(state.target)
        group = executed(decided.group, decided.first)
        step = ShardStep(state.shard, Accepted(entry.seq, entry.location), group.members[state.shard])
        resolved = ((state.shard, entry.seq),)
        assert self.work().meta.joins.complete(joined, Completion(group, joined.names, (step,), resolved))
        return True

    def contract(self, target: TableId) -> bool:
        joined, present = self.joined(target)
        steps = contracting(joined.group, present)
        if not steps or any(each.queue or each.held for each in self.states() if each.target == target):
            return False
        self.change(joined, present, steps, joined.group, ChangeKind.CONTRACT)
        joined, _ = self.joined(target)
        assert self.work().meta.joins.complete(joined, Completion(executed(joined.group, steps), joined.names))
        return True

    def change(self, joined: JoinedTarget, present: Target, steps: Sequence[Step], group, kind: ChangeKind) -> None:
        if not steps:
            return
        after = apply(steps, present)
        texts = alter_texts(joined.target, steps, after.names)
        names = tuple((name, id) for id, name in after.names.items())
        statements = tuple(JoinStatement(text, "", "", names) for text in texts)
        change = self.work().meta.joins.intend(joined, group, kind, "a test", statements)
        for number, text in enumerate(texts):
            self.target.run(text)
            self.work().meta.joins.advance(joined.target, dataclasses.replace(change, done=number))

    # --- assertions

    def assert_union(self, group: str) -> int:
        """Compare the target with the union of its shards by the columns of each shard's ids."""
        joined, _ = self.joined(TableId(f"{self.name}_to", group))
        members = {str(shard.table): member for shard, member in joined.group.members.items()}
        total = 0
        for source, name in self.shards[group]:
            ids = members[name].ids
            own = ", ".join(f"`{column}`" for column in ids)
            there = ", ".join(f"`{joined.names[id]}`" for id in ids.values())
            mine = self.sources[source].run(f"SELECT {own} FROM {name} ORDER BY id")
            keys = ", ".join(str(row[list(ids).index("id")]) for row in mine) or "NULL"
            found = self.target.run(f"SELECT {there} FROM {self.table(group)} WHERE id IN ({keys}) ORDER BY id")
            assert mine == found, (name, mine, found)
            total += len(mine)
        ((count,),) = self.target.run(f"SELECT count(*) FROM {self.table(group)}")
        assert int(count) == total
        return total

    def assert_equal(self, group: str) -> None:
        """Assert that all shards and the target have equal structures, and that nothing is open."""
        joined, present = self.joined(TableId(f"{self.name}_to", group))
        found = steps_to_join(joined.group, present)
        assert not (found.first or found.expanding or found.contracting), found
        assert not [state for state in self.states() if state.queue or state.held]
        self.assert_union(group)


@contextlib.contextmanager
def joined_task(
    name: str, folder: Path, servers: Sequence[MariaDb], body: str, shards: int = 2, **made: object
) -> Iterator[JoinedTask]:
    """Make a task of the group `t` with that many shards on each source; the target is the last of `servers`."""
    *sources, target = servers
    task = JoinedTask(name, folder, {f"s{number}": one for number, one in enumerate(sources, 1)}, target, ["t"])
    try:
        numbers = {
            (source, "t"): [10 * place + number for number in range(1, shards + 1)]
            for place, source in enumerate(task.sources, 1)
        }
        task.make({"t": body}, numbers, **made)
        task.start()
        yield task
    finally:
        task.drop()
