"""A task with `shard-mode: optimistic` that is run step by step."""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.livetask import LiveTask
from unshard.adapters import mysql
from unshard.adapters.structures import read_schema
from unshard.config import ShardMode
from unshard.core.ddl.queue import ShardState
from unshard.core.join.decision import steps_to_join
from unshard.core.join.difference import Target, target_of
from unshard.core.join.joined import JoinedTarget
from unshard.core.join.tables import features
from unshard.core.model import TableId
from unshard.units.ddl.execute import OnTarget
from unshard_demo.servers import MariaDb

FIRST, SECOND = ("s1", 11), ("s2", 21)
"""The shards of a task with one on each of two sources."""


@dataclasses.dataclass
class JoinedTask(LiveTask):
    """Shards as in LiveTask; their targets follow the join."""

    mode: ShardMode = ShardMode.OPTIMISTIC

    def states(self) -> tuple[ShardState, ...]:
        return self.work().meta.structures.shards()

    def joined(self, group: str) -> tuple[JoinedTarget, Target]:
        """Return what is stored of a target, and its table by ids."""
        target = TableId(f"{self.name}_to", group)
        found = self.work().meta.joins.get(target)
        with contextlib.closing(mysql.connect(self.work().target)) as connection:
            present = read_schema(connection, target)
        asked = {each for member in found.group.members.values() for each in features(member.structure.create_sql)}
        lacks = OnTarget(self.work().target, self.meta_schema).lacks(frozenset(asked))
        return found, target_of(present, found.names, lacks)

    # --- assertions

    def assert_union(self, group: str) -> int:
        """Compare the target with the union of its shards by the columns of each shard's ids."""
        joined, _ = self.joined(group)
        return assert_joined_union(joined, self.sources, self.shards[group], self.target, self.table(group))

    def assert_equal(self, group: str) -> None:
        """Assert that all shards and the target have equal structures, and that nothing is open."""
        joined, present = self.joined(group)
        found = steps_to_join(joined.group, present)
        assert not (found.first or found.expanding or found.contracting), found
        assert not [state for state in self.states() if state.queue or state.held]
        self.assert_union(group)


def assert_joined_union(
    joined: JoinedTarget,
    sources: Mapping[str, MariaDb],
    shards: Iterable[tuple[str, str]],
    target: MariaDb,
    table: str,
) -> int:
    """Compare a target with the union of its shards, given by source and name, by the columns of each shard's ids."""
    members = {(shard.source, str(shard.table)): member for shard, member in joined.group.members.items()}
    total = 0
    for source, name in shards:
        ids = members[source, name].ids
        own = ", ".join(f"`{column}`" for column in ids)
        there = ", ".join(f"`{joined.names[id]}`" for id in ids.values())
        mine = sources[source].run(f"SELECT {own} FROM {name} ORDER BY id")
        keys = ", ".join(str(row[list(ids).index("id")]) for row in mine) or "NULL"
        found = target.run(f"SELECT {there} FROM {table} WHERE id IN ({keys}) ORDER BY id")
        assert mine == found, (name, mine, found)
        total += len(mine)
    ((count,),) = target.run(f"SELECT count(*) FROM {table}")
    assert int(count) == total
    return total


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
        yield task
    finally:
        task.drop()


def run(task: JoinedTask, shard: tuple[str, int], *texts: str) -> None:
    """Run statements on a shard, given by its source and the number of its table, for which `{}` stands."""
    source, number = shard
    task.sources[source].run("DO 1", *(text.format(f"{task.name}.t_{number}") for text in texts))
