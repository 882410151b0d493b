"""The foreign keys that a window must respect, and those that a new target table gets. Runs in the driver.

They count only if the task's session of the target has `foreign_key_checks: 1`.
"""

from collections.abc import Collection

from unshard.adapters import structures
from unshard.core.model import TableId
from unshard.core.structures.foreignkeys import ForeignKey, routed
from unshard.units.work import Work


def enforced_keys(work: Work, targets: Collection[TableId]) -> tuple[ForeignKey, ...]:
    """Return the foreign keys from and to tables of the targets' schemas; none if the session does not check them."""
    if not work.task.checks_foreign_keys or not targets:
        return ()
    with work.target_connection() as connection:
        return structures.read_foreign_keys(connection, targets)


def keys_of_shards(work: Work, source: str, shards: Collection[TableId]) -> tuple[ForeignKey, ...]:
    """Return the foreign keys that new target tables get from their shards, as the source has them at present."""
    if not work.task.checks_foreign_keys:
        return ()
    with work.source_connection(source) as connection:
        found = structures.read_foreign_keys(connection, shards)
    target_of = work.task.instance(source).routing.target_of
    return routed((key for key in found if key.child in shards), target_of)[0]
