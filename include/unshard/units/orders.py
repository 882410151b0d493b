"""An operator's orders to DDL locks: said first (`preview`), then given (`give`); every way in comes through here.

An order only changes what is recorded, in one transaction; what follows from it the coordinator does, now or in its
next call. So an order that was given is carried out whoever dies, and giving it again changes nothing. An order about
one shard's DDL is pinned to that DDL first, so that it does not meet the next one when it is given again.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from unshard.core.ddllock import DdlLock, LockState, Outcome
from unshard.core.model import Shard
from unshard.core.orders import ACTIONS, Cleared, DropShard, Force, Given, Order, Replace, Retry, Skip, given
from unshard.core.settling import is_refused
from unshard.core.window import QueueEntry, ShardState, Verdict
from unshard.errors.orders import (
    LockBegun,
    LockResolved,
    LockUndecided,
    NotAnOwner,
    NothingRefused,
    NothingToReplace,
    NotInGroup,
)
from unshard.units import coordinate
from unshard.units.coordinate import LockView, read_scene
from unshard.units.lockstore import Store

log = logging.getLogger(__name__)

SHOWN_SHARDS = 10


@dataclass(frozen=True, slots=True)
class _Case:
    """An order with all that it is about."""

    meta: Store
    lock: DdlLock
    view: LockView
    members: tuple[ShardState, ...]

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
    """What an order will do, in words, and how it is done; doing it says whether it has changed anything."""

    lines: tuple[str, ...]
    do: Callable[[Given], bool]


def pinned(meta: Store, order: Order) -> Order:
    """Return the order with the number of the shard's DDL that it means now, if it is about one."""
    if isinstance(order, Skip | Replace) and order.shard is not None and order.seq is None:
        queue = _case(meta, order).member(order.shard).queue
        return replace(order, seq=queue[0].seq if queue else 0)
    return order


def preview(meta: Store, order: Order) -> tuple[str, ...]:
    """Say what an order will do, one sentence a line; raises a coded error if it cannot be carried out."""
    case = _case(meta, order)
    if case.lock.resolved_at is not None and not isinstance(order, DropShard):
        raise LockResolved(case.lock.id, str(case.lock.outcome or Outcome.EXECUTED))
    return _prepared(case, order).lines


def give(meta: Store, order: Order, by: str | Cleared, via: str, reason: str) -> LockView:
    """Record an order and do what follows from it, but executing; return how the lock stands then.

    Idempotent: the same order again, or one to a lock that is resolved, changes nothing. An order that cannot be
    carried out raises a coded error and is not recorded.
    """
    case = _case(meta, order)
    if case.lock.resolved_at is None or isinstance(order, DropShard):
        changed = _prepared(case, order).do(given(order, by, via, reason))
        log.info("order %s lock=%s by=%s via=%s new=%s", ACTIONS[type(order)], order.lock, by, via, changed)
    coordinate.observe(meta)
    return coordinate.view(meta, order.lock)


def _case(meta: Store, order: Order) -> _Case:
    lock, scene = meta.locks.get(order.lock), read_scene(meta)
    return _Case(meta, lock, coordinate.view(meta, order.lock), scene.members(lock.target))


def _prepared(case: _Case, order: Order) -> _Prepared:
    match order:
        case Force():
            return _force(case, order.owner)
        case Skip(shard=shard, seq=seq):
            return _skip_one(case, shard, seq) if shard else _skip(case)
        case Replace(statements=texts, shard=shard):
            return _replace_one(case, shard, order) if shard else _replace(case, texts)
        case DropShard():
            return _drop(case, order.shard)
        case Retry():
            return _retry(case)
        case _:
            assert_never(order)


def _force(case: _Case, owner: str | None) -> _Prepared:
    view = case.view
    if view.state is LockState.UNDECIDED:
        raise LockUndecided(view.id, view.reason)
    sources = sorted({shard.source for shard in view.ready})
    if owner is not None and owner not in sources:
        raise NotAnOwner(view.id, owner, ", ".join(sources))
    chosen = owner or view.owner or next(iter(sources), "the owner")
    lines = [f"{chosen} executes on {view.target}: {one_line(text)}" for text in _texts(case.lock)]
    if view.ready:
        lines.append(f"rows held of {listed(view.ready)} are released")
    if view.missing:
        lines.append(f"the same DDL is skipped when it comes from {listed(view.missing)}; "
                     "until then their rows are written by column name into the new structure")  # fmt: skip
    if others := _with_another(view):
        lines.append(f"another DDL ran on {listed(others)}: the next lock is for that")
    return _Prepared(tuple(lines), lambda order: case.meta.orders.force(view.id, owner, order))


