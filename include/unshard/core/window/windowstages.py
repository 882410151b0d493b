"""Explains a planned window: for each shard and target the effect and its reason, as `unshard plan` prints them.

| rows of a shard                                   | reason                                                       |
|---------------------------------------------------|--------------------------------------------------------------|
| are for a suspended target                        | the error that suspended the target                          |
| come after a pending DDL that an open lock is for | the lock, and what the lock waits for                        |
| come after another pending DDL                    | the lock of the target, else that no lock is open yet        |
| come after a DDL that the window itself queues    | that DDL, and the open lock that is for it                   |
| have an unknown structure                         | the next window finds it before it releases them             |
| come after older held rows                        | these rows are not applied yet, and the order is kept        |

The stages of a window: derived from its plan, and from what an attempt at it has found out.

| an attempt                                            | the stages that are left                                     |
|-------------------------------------------------------|--------------------------------------------------------------|
| has not begun                                         | begin, create targets, move rows, commit, sweep              |
| found rows that contradict the structure of a shard   | plan again, begin, create targets, move rows, commit, sweep  |
| found targets that refuse their rows                  | suspend, begin, create targets, move rows, commit, sweep     |
| the same, and all these targets were altered since    | begin, create targets, move rows, commit, sweep              |
| has moved all rows                                    | commit, sweep                                                |

A window with a statement that deletes the rows of a shard (`drop-shard-rows: delete`) does so before `commit`.

`begin` is repeated in each attempt because it raises the epoch: a writer of the attempt before can then write nothing.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from unshard.core.ddl.lock import named
from unshard.core.ddl.queue import EntryState, HeldFile, QueueEntry, ShardState, WholeChange
from unshard.core.model import Shard, TableId
from unshard.core.shown import amount, one_line, size
from unshard.core.stages import Detail, Stage
from unshard.core.window.plan import Contradiction, Disposition, Plan, StructureChange
from unshard.core.window.suspension import TargetRefused


class WindowStep(StrEnum):
    """The steps of a window."""

    PLAN_AGAIN = "plan-again"
    """Replace the plan by one that holds the rows of shards whose structure they contradict."""
    SUSPEND = "suspend"
    """Suspend targets that refuse their rows; the others go on."""
    BEGIN = "begin"
    """Persist the plan and raise the epoch of the source."""
    CREATE_TARGETS = "create-targets"
    """Create the target tables of shards that are the first of their group."""
    MOVE = "move"
    """Run one Spark job that holds, releases and applies rows."""
    DELETE_ROWS = "delete-rows"
    """Delete the rows of dropped and truncated shards from merged targets."""
    COMMIT = "commit"
    """Write checkpoint, queue entries, structures and held files in one transaction."""
    SWEEP = "sweep"
    """Remove files that the meta tables no longer name."""


WindowStage = Stage[WindowStep, tuple[TableId, ...]]
"""Its values are the targets that it changes apart from rows: those to create or to suspend."""


class Done(IntEnum):
    """The last stage that an attempt at a window has finished."""

    NOTHING = 0
    BEGUN = 1
    CREATED = 2
    MOVED = 3
    DELETED = 4
    COMMITTED = 5
    SWEPT = 6


@dataclass(frozen=True, slots=True)
class Attempt:
    """How far an attempt at a window has come, and what has stopped the attempt before it."""

    done: Done = Done.NOTHING
    is_again: bool = False
    """The plan was persisted before this attempt."""
    contradictions: tuple[Contradiction, ...] = ()
    refused: tuple[TargetRefused, ...] = ()
    """Targets that refuse their rows and have not been altered since."""


FIRST = Attempt()


def following(plan: Plan, attempt: Attempt = FIRST) -> tuple[WindowStage, ...]:
    """Return the stages that are left, by the table of the module; none for an empty plan."""
    if plan.is_empty:
        return ()
    deleted = f"delete the rows of {len(plan.deletions)} dropped or truncated shards, in bounded transactions"
    stages: tuple[WindowStage, ...] = (
        _begin(attempt),
        _create_targets(plan),
        Stage(WindowStep.MOVE, _moved(plan), ()),
        Stage(WindowStep.DELETE_ROWS, deleted, ()),
        Stage(WindowStep.COMMIT, _committed(plan), ()),
        Stage(WindowStep.SWEEP, "remove files of released and dropped rows, and relay segments before the window", ()),
    )
    left = (stage for stage in stages[attempt.done :] if plan.deletions or stage.kind is not WindowStep.DELETE_ROWS)
    return (*_repair(attempt), *left)


def _repair(attempt: Attempt) -> tuple[WindowStage, ...]:
    if attempt.contradictions:
        shards = ", ".join(sorted({str(each.shard) for each in attempt.contradictions}))
        text = f"plan the window again, because rows of {shards} contradict the tracked structure; no target has rows"
        return (Stage(WindowStep.PLAN_AGAIN, text, ()),)
    if attempt.refused:
        targets = tuple(sorted({each.target for each in attempt.refused}))
        names = ", ".join(sorted(map(str, targets)))
        text = f"suspend {names}, because it refuses rows of the window; its rows are held"
        return (Stage(WindowStep.SUSPEND, text, targets),)
    return ()


def _begin(attempt: Attempt) -> WindowStage:
    text = "persist the plan and raise the epoch, so that a retry runs this plan and older writers are refused"
    if attempt.is_again:
        text = "raise the epoch; the plan is persisted already, and the same plan runs again"
    return Stage(WindowStep.BEGIN, text, ())


def _create_targets(plan: Plan) -> WindowStage:
    targets = tuple(sorted({change.target for change in plan.first_of_group}))
    text = "no target table to create"
    if targets:
        names = ", ".join(map(str, targets))
        text = f"create {names} unless it exists, because a shard is the first of its group"
    elif plan.schemas:
        text = f"follow {len(plan.schemas)} statements about schemas on the target"
    return Stage(WindowStep.CREATE_TARGETS, text, targets)


def _moved(plan: Plan) -> str:
    if not plan.moves_rows:
        return "no rows to move, so no Spark job runs"
    if plan.borders:
        sections = len(plan.borders) + 1
        return f"run one Spark job that applies new rows in {sections} sections, each committed before the next one"
    safe = " in safe mode, because the dump may have seen the rows" if plan.safe else ""
    return f"run one Spark job that applies released and new rows{safe}, and writes held rows to files"


def _committed(plan: Plan) -> str:
    moved = f"the checkpoint at {plan.ends}" if plan.ends != plan.begins else "the checkpoint"
    return f"write {moved}, queue entries, structures and held files in one transaction"


# --- the explanation of a planned window


@dataclass(frozen=True, slots=True)
class LockHold:
    """An open lock as the reason why rows are held."""

    id: str
    fingerprint: str
    waits: str
    """What the lock waits for, in one sentence."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The state that explains a plan."""

    shards: Mapping[Shard, ShardState] = field(default_factory=dict)
    locks: Mapping[TableId, LockHold] = field(default_factory=dict)
    suspended: Mapping[TableId, str] = field(default_factory=dict)
    """Targets that take no rows of the source, with the error."""


