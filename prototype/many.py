"""Measure one decision for many shards: `python -m prototype.many`."""

import time

from prototype import group as one
from prototype import paper
from prototype.group import Policy
from prototype.world import World
from tests.unit.join.rollout import shards
from unshard.core.ddl.lock import DdlLock, decide
from unshard.core.ddl.queue import QueueEntry, ShardState
from unshard.core.model import Location, TableId
from unshard.core.relay.segment import Statement


def with_ids(count: int) -> float:
    world = World(
        dict.fromkeys(
            shards(count, 8), paper.create("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, c VARCHAR(9))")
        ),
        None,
        Policy.TOGETHER,
    )
    for shard in world.upstream:
        world.ddl(shard, "ALTER TABLE t ADD n INT")
    queues = world.queues()
    begun = time.process_time()
    found = one.together(world.group, queues, min(queues), world.needed)
    assert found is not None and len(found.taken) == count
    return time.process_time() - begun


def with_fingerprints(count: int) -> float:
    statement = Statement("ALTER TABLE t ADD n INT", "", 0, "utf8mb4", 1, "SYSTEM")
    target, at, states = TableId("d", "t"), Location("b.1", 4), []
    for shard in shards(count, 8):
        entry = QueueEntry(shard, target, 1, at, statement, statement.text, statement.text, "a", "b")
        states.append(ShardState(shard, target, "b", None, (entry,), 1, ()))
    lock = DdlLock("l", target, 1, states[0].queue[0], None, None)  # type: ignore[arg-type]
    begun = time.process_time()
    assert decide(states, lock, {}).is_executable
    return time.process_time() - begun


for count in (10, 50, 100, 200, 400):
    print(
        f"{count} shards: {with_ids(count):.2f} s with ids, {with_fingerprints(count) * 1000:.1f} ms with fingerprints",
        flush=True,
    )
