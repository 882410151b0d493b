"""`unshard ddl`: commands about statements of a source's binlog, by position, GTID or the present error.

| the statement                                          | the command is stored                                  |
|--------------------------------------------------------|--------------------------------------------------------|
| is in no window yet                                    | for the next plan (core.ddl.statementcommands)         |
| cannot be planned, so that its source waits there      | the same; the error identifies the statement           |
| is in a lock already                                   | as a command to the lock                               |
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from unshard.adapters.meta.commandrecords import CommandState
from unshard.core.ddl.issuedcommands import IssuedCommand
from unshard.core.ddl.lock import LockState
from unshard.core.ddl.replacement import require_kind, split_statements
from unshard.core.ddl.statement import read_ddl
from unshard.core.ddl.statementcommands import CommandKind, StatementPlace
from unshard.core.model import Location
from unshard.core.relay.segment import Segment
from unshard.core.shown import one_line
from unshard.errors import UnshardError
from unshard.errors.ddl import DdlUnreadable
from unshard.errors.locks import (
    CommandAtNoStatement,
    CommandLate,
    CommandPast,
    CommandSpent,
    NothingStuck,
    PlaceUnreadable,
    ReplacementRefused,
)
from unshard.errors.meta import NotInSync
from unshard.operate import issuing
from unshard.operate.command import LockCommand, Replace, Skip
from unshard.units.ddl import coordinate
from unshard.units.ddl.scene import LockFacts, Scene
from unshard.units.window.sync import next_plan
from unshard.units.work import Work

NO_LOCK = "(none yet)"
FILE_POSITION = re.compile(r"([\w.@-]{0,200}\.\d{1,18}):(\d{1,18})")
MARIADB_GTID = re.compile(r"\d+-\d+-\d+")
MYSQL_GTID = re.compile(r"[0-9a-fA-F-]{36}(:\w+)?:\d+")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of an operator about a statement."""

    kind: CommandKind
    statements: tuple[str, ...]
    sources: tuple[str, ...]
    at: str = ""
    gtid: str = ""
    """Without both: the statement at which each source cannot go on."""


@dataclass(frozen=True, slots=True)
class Step:
    """One command with its effects; `do` carries it out and returns whether it has changed anything."""

    effects: tuple[str, ...]
    do: Callable[[str, str, str], bool]
    """Takes the person, the way (command line, page) and the reason."""


def command_steps(work: Work, asked: Asked) -> tuple[Step, ...]:
    """Return the commands of a request; raises a coded error if no command is possible."""
    _require_readable(asked)
    if asked.at or asked.gtid:
        if len(asked.sources) != 1:
            raise PlaceUnreadable(asked.at or asked.gtid, "binlogs of several sources have nothing in common")
        return (_statement_step(work, _read_place(work, asked.sources[0], asked.at, asked.gtid), asked),)
    found = [step for source in asked.sources for step in _stuck(work, source, asked)]
    if not found:
        raise NothingStuck(", ".join(asked.sources), "its next window can be planned, and no lock asks about its DDL")
    return tuple({step.effects: step for step in found}.values())


def revert(work: Work, number: int) -> Step:
    """Return the step that takes back a command."""
    known = {each.command.number: each for each in work.meta.statement_commands.all()}
    if number not in known or known[number].state is CommandState.USED:
        raise CommandSpent(f"command {number}", "a window has used it" if number in known else "it does not exist")
    effects = (f"{known[number].command} is taken back: the statement is treated as usual again",)
    issued = _issued("revert", {"command": number})
    return Step(effects, lambda *who: work.meta.statement_commands.revert(number, issued(*who)))


def waiting_at(work: Work, source: str, at: str, gtid: str) -> int:
    """Return the number of the command that waits for a place."""
    place = _read_place(work, source, at, gtid)
    for command in work.meta.statement_commands.waiting(source):
        if command.place == place:
            return command.number
    raise CommandSpent(str(place), "no command waits for it")


def _require_readable(asked: Asked) -> None:
    for text in asked.statements:
        try:
            for one in split_statements(text, 0):
                require_kind(NO_LOCK, read_ddl(one, 0, ""))
        except DdlUnreadable as error:
            raise ReplacementRefused(NO_LOCK, one_line(text), error.message) from error


def _read_place(work: Work, source: str, at: str, gtid: str) -> StatementPlace:
    checkpoint = work.meta.checkpoints.get(source)
    if checkpoint is None:
        state = work.meta.sources.get(source)
        raise NotInSync(source, state.phase.value if state else "new")
    if gtid:
        if not (MARIADB_GTID.fullmatch(gtid) or MYSQL_GTID.fullmatch(gtid)):
            raise PlaceUnreadable(gtid, "it is not a GTID")
        if not checkpoint.gtid or (":" in gtid) != (":" in checkpoint.gtid):
            raise PlaceUnreadable(gtid, f"the history of {source} is '{checkpoint.gtid}'")
        return StatementPlace(source, gtid=gtid.lower() if ":" in gtid else gtid)
    found = FILE_POSITION.fullmatch(at)
    if found is None:
        raise PlaceUnreadable(at, "it is not a FILE:POSITION")
    location = Location(found[1], int(found[2]))
    known = checkpoint.location
    if location.server_file.rpartition(".")[0] != known.server_file.rpartition(".")[0]:
        raise PlaceUnreadable(at, f"the binlog of {source} is called like {known.server_file}")
    return StatementPlace(source, location if "@" in found[1] else location.in_generation(known.generation))


# --- a statement that no window has read -----------------------------------------------------------------------


