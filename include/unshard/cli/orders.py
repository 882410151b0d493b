"""`unshard unlock`, `skip`, `replace`, `drop-shard`, `retry --lock`: each shows its effect before it is issued."""

import getpass
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from unshard.cli.console import Answer, Console
from unshard.cli.locks import lock_document, lock_lines
from unshard.config import load_task
from unshard.core.ddl.lock import LockState
from unshard.core.ddl.lockcommands import ACTIONS, DropShard, Force, LockCommand, Replace, Retry, Skip
from unshard.core.model import Shard
from unshard.units.ddl import coordinate, lockcommands
from unshard.units.ddl.coordinate import LockView
from unshard.units.ddl.lockcommands import shard_named
from unshard.units.ddl.reconcile import reconcile_structures
from unshard.units.window.shownstructure import trial_of
from unshard.units.work import Work, open_work


def unlock(options: Namespace, console: Console) -> Answer:
    """Force a lock; execute its DDL at once if nothing is in the way."""
    return _give(options, console, lambda _: Force(options.lock, options.owner))


def skip(options: Namespace, console: Console) -> Answer:
    """Resolve a DDL without executing it."""
    return _give(options, console, lambda work: Skip(options.lock, _shard(work, options)))


def replace(options: Namespace, console: Console) -> Answer:
    """Execute other statements instead of a DDL, at once if nothing is in the way."""
    return _give(options, console, lambda work: Replace(options.lock, tuple(options.sql), _shard(work, options)))


def drop_shard(options: Namespace, console: Console) -> Answer:
    """Remove a shard from its group."""
    return _give(
        options, console, lambda work: DropShard(options.lock, shard_named(work.meta, options.lock, options.shard))
    )


def ask_again(options: Namespace, console: Console) -> Answer:
    """Try a DDL again that the target has refused; execute it if the lock permits."""
    return _give(options, console, lambda _: Retry(options.lock))


def ask_all_again(options: Namespace, console: Console) -> Answer:
    """Try every DDL again that the target has refused."""
    task = load_task(Path(options.task))
    console.warn_of(task)
    with open_work(task, only_reads=options.dry_run) as work:
        coordinate.observe(work.meta)
        views = [view for view in coordinate.views(work.meta) if view.is_refused]
        orders = [Retry(view.id) for view in views]
        effects = [line for order in orders for line in (order.lock, *lockcommands.preview(work.meta, order))]
        if not (orders and not options.dry_run):
            said = [*effects, "dry run: nothing was done"] if orders else ["the target has refused no DDL"]
        else:
            for line in effects:
                console.note(line)
            console.confirm(f"retry {len(orders)} locks", options.yes)
            views = [_carry_out(work, order, options.reason) for order in orders]
            said = [*map(_told, views)]
    locks = [lock_document(view) for view in views]
    return Answer({"task": task.name, "dry_run": options.dry_run, "effects": effects, "locks": locks}, said)


def _shard(work: Work, options: Namespace) -> Shard | None:
    return shard_named(work.meta, options.lock, options.shard) if options.shard else None


def _give(options: Namespace, console: Console, make: Callable[[Work], LockCommand]) -> Answer:
    task = load_task(Path(options.task))
    console.warn_of(task)
    with open_work(task, only_reads=options.dry_run) as work:
        coordinate.observe(work.meta)
        order = lockcommands.pinned(work.meta, make(work))
        effects = [*lockcommands.preview(work.meta, order)]
        view = coordinate.view(work.meta, order.lock)
        if options.dry_run:
            return Answer(
                {"task": task.name, "dry_run": True, "lock": lock_document(view), "effects": effects},
                [*lock_lines(task, view), *effects, "dry run: nothing was done"],
            )
        for line in (*lock_lines(task, view), *effects):
            console.note(line)
        console.confirm(f"{ACTIONS[type(order)]} {order.lock}", options.yes)
        view = _carry_out(work, order, options.reason)
        others = [one for one in coordinate.views(work.meta) if one.target == view.target and one.id != view.id]
    document = {"task": task.name, "dry_run": False, "lock": lock_document(view), "effects": effects}
    return Answer(document, [_told(view), *(line for one in others for line in lock_lines(task, one))])


def _carry_out(work: Work, order: LockCommand, reason: str) -> LockView:
    """Issue a command, and do at once what follows from it."""
    view = lockcommands.give(work.meta, order, by=getpass.getuser(), via="command line", reason=reason)
    if isinstance(order, Retry | Replace):
        for source in sorted({shard.source for shard in view.ready}):
            reconcile_structures(work.meta.structures, source, trial_of(work))
    if isinstance(order, Force | Replace | Retry) and work.meta.pauses.get() is None:
        view = coordinate.execute(work.meta, work.target, view.id)
    return view


def _told(view: LockView) -> str:
    if not view.is_open:
        return f"lock {view.id}: resolved, {view.outcome or 'withdrawn'}; the next windows release the held rows"
    if view.error:
        return f"lock {view.id}: {view.state}, the target refuses the DDL: {view.error}"
    if view.state is LockState.UNDECIDED:
        return f"lock {view.id}: {view.state}: {view.reason}"
    if view.state in (LockState.DRAINING, LockState.FORCED, LockState.SYNCED):
        return f"lock {view.id}: {view.state}; unshard executes it when the rows held before the DDL are applied"
    return f"lock {view.id}: {view.state}; `unshard locks` shows what it waits for"
