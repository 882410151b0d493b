"""A meta store in memory: the same atomic steps as adapters.meta, and a point of death before and after each.

tests/integration/ddl/test_scenarios_on_meta.py compares it with the real one: it runs every case on both.
"""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from tests.scenario.memory_commands import MemoryCommands
from tests.scenario.memory_joins import JoinRows, MemoryJoins
from tests.scenario.memory_locks import NOW, MemoryLocks
from unshard.adapters.meta.lockrecords import Execution
from unshard.core import codec
from unshard.core.ddl.issuedcommands import IssuedCommand
from unshard.core.ddl.lock import DdlLock
from unshard.core.ddl.queue import EntryState, HeldFile, OperatorDecision, QueueEntry, ShardState, releasable
from unshard.core.ddl.reconcile import Finding, Record, ShardWithUnknowns, structures_of
from unshard.core.model import Location, Shard, TableId, TableSchema
from unshard.core.task.state import BegunWindow, Checkpoint, Phase, SourceState
from unshard.core.window.plan import Plan, StructureChange
from unshard.core.window.suspension import SuspendedTarget
from unshard.errors.meta import FencedOut, WindowMismatch


@dataclass
class ShardRow:
    target: TableId
    digest: str
    last_seq: int = 0
    has_left: bool = False
    shard_uid: str = ""
    dropped: bool = False


@dataclass
class EntryRow:
    entry: QueueEntry
    lock: str | None = None


@dataclass
class Rows:
    """Everything that survives a death."""

    epochs: dict[str, int] = field(default_factory=dict)
    checkpoints: dict[str, Checkpoint] = field(default_factory=dict)
    schemas: dict[str, TableSchema] = field(default_factory=dict)
    shards: dict[Shard, ShardRow] = field(default_factory=dict)
    entries: dict[tuple[Shard, int], EntryRow] = field(default_factory=dict)
    held: list[HeldFile] = field(default_factory=list)
    open: dict[str, str] = field(default_factory=dict)
    fences: dict[tuple[str, TableId], tuple[int, int]] = field(default_factory=dict)
    locks: dict[str, DdlLock] = field(default_factory=dict)
    members: dict[tuple[str, Shard], str] = field(default_factory=dict)
    parted: set[tuple[str, Shard]] = field(default_factory=set)
    """Pending skips of shards that had another DDL at their heads."""
    orders: list[tuple[str, IssuedCommand]] = field(default_factory=list)
    history: list[Execution] = field(default_factory=list)
    joins: JoinRows = field(default_factory=JoinRows)

    def is_same(self, shard: Shard, shard_uid: str) -> bool:
        """Whether the shard still has the name: another shard may have got it since."""
        return shard in self.shards and self.shards[shard].shard_uid == shard_uid


def number_of(file: HeldFile) -> tuple[Shard, int, int, int]:
    return file.shard, file.seq, file.window, file.part


class MemoryMeta:
    """Implements the part of `adapters.meta.Meta` that coordination needs, and the parts that a window needs."""

    def __init__(self, tick: Callable[[str], None], task: str = "sim") -> None:
        self.rows, self.task = Rows(), task
        self._tick = tick
        self.reading: Callable[[str], None] = lambda _: None
        """Called before a process reads what another one may change."""
        self.sources = _Sources(self.rows)
        self.checkpoints = _Checkpoints(self.rows)
        self.structures = _Structures(self)
        self.windows = _Windows(self)
        self.locks = MemoryLocks(self)
        self.joins = MemoryJoins(self)
        self.lock_commands = MemoryCommands(self)
        self.suspended_targets = _Stops()
        self.reloads = _Reloads(self)

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        self._tick(f"before {name}")
        yield
        self._tick(f"after {name}")

    def claim(self, target: TableId, begun: BegunWindow) -> bool:
        """Take the fence of a target for a window, as the data writer does in its transaction."""
        source = begun.plan.source
        window, epoch = self.rows.fences[source, target]
        if epoch != begun.epoch:
            raise FencedOut(source, begun.plan.number, begun.epoch, epoch)
        if window >= begun.plan.number:
            return False
        self.rows.fences[source, target] = begun.plan.number, epoch
        return True


class _Stops:
    def all(self) -> tuple[SuspendedTarget, ...]:
        return ()


class _Reloads:
    """No column is ever reloaded."""

    def __init__(self, meta: MemoryMeta) -> None:
        self._meta = meta

    def due(self, target: TableId, columns: Collection[str], since: datetime) -> tuple[Shard, ...]:
        return tuple(state.shard for state in self._meta.structures.shards() if state.target == target)


class _Checkpoints:
    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def get(self, source: str) -> Checkpoint | None:
        return self._rows.checkpoints.get(source)

    def start(self, source: str, location: Location) -> None:
        self._rows.checkpoints.setdefault(source, Checkpoint(location, "", 0, 0, NOW))