def _statement_step(work: Work, place: StatementPlace, asked: Asked, why: str = "") -> Step:
    _check(work, place)
    segment = _segment(work, place)
    if segment is not None and segment.statement is None:
        raise CommandAtNoStatement(str(place), 0)
    text = (
        f"`{one_line(segment.statement.text)}`" if segment is not None and segment.statement else "the statement there"
    )
    effects = [f"{place}: {why}"] if why else []
    effects.append(
        {
            CommandKind.SKIP: f"{place}: {text} is skipped: nothing is executed for it, and no shard is waited for",
            CommandKind.REPLACE: f"{place}: {text} counts as the statements below, which its group has to agree on",
            CommandKind.INJECT: f"{place}: {text} counts as the statements below, then itself; its group must agree",
        }[asked.kind]
    )
    effects += [f"  {one_line(statement)}" for statement in asked.statements]
    if segment is None:
        effects.append(
            "it is not pulled yet: the command waits until a window comes there, and stops the window at rows"
        )
    details = {"source": place.source, "place": str(place.at or place.gtid), "statements": [*asked.statements]}
    issued = _issued(asked.kind.value, details)
    return Step(
        tuple(effects),
        lambda *who: work.meta.statement_commands.add(
            place, asked.kind, asked.statements, issued(*who), lambda: _check(work, place)
        ),
    )


def _issued(action: str, details: Mapping[str, object]) -> Callable[[str, str, str], IssuedCommand]:
    return lambda by, via, reason: IssuedCommand(f"ddl {action}", by, via, reason, dict(details))


def _check(work: Work, place: StatementPlace) -> None:
    checkpoint, begun = work.meta.checkpoints.one(place.source), work.meta.windows.open(place.source)
    if place.is_before(checkpoint.location, checkpoint.gtid):
        raise CommandPast(str(place), str(checkpoint.location))
    if begun is not None and place.is_before(begun.ends, begun.gtid):
        raise CommandLate(str(place), begun.number)


def _segment(work: Work, place: StatementPlace) -> Segment | None:
    checkpoint = work.meta.checkpoints.one(place.source)
    history = checkpoint.gtid
    for segment in work.store.links(place.source).run(checkpoint.location):
        if place.is_in(segment, history):
            return segment
        history = segment.gtid
    return None


# --- the present error ------------------------------------------------------------------------------------------


def _stuck(work: Work, source: str, asked: Asked) -> Iterator[Step]:
    """Yield a step for the statement at which a source cannot go on, and for each lock that asks about its DDL."""
    if work.meta.windows.open(source) is None:
        try:
            next_plan(work, source)
        except UnshardError as error:
            yield _planned_step(work, source, asked, error)
            return
    scene = coordinate.observe(work.meta)
    for lock in map(scene.facts, scene.locks):
        for command in _lock_commands(work, scene, lock, source, asked):
            yield _lock_step(work, scene, lock, command)


def _planned_step(work: Work, source: str, asked: Asked, error: UnshardError) -> Step:
    checkpoint = work.meta.checkpoints.get(source)
    place = StatementPlace(source, checkpoint.location) if checkpoint else None
    segment = _segment(work, place) if place else None
    if place is None or segment is None or segment.statement is None:
        raise NothingStuck(source, str(error)) from error
    return _statement_step(work, place, asked, str(error))


def _lock_commands(work: Work, scene: Scene, lock: LockFacts, source: str, asked: Asked) -> Iterator[LockCommand]:
    if lock.state is LockState.FAILED or (lock.state is LockState.UNDECIDED and len(lock.ready) > 1):
        if any(shard.source == source for shard in lock.ready):
            yield _lock_command(lock, asked, lock.ddl)
        return
    if lock.state is not LockState.UNDECIDED:
        return
    for state in scene.shards:
        at_it = state.shard in (*lock.ready, *lock.conflicts)
        if at_it and state.shard.source == source and state.queue and state.queue[0].reason:
            command = replace(_lock_command(lock, asked, state.queue[0].routed), shard=state.shard)
            yield issuing.pinned(work.meta, command, scene)


def _lock_command(lock: LockFacts, asked: Asked, ddl: str) -> Skip | Replace:
    match asked.kind:
        case CommandKind.SKIP:
            return Skip(lock.id)
        case CommandKind.REPLACE:
            return Replace(lock.id, asked.statements)
        case CommandKind.INJECT:
            return Replace(lock.id, (*asked.statements, ddl))


def _lock_step(work: Work, scene: Scene, lock: LockFacts, command: LockCommand) -> Step:
    def do(by: str, via: str, reason: str) -> bool:
        after = issuing.give(work.meta, command, by, via, reason)
        if isinstance(command, Replace) and work.meta.pauses.get() is None:
            coordinate.executed(work.meta, work.target, lock.id, after)
        return True

    message = lock.error or lock.reason
    first = f"lock {lock.id}: {one_line(lock.ddl)}" + (f" ({message})" if message else "")
    return Step((first, *issuing.preview(work.meta, command, scene)), do)


def listed_sources(work: Work, source: str | None, everywhere: bool) -> Sequence[str]:
    """Return the sources of a command; raises PlaceUnreadable if it could be one of several."""
    if everywhere:
        return tuple(work.task.sources)
    if source is None and len(work.task.sources) == 1:
        return tuple(work.task.sources)
    if source not in work.task.sources:
        named = f"{source} is not a source of the task" if source else "it could be one of several"
        raise PlaceUnreadable(source or "", f"{named}: {', '.join(work.task.sources)}")
    return (source,)
