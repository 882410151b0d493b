"""The open locks of a task."""

from unshard.adapters.meta import Meta
from unshard.units.ddl import coordinate
from unshard.units.ddl.scene import LockFacts


def open_locks(meta: Meta) -> tuple[LockFacts, ...]:
    """Do everything that is due for all locks, except executing DDL; return the open ones."""
    scene = coordinate.observe(meta)
    return tuple(map(scene.facts, scene.locks))
