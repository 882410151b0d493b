"""Issue an operator's commands to DDL locks: `preview` shows the effects, `give` records the command.

Runs in the driver. The command line, the page and the DAG all use this module. A command only changes recorded state,
in one transaction. The coordinator then acts on that state, in the same call or in its next one. So a recorded command
takes effect even if the process dies, and repeating it changes nothing. A command about one shard's DDL is first pinned
to that DDL, so that a repeated command does not apply to the shard's next DDL.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, assert_never

from unshard.core.ddl.issuedcommands import Cleared, IssuedCommand
from unshard.core.ddl.lock import DdlLock, LockState, Outcome, counted, statements_of
from unshard.core.ddl.queue import OperatorDecision, QueueEntry, ShardState
from unshard.core.ddl.reconcile import adopted, is_refused
from unshard.core.model import Shard
from unshard.core.shown import listed, one_line
from unshard.errors.locks import (
    LockBegun,
    LockResolved,
    LockUndecided,
    NotAnOwner,
    NothingRefused,
    NothingToReplace,
    NotInGroup,
    UnlockOfJoined,
)
from unshard.operate.command import (
    ACTIONS,
    DropShard,
    Force,
    LockCommand,
    Replace,
    Retry,
    Skip,
    recorded,
    shard_argument,
)
from unshard.units.ddl import coordinate
from unshard.units.ddl.scene import NO_SCENE, LockFacts, Scene, find, read_scene

if TYPE_CHECKING:
    from unshard.adapters.meta import Meta
    from unshard.core.ddl.waysout import LockConflict
    from unshard.units.work import Work

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Case:
    meta: "Meta"
    lock: DdlLock
    view: LockFacts
    scene: Scene

    @property
    def members(self) -> tuple[ShardState, ...]:
        return self.scene.members(self.lock.target)

    @property
    def conflict(self) -> "LockConflict | None":
        return self.scene.conflict_of(self.lock, self.scene.decide(self.lock))

    def member(self, shard: Shard) -> ShardState:
        for state in self.members:
            if state.shard == shard:
                return state
        raise NotInGroup(self.lock.id, str(shard), ", ".join(shard_argument(state.shard) for state in self.members))

    def require_not_begun(self) -> None:
        if self.lock.is_begun:
            raise LockBegun(self.lock.id)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The effects of a command as text, and the function that records it; the function returns whether it changed
    anything.
    """

    lines: tuple[str, ...]
    do: Callable[[IssuedCommand], bool]


def pinned(meta: "Meta", command: LockCommand, scene: Scene = NO_SCENE) -> LockCommand:
    """Return the command with the number of the shard's current DDL, if the command is about one shard's DDL.

    The shards are read unless `scene` has the lock.
    """
    if isinstance(command, Skip | Replace) and command.shard is not None and command.seq is None:
        queue = _case(meta, command, scene).member(command.shard).queue
        return replace(command, seq=queue[0].seq if queue else 0)
    return command


def preview(meta: "Meta", command: LockCommand, scene: Scene = NO_SCENE) -> tuple[str, ...]:
    """Return the effects of a command, one sentence per line; raises a coded error if it cannot be carried out.

    The shards are read unless `scene` has the lock.
    """
    case = _case(meta, command, scene)
    if not case.lock.is_open and not isinstance(command, DropShard):
        raise LockResolved(case.lock.id, str(case.lock.outcome or Outcome.EXECUTED))
    return _prepared(case, command).lines


def give(meta: "Meta", command: LockCommand, by: str | Cleared, via: str, reason: str) -> Scene:
    """Record a command and act on it, without executing DDL; return the scene after it.

    Idempotent: a repeated command, or a command to a resolved lock, changes nothing. A command that cannot be carried
    out raises a coded error and is not recorded.
    """
    case = _case(meta, command)
    if case.lock.is_open or isinstance(command, DropShard):
        changed = _prepared(case, command).do(recorded(command, by, via, reason))
        log.info("command %s lock=%s by=%s via=%s new=%s", ACTIONS[type(command)], command.lock, by, via, changed)
    return coordinate.observe(meta)


def _case(meta: "Meta", command: LockCommand, scene: Scene = NO_SCENE) -> _Case:
    lock, scene = find(meta, command.lock, scene, read_scene)  # also the shards of a resolved lock may be dropped
    return _Case(meta, lock, scene.facts(lock), scene)


