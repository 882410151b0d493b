"""A command about an unreadable DDL does not apply to a readable DDL after it."""

from tests.scenario.world import World, structure
from unshard.core.ddl.lock import LockState
from unshard.core.model import TableId
from unshard.operate.command import Skip
from unshard.units.ddl import coordinate


def test_a_readable_ddl_that_is_skipped_before_its_structure_is_known_has_its_effect() -> None:
    world, shard, target = World([("shard_*.t_*", "shard.t")]), TableId("shard_1", "t_1"), TableId("shard", "t")
    world.add_table("s1", shard, "id int, v int")
    world.change("s1", shard, "odd", "comment x")
    world.change("s1", shard, "ddl", "add column c int")
    while world.window("s1"):
        pass
    coordinate.observe(world.meta)
    assert world.lock(target).state is LockState.UNDECIDED
    world.order(Skip(world.lock(target).id))
    # No window was planned in between, so the effect of the first command on the shard is not known yet.
    world.order(Skip(world.lock(target).id))
    world.lossy = True
    world.change("s1", shard, "+", "1, 2, 3")
    assert world.run() == {}
    (state,) = world.meta.structures.shards()
    assert state.structure == structure("id int, v int, c int").digest
    assert (list(world.target[target].rows.values()), world.executed) == ([{"id": "1", "v": "2"}], [])