def _skip(case: _Case) -> _Prepared:
    case.require_not_begun()
    view, late = case.view, (*case.view.missing, *case.view.conflicts)
    lines = [f"nothing is executed on {view.target}; the lock is resolved", *_executed_already(case)]
    if view.ready:
        lines.append(f"rows held of {listed(view.ready)} are released; they are written by column name, "
                     "and a value without a column in the target stops it for that source")  # fmt: skip
    if late:
        lines.append(f"the same DDL is skipped when it comes from {listed(late)}")
    return _Prepared(tuple(lines), lambda order: _decide(case, Verdict.SKIP, (), order))


def _skip_one(case: _Case, shard: Shard, seq: int | None) -> _Prepared:
    state, orders = case.member(shard), case.meta.orders
    if shard in case.lock.excused:
        return _Prepared((f"{shard} is excused from the lock already",), lambda _: False)
    if _has_moved(state, seq):
        return _Prepared((f"{shard} is past that DDL already",), lambda _: False)
    if not state.queue:
        line = f"{shard} has reached no DDL: the lock does not wait for it, and skips its DDL when it comes"
        return _Prepared((line,), lambda order: orders.excuse(case.lock.id, shard, order))
    entry = state.queue[0]
    others = [other for other in case.view.ready if other != shard]
    if entry.agreement == case.lock.agreement and (others or case.lock.is_begun):
        lines = [f"the lock does not wait for {shard}, which skips the DDL once the lock is resolved",
                 f"rows held of {shard} behind it wait until then"]  # fmt: skip
        return _Prepared(tuple(lines), lambda order: orders.excuse(case.lock.id, shard, order))
    lines = [f"{shard} gets past its DDL, nothing is executed for it: {one_line(entry.routed)}",
             f"rows held of {shard} behind it are released; they are written by column name"]  # fmt: skip
    if entry.agreement != case.lock.agreement:
        lines.append(f"the lock goes on waiting for {shard}: that was not the lock's DDL")
    else:
        lines.append("no other shard has brought the lock's DDL yet: the lock is withdrawn until one does")
    return _Prepared(tuple(lines), lambda order: orders.skip_head(case.lock, entry, order))


def _replace(case: _Case, statements: tuple[str, ...]) -> _Prepared:
    case.require_not_begun()
    made, view = _made(case, case.lock.entry, statements), case.view
    lines = [f"in place of `{one_line(view.ddl)}` this is executed on {view.target}, one after another:",
             *(f"  {one_line(text)}" for text in made.replacement), *_executed_already(case)]  # fmt: skip
    if view.ready:
        lines.append(f"that resolves the DDL of {listed(view.ready)}")
    if view.missing:
        lines.append(f"it waits until {listed(view.missing)} bring the DDL that is replaced; unlock to go without them")
    if others := _with_another(view):
        lines.append(f"another DDL ran on {listed(others)}: the lock stays in conflict until they agree or you "
                     "skip or replace theirs, or unlock")  # fmt: skip
    if owing := [shard for shard in view.conflicts if shard in view.ready]:
        lines.append(f"an earlier DDL is to be skipped first for {listed(owing)}: the lock stays in conflict until "
                     "you unlock")  # fmt: skip
    return _Prepared(tuple(lines), lambda order: _decide(case, Verdict.REPLACE, made.replacement, order))


def _replace_one(case: _Case, shard: Shard, order: Replace) -> _Prepared:
    state = case.member(shard)
    case.require_not_begun()
    if _has_moved(state, order.seq):
        return _Prepared((f"{shard} is past that DDL already",), lambda _: False)
    if not state.queue:
        raise NothingToReplace(case.lock.id, str(shard))
    entry = state.queue[0]
    made = _made(case, entry, order.statements)
    if made == entry:
        return _Prepared((f"the DDL of {shard} counts as that already",), lambda _: False)
    agrees = made.agreement == case.lock.agreement
    lines = [f"the DDL of {shard} counts as `{one_line(made.routed)}` instead of `{one_line(entry.routed)}`",
             f"which {'is' if agrees else 'is not'} the lock's DDL: {one_line(case.view.ddl)}"]  # fmt: skip
    if not agrees and case.view.ready == (shard,):
        lines.append("no other shard has brought the lock's DDL: the lock is withdrawn, and another opens")
    orders = case.meta.orders
    return _Prepared(tuple(lines), lambda order: orders.replace_head(case.lock.id, entry, made, order))