def _prepared(case: _Case, command: LockCommand) -> _Prepared:
    match command:
        case Force():
            return _force(case, command.owner)
        case Skip(shard=shard, seq=seq):
            return _skip_one(case, shard, seq) if shard else _skip(case)
        case Replace(statements=texts, shard=shard):
            return _replace_one(case, shard, command) if shard else _replace(case, texts)
        case DropShard():
            return _drop(case, command.shard)
        case Retry():
            return _retry(case)
        case _:
            assert_never(command)


def _force(case: _Case, owner: str | None) -> _Prepared:
    view = case.view
    if view.is_joined:
        raise UnlockOfJoined(view.id, str(view.target))
    if view.state is LockState.UNDECIDED:
        raise LockUndecided(view.id, view.reason)
    sources = sorted({shard.source for shard in view.ready})
    if owner is not None and owner not in sources:
        raise NotAnOwner(view.id, owner, ", ".join(sources))
    chosen = owner or view.owner or next(iter(sources), "the owner")
    lines = [f"{chosen} executes on {view.target}: {one_line(text)}" for text in _texts(case.lock)]
    if view.ready:
        lines.append(f"held rows of {listed(view.ready)} are released")
    if view.missing:
        lines.append(
            f"the same DDL is skipped when {listed(view.missing)} reach it; "
            "until then their rows are written by column name into the new structure"
        )
    same = _same_changes(case)
    for entry, as_lock in same:
        lines.append(f"the DDL of {entry.shard} counts as that and is not executed: {one_line(entry.routed)}")
        lines += _named_otherwise(case, as_lock, str(entry.shard))
    if same:
        lines.append("rows from before a DDL that is not executed keep what the executed one gave them")
    left = {entry.shard for entry, _ in same}
    if others := [shard for shard in view.others if shard not in left]:
        lines.append(f"{listed(others)} ran another DDL: the next lock is for that DDL")
    return _Prepared(tuple(lines), lambda command: case.meta.lock_commands.force(view.id, owner, command, same))


def _same_changes(case: _Case) -> list[tuple[QueueEntry, QueueEntry]]:
    """Return the DDLs of shards in conflict that lead to the same columns as the lock's DDL, and as what they count."""
    conflict = None if case.lock.is_begun else case.conflict
    if conflict is None:
        return []
    from unshard.core.ddl.waysout import is_same_change  # brings the tokenizer

    found = (state for state in conflict.members if state.shard in case.view.others)
    same = [(state.queue[0], counted(state.queue[0], case.lock)) for state in found if is_same_change(conflict, state)]
    return [(entry, replace(made, is_unnamed=bool(_new_names(case, entry, made.replacement)))) for entry, made in same]


def _skip(case: _Case) -> _Prepared:
    case.require_not_begun()
    view, late = case.view, (*case.view.missing, *case.view.conflicts)
    lines = [f"nothing is executed on {view.target}; the lock is resolved", *_executed_already(case)]
    if view.ready:
        lines.append(
            f"held rows of {listed(view.ready)} are released; they are written by column name, "
            "and a value without a column in the target suspends the target for that source"
        )
    if late:
        lines.append(f"the same DDL is skipped when {listed(late)} reach it")
    return _Prepared(tuple(lines), lambda command: _decide(case, OperatorDecision.SKIP, (), command))


def _skip_one(case: _Case, shard: Shard, seq: int | None) -> _Prepared:
    state, commands = case.member(shard), case.meta.lock_commands
    if shard in case.lock.exempted:
        return _Prepared((f"{shard} is already exempted from the lock",), lambda _: False)
    if _has_moved(state, seq):
        return _Prepared((f"{shard} is already past that DDL",), lambda _: False)
    if not state.queue:
        line = f"{shard} has reached no DDL: the lock does not wait for it, and it skips the DDL when it reaches it"
        return _Prepared((line,), lambda command: commands.exempt(case.lock.id, shard, command))
    entry = state.queue[0]
    others = [other for other in case.view.ready if other != shard]
    if entry.fingerprint == case.lock.fingerprint and (others or case.lock.is_begun):
        lines = [
            f"the lock does not wait for {shard}; the shard skips the DDL once the lock is resolved",
            f"held rows of {shard} after this DDL wait until then",
        ]
        return _Prepared(tuple(lines), lambda command: commands.exempt(case.lock.id, shard, command))
    lines = [
        f"the DDL of {shard} is skipped, nothing is executed for it: {one_line(entry.routed)}",
        f"held rows of {shard} after this DDL are released; they are written by column name",
    ]
    if entry.fingerprint != case.lock.fingerprint:
        lines.append(f"the lock still waits for {shard}: the skipped DDL is not the lock's DDL")
    else:
        lines.append("no other shard has reached the lock's DDL yet: the lock is withdrawn until one does")
    return _Prepared(tuple(lines), lambda command: commands.skip_head(case.lock, entry, command))


