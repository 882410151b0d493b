"""The state of a task in tables of the target: `Meta` has one part for each kind of rows, `MetaReader` only reads.

Conditions are part of the SQL statements, so a run that another run has taken over cannot change anything.
"""

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from sqlalchemy.dialects.mysql import insert

from unshard.adapters.meta import tables
from unshard.adapters.meta.database import MetaDatabase, ReadDatabase
from unshard.adapters.meta.load.chunks import ChunkReader, Chunks
from unshard.adapters.meta.load.collisions import CollisionReader, Collisions
from unshard.adapters.meta.load.conditions import ConditionReader, Conditions
from unshard.adapters.meta.load.dumprate import RateReader, Rates
from unshard.adapters.meta.load.lateindexes import LateIndexes, LateIndexReader
from unshard.adapters.meta.load.rowerrors import RowErrorRecords
from unshard.adapters.meta.locks.lockcommands import LockCommands
from unshard.adapters.meta.locks.locks import LockReader, Locks
from unshard.adapters.meta.locks.statementcommands import StatementCommandReader, StatementCommands
from unshard.adapters.meta.shards.deletedshards import DeletedShards
from unshard.adapters.meta.shards.ignored import IgnoredReader, IgnoredRecords
from unshard.adapters.meta.shards.online import Online, OnlineReader
from unshard.adapters.meta.shards.schemadefaults import DefaultReader, Defaults
from unshard.adapters.meta.shards.structures import StructureReader, Structures
from unshard.adapters.meta.tasks.activeworkers import ActiveWorkers
from unshard.adapters.meta.tasks.pauses import PauseReader, PauseStates
from unshard.adapters.meta.tasks.prechecks import PrecheckReader, Prechecks
from unshard.adapters.meta.tasks.removal import Removal
from unshard.adapters.meta.tasks.sources import CheckpointReader, Checkpoints, SourceReader, Sources
from unshard.adapters.meta.tasks.storedfiles import StoredFiles
from unshard.adapters.meta.tasks.writepaths import WritePathReader, WritePaths
from unshard.adapters.meta.windows.deferredrows import DeferredRows
from unshard.adapters.meta.windows.missing import MissingChanges
from unshard.adapters.meta.windows.reloads import ReloadReader, Reloads
from unshard.adapters.meta.windows.rules import RulesInForce, RulesReader
from unshard.adapters.meta.windows.suspended import SuspendedTargetReader, SuspendedTargets
from unshard.adapters.meta.windows.windows import WindowReader, Windows
from unshard.core.model import Server

if TYPE_CHECKING:
    from unshard.adapters.meta.locks.join import JoinReader, Joins

__all__ = ["Meta", "MetaReader"]


class MetaReader:
    """The meta tables of one task for code that only reads; may be used by several threads and after a fork."""

    def __init__(self, server: Server, schema: str, task: str) -> None:
        self._read_by(ReadDatabase(server, schema, task))

    def _read_by(self, database: ReadDatabase) -> None:
        self._database = database
        self.task, self.schema = database.task, database.schema
        self.sources = SourceReader(database)
        self.checkpoints = CheckpointReader(database)
        self.structures = StructureReader(database)
        self.schema_defaults = DefaultReader(database)
        self.ignored = IgnoredReader(database)
        self.online = OnlineReader(database)
        self.chunks = ChunkReader(database)
        self.conditions = ConditionReader(database)
        self.rates = RateReader(database)
        self.late_indexes = LateIndexReader(database)
        self.collisions = CollisionReader(database)
        self.prechecks = PrecheckReader(database)
        self.windows = WindowReader(database)
        self.locks = LockReader(database)
        self.pauses = PauseReader(database)
        self.rules = RulesReader(database)
        self.deferred = DeferredRows(database)
        self.missing = MissingChanges(database)
        self.deleted_shards = DeletedShards(database)
        self.reloads = ReloadReader(database)
        self.row_errors = RowErrorRecords(database)
        self.suspended_targets = SuspendedTargetReader(database)
        self.statement_commands = StatementCommandReader(database)
        self.stored_files = StoredFiles(database)
        self.write_paths = WritePathReader(database)

    @cached_property
    def joins(self) -> "JoinReader":
        """The targets in optimistic mode; a command that shows another task does not import what they need."""
        from unshard.adapters.meta.locks.join import JoinReader

        return JoinReader(self._database)

    def refuse_other_version(self) -> None:
        """Raise MetaTooNew or MetaTooOld if the tables are not those of this version."""
        self._database.refuse_other_version()

    def version(self) -> int:
        """Return the number of the last migration that was applied to the tables."""
        return self._database.version()

    def close(self) -> None:
        """Close the open connections."""
        self._database.close()


class Meta(MetaReader):
    """The meta tables of one task; may be used by several threads and after a fork."""

    database: ClassVar[type[MetaDatabase]] = MetaDatabase
    """The class with which its parts read and write."""
    _database: MetaDatabase
    sources: Sources
    checkpoints: Checkpoints
    structures: Structures
    schema_defaults: Defaults
    ignored: IgnoredRecords
    online: Online
    chunks: Chunks
    conditions: Conditions
    rates: Rates
    late_indexes: LateIndexes
    collisions: Collisions
    prechecks: Prechecks
    windows: Windows
    locks: Locks
    pauses: PauseStates
    rules: RulesInForce
    reloads: Reloads
    suspended_targets: SuspendedTargets
    statement_commands: StatementCommands
    write_paths: WritePaths

    def __init__(self, server: Server, schema: str, task: str) -> None:
        database = self.database(server, schema, task)
        self._read_by(database)
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
        self.lock_commands = LockCommands(database)
        self.pauses = PauseStates(database)
        self.reloads = Reloads(database)
        self.rules = RulesInForce(database)
        self.active_workers = ActiveWorkers(database)
        self.removal = Removal(database)
        self.suspended_targets = SuspendedTargets(database)
        self.statement_commands = StatementCommands(database)
        self.write_paths = WritePaths(database)

    @cached_property
    def joins(self) -> "Joins":
        """The targets in optimistic mode."""
        from unshard.adapters.meta.locks.join import Joins

        return Joins(self._database)

    def is_current(self) -> bool:
        """Whether the meta tables exist and have this version."""
        return self._database.is_current()

    def migrate(self) -> None:
        """Create or update the meta tables; idempotent, and safe in several processes at once."""
        self._database.migrate()

    def register(self, config_hash: str) -> None:
        """Record the task and the configuration that it runs with."""
        row = {"task": self.task, "config_hash": config_hash, "created_at": tables.NOW, "updated_at": tables.NOW}
        newer = {"config_hash": config_hash, "updated_at": tables.NOW}
        with self._database.transaction() as connection:
            connection.execute(insert(tables.task).values(row).on_duplicate_key_update(newer))

    def close(self) -> None:
        """Close the open connections."""
        self.active_workers.close()
        super().close()