def explain(stage: WindowStage, plan: Plan, around: Surroundings) -> tuple[Detail, ...]:
    """Return the effects of a stage on shards and targets."""
    match stage.kind:
        case WindowStep.MOVE:
            return (*_released(plan), *_applied(plan), *_held(plan, around), *kept(plan, around))
        case WindowStep.DELETE_ROWS:
            return tuple(_deleted(plan))
        case WindowStep.COMMIT:
            return (*_queued(plan, around), *_changed(plan), *_passed_over(plan))
    return ()


def _released(plan: Plan) -> Iterator[Detail]:
    for release in plan.releases:
        rows = sum(file.rows for file in release.files)
        text = f"release {_told(release.files)} of {release.shard} into {release.target}: nothing holds them any more"
        yield Detail("release", text, release.shard, release.target, rows=rows)


def _applied(plan: Plan) -> Iterator[Detail]:
    found: dict[TableId, set[Shard]] = {}
    for each in _dispositions(plan):
        if each.hold is None:
            found.setdefault(each.target, set()).add(each.shard)
    for target, shards in sorted(found.items()):
        yield Detail("apply", f"apply new rows of {named(sorted(shards))} to {target}", target=target)


def _held(plan: Plan, around: Surroundings) -> Iterator[Detail]:
    for each in _dispositions(plan):
        if each.hold is not None:
            why, lock, ddl = _reason(each.shard, each.target, each.structure, plan, around)
            text = f"hold new rows of {each.shard} for {each.target}: {why}"
            yield Detail("hold", text, each.shard, each.target, lock, ddl)


def _deleted(plan: Plan) -> Iterator[Detail]:
    for each in plan.deletions:
        text = f"delete the rows of {each.shard} from {each.target}, because the source ran `{one_line(each.text)}`"
        yield Detail("delete", text, each.shard, each.target, ddl=one_line(each.text))


def kept(plan: Plan, around: Surroundings) -> Iterator[Detail]:
    """Yield the held rows that the window leaves where they are."""
    released = {file.path for release in plan.releases for file in release.files}
    gone = released | {file.path for drop in plan.drops for file in drop.files}
    deleted = {each.shard for each in plan.deletions}
    for shard, state in sorted(around.shards.items()):
        files = [file for file in state.held if file.path not in gone]
        if shard.source == plan.source and files and shard not in deleted:
            why, lock, ddl = _reason(shard, state.target, files[0].structure, plan, around)
            text = f"keep {_told(files)} of {shard} held: {why}"
            yield Detail("keep", text, shard, state.target, lock, ddl, sum(file.rows for file in files))


def _dispositions(plan: Plan) -> Iterator[Disposition]:
    seen = set()
    for each in (disposition for read in plan.reads for disposition in read.dispositions):
        key = each.shard, each.hold is None
        if key not in seen:
            seen.add(key)
            yield each