class _Structures:
    def __init__(self, meta: "MemoryMeta") -> None:
        self._rows, self._step, self._meta = meta.rows, meta.step, meta

    def put(self, schema: TableSchema) -> str:
        self._rows.schemas[schema.digest] = schema
        return schema.digest

    def get(self, wanted: Iterable[str]) -> dict[str, TableSchema]:
        return {digest: self._rows.schemas[digest] for digest in wanted}

    def uid_of(self, change: StructureChange) -> str:
        return f"{change.shard.table} {change.location}"

    def record(self, shard: Shard, target: TableId, location: Location, digest: str) -> None:
        self._rows.shards[shard] = ShardRow(target, digest, shard_uid=f"{shard.table} {location}")

    def shards(self, source: str | None = None, target: TableId | None = None) -> tuple[ShardState, ...]:
        self._meta.reading("shards")
        rows = sorted(
            (shard, row)
            for shard, row in self._rows.shards.items()
            if target in (None, row.target) and source in (None, shard.source)
        )
        queues: dict[Shard, list[QueueEntry]] = defaultdict(list)
        for (shard, _), entry in sorted(self._rows.entries.items()):
            if entry.lock is None:
                queues[shard].append(entry.entry)
        states = [self._state(shard, row, queues[shard]) for shard, row in rows]
        return tuple(state for state in states if not state.has_left or state.queue or state.held)

    def is_pending(self) -> bool:
        return any(row.lock is None for row in self._rows.entries.values())

    def planned_shards(self, source: str, named: Collection[TableId] | None) -> tuple[ShardState, ...]:
        return tuple(
            state
            for state in self.shards()
            if named is None or state.shard.table in named or releasable(state) or state.is_dropped
            if named is None or state.shard.source == source
        )

    def unknown_shards(self, source: str) -> tuple[ShardWithUnknowns, ...]:
        found = [
            self._unsettled(shard, row)
            for shard, row in sorted(self._rows.shards.items())
            if shard.source == source and not row.dropped
        ]
        unknown = [
            one
            for one in found
            if one.held
            or not self._rows.shards[one.shard].digest
            or any(not record.entry.after for record in one.records)
        ]
        return tuple(one for one in unknown if one.records)

    def _unsettled(self, shard: Shard, row: ShardRow) -> ShardWithUnknowns:
        own = [(seq, row) for (s, seq), row in self._rows.entries.items() if s == shard]
        records = tuple(self._record(row) for _, row in sorted(own, key=lambda item: item[0]))
        held = tuple(file for file in self._rows.held if file.shard == shard and not file.structure)
        return ShardWithUnknowns(shard, row.target, records, held, row.shard_uid)

    def _record(self, row: EntryRow) -> Record:
        lock = self._rows.locks.get(row.lock or "")
        if row.entry.verdict is not OperatorDecision.NONE or lock is None:
            return Record(self._present(row), row.entry.verdict, row.entry.replacement)
        return Record(self._present(row), lock.verdict, lock.replacement)

    @staticmethod
    def _present(row: EntryRow) -> QueueEntry:
        return replace(row.entry, state=EntryState.RESOLVED if row.lock else EntryState.PENDING)

    def settle(self, shard: ShardWithUnknowns, findings: Sequence[Finding]) -> None:
        with self._step("settle structures"):
            if not self._rows.is_same(shard.shard, shard.shard_uid):
                return
            for finding in findings:
                row = self._rows.entries[shard.shard, finding.seq]
                if not row.entry.after:
                    before = finding.before or finding.after
                    row.entry = replace(row.entry, before=before, after=finding.after)
                    if finding.reason:
                        row.entry = replace(
                            row.entry, reason=finding.reason, verdict=OperatorDecision.NONE, replacement=()
                        )
                        self._rows.members.pop((row.lock or "", shard.shard), None)
                        row.lock = None
            known = structures_of(findings, shard.records)
            self._rows.held[:] = [
                replace(file, structure=known.get(file.seq, ""))
                if file.shard == shard.shard and not file.structure
                else file
                for file in self._rows.held
            ]
            state, last = self._rows.shards[shard.shard], max(record.entry.seq for record in shard.records)
            if not state.digest and state.last_seq == last:
                state.digest = known.get(last, "")

    def _state(self, shard: Shard, row: ShardRow, queue: Sequence[QueueEntry]) -> ShardState:
        held = sorted((f for f in self._rows.held if f.shard == shard), key=lambda f: (f.seq, f.window, f.part))
        return ShardState(
            shard,
            row.target,
            row.digest,
            None,
            tuple(queue),
            row.last_seq,
            tuple(held),
            row.has_left,
            row.shard_uid,
            row.dropped,
        )