def _replace(case: _Case, statements: tuple[str, ...]) -> _Prepared:
    case.require_not_begun()
    made, view = _made(case, case.lock.entry, statements), case.view
    lines = [
        f"these statements are executed on {view.target}, in this order, in place of `{one_line(view.ddl)}`:",
        *(f"  {one_line(text)}" for text in made.replacement),
        *_executed_already(case),
    ]
    lines += _stated(made)
    lines += _named_otherwise(case, made, "the shards with this DDL")
    if view.ready:
        lines.append(f"they resolve the DDL of {listed(view.ready)}")
    if view.missing:
        lines.append(
            f"the lock waits until {listed(view.missing)} reach the replaced DDL; unlock to execute without them"
        )
    if others := view.others:
        lines.append(
            f"{listed(others)} ran another DDL: the lock stays in conflict until they agree or you "
            "skip or replace their DDL, or unlock"
        )
    if pending := [shard for shard in view.conflicts if shard in view.ready]:
        lines.append(f"{listed(pending)} must skip an earlier DDL first: the lock stays in conflict until you unlock")
    return _Prepared(tuple(lines), lambda command: _decide(case, OperatorDecision.REPLACE, made.replacement, command))


def _replace_one(case: _Case, shard: Shard, command: Replace) -> _Prepared:
    state = case.member(shard)
    case.require_not_begun()
    if _has_moved(state, command.seq):
        return _Prepared((f"{shard} is already past that DDL",), lambda _: False)
    if not state.queue:
        raise NothingToReplace(case.lock.id, str(shard))
    entry = state.queue[0]
    made = _made(case, entry, command.statements)
    if made == entry:
        return _Prepared((f"the DDL of {shard} is already replaced with that",), lambda _: False)
    agrees = made.fingerprint == case.lock.fingerprint
    lines = [
        f"the DDL of {shard} is treated as `{one_line(made.routed)}` instead of `{one_line(entry.routed)}`",
        f"it then {'equals' if agrees else 'differs from'} the lock's DDL: {one_line(case.view.ddl)}",
    ]
    lines += _stated(made)
    lines += _named_otherwise(case, made, str(shard))
    if not agrees and case.view.ready == (shard,):
        lines.append("no other shard has reached the lock's DDL: the lock is withdrawn, and another opens")
    commands = case.meta.lock_commands
    return _Prepared(tuple(lines), lambda command: commands.replace_head(case.lock.id, entry, made, command))


def _stated(made: QueueEntry) -> list[str]:
    from unshard.core.ddl.replacement import CREATE  # brings the tokenizer

    if made.is_alone or not any(map(CREATE.match, made.replacement)):
        return []
    return [f"the shards have the columns of CREATE TABLE after the DDL; {made.target} must have them already"]


def _has_moved(state: ShardState, seq: int | None) -> bool:
    return seq is not None and seq != (state.queue[0].seq if state.queue else 0)


def _drop(case: _Case, shard: Shard) -> _Prepared:
    if any(state.shard == shard and state.is_dropped for state in case.scene.shards):
        return _Prepared((f"{shard} is already dropped",), lambda _: False)
    state = case.member(shard)
    rows = sum(file.rows for file in state.held)
    lines = (
        f"{shard} leaves the group of {state.target} for good; its rows in the target stay as they are",
        f"its {len(state.queue)} queued DDL and {rows} held rows are discarded and not applied",
        "its later rows and DDL are ignored until the table is dropped and created again upstream",
    )
    return _Prepared(lines, lambda command: case.meta.lock_commands.drop_shard(case.lock.id, shard, command))


def _retry(case: _Case) -> _Prepared:
    case.require_not_begun()
    view, lock = case.view, case.lock
    waiting = {*view.ready, *view.conflicts}
    heads = [state.queue[0] for state in case.members if state.queue and state.shard in waiting]
    refused = [entry for entry in heads if is_refused(entry)]
    asked = [entry for entry in heads if not (entry.after or entry.reason)]
    if lock.error is None and not refused:
        if not asked:
            raise NothingRefused(lock.id, one_line(view.reason) or f"it is {view.state}")
        return _Prepared(
            ("a new attempt is already pending: the next windows of its sources make it",), lambda _: False
        )
    lines = [f"{view.target} gets this statement again: {one_line(text)}" for text in _texts(lock)]
    if refused:
        lines.append(f"it is tried on an empty table for {listed([entry.shard for entry in refused])}")
        lines.append("if the target accepts it now, it is a DDL like any other: all shards must reach it")
    lines.append("if the target refuses again, the lock shows the new message")
    return _Prepared(tuple(lines), lambda command: case.meta.lock_commands.retry(lock.id, refused, command))


