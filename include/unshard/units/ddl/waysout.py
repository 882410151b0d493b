"""The ways out of a conflict, and of the wait of a new shard, with the structures that they are judged by."""

from typing import TYPE_CHECKING, Any

from unshard.core.ddl.lock import DdlLock, LockDecision, LockState, Way
from unshard.core.ddl.shardgroup import chain
from unshard.units.ddl.scene import LockView, Scene

if TYPE_CHECKING:
    from unshard.core.ddl.waysout import Conflict


def shown(scene: Scene, lock: DdlLock) -> LockView:
    """Return a lock as it is shown to operators."""
    decision = scene.decide(lock)
    return scene.facts_as(LockView, lock, decision, **_ways_of(scene, lock, decision))


def _ways_of(scene: Scene, lock: DdlLock, decision: LockDecision) -> dict[str, Any]:
    """Return the fields `ways`, `barred` and `extension` of a `LockView`, if they are not the usual ones."""
    if decision.state is LockState.CONFLICT:
        return _of_conflict(conflict_of(scene, lock, decision))
    if decision.state is LockState.UNDECIDED and lock.target not in scene.joined:
        return _of_new_shard(scene, lock, decision)
    return {}


def conflict_of(scene: Scene, lock: DdlLock, decision: LockDecision) -> "Conflict | None":
    """Return the conflict of a lock with the structures of its group; None if it has none."""
    if not decision.conflicts:
        return None
    from unshard.core.ddl import waysout

    members = waysout.concerned(scene.members(lock.target))
    present = scene.structure_of(lock)
    schemas = scene.schemas_of({*waysout.digests(members, lock), *filter(None, [present])})
    return waysout.Conflict(members, lock, scene.pending_skips, decision.conflicts, schemas, present)


def _of_conflict(conflict: "Conflict | None") -> dict[str, Any]:
    if conflict is None:
        return {}
    from unshard.core.ddl import waysout

    found = waysout.ways_out(conflict)
    extension = waysout.extension(conflict) if Way.EXTENDED in found.offered else ()
    return {"ways": found.offered, "barred": found.barred, "extension": extension}


def _of_new_shard(scene: Scene, lock: DdlLock, decision: LockDecision) -> dict[str, Any]:
    group = scene.members(lock.target)
    new = next((state for state in group if state.shard in decision.ready), None)
    if new is None or not new.queue[0].is_alone or not new.queue[0].after:
        return {}
    from unshard.core.ddl.waysout import place  # brings the tokenizer

    entry, present = new.queue[0], scene.structure_of(lock)
    # Each shard is at the structure before its first queued DDL, and the target has its columns.
    shown = {present} if present else {entry.before, *(chain(state)[0] for state in group if state is not new)} - {""}
    schemas = scene.schemas_of({entry.after, *shown})
    statements = place(lock.target, schemas[entry.after], [schemas[digest] for digest in shown])
    if not statements:
        return {}
    barred = (Way.NOTHING, f"rows of {new.shard} would have no place in {lock.target}")
    return {"ways": (Way.PLACED,), "barred": (barred,), "extension": statements}
