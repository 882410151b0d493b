"""`unshard ddl`: orders about statements of a source's binlog, by position, GTID or the present error.

A statement that no window has begun with gets an order that the next plan obeys (core.ddlorders). One that a source
stands at because it cannot be planned is known by that. One that is in a lock already is the lock's: it gets the order.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from unshard.adapters.meta.statementorders import OrderState
from unshard.core.ddl import read
from unshard.core.ddllock import LockState
from unshard.core.ddlorders import Kind, Place
from unshard.core.model import Location
from unshard.core.orders import Given, Order, Replace, Skip
from unshard.core.replacing import require_kind, split
from unshard.core.segment import Segment
from unshard.errors import UnshardError
from unshard.errors.ddl import DdlUnreadable
from unshard.errors.ddlorders import (
    NothingStuck,
    OrderAtNoStatement,
    OrderLate,
    OrderPast,
    OrderSpent,
    PlaceUnreadable,
)
from unshard.errors.orders import ReplacementRefused
from unshard.errors.target import NotInSync
from unshard.units import coordinate, orders
from unshard.units.coordinate import LockView
from unshard.units.orders import one_line
from unshard.units.sync import next_plan
from unshard.units.work import Work

NO_LOCK = "(none yet)"
FILE_POSITION = re.compile(r"([\w.@-]{0,200}\.\d{1,18}):(\d{1,18})")
MARIADB_GTID = re.compile(r"\d+-\d+-\d+")
MYSQL_GTID = re.compile(r"[0-9a-fA-F-]{36}(:\w+)?:\d+")


@dataclass(frozen=True, slots=True)
class Asked:
    """What an operator wants to become of which statement."""

    kind: Kind
    statements: tuple[str, ...]
    sources: tuple[str, ...]
    at: str = ""
    gtid: str = ""
    """Without both: the statement that each source cannot get past."""


@dataclass(frozen=True, slots=True)
class Step:
    """One order as it will be given; doing it says whether it has changed anything."""

    effects: tuple[str, ...]
    do: Callable[[str, str, str], bool]
    """Of who, by what way, and why."""


def steps(work: Work, asked: Asked) -> tuple[Step, ...]:
    """Return what is to be done; raises a coded error if nothing can be."""
    _require_readable(asked)
    if asked.at or asked.gtid:
        return (_statement_step(work, _place(work, asked), asked),)
    found = [step for source in asked.sources for step in _stuck(work, source, asked)]
    if not found:
        raise NothingStuck(", ".join(asked.sources), "its next window can be planned, and no lock has a reason to ask")
    return tuple({step.effects: step for step in found}.values())


def revert(work: Work, number: int) -> Step:
    """Return the step that takes back an order."""
    known = {each.order.number: each for each in work.meta.statement_orders.all()}
    if number not in known or known[number].state is OrderState.USED:
        raise OrderSpent(f"order {number}", "a window has met its statement" if number in known else "there is none")
    effects = (f"{known[number].order} is taken back: the statement means what it says again",)
    given = _given("revert", {"order": number})
    return Step(effects, lambda *who: work.meta.statement_orders.revert(number, given(*who)))


def waiting_at(work: Work, source: str, at: str, gtid: str) -> int:
    """Return the number of the order that waits for a place."""
    place = _read_place(work, source, at, gtid)
    for order in work.meta.statement_orders.waiting(source):
        if order.place == place:
            return order.number
    raise OrderSpent(str(place), "no order waits for it")


def _require_readable(asked: Asked) -> None:
    for text in asked.statements:
        try:
            for one in split(text, 0):
                require_kind(NO_LOCK, read(one, 0, ""))
        except DdlUnreadable as error:
            raise ReplacementRefused(NO_LOCK, one_line(text), error.message) from error


def _place(work: Work, asked: Asked) -> Place:
    if len(asked.sources) != 1:
        raise PlaceUnreadable(asked.at or asked.gtid, "binlogs of several sources have nothing in common")
    return _read_place(work, asked.sources[0], asked.at, asked.gtid)


def _read_place(work: Work, source: str, at: str, gtid: str) -> Place:
    checkpoint = work.meta.checkpoints.get(source)
    if checkpoint is None:
        state = work.meta.sources.get(source)
        raise NotInSync(source, state.phase.value if state else "new")
    if gtid:
        if not (MARIADB_GTID.fullmatch(gtid) or MYSQL_GTID.fullmatch(gtid)):
            raise PlaceUnreadable(gtid, "it is no GTID")
        if not checkpoint.gtid or (":" in gtid) != (":" in checkpoint.gtid):
            raise PlaceUnreadable(gtid, f"the history of {source} is '{checkpoint.gtid}'")
        return Place(source, gtid=gtid.lower() if ":" in gtid else gtid)
    found = FILE_POSITION.fullmatch(at)
    if found is None:
        raise PlaceUnreadable(at, "it is no FILE:POSITION")
    location = Location(found[1], int(found[2]))
    known = checkpoint.location
    if location.server_file.rpartition(".")[0] != known.server_file.rpartition(".")[0]:
        raise PlaceUnreadable(at, f"the binlog of {source} is called like {known.server_file}")
    return Place(source, location if "@" in found[1] else location.in_generation(known.generation))


# --- a statement that no window has met -----------------------------------------------------------------------


def _statement_step(work: Work, place: Place, asked: Asked, why: str = "") -> Step:
    _check(work, place)
    met = _segment(work, place)
    if met is not None and met.statement is None:
        raise OrderAtNoStatement(str(place), 0)
    text = f"`{one_line(met.statement.text)}`" if met is not None and met.statement else "the statement there"
    effects = [f"{place}: {why}"] if why else []
    effects.append({
        Kind.SKIP: f"{place}: {text} is skipped: nothing is executed for it, and no shard is waited for",
        Kind.REPLACE: f"{place}: {text} counts as the statements below, which its group has to agree on",
        Kind.INJECT: f"{place}: {text} counts as the statements below and then itself, which its group has to agree on",
    }[asked.kind])  # fmt: skip
    effects += [f"  {one_line(statement)}" for statement in asked.statements]
    if met is None:
        effects.append("it is not pulled yet: the order waits until a window comes there, and stops it at rows")
    details = {"source": place.source, "place": str(place.at or place.gtid), "statements": [*asked.statements]}
    given = _given(asked.kind.value, details)
    return Step(tuple(effects), lambda *who: work.meta.statement_orders.add(
        place, asked.kind, asked.statements, given(*who), lambda: _check(work, place)))  # fmt: skip


def _given(action: str, details: Mapping[str, object]) -> Callable[[str, str, str], Given]:
    return lambda by, via, reason: Given(f"ddl {action}", by, via, reason, dict(details))


def _check(work: Work, place: Place) -> None:
    """Raise if a window has passed the place, or has begun with it."""
    checkpoint, begun = work.meta.checkpoints.get(place.source), work.meta.windows.open(place.source)
    assert checkpoint is not None
    if place.is_before(checkpoint.location, checkpoint.gtid):
        raise OrderPast(str(place), str(checkpoint.location))
    if begun is not None and place.is_before(begun.ends, begun.gtid):
        raise OrderLate(str(place), begun.number)


def _segment(work: Work, place: Place) -> Segment | None:
    checkpoint = work.meta.checkpoints.get(place.source)
    assert checkpoint is not None
    history = checkpoint.gtid
    for segment in work.store.links(place.source).run(checkpoint.location):
        if place.is_in(segment, history):
            return segment
        history = segment.gtid
    return None


# --- the present error ------------------------------------------------------------------------------------------


def _stuck(work: Work, source: str, asked: Asked) -> Iterator[Step]:
    """Yield a step for the statement that a source cannot get past, and for each lock that asks about its DDL."""
    if work.meta.windows.open(source) is None:
        try:
            next_plan(work, source)
        except UnshardError as error:
            yield _planned_step(work, source, asked, error)
            return
    coordinate.observe(work.meta)
    for view in coordinate.views(work.meta):
        for order in _lock_orders(work, view, source, asked):
            yield _lock_step(work, order)


def _planned_step(work: Work, source: str, asked: Asked, error: UnshardError) -> Step:
    checkpoint = work.meta.checkpoints.get(source)
    place = Place(source, checkpoint.location) if checkpoint else None
    met = _segment(work, place) if place else None
    if place is None or met is None or met.statement is None:
        raise NothingStuck(source, str(error)) from error
    return _statement_step(work, place, asked, str(error))


def _lock_orders(work: Work, view: LockView, source: str, asked: Asked) -> Iterator[Order]:
    """Yield an order to the lock, or about each shard of the source that alone stands at its DDL."""
    if view.state is LockState.FAILED or (view.state is LockState.UNDECIDED and len(view.ready) > 1):
        if any(shard.source == source for shard in view.ready):
            yield _lock_order(view, asked, view.ddl)
        return
    if view.state is not LockState.UNDECIDED:
        return
    for state in work.meta.structures.shards():
        at_it = state.shard in (*view.ready, *view.conflicts)
        if at_it and state.shard.source == source and state.queue and state.queue[0].reason:
            order = replace(_lock_order(view, asked, state.queue[0].routed), shard=state.shard)
            yield orders.pinned(work.meta, order)


def _lock_order(view: LockView, asked: Asked, ddl: str) -> Skip | Replace:
    match asked.kind:
        case Kind.SKIP:
            return Skip(view.id)
        case Kind.REPLACE:
            return Replace(view.id, asked.statements)
        case Kind.INJECT:
            return Replace(view.id, (*asked.statements, ddl))


def _lock_step(work: Work, order: Order) -> Step:
    def do(by: str, via: str, reason: str) -> bool:
        view = orders.give(work.meta, order, by, via, reason)
        if isinstance(order, Replace) and view.is_open and work.meta.halts.get() is None:
            coordinate.execute(work.meta, work.target, view.id)
        return True

    view = coordinate.view(work.meta, order.lock)
    words = view.error or view.reason
    first = f"lock {order.lock}: {one_line(view.ddl)}" + (f" ({words})" if words else "")
    return Step((first, *orders.preview(work.meta, order)), do)


def listed_sources(work: Work, source: str | None, everywhere: bool) -> Sequence[str]:
    """Return the sources that an order is for; PlaceUnreadable if it could be one of several."""
    if everywhere:
        return tuple(work.task.sources)
    if source is None and len(work.task.sources) == 1:
        return tuple(work.task.sources)
    if source not in work.task.sources:
        named = f"{source} is no source of the task" if source else "it could be of several"
        raise PlaceUnreadable(source or "", f"{named}: {', '.join(work.task.sources)}")
    return (source,)
