"""Give structures of shards the target's names of columns, after an operator's decision (core.rows.columnnames).

It is the first step of planning a window, when no window of the source is open. Runs in the driver.
"""

import logging
from typing import TYPE_CHECKING

from unshard.core.rows.columnnames import named

if TYPE_CHECKING:
    from unshard.adapters.meta.shards.structures import Structures

log = logging.getLogger(__name__)


def name_columns(structures: "Structures", source: str) -> None:
    """Store the target's names of columns in the structures and later DDLs of the shards of a source."""
    for shard in structures.unnamed_shards(source):
        found, schemas = named(shard, structures.get(shard.digests))
        for schema in schemas:
            structures.put(schema)
        log.info("columns named shard=%s ddls=%s", shard.shard, len(found.entries))
        structures.name_columns(shard, found)