def _reason(shard: Shard, target: TableId, structure: str, plan: Plan, around: Surroundings) -> tuple[str, str, str]:
    if target in around.suspended:
        return f"the target is suspended: {one_line(around.suspended[target])}", "", ""
    state, lock = around.shards.get(shard), around.locks.get(target)
    if state is not None and state.queue:
        return _behind(state.queue[0], lock)
    if queued := [entry for entry in plan.queued if entry.shard == shard]:
        first = min(queued, key=lambda entry: entry.seq)
        ddl = one_line(first.routed)
        if lock is not None and lock.fingerprint == first.fingerprint:
            return f"this window queues `{ddl}`, which lock {lock.id} is for ({lock.waits})", lock.id, ddl
        return f"this window queues `{ddl}`", "", ddl
    if not structure:
        return "the next window finds their structure first; for that it may read the source, a plan does not", "", ""
    return "older held rows of the shard are applied first", "", ""


def _behind(entry: QueueEntry, lock: LockHold | None) -> tuple[str, str, str]:
    ddl = one_line(entry.routed)
    if lock is None:
        return f"no lock is open yet for the pending `{ddl}`", "", ddl
    if entry.fingerprint == lock.fingerprint:
        return f"lock {lock.id} holds them until `{ddl}` is resolved ({lock.waits})", lock.id, ddl
    return f"`{ddl}` is pending after lock {lock.id} or in conflict with it ({lock.waits})", lock.id, ddl


def _queued(plan: Plan, around: Surroundings) -> Iterator[Detail]:
    for entry in plan.queued:
        ddl, lock = one_line(entry.routed), around.locks.get(entry.target)
        is_for = lock is not None and lock.fingerprint == entry.fingerprint
        why = f": {one_line(entry.reason)}" if entry.reason else ""
        group = f"lock {lock.id} is for it" if lock and is_for else "the group must agree before the target gets it"
        if entry.state is EntryState.RESOLVED:
            group = "a command skips it, and its effect on the shard is not known yet"
        if entry.is_alone:
            group = "it concerns this shard only"
        if entry.whole is not WholeChange.NONE:
            group = "the target is one-to-one"
        text = f"queue `{ddl}` of {entry.shard}, because {group}{why}"
        yield Detail("queue", text, entry.shard, entry.target, lock.id if lock and is_for else "", ddl)


def _changed(plan: Plan) -> Iterator[Detail]:
    for change in plan.structures:
        deleted = {each.shard for each in plan.deletions}
        yield from _change(change, {entry.shard: entry for entry in plan.queued}, deleted)
    for rename in plan.renames:
        yield Detail("rename", f"rename {rename.shard} to {rename.to}", rename.shard)
    for drop in plan.drops:
        rows = sum(file.rows for file in drop.files)
        text = f"drop {_told(drop.files)} of {drop.shard}, because an operator has dropped the shard"
        yield Detail("drop", text, drop.shard, rows=rows)


def _change(
    change: StructureChange, queued: Mapping[Shard, QueueEntry], deleted: Collection[Shard]
) -> Iterator[Detail]:
    shard, target = change.shard, change.target
    if change.structure is None:
        last = queued.get(shard)
        rows = "follow it when its DDL is executed" if last and last.whole.removes else "stay in the target"
        rows = "are deleted" if shard in deleted else rows
        text = f"{shard} leaves the group of {target}, because it was dropped or renamed; its rows {rows}"
        yield Detail("leave", text, shard, target)
    elif change.joins:
        yield Detail("join", f"{shard} joins the group of {target}", shard, target)
    elif shard not in queued:
        yield Detail("follow", f"{shard} gets a new structure; its DDL is not executed on the target", shard, target)


def _passed_over(plan: Plan) -> Iterator[Detail]:
    for each in plan.schemas:
        yield Detail("schema", f"{each.kind} {each.schema} on the target")
    if plan.ignored:
        yield Detail("ignore", f"pass over {amount(plan.ignored)} DDL of shards on purpose")
    if plan.passed:
        text = f"pass over {amount(plan.passed)} row events of dropped shards and of sequences"
        yield Detail("ignore", text, rows=plan.passed)
    for unread in plan.unread:
        text = f"write down `{one_line(unread.text)}`, which cannot be read and names no shard"
        yield Detail("ignore", text, ddl=one_line(unread.text))
    for command in plan.applied_commands:
        text = f"use command {command.number} of an operator for `{one_line(command.text)}` at {command.location}"
        yield Detail("command", text, ddl=one_line(command.text))


def _told(files: "tuple[HeldFile, ...] | list[HeldFile]") -> str:
    """`12 rows (3.1 KiB)`; a raw file has events whose rows are not counted."""
    what = "row events" if any(file.is_raw for file in files) else "rows"
    return f"{amount(sum(file.rows for file in files))} held {what} ({size(sum(file.bytes for file in files))})"
