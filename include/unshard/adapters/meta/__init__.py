"""The state of a task in tables of the target: `Meta` has one part for each kind of rows, `MetaReader` only reads.

Conditions are part of the SQL statements, so a run that another run has taken over cannot change anything.
"""

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from unshard.adapters.meta.commandrecords import LockCommands, StatementCommands
from unshard.adapters.meta.database import MetaDatabase, ReadDatabase
from unshard.adapters.meta.loadrecords import Chunks, Conditions, LateIndexes, Rates
from unshard.adapters.meta.lockrecords import Locks
from unshard.adapters.meta.problemrecords import (
    Collisions,
    DeferredRows,
    DeletedShards,
    MissingChanges,
    Reloads,
    RowErrorRecords,
    SuspendedTargets,
)
from unshard.adapters.meta.shardrecords import Structures
from unshard.adapters.meta.sourcerecords import Checkpoints, Defaults, IgnoredRecords, Online, RulesInForce, Sources
from unshard.adapters.meta.taskrecords import ActiveWorkers, PauseStates, Prechecks, Removal, StoredFiles, WritePaths
from unshard.adapters.meta.windowrecords import Windows
from unshard.core.model import Server

if TYPE_CHECKING:
    from unshard.adapters.meta.joinrecords import Joins

__all__ = ["Meta", "MetaReader"]


class MetaReader:
    """The meta tables of one task for code that only reads; may be used by several threads and after a fork."""

    database: ClassVar[type[MetaDatabase]] = ReadDatabase
    """The class with which its parts read and write."""

    def __init__(self, server: Server, schema: str, task: str) -> None:
        self.task, self.schema = task, schema
        self._database = database = self.database(server, schema, task)
        self.sources = Sources(database)
        self.checkpoints = Checkpoints(database)
        self.structures = Structures(database)
        self.schema_defaults = Defaults(database)
        self.ignored = IgnoredRecords(database)
        self.online = Online(database)
        self.chunks = Chunks(database)
        self.conditions = Conditions(database)
        self.rates = Rates(database)
        self.late_indexes = LateIndexes(database)
        self.collisions = Collisions(database)
        self.prechecks = Prechecks(database)
        self.windows = Windows(database)
        self.locks = Locks(database)
        self.pauses = PauseStates(database)
        self.rules = RulesInForce(database)
        self.deferred = DeferredRows(database)
        self.missing = MissingChanges(database)
        self.deleted_shards = DeletedShards(database)
        self.reloads = Reloads(database)
        self.row_errors = RowErrorRecords(database)
        self.suspended_targets = SuspendedTargets(database)
        self.statement_commands = StatementCommands(database)
        self.stored_files = StoredFiles(database)
        self.write_paths = WritePaths(database)

    @cached_property
    def joins(self) -> "Joins":
        """The targets in optimistic mode; a command that shows another task does not import what they need."""
        from unshard.adapters.meta.joinrecords import Joins

        return Joins(self._database)

    def refuse_other_version(self) -> None:
        self._database.refuse_other_version()

    def version(self) -> int:
        return self._database.version()

    def close(self) -> None:
        self._database.close()


class Meta(MetaReader):
    """The meta tables of one task; may be used by several threads and after a fork."""

    database = MetaDatabase

    def __init__(self, server: Server, schema: str, task: str) -> None:
        super().__init__(server, schema, task)
        self.lock_commands = LockCommands(self._database)
        self.active_workers = ActiveWorkers(self._database)
        self.removal = Removal(self._database)

    def is_current(self) -> bool:
        return self._database.is_current()

    def migrate(self) -> None:
        self._database.migrate()

    def close(self) -> None:
        self.active_workers.close()
        super().close()