class _Windows:
    def __init__(self, meta: MemoryMeta) -> None:
        self._rows, self._step = meta.rows, meta.step

    def open(self, source: str) -> Plan | None:
        return codec.loads(Plan, self._rows.open[source]) if source in self._rows.open else None

    def begin(self, source: str, plan: Plan) -> BegunWindow:
        with self._step("begin"):
            epoch = self._rows.epochs[source] = self._rows.epochs[source] + 1
            begun = self.open(source) or plan
            checkpoint = self._rows.checkpoints[source]
            if (begun.begins, begun.number) != (checkpoint.location, checkpoint.window + 1):
                raise WindowMismatch(source, str(begun.begins), str(checkpoint.location))
            self._rows.open[source] = codec.dumps(begun)
            for target in begun.targets:
                self._rows.fences.setdefault((source, target), (0, epoch))
            for key, (window, _) in self._rows.fences.items():
                if key[0] == source:
                    self._rows.fences[key] = window, epoch
        return BegunWindow(begun, epoch)

    def commit(self, begun: BegunWindow, held: Sequence[HeldFile], rows_applied: int) -> None:
        plan, rows = begun.plan, self._rows
        with self._step("commit"):
            if rows.epochs[plan.source] != begun.epoch:
                raise FencedOut(plan.source, plan.number, begun.epoch, rows.epochs[plan.source])
            released = {number_of(file) for release in plan.releases for file in release.files}
            kept = [file for file in rows.held if number_of(file) not in released]
            rows.held[:] = kept + [replace(f, safe=plan.safe) for f in held]
            for drop in plan.drops:
                self._drop(drop.shard)
            for change in plan.structures:
                self._change(change)
            for entry in plan.queued:
                rows.entries[entry.shard, entry.seq] = EntryRow(entry)
                rows.shards[entry.shard].last_seq = entry.seq
            for change in plan.structures:
                self._newcomer(change)
            self._rename({rename.shard: Shard(plan.source, rename.to) for rename in plan.renames})
            rows.checkpoints[plan.source] = Checkpoint(plan.ends, plan.gtid, plan.number, plan.last_time, NOW)
            del rows.open[plan.source]

    def _drop(self, shard: Shard) -> None:
        if self._rows.shards[shard].dropped:
            self._rows.held[:] = [file for file in self._rows.held if file.shard != shard]
            for (owner, _), row in self._rows.entries.items():
                row.lock = "dropped" if owner == shard and row.lock is None else row.lock

    def _change(self, change: StructureChange) -> None:
        row = self._rows.shards.setdefault(change.shard, ShardRow(change.target, ""))
        if change.joins:
            row.last_seq, row.dropped, row.shard_uid = 0, False, f"{change.shard.table} {change.location}"
            for key in [key for key in self._rows.entries if key[0] == change.shard]:
                del self._rows.entries[key]
        row.has_left = change.structure is None
        row.digest = row.digest if change.structure is None else change.structure

    def _newcomer(self, change: StructureChange) -> None:
        if not change.joins:
            return
        members, peer = self._rows.members, change.peer
        for key in [key for key in members if key[1] == change.shard]:
            del members[key]
            self._rows.parted.discard(key)
        if peer is None:
            return
        shard_uid = {row.shard_uid: shard for shard, row in self._rows.shards.items() if shard.source == peer.source}
        peer = shard_uid.get(change.peer_uid, peer)
        resolved = [self._rows.entries[peer, seq].lock for seq in change.expects]
        inherited = [
            lock for (lock, shard), state in members.items() if shard == peer and state in ("pending", "waived")
        ]
        for lock in (*resolved, *inherited):
            if lock in self._rows.locks:
                members.setdefault((lock, change.shard), "pending")

    def _rename(self, names: Mapping[Shard, Shard]) -> None:
        """Rename all at once; the state under a new name belongs to a shard that has left or is renamed, too."""
        rows, gone = self._rows, set(names.values()) - names.keys()
        for target in {rows.shards[shard].target for shard in names} & rows.joins.targets.keys():
            rows.joins.targets[target].version += 1

        def called(shard: Shard) -> Shard:
            return names.get(shard, shard)

        rows.shards = {called(shard): row for shard, row in rows.shards.items() if shard not in gone}
        rows.entries = {
            (called(shard), seq): replace(row, entry=replace(row.entry, shard=called(shard)))
            for (shard, seq), row in rows.entries.items()
            if shard not in gone
        }
        rows.members = {(lock, called(s)): state for (lock, s), state in rows.members.items() if s not in gone}
        rows.parted = {(lock, called(s)) for (lock, s) in rows.parted if s not in gone}
        rows.held[:] = [replace(file, shard=called(file.shard)) for file in rows.held]
        rows.joins.rename(names, gone)
        for lock in rows.locks.values():
            rows.locks[lock.id] = replace(lock, entry=replace(lock.entry, shard=called(lock.entry.shard)))


class _Sources:
    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def add(self, source: str, identity: str, flavor: str) -> None:
        self._rows.epochs.setdefault(source, 0)

    def all(self) -> tuple[SourceState, ...]:
        return tuple(SourceState(name, "", "mariadb", Phase.SYNC, None, None, 0, NOW) for name in self._rows.epochs)
