"""The job of a window's executors: one immutable value, made in the driver before Spark is called.

Everything that can be refused without reading a row is refused at that time, separately for each target: columns
without a counterpart, keys without columns in the shard, engines without transactions.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

from unshard.adapters.parquet import Storage
from unshard.adapters.relayfiles import RelayStore
from unshard.adapters.target import Fence, Writer
from unshard.adapters.target.targetrows import LineForm
from unshard.core.ddl.lineage import filled_names
from unshard.core.ddl.queue import HeldFile
from unshard.core.join.places import JoinedRows
from unshard.core.model import Shard, TableId, TableSchema
from unshard.core.rows.compaction import Collisions
from unshard.core.rules.reshaping import AS_IT_IS, Reshaping
from unshard.core.structures.foreignkeys import ForeignKey, groups_of
from unshard.core.structures.tablekeys import as_filled
from unshard.core.task.state import BegunWindow
from unshard.core.window.plan import Disposition, Plan
from unshard.core.window.suspension import ABOUT_ONE_TARGET, TargetRefused, held_behind, withheld
from unshard.errors import UnshardError
from unshard.errors.rows import EngineNotTransactional
from unshard.units.rows.conversion import Behind, Conversion, conversion, conversion_by_ids


@dataclass(frozen=True, slots=True)
class HeldPart:
    """A file of held rows that is released."""

    ordinal: int
    target: TableId
    file: HeldFile


@dataclass(frozen=True, slots=True)
class BinlogPart:
    """A byte range of a segment."""

    ordinal: int
    segment: str
    file: str
    start: int
    end: int
    dispositions: tuple[Disposition, ...]
    committed: bool = False
    """As in Read."""
    section: int = 0
    first_time: int = 0
    """As in Read."""


Part = HeldPart | BinlogPart
"""A work unit; the ordinals give the order of all rows of the window: releases first."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows to apply, all of one structure and after the same DDL."""

    shard: Shard
    structure: str
    target: TableId
    seq: int | None = None
    """Number of the DDL that held rows wait for; None: they come from the binlog."""


