"""Plans the next window of one source from values alone.

Segments are walked in order from the checkpoint. In each, the rows of a shard are either applied or held:

| the shard                                           | its rows                                            |
|-----------------------------------------------------|-----------------------------------------------------|
| has nothing pending and nothing held                | are applied                                         |
| has a pending DDL, from before or from this window  | are held after its newest DDL                       |
| has held rows that this window does not release     | are held after its newest DDL (order is kept)       |
| all its held rows are released by this window       | are applied, after the released ones                |
| of transactions that end before its `start`         | are skipped: the dump has them                      |
| goes to a suspended target                          | are held after its newest DDL                       |
| was dropped by an operator                          | are skipped and counted, like its DDL               |
| has a DDL that the task's filters ignore            | are applied or held as before, with their structure |

**Releases** come first, starting with the oldest rows, up to the size of a window. A window that has anything to do
moves on by at least one file or one segment, so a backlog always ends.

**A DDL** of a shard goes to the end of the shard's queue, never directly to the target. The caller finds its effect,
and may ask a server for that. A DDL that only an operator can decide does not stop the window: it is queued with its
reason, and the rows after it are held as events as long as the structure after it is unknown.

| the statement                                               | is queued                                     |
|-------------------------------------------------------------|-----------------------------------------------|
| cannot be read, or changes rows that the binlog hides       | with a reason, structure unknown              |
| is refused by the target on an empty table                  | with the server message, structure unknown    |
| follows one whose structure is unknown                      | without a reason; reconciled with that one    |
| creates a mismatched shard, or one of unknown structure     | with a reason, as a DDL of this shard alone   |
| has a command of an operator (core.ddl.statementcommands)   | not at all (skip), or as the command says     |
| replaces a waiting shard by a mismatched one (OR REPLACE)   | the same, after the entries that wait         |
| is missing in the binlog (sql_log_bin=0): later rows        | with a reason, structure unknown              |
| contradict the structure                                    |                                               |
| may have changed rows without row events                    | with a reason, before all rows of its segment |

If a statement cannot be read, an operator decides about it for each shard that it may concern. If it can concern no
shard, it is skipped and recorded. A missing statement is found while the first attempt at the window reads, before a
target gets any row. Then the window is planned again with a DDL of unknown effect where the contradiction begins.

**A RENAME** ends the window: the window uses the old names, and the commit changes them last. A shard that is dropped
while rows or DDL of it wait is renamed too, so that its name becomes free. In optimistic mode a window also ends before
a shard is created under the name of a dropped one, because rows of both may have other columns.

**TRUNCATE and DROP TABLE** of the only shard of a target are DDLs too (core.ddl.onetoone): the rows after them wait.
With `drop-shard-rows: delete` those of a shard of a merged target begin and end a window: its last step deletes the
rows of the shard, and its commit drops the held ones. So all rows before the statement are applied, held or skipped,
and no row after it is. No other shard has to agree, and no lock is needed.

**Tables that are no shards**: the rows of a SEQUENCE are skipped and counted, under every later name. Statements that
gh-ost or pt-online-schema-change run on a shadow table become DDL of the shard where the shadow takes its place
(core.ddl.online).

**An error** (rows of an unknown table) ends the window before the segment that causes it, so that everything before it
is still applied. It is raised only if that segment is the first.

**Sections** divide a large window: each is committed before the next one, which is read meanwhile. A section has the
size of a window, its own number for the fence, and its own transactions. If something goes wrong in a section, the
window ends before it. So only a window whose plan can be cut between any two segments has more than one section:

| the window                                            | because                                                      |
|-------------------------------------------------------|--------------------------------------------------------------|
| applies rows to one target, and holds none            | one Spark task writes it while it reads                      |
| neither releases nor drops held rows, has no DDL      | its commit changes nothing but the checkpoint                |
| is not in safe mode                                   | a window in safe mode is written as a whole                  |
| has few dispositions                                  | its plan is one value of a meta table                        |

The caller also allows one section only if the task checks foreign keys, or if several tasks read a section.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from unshard.core.ddl.effects import Effect, Joins, SchemaStatement, ShardlessEffect, Undecided, UnreadIgnored
from unshard.core.ddl.names import without_strings
from unshard.core.ddl.online import OnlineStep, OnlineTable, Swapped
from unshard.core.ddl.queue import HeldFile, ShardState, releasable
from unshard.core.ddl.sequences import followed, is_about_sequence
from unshard.core.ddl.statementcommands import CommandKind, StatementCommand, command_for, under
from unshard.core.model import Location, Shard, TableId
from unshard.core.relay.segment import ByteRange, Segment, Statement, require_chain
from unshard.core.window.plan import (
    AppliedCommand,
    Border,
    Contradiction,
    Disposition,
    Drop,
    Plan,
    Read,
    Release,
    UnreadStatement,
    WindowLimits,
)
from unshard.core.window.shardchanges import (
    PlanRules,
    StatementSite,
    Walk,
    apply_effect,
    coordinate,
    enter_alone,
    join_group,
    weight_of,
)
from unshard.errors import UnshardError
from unshard.errors.locks import MismatchedNewShard, UnknownShard
from unshard.errors.rows import RowsContradict

# --- the rows of a segment that a window reads


Contradicted = Mapping[TableId, tuple[Contradiction, ShardState]]
"""Tables whose rows contradict their structure in the segment, each with the state of the shard from there on."""


def reads(source: str, walk: Walk, segment: Segment, rules: PlanRules, contradicted: Contradicted) -> Iterator[Read]:
    """Yield the reads of a segment, with a disposition for each routed table.

    XA transactions that were prepared before and are committed here come first: until their COMMIT no other
    transaction changes their rows.
    """
    for commit in segment.commits:
        own = commit.prepared
        whole = replace(segment, end=commit.end, next_file="", ranges=(ByteRange(own.start, own.end, own.tables),))
        cut = {table: found for table, found in contradicted.items() if found[0].committed}
        if read := _segment_read(source, walk, whole, rules, cut):
            dispositions = tuple(replace(disposition, start=None) for disposition in read.dispositions)
            yield Read(own.segment, own.file, read.ranges, dispositions, True, segment.first_time)
    if read := _segment_read(source, walk, segment, rules, contradicted):
        yield read


def _segment_read(
    source: str, walk: Walk, segment: Segment, rules: PlanRules, contradicted: Contradicted
) -> Read | None:
    apart = walk.sequences | {online_table.table for online_table in walk.online_tables}
    tables = {table for r in segment.ranges for table, _ in r.tables if table not in apart}
    found = {table: target for table in tables if (target := rules.target_of(table))}
    dispositions: list[Disposition] = []
    for table, target in sorted(found.items()):
        state = walk.shards.get(table)
        if state is None or state.has_left:
            raise UnknownShard(str(Shard(source, table)), str(target), str(segment.begins))
        if state.is_dropped or (state.start is not None and segment.ends <= state.start):
            continue
        before = _disposition(state, segment, rules)
        dispositions += _cut(before, *contradicted[table], segment) if table in contradicted else (before,)
    tables = {disposition.shard.table for disposition in dispositions}
    ranges = tuple((r.start, r.end) for r in segment.ranges if any(table in tables for table, _ in r.tables))
    if not ranges:
        return None
    return Read(segment.name, segment.file, ranges, tuple(dispositions), first_time=segment.first_time)


def _disposition(state: ShardState, segment: Segment, rules: PlanRules) -> Disposition:
    waits = state.queue or state.held or not state.structure or state.target in rules.stopped
    hold = state.last_seq if waits else None
    start = state.start if state.start is not None and state.start > segment.begins else None
    return Disposition(state.shard, state.target, state.structure, hold, start)


def _cut(before: Disposition, met: Contradiction, after: ShardState, segment: Segment) -> Iterator[Disposition]:
    """Yield the disposition of the rows before a contradiction, and hold the others raw."""
    raw = replace(before, structure=after.structure, hold=after.last_seq)
    if met.committed or met.location <= segment.begins:
        yield raw
        return
    yield replace(before, until=met.location)
    yield replace(raw, start=met.location if before.start is None else max(before.start, met.location))


# --- the held rows that a window releases


def releases(
    shards: Sequence[ShardState], size: int, retried: Sequence[TableId], together: WindowLimits
) -> tuple[Release, ...]:
    """Take the oldest files of all shards up to the size, at least one; each shard's stay in order.

    Targets that go on after a suspension have a limit of their own (`together`). Within it each is released as a whole,
    one target after the other.
    """
    taken = _oldest(_files(state for state in shards if state.target not in retried), size, math.inf)
    room, rows = together.bytes, together.rows
    for target in retried:
        files = _files(state for state in shards if state.target == target)
        size, count = sum(file.bytes for file in files), sum(file.rows for file in files)
        if room == together.bytes or (size <= room and count <= rows):
            taken |= _oldest(files, room, rows)
            room, rows = room - size, rows - count
    targets = {state.shard: state.target for state in shards}
    return tuple(Release(shard, tuple(taken[shard]), targets[shard]) for shard in sorted(taken))


def _files(shards: Iterable[ShardState]) -> list[HeldFile]:
    return sorted((f for state in shards for f in _decodable(state)), key=lambda f: (f.window, f.shard, f.seq, f.part))


def _oldest(files: Iterable[HeldFile], size: int, rows: float) -> dict[Shard, list[HeldFile]]:
    taken: dict[Shard, list[HeldFile]] = {}
    for file in files:
        size, rows = size - file.bytes, rows - file.rows
        if taken and min(size, rows) < 0:
            break
        taken.setdefault(file.shard, []).append(file)
    return taken


def _decodable(state: ShardState) -> Iterator[HeldFile]:
    """Return the releasable files before the first whose structure is decided but not found yet."""
    return takewhile(lambda file: bool(file.structure), releasable(state))


# --- the sections of a large window


MOST_DISPOSITIONS = 2_000
"""The plan of a window with several sections has at most so many; as JSON each takes about 200 bytes."""


@dataclass(frozen=True, slots=True)
class Sections:
    """The sections of a window up to some segment."""

    begun: Walk
    most: int
    borders: tuple[Border, ...] = ()
    size: int = 0

    def may_end(self, walk: Walk) -> bool:
        return len(self.borders) + 1 < self.most and self.has_only_rows(walk)

    def ended(self, walk: Walk) -> "Sections":
        last_time = max(segment.last_time for segment in walk.passed)
        border = Border(len(walk.reads), walk.passed[-1].ends, walk.passed[-1].gtid, last_time)
        return replace(self, borders=(*self.borders, border), size=0)

    def has_only_rows(self, walk: Walk) -> bool:
        """Whether the window so far applies rows to one target and does nothing else."""
        targets = {disposition.target for read in walk.reads for disposition in read.dispositions}
        count = sum(len(read.dispositions) for read in walk.reads)
        return (
            replace(walk, reads=self.begun.reads, passed=self.begun.passed) == self.begun
            and len(targets) == 1
            and count <= MOST_DISPOSITIONS
            and all(map(_is_applied, walk.reads))
        )


def _is_applied(read: Read) -> bool:
    return not read.committed and all(
        each.hold is None and each.structure and each.until is None for each in read.dispositions
    )


# --- the plan of the next window


def plan_window(
    source: str,
    number: int,
    checkpoint: Location,
    segments: Sequence[Segment],
    shards: Sequence[ShardState],
    rules: PlanRules,
) -> Plan:
    """Return the next window of a source; it is empty if there is no segment and nothing to release.

    `segments` begin at the checkpoint. `shards` are those of all sources: a new shard is compared with all of them.
    """
    require_chain(source, checkpoint, segments)
    own = [state for state in shards if state.shard.source == source]
    due = releases([s for s in own if s.target not in rules.stopped], rules.window_bytes, rules.retried, rules.together)
    released = frozenset(file for release in due for file in release.files)
    peers = tuple(state for state in shards if state.shard.source != source and not state.is_dropped)
    start = Walk(
        {state.shard.table: _without(state, released) for state in own},
        peers,
        sequences=rules.sequences,
        online_tables=rules.online_tables,
    )
    drops = tuple(Drop(state.shard, state.held) for state in own if state.is_dropped and (state.queue or state.held))
    safe = rules.force_safe or (rules.safe_until is not None and checkpoint < rules.safe_until)
    most = 1 if due or drops or safe or rules.contradictions else rules.sections
    sections = Sections(start, most, size=sum(file.bytes for file in released))
    walk, borders = _walk(source, sections, segments, rules)
    return Plan(
        source,
        number,
        checkpoint,
        ends=walk.passed[-1].ends if walk.passed else checkpoint,
        safe=safe or any(file.safe for file in released),
        releases=due,
        reads=walk.reads,
        queued=walk.queued,
        structures=walk.structures,
        gtid=walk.passed[-1].gtid if walk.passed else "",
        last_time=max((segment.last_time for segment in walk.passed), default=0),
        ignored=walk.ignored,
        renames=walk.renames,
        drops=drops,
        passed=walk.passed_rows,
        unread=walk.unread,
        sequences=tuple(sorted(walk.sequences)) if walk.sequences != rules.sequences else None,
        applied_commands=walk.applied_commands,
        orders=tuple(command.number for command in rules.commands),
        online_tables=walk.online_tables if walk.online_tables != rules.online_tables else None,
        schemas=walk.schemas,
        contradictions=rules.contradictions,
        deletions=walk.deletions,
        borders=borders,
    )


def _without(state: ShardState, released: frozenset[HeldFile]) -> ShardState:
    if state.is_dropped:
        return replace(state, queue=(), held=())
    return replace(state, held=tuple(file for file in state.held if file not in released))


def _walk(
    source: str, sections: Sections, segments: Iterable[Segment], rules: PlanRules
) -> tuple[Walk, tuple[Border, ...]]:
    """Read segments until the window is full; releases have taken some bytes of the first section."""
    walk, released = sections.begun, sections.size
    for segment in segments:
        weight = weight_of(segment, rules)
        is_full = bool(walk.passed and weight and sections.size + weight > rules.window_bytes)
        if walk.renames or (is_full and not sections.may_end(walk)):
            break
        if walk.deletions and segment.statement is None:
            break  # its rows come after the deleted ones
        try:
            found = _pass(source, walk, segment, rules)
        except UnshardError:
            if not walk.passed and not released:
                raise
            break
        longer = sections.ended(walk) if is_full else sections
        if longer.borders and not longer.has_only_rows(found):
            break
        if found.deletions and not walk.deletions and walk.passed:
            break  # the rows before it are committed first
        if rules.is_joined and walk.passed and _creates_again(walk, found):
            break
        walk = found
        sections = replace(longer, size=longer.size + weight)
    return walk, sections.borders


def _creates_again(walk: Walk, found: Walk) -> bool:
    """Whether a statement gives a new shard the name of one that this window has known."""
    return any(
        change.joins and change.shard.table in walk.shards for change in found.structures[len(walk.structures) :]
    )


def _pass(source: str, walk: Walk, segment: Segment, rules: PlanRules) -> Walk:
    command = command_for(rules.commands, segment, walk.passed[-1].gtid if walk.passed else rules.history)
    walk = replace(walk, passed=(*walk.passed, segment))
    if segment.statement is None:
        walk = _changed(walk, _StatementContext(source, segment, rules, None, lambda _: False))
        walk = replace(walk, passed_rows=walk.passed_rows + _passed_rows(walk, segment, rules))
        for online_table in walk.online_tables:
            walk = _show(source, walk, online_table, segment, rules)
        return _read(source, walk, segment, rules)
    statement, present = segment.statement, _present(walk)
    before, after = walk.sequences, followed(walk.sequences, statement, present)
    step = rules.online.step(statement, present, walk.online_tables) if rules.online else OnlineStep((), (statement,))
    walk = replace(walk, sequences=after, online_tables=step.online_tables)
    if command is not None:
        applied_commands = AppliedCommand(command.number, segment.begins, without_strings(statement.text))
        walk = replace(walk, applied_commands=(*walk.applied_commands, applied_commands))

    def is_apart(effect: Effect) -> bool:
        return effect.table in step.apart or is_about_sequence(effect, before, after)

    if not step.happens:
        under(command, (), statement.text)
    context = _StatementContext(source, segment, rules, command, is_apart)
    for each in step.happens:
        walk = _happen(walk, each, context)
    return walk


def _changed(walk: Walk, context: "_StatementContext") -> Walk:
    """Let shards wait whose rows a statement of the segment may have changed without row events.

    Their rows of the whole segment wait. The dump has a change from before the shard's `start`.
    """
    segment, rules = context.segment, context.rules
    apart = walk.sequences | {online_table.table for online_table in walk.online_tables}
    found: dict[TableId, tuple[Effect, Statement]] = {}
    for change in segment.changes:
        for effect in rules.effects(change, _present(walk)):
            state = None if isinstance(effect, ShardlessEffect) else walk.shards.get(effect.table)
            is_dumped = state is not None and state.start is not None and segment.ends <= state.start
            if not isinstance(effect, ShardlessEffect) and effect.table not in apart and not is_dumped:
                found.setdefault(effect.table, (effect, change))
    for effect, change in found.values():
        walk = _effect(walk, effect, change, replace(context, segment=replace(segment, end=segment.start)))
    return walk


@dataclass(frozen=True, slots=True)
class _StatementContext:
    """The segment of a statement, and which of its effects are not on shards."""

    source: str
    segment: Segment
    rules: PlanRules
    command: StatementCommand | None
    is_apart: Callable[[Effect], bool]


def _present(walk: Walk) -> dict[TableId, str]:
    """Return the structures of the shards; that of a shard whose DDL is ignored is unknown."""
    return {
        table: "" if state.is_dropped else state.structure for table, state in walk.shards.items() if not state.has_left
    }


def _happen(walk: Walk, what: Statement | Effect | Swapped, context: _StatementContext) -> Walk:
    match what:
        case Statement():
            ask = (context.command and context.rules.ordered) or context.rules.effects
            for effect in under(context.command, ask(what, _present(walk)), what.text):
                if isinstance(effect, SchemaStatement):
                    walk = replace(walk, schemas=(*walk.schemas, effect))
                elif isinstance(effect, UnreadIgnored):
                    unread = UnreadStatement(
                        Location(context.segment.file, context.segment.end), without_strings(what.text)
                    )
                    walk = replace(walk, unread=(*walk.unread, unread))
                elif not context.is_apart(effect):
                    walk = _effect(walk, effect, what, context)
        case Swapped():
            walk = _swap(walk, what, context)
        case _:
            assert context.segment.statement is not None
            walk = _effect(walk, what, context.segment.statement, context)
    return walk


def _effect(walk: Walk, effect: Effect, statement: Statement, context: _StatementContext) -> Walk:
    target = context.rules.target_of(effect.table)
    if target is None:
        return walk
    shard = Shard(context.source, effect.table)
    return apply_effect(
        walk, effect, StatementSite(shard, target, context.segment, statement, context.command, context.rules.rows_of)
    )


def _swap(walk: Walk, swapped: Swapped, context: _StatementContext) -> Walk:
    """Apply the statements of the shadow table to the shard; if they do not lead to its structure, ask an operator.

    A command about the swap is used for the first of these statements; the others are skipped.
    """
    context = replace(context, is_apart=lambda _: False)
    for statement in swapped.online_table.statements:
        walk = _happen(walk, statement, context)
        context = replace(context, command=replace(context.command, kind=CommandKind.SKIP) if context.command else None)
    assert context.rules.online is not None
    arrived = context.rules.online.arrival(swapped, _present(walk).get(swapped.online_table.real, ""))
    return _effect(walk, arrived, swapped.statement, replace(context, command=None)) if arrived else walk


def _show(source: str, walk: Walk, online_table: OnlineTable, segment: Segment, rules: PlanRules) -> Walk:
    """Turn a table into a shard: it has rows, but only its name says that it is a shadow table."""
    target = rules.target_of(online_table.table)
    if online_table.seen or online_table.table not in segment.tables or target is None or online_table.create is None:
        return walk
    walk = replace(walk, online_tables=tuple(other for other in walk.online_tables if other != online_table))
    site = StatementSite(
        Shard(source, online_table.table), target, replace(segment, end=segment.start), online_table.create
    )
    if online_table.structure:
        return join_group(walk, Joins(online_table.table, online_table.structure), site)
    mismatched = MismatchedNewShard(
        str(site.shard), str(target), online_table.create.text, "its structure is not known"
    )
    return enter_alone(walk, "", str(mismatched), "", site)


def _passed_rows(walk: Walk, segment: Segment, rules: PlanRules) -> int:
    """Count the row events of dropped shards and of the sequences that lists and routes would take."""
    dropped = {table for table, state in walk.shards.items() if state.is_dropped}
    counts = (count for piece in segment.pieces for count in piece.tables) if dropped or walk.sequences else ()
    return sum(
        rows
        for table, rows in counts
        if table in dropped or (table in walk.sequences and rules.target_of(table) is not None)
    )


def _read(source: str, walk: Walk, segment: Segment, rules: PlanRules) -> Walk:
    """Decide about the rows of a segment, including shards whose rows contradict their structure from here on."""
    found, contradicted = walk, {}
    for each in rules.contradictions:
        state = found.shards.get(each.shard.table)
        if _is_met(each, segment) and state is not None and state.structure and not state.is_dropped:
            found = coordinate(found, *_unlogged(each, state.target, segment))
            contradicted[each.shard.table] = each, found.shards[each.shard.table]
    return replace(found, reads=(*walk.reads, *reads(source, walk, segment, rules, contradicted)))


def _is_met(found: Contradiction, segment: Segment) -> bool:
    """Whether a window that passes the segment reads the contradicting rows."""
    if not found.committed:
        return found.segment == segment.name
    prepared = (commit.prepared for commit in segment.commits)
    return any((one.segment, one.start) == (found.segment, found.start) for one in prepared)


def _unlogged(found: Contradiction, target: TableId, segment: Segment) -> "tuple[Undecided, StatementSite]":
    """Return the change that is missing in the binlog, and the location where it is assumed.

    Its fingerprint is equal for shards whose rows have the same new columns.
    """
    table, end = found.shard.table, segment.start if found.committed else found.location.position
    reason = str(RowsContradict(str(found.shard), str(found.location), found.words))
    routed, own = (
        f"(not in the binlog) a change of {it} after which its columns are {found.columns}" for it in (target, table)
    )
    change = Undecided(table, reason, routed, f"unlogged change of {target} to {found.columns}")
    statement = Statement(own, table.schema, 0, "utf8mb4", segment.first_time, "SYSTEM")
    return change, StatementSite(found.shard, target, replace(segment, end=end), statement)