def _decide(case: _Case, verdict: OperatorDecision, statements: tuple[str, ...], command: IssuedCommand) -> bool:
    with case.meta.locks.exclusive(case.lock.id):
        return case.meta.lock_commands.decide(case.lock.id, verdict, statements, command)


def _made(case: _Case, entry: QueueEntry, statements: tuple[str, ...]) -> QueueEntry:
    from unshard.core.ddl.replacement import replacing  # brings the tokenizer, which the other commands do not need
    from unshard.core.ddl.sessioneffects import without_note

    tables = [state.shard.table for state in case.members]
    is_described = not entry.is_alone or bool(entry.before or entry.after or adopted(case.members, entry.shard))
    routed, fingerprint = replacing(case.lock.id, statements, case.lock.target, tables, entry, is_described)
    if fingerprint == without_note(case.lock.fingerprint):
        fingerprint = case.lock.fingerprint
    return replace(
        entry,
        routed="; ".join(routed),
        fingerprint=fingerprint,
        replacement=routed,
        verdict=OperatorDecision.REPLACE,
        is_unnamed=bool(_new_names(case, entry, routed)),
    )


def _named_otherwise(case: _Case, entry: QueueEntry, shards: str) -> list[str]:
    names = _new_names(case, entry, entry.replacement) if entry.is_unnamed else ""
    return [f"from then on, also for later rows and DDL of {shards}: {names}"] if names else []


def _new_names(case: _Case, entry: QueueEntry, counted: tuple[str, ...]) -> str:
    """Return the columns whose name in the target changes if statements count as a shard's DDL; empty if none does."""
    if not (entry.before and entry.after):
        return ""
    from unshard.core.ddl.columnnames import named_as  # brings the tokenizer

    schemas = case.meta.structures.get({entry.before, entry.after})
    return named_as(entry, counted, schemas[entry.before], schemas[entry.after])


def _texts(lock: DdlLock) -> tuple[str, ...]:
    return statements_of(lock) or (lock.entry.routed,)


def _executed_already(case: _Case) -> list[str]:
    if not case.lock.done:
        return []
    done = [run.ddl for run in case.meta.locks.executions(case.lock.id) if run.outcome in ("executed", "present")]
    return [f"already executed, and stays on the target: {one_line(text)}" for text in done]


def shard_of_lock(meta: "Meta", lock_id: str, text: str, scene: Scene) -> Shard:
    """Return the shard of a lock's group that a command-line argument names; raises NotInGroup."""
    lock, scene = find(meta, lock_id, scene, read_scene)
    group = [state.shard for state in scene.shards if state.target == lock.target]
    for shard in group:
        if text in (shard_argument(shard), str(shard)):
            return shard
    raise NotInGroup(lock_id, text, ", ".join(map(shard_argument, sorted(group))))


def carry_out(work: "Work", command: LockCommand, by: str, via: str, reason: str) -> Scene:
    """Record a command, and execute the lock's DDL if it permits that; return the scene after it."""
    scene = give(work.meta, command, by=by, via=via, reason=reason)
    is_old = isinstance(command, Retry | Replace) and _is_reconciled(work, command.lock, scene)
    if not isinstance(command, Force | Replace | Retry) or work.meta.pauses.get() is not None:
        return scene
    return coordinate.executed(work.meta, work.target, command.lock, coordinate.observe(work.meta) if is_old else scene)


def _is_reconciled(work: "Work", lock: str, scene: Scene) -> bool:
    """Learn the unknown structures of the sources that are at the DDL; return whether one was learnt."""
    from unshard.units.ddl.reconciling import reconcile_structures  # brings the servers and the tokenizer
    from unshard.units.window.statementcontext import trial_of

    is_new = False
    for source in sorted({shard.source for shard in coordinate.facts_of(work.meta, lock, scene).ready}):
        is_new = reconcile_structures(work.meta.structures, source, trial_of(work)) or is_new
    return is_new
