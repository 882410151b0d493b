"""Give structures of shards the target's names of columns, after an operator's decision (core.ddl.columnnames).

It is the first step of planning a window, when no window of the source is open. Runs in the driver.
"""

import logging
from collections.abc import Iterable
from typing import Protocol

from unshard.core.ddl.columnnames import named
from unshard.core.ddl.queue import UnnamedShard
from unshard.core.model import TableSchema

log = logging.getLogger(__name__)


class NamedStructures(Protocol):
    """The part of the meta store that keeps structures and their shards."""

    def unnamed_shards(self, source: str) -> tuple[UnnamedShard, ...]:
        """Return the shards whose structures lack the target's names of columns."""

    def name_columns(self, before: UnnamedShard, after: UnnamedShard) -> None:
        """Store the structures of a shard with these names."""

    def get(self, digests: Iterable[str]) -> dict[str, TableSchema]:
        """Return the structures of those digests."""

    def put(self, schema: TableSchema) -> str:
        """Store a structure and return its digest."""


def name_columns(structures: NamedStructures, source: str) -> None:
    """Store the target's names of columns in the structures and later DDLs of the shards of a source."""
    for shard in structures.unnamed_shards(source):
        found, schemas = named(shard, structures.get(shard.digests))
        for schema in schemas:
            structures.put(schema)
        log.info("columns named shard=%s ddls=%s", shard.shard, len(found.entries))
        structures.name_columns(shard, found)