@dataclass(frozen=True)
class WindowJob:
    """A begun window with everything that its executors read and write."""

    task: str
    meta_schema: str
    begun: BegunWindow
    writer: Writer
    storage: Storage
    relay: RelayStore
    collisions: Collisions
    targets: tuple[TableId, ...]
    """The tables to write; executors use their numbers."""
    schemas: tuple[TableSchema, ...]
    shards: tuple[Shard, ...]
    structures: Mapping[str, TableSchema]
    behind: Behind
    """DDL that a forced unlock has executed on the target before some shards reached it."""
    parts: tuple[Part, ...]
    joined: Mapping[TableId, JoinedRows] = field(default_factory=dict)
    """The ids of columns, for targets that follow the join of their shards."""
    reshapings: Mapping[TableId, Reshaping] = field(default_factory=dict)
    """The columns that the names and column mappings of each shard fill or change."""
    partial: frozenset[TableId] = frozenset()
    """Targets that were suspended after they had got some of the window's rows: held rows may be applied again."""
    deferred: frozenset[TableId] = frozenset()
    diverts: bool = False
    """Whether rows that a target cannot take are diverted instead of suspending it."""
    time_zone: str = "+00:00"
    foreign_keys: tuple[ForeignKey, ...] = ()
    """The foreign keys of the target tables, if the task's session checks them."""
    together: tuple[tuple[TableId, ...], ...] = ()
    """Targets with a part of the window, written in the order of the binlog, whose foreign keys may be gone by now."""
    form: LineForm = LineForm.TEXT
    """The form of lines, for columns that have it. Rows that are written in order, or keep values, stay text."""
    is_unsure: bool = False
    """The window begins before P1: the dump may have read tables at moments between its changes."""

    @property
    def plan(self) -> Plan:
        return self.begun.plan

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The targets that foreign keys connect, by number: each group is written in the order of the binlog."""
        groups = groups_of(self.targets, self.foreign_keys, self.together)
        return tuple(tuple(self.targets.index(table) for table in group) for group in groups)

    @cached_property
    def leaders(self) -> Mapping[int, int]:
        """The first target of the group of each target; a target without a group is left out."""
        return {target: group[0] for group in self.groups for target in group}

    @cached_property
    def tracked(self) -> frozenset[int]:
        """The targets with columns of their own, by number: their rows keep the values of these columns."""
        return frozenset(n for n, schema in enumerate(self.schemas) if schema.own and n not in self.leaders)

    @cached_property
    def ranks(self) -> Mapping[int, int]:
        held = [part for part in self.parts if isinstance(part, HeldPart)]
        moments = sorted({(part.file.window, part.file.part) for part in held})
        ranks = {part.ordinal: moments.index((part.file.window, part.file.part)) for part in held}
        return {**{part.ordinal: len(moments) + part.ordinal for part in self.parts}, **ranks}

    @cached_property
    def layouts(self) -> tuple[Conversion, ...]:
        """All column lists that lines of this window can have, each with its conversion."""
        found = {(c.destination.table, _names(c)): c for c in self._conversions.values()}
        return tuple(found.values())

    def by_filled_keys(self) -> "WindowJob":
        """Return the job with structures in which only keys count whose columns its rows fill."""
        filled: dict[TableId, set[str]] = {}
        for rows in set(applied(self.parts)):
            behind = self.behind.get((rows.shard, rows.seq), ())
            extracted = self.reshapings.get(rows.shard.table, AS_IT_IS).extracted
            names = filled.setdefault(rows.target, set())
            names |= {each.column.lower() for each in extracted}
            if rows.target in self.joined:
                names |= self.joined[rows.target].filled
            else:
                names |= filled_names(self.structures[rows.structure].names, behind)
        pairs = zip(self.targets, self.schemas, strict=True)
        return replace(self, schemas=tuple(as_filled(s, filled[t]) if t in filled else s for t, s in pairs))

    def conversion(self, rows: Rows) -> tuple[Conversion, int]:
        found = self._conversions[rows]
        target = rows.target
        return found, self._layout_numbers[target, _names(found)]

    @cached_property
    def _conversions(self) -> dict[Rows, Conversion]:
        return {rows: found for rows, found in self._tried.items() if isinstance(found, Conversion)}

    @cached_property
    def _tried(self) -> dict[Rows, Conversion | UnshardError]:
        schemas = dict(zip(self.targets, self.schemas, strict=True))
        return {rows: self._try(rows, schemas[rows.target]) for rows in applied(self.parts)}

    def _try(self, rows: Rows, schema: TableSchema) -> Conversion | UnshardError:
        behind = self.behind.get((rows.shard, rows.seq), ())
        reshaping = self.reshapings.get(rows.shard.table, AS_IT_IS)
        structure, joined = self.structures[rows.structure], self.joined.get(rows.target)
        number = self.targets.index(rows.target)
        form = LineForm.TEXT if number in self.tracked or number in self.leaders else self.form
        try:
            if joined is not None:
                into = rows.target, schema
                return conversion_by_ids(rows.shard, rows.seq, structure, into, joined, reshaping).in_form(form)
            return conversion(rows.shard, structure, rows.target, schema, behind, reshaping).in_form(form)
        except ABOUT_ONE_TARGET as error:
            return error

    @cached_property
    def _layout_numbers(self) -> dict[tuple[TableId, tuple[str, ...]], int]:
        return {(c.destination.table, _names(c)): number for number, c in enumerate(self.layouts)}

    @property
    def sections(self) -> Sequence["WindowJob"]:
        """The jobs of the sections, in order; each one is applied like a window."""
        if not self.plan.borders:
            return (self,)
        parts: list[list[Part]] = [[] for _ in range(len(self.plan.borders) + 1)]
        for part in self.parts:
            parts[part.section if isinstance(part, BinlogPart) else 0].append(part)
        plans = (replace(self.plan, number=self.plan.number + number, borders=()) for number in range(len(parts)))
        return [
            replace(self, begun=replace(self.begun, plan=plan), parts=tuple(its))
            for plan, its in zip(plans, parts, strict=True)
        ]

    @property
    def bytes(self) -> int:
        """Number of bytes to read (`bytes_of`)."""
        return bytes_of(*self.parts)

    def refusals(self) -> tuple[TargetRefused, ...]:
        """Return the targets that cannot take their rows, as far as this is known without reading a row."""
        found: list[TargetRefused] = []
        for target, schema in zip(self.targets, self.schemas, strict=True):
            if schema.lacks_transactions:
                found.append(TargetRefused(target, EngineNotTransactional(str(target), schema.lacks_transactions)))
        tried = self._tried.items()
        found += [TargetRefused(rows.target, error) for rows, error in tried if isinstance(error, UnshardError)]
        return tuple(found)


def fence_of(job: WindowJob, target: int) -> Fence:
    """Return the fence that the writer of a target presents."""
    table, plan = job.targets[target], job.plan
    version = job.joined[table].version if table in job.joined else 0
    return Fence(job.meta_schema, job.task, plan.source, table, plan.number, job.begun.epoch, version)


def bytes_of(*parts: Part) -> int:
    """Return the number of bytes to read; a compressed file counts with its file size."""
    return sum(part.file.bytes if isinstance(part, HeldPart) else part.end - part.start for part in parts)


def applied(parts: tuple[Part, ...]) -> Iterator[Rows]:
    """Yield the rows to apply, some of them repeatedly."""
    for part in parts:
        match part:
            case HeldPart(target=target, file=file):
                yield Rows(file.shard, file.structure, target, file.seq)
            case BinlogPart(dispositions=dispositions):
                yield from (Rows(d.shard, d.structure, d.target) for d in dispositions if d.hold is None)


def dropped_since(dropped: Collection[Shard], plan: Plan) -> frozenset[Shard]:
    """Return the shards that an operator has dropped, except those that this window creates again."""
    return frozenset(dropped) - {change.shard for change in plan.structures if change.joins}


def parts_of(
    plan: Plan,
    dropped: Collection[Shard] = (),
    stopped: Collection[TableId] = (),
    last: Mapping[Shard, int] = MappingProxyType({}),
) -> tuple[Part, ...]:
    """Number the work units of a plan: released files, then byte ranges.

    Dropped shards are left out, because their rows may be the reason why the window fails. Rows for suspended targets
    are held after the newest DDL (`last`) of their shard.
    """
    releases = [r for r in plan.releases if r.shard not in dropped and r.target not in stopped]
    behind = held_behind(plan, last)
    reads = [
        replace(r, dispositions=withheld((d for d in r.dispositions if d.shard not in dropped), stopped, behind))
        for r in plan.reads
    ]
    released = [(release.target, file) for release in releases for file in release.files]
    held = [HeldPart(number, target, file) for number, (target, file) in enumerate(released)]
    borders = [border.reads for border in plan.borders]
    sections = [bisect_right(borders, number) for number in range(len(reads))]
    ranges = [
        (read, section, bounds)
        for read, section in zip(reads, sections, strict=True)
        if read.dispositions
        for bounds in read.ranges
    ]
    read = [
        BinlogPart(
            number, read.segment, read.file, start, end, read.dispositions, read.committed, section, read.first_time
        )
        for number, (read, section, (start, end)) in enumerate(ranges, len(held))
    ]
    return (*held, *read)


def _names(found: Conversion) -> tuple[str, ...]:
    return tuple(column.name for column in found.destination.columns)
