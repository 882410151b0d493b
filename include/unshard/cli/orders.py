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
from unshard.units.ddl.lockcommands import shard_named
from unshard.units.ddl.reconcile import reconcile_structures
from unshard.units.ddl.scene import LockView, Scene
from unshard.units.ddl.waysout import shown
from unshard.units.window.statementcontext import trial_of
from unshard.units.work import Work, open_work


def unlock(options: Namespace, console: Console) -> Answer:
    """Force a lock; execute its DDL at once if nothing is in the way."""
    return _give(options, console, lambda *_: Force(options.lock, options.owner))


def skip(options: Namespace, console: Console) -> Answer:
    """Resolve a DDL without executing it."""
    return _give(options, console, lambda *now: Skip(options.lock, _shard(options, *now)))


def replace(options: Namespace, console: Console) -> Answer:
    """Execute other statements instead of a DDL, at once if nothing is in the way."""
    return _give(options, console, lambda *now: Replace(options.lock, tuple(options.sql), _shard(options, *now)))


def drop_shard(options: Namespace, console: Console) -> Answer:
    """Remove a shard from its group."""
    return _give(
        options,
        console,
        lambda work, scene: DropShard(options.lock, shard_named(work.meta, options.lock, options.shard, scene)),
    )


def ask_again(options: Namespace, console: Console) -> Answer:
    """Try a DDL again that the target has refused; execute it if the lock permits."""
    return _give(options, console, lambda *_: Retry(options.lock))


def ask_all_again(options: Namespace, console: Console) -> Answer:
    """Try every DDL again that the target has refused."""
    task = load_task(Path(options.task))
    console.warn_of(task)
    with open_work(task, only_reads=options.dry_run) as work:
        scene = coordinate.observe(work.meta)
        views = [view for view in (shown(scene, lock) for lock in scene.locks) if view.is_refused]
        orders = [Retry(view.id) for view in views]
        effects = [line for order in orders for line in (order.lock, *lockcommands.preview(work.meta, order, scene))]
        if not (orders and not options.dry_run):
            said = [*effects, "dry run: nothing was done"] if orders else ["the target has refused no DDL"]
        else:
            for line in effects:
                console.note(line)
            console.confirm(f"retry {len(orders)} locks", options.yes)
            views = [coordinate.view(work.meta, order.lock, _carry_out(work, order, options)) for order in orders]
            said = [*map(_told, views)]
    locks = [lock_document(view) for view in views]
    return Answer({"task": task.name, "dry_run": options.dry_run, "effects": effects, "locks": locks}, said)


def _shard(options: Namespace, work: Work, scene: Scene) -> Shard | None:
    return shard_named(work.meta, options.lock, options.shard, scene) if options.shard else None


def _give(options: Namespace, console: Console, make: Callable[[Work, Scene], LockCommand]) -> Answer:
    task = load_task(Path(options.task))
    console.warn_of(task)
    with open_work(task, only_reads=options.dry_run) as work:
        scene = coordinate.observe(work.meta)
        order = lockcommands.pinned(work.meta, make(work, scene), scene)
        effects = [*lockcommands.preview(work.meta, order, scene)]
        view = coordinate.view(work.meta, order.lock, scene)
        if options.dry_run:
            return Answer(
                {"task": task.name, "dry_run": True, "lock": lock_document(view), "effects": effects},
                [*lock_lines(task, view), *effects, "dry run: nothing was done"],
            )
        for line in (*lock_lines(task, view), *effects):
            console.note(line)
        console.confirm(f"{ACTIONS[type(order)]} {order.lock}", options.yes)
        scene = _carry_out(work, order, options)
        view = coordinate.view(work.meta, order.lock, scene)
        others = [shown(scene, lock) for lock in scene.locks if lock.target == view.target and lock.id != view.id]
    document = {"task": task.name, "dry_run": False, "lock": lock_document(view), "effects": effects}
    return Answer(document, [_told(view), *(line for one in others for line in lock_lines(task, one))])


def _carry_out(work: Work, order: LockCommand, options: Namespace) -> Scene:
    """Issue a command, and execute the lock's DDL if it permits that; return the scene after it."""
    scene = lockcommands.give(work.meta, order, by=getpass.getuser(), via="command line", reason=options.reason)
    is_old = False
    if isinstance(order, Retry | Replace):
        ready = coordinate.facts_of(work.meta, order.lock, scene).ready
        for source in sorted({shard.source for shard in ready}):
            is_old = reconcile_structures(work.meta.structures, source, trial_of(work)) or is_old
    if not isinstance(order, Force | Replace | Retry) or work.meta.pauses.get() is not None:
        return scene
    return coordinate.executed(work.meta, work.target, order.lock, coordinate.observe(work.meta) if is_old else scene)


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
