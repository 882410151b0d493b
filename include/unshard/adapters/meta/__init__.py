"""The state of a task in tables of the target: `Meta` has one part for each kind of rows, `MetaReader` only reads.

Conditions are part of the SQL statements, so a run that another run has taken over cannot change anything.

`PreviewMeta` is for a caller that plans without doing. Planning a window stores structures, schema defaults, findings
about unknown structures, and targets that go on (units.window.sync). Here these stay in memory, so the same code plans
the next window and writes nothing. Every other write raises an error, because no transaction can be opened.
"""

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from unshard.adapters.meta.commandrecords import LockCommands, StatementCommands
from unshard.adapters.meta.cutoverrecords import Cutovers
from unshard.adapters.meta.database import MetaDatabase, ReadDatabase
from unshard.adapters.meta.eventrecords import Events
from unshard.adapters.meta.judgedranges import JudgedRanges
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
from unshard.adapters.meta.sourcerecords import (
    Checkpoints,
    DefaultChange,
    Defaults,
    IgnoredRecords,
    OnlineTableRecords,
    RulesInForce,
    Sources,
)
from unshard.adapters.meta.taskrecords import ActiveWorkers, PauseStates, Prechecks, Removal, StoredFiles, WritePaths
from unshard.adapters.meta.windowrecords import Windows
from unshard.core.ddl.issuedcommands import IssuedCommand
from unshard.core.ddl.queue import ShardState, UnnamedShard
from unshard.core.ddl.reconcile import Finding, ShardWithUnknowns, with_findings
from unshard.core.model import Server, Shard, TableId, TableSchema
from unshard.core.task.state import EVERYTHING, PendingWork
from unshard.core.window.suspension import SuspendedTarget

if TYPE_CHECKING:
    from unshard.adapters.meta.joinrecords import JoinedTargets

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
        self.online = OnlineTableRecords(database)
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
        self.judged_ranges = JudgedRanges(database)
        self.cutovers = Cutovers(database)
        self.events = Events(database)

    @cached_property
    def joins(self) -> "JoinedTargets":
        """The targets in optimistic mode; a command that shows another task does not import what they need."""
        from unshard.adapters.meta.joinrecords import JoinedTargets

        return JoinedTargets(self._database)

    def refuse_other_version(self) -> None:
        self._database.refuse_other_version()

    def version(self) -> int:
        """Return the version of the tables."""
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

    def create_tables(self) -> None:
        """Create the meta tables; idempotent, and safe in several processes at once."""
        self._database.create_tables()

    def close(self) -> None:
        self.active_workers.close()
        super().close()


class PreviewMeta(Meta):
    """The meta tables of one task, of which a preview changes no row."""

    database = ReadDatabase

    def __init__(self, server: Server, schema: str, task: str) -> None:
        super().__init__(server, schema, task)
        self.structures = _Structures(self._database)
        self.schema_defaults = _Defaults(self._database)
        self.suspended_targets = _SuspendedTargets(self._database)


class _Structures(Structures):
    """Keeps new structures and findings in memory."""

    def __init__(self, database: MetaDatabase) -> None:
        super().__init__(database)
        self._findings: dict[Shard, tuple[ShardWithUnknowns, Sequence[Finding]]] = {}
        self._named: dict[Shard, UnnamedShard] = {}

    def put(self, schema: TableSchema) -> str:
        self._known[schema.digest] = schema
        return schema.digest

    def settle(self, shard: ShardWithUnknowns, findings: Sequence[Finding]) -> None:
        self._findings[shard.shard] = shard, findings

    def name_columns(self, before: UnnamedShard, after: UnnamedShard) -> None:
        self._named[after.shard] = after

    def planned_shards(
        self, source: str, named: Collection[TableId] | None, pending: PendingWork = EVERYTHING
    ) -> tuple[ShardState, ...]:
        return tuple(map(self._found, super().planned_shards(source, named, pending)))

    def _found(self, state: ShardState) -> ShardState:
        if found := self._named.get(state.shard):
            state = found.of(state)
        return with_findings(state, *self._findings[state.shard]) if state.shard in self._findings else state


class _Defaults(Defaults):
    """Stores no change of a default."""

    def add(self, source: str, change: DefaultChange) -> None:
        """Forget the change: planning itself remembers it as long as it needs it."""


class _SuspendedTargets(SuspendedTargets):
    """Keeps in memory which targets go on."""

    def __init__(self, database: MetaDatabase) -> None:
        super().__init__(database)
        self._lifted: set[tuple[str, TableId]] = set()

    def all(self, source: str | None = None, *, and_lifted: bool = False) -> tuple[SuspendedTarget, ...]:
        stops = super().all(source, and_lifted=and_lifted)
        return tuple(stop for stop in stops if and_lifted or (stop.source, stop.target) not in self._lifted)

    def lifted(self, source: str) -> tuple[TableId, ...]:
        also = {target for each, target in self._lifted if each == source}
        return tuple(sorted({*super().lifted(source), *also}))

    def lift(self, stop: SuspendedTarget, command: IssuedCommand | None = None) -> bool:
        self._lifted.add((stop.source, stop.target))
        return True
