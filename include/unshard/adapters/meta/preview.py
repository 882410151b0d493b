"""The meta tables for a caller that plans without doing: it reads them and keeps in memory what planning would write.

Planning a window stores structures, schema defaults, findings about unknown structures, and targets that go on
(units.window.sync). Here these stay in memory, so the same code plans the next window and writes nothing. Every other
write raises an error, because no transaction can be opened.
"""

from collections.abc import Collection, Sequence

from unshard.adapters.meta import Meta
from unshard.adapters.meta.database import MetaDatabase, ReadDatabase
from unshard.adapters.meta.problemrecords import SuspendedTargets
from unshard.adapters.meta.shardrecords import Structures
from unshard.adapters.meta.sourcerecords import DefaultChange, Defaults
from unshard.core.ddl.issuedcommands import IssuedCommand
from unshard.core.ddl.queue import ShardState, UnnamedShard
from unshard.core.ddl.reconcile import Finding, ShardWithUnknowns, with_findings
from unshard.core.model import Server, Shard, TableId, TableSchema
from unshard.core.task.state import EVERYTHING, PendingWork
from unshard.core.window.suspension import SuspendedTarget


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
        self, source: str, named: Collection[TableId] | None, beside: PendingWork = EVERYTHING
    ) -> tuple[ShardState, ...]:
        return tuple(map(self._found, super().planned_shards(source, named, beside)))

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

    def lift(self, stop: SuspendedTarget, order: IssuedCommand | None = None) -> bool:
        self._lifted.add((stop.source, stop.target))
        return True
