"""What statements make of a structure, and whether held events fit one: asked of the target and of the files."""

from dataclasses import replace
from typing import Protocol

from unshard.adapters.parquet import Storage
from unshard.binlog import rawrows
from unshard.core.ddl import Ddl, DdlKind, read
from unshard.core.model import TableId, TableSchema
from unshard.core.segment import Statement
from unshard.core.settling import Record
from unshard.core.window import HeldFile
from unshard.errors.ddl import DdlUnreadable, StructureUnknown

STRUCTURAL = (DdlKind.ALTER, DdlKind.INDEX, DdlKind.CREATE_TABLE)


class Shadow(Protocol):
    """Finds the structure behind a statement."""

    def effect(
        self, before: TableSchema | None, statement: Statement, table: TableId, target: TableId | None = None
    ) -> TableSchema:
        """Return the structure of `table` after the statement; raise the server's message if it refuses."""


class ShadowTrial:
    """Fits `units.settle.Trial`."""

    def __init__(self, shadow: Shadow, storage: Storage) -> None:
        self._shadow, self._storage = shadow, storage

    def behind(self, before: TableSchema | None, text: str, record: Record) -> TableSchema:
        """Ask the target about statements that change a structure; all others leave it as it is."""
        statement = replace(record.entry.statement, text=text)
        ddl = _read(statement)
        if ddl.kind in STRUCTURAL:
            return self._shadow.effect(before, statement, ddl.subjects[0], record.entry.target)
        if before is None:
            raise StructureUnknown(str(record.entry.shard), text)
        return before

    def is_create(self, text: str, record: Record) -> bool:
        """Whether the statement makes a table from nothing."""
        try:
            ddl = _read(replace(record.entry.statement, text=text))
        except DdlUnreadable:
            return False
        return ddl.kind is DdlKind.CREATE_TABLE and ddl.like is None

    def misfit(self, file: HeldFile, schema: TableSchema) -> str:
        """Compare the TABLE_MAPs of a raw file."""
        pieces = self._storage.read_batches(file.path, 1, rawrows.WITHOUT_EVENTS)
        return rawrows.misfit(pieces, schema, file.shard.source)


def _read(statement: Statement) -> Ddl:
    return read(statement.text, statement.sql_mode, statement.schema)
