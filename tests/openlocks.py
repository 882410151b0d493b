"""The open locks of a task."""

from unshard.units.ddl import coordinate
from unshard.units.ddl.lockstore import Store
from unshard.units.ddl.scene import LockFacts


def open_locks(meta: Store) -> tuple[LockFacts, ...]:
    """Do everything that is due for all locks, except executing DDL; return the open ones."""
    scene = coordinate.observe(meta)
    return tuple(map(scene.facts, scene.locks))