def _has_moved(state: ShardState, seq: int | None) -> bool:
    return seq is not None and seq != (state.queue[0].seq if state.queue else 0)


def _drop(case: _Case, shard: Shard) -> _Prepared:
    if all(state.shard != shard for state in case.members) and _is_dropped(case.meta, shard):
        return _Prepared((f"{shard} is dropped already",), lambda _: False)
    state = case.member(shard)
    rows = sum(file.rows for file in state.held)
    lines = (
        f"{shard} leaves the group of {state.target} for good; its rows in the target stay as they are",
        f"{len(state.queue)} DDL and {rows} held rows of it are dropped and not applied",
        "its later rows and DDL are passed over, until the table is dropped and created again upstream",
    )
    return _Prepared(lines, lambda order: case.meta.orders.drop_shard(case.lock.id, shard, order))


def _retry(case: _Case) -> _Prepared:
    case.require_not_begun()
    view, lock = case.view, case.lock
    heads = [state.queue[0] for state in case.members if state.queue and state.shard in view.ready]
    refused = [entry for entry in heads if is_refused(entry)]
    asked = [entry for entry in heads if not (entry.after or entry.reason)]
    if lock.error is None and not refused:
        if not asked:
            raise NothingRefused(lock.id, one_line(view.reason) or f"it is {view.state}")
        return _Prepared(("the target is asked again already, by the next windows of its sources",), lambda _: False)
    lines = [f"{view.target} is asked again for: {one_line(text)}" for text in _texts(lock)]
    if refused:
        lines.append(f"it is tried on an empty table for {listed([entry.shard for entry in refused])}")
        lines.append("if the target takes it now, it is a DDL like any other: all shards have to bring it")
    lines.append("if the target refuses again, the lock shows what it says then")
    return _Prepared(tuple(lines), lambda order: case.meta.orders.retry(lock.id, refused, order))


def _decide(case: _Case, verdict: Verdict, statements: tuple[str, ...], order: Given) -> bool:
    with case.meta.locks.exclusive(case.lock.id):
        return case.meta.orders.decide(case.lock.id, verdict, statements, order)


def _made(case: _Case, entry: QueueEntry, statements: tuple[str, ...]) -> QueueEntry:
    from unshard.core.replacing import replacing  # brings the tokenizer, which the other orders do not need

    tables = [state.shard.table for state in case.members]
    routed, agreement = replacing(case.lock.id, statements, case.lock.target, tables, entry)
    return replace(entry, routed="; ".join(routed), agreement=agreement, replacement=routed, verdict=Verdict.REPLACE)


def _with_another(view: LockView) -> list[Shard]:
    """Return the shards in conflict that stand at another DDL; the others owe an earlier lock a skip."""
    return [shard for shard in view.conflicts if shard not in view.ready]


def _texts(lock: DdlLock) -> tuple[str, ...]:
    return lock.replacement or lock.entry.replacement or (lock.entry.routed,)


def _executed_already(case: _Case) -> list[str]:
    if not case.lock.done:
        return []
    done = [run.ddl for run in case.meta.locks.executions(case.lock.id) if run.outcome in ("executed", "present")]
    return [f"the target keeps what was executed already: {one_line(text)}" for text in done]


def _is_dropped(meta: Store, shard: Shard) -> bool:
    return any(state.shard == shard and state.is_dropped for state in meta.structures.shards())


def shard_argument(shard: Shard) -> str:
    """Write a shard as an argument of a command: `s1/shop_1.orders_3`."""
    return f"{shard.source}/{shard.table}"


def shard_named(meta: Store, lock: str, text: str) -> Shard:
    """Return the shard of a lock's group that is written so; raises NotInGroup."""
    target = meta.locks.get(lock).target
    group = [state.shard for state in meta.structures.shards() if state.target == target]
    for shard in group:
        if text in (shard_argument(shard), str(shard)):
            return shard
    raise NotInGroup(lock, text, ", ".join(map(shard_argument, sorted(group))))


def one_line(text: str) -> str:
    """Return a statement without its line breaks."""
    return " ".join(text.split())


def listed(shards: Sequence[Shard]) -> str:
    """Name shards, the first of many."""
    if not shards:
        return "-"
    shown = ", ".join(map(str, shards[:SHOWN_SHARDS]))
    return f"{shown} and {len(shards) - SHOWN_SHARDS} more" if len(shards) > SHOWN_SHARDS else shown
