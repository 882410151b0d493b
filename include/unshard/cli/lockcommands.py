"""`unshard unlock`, `skip`, `replace`, `drop-shard`, `retry`: each shows its effect before it is issued."""

import getpass
from argparse import Namespace
from collections.abc import Callable

from unshard.cli.console import Answer, Console
from unshard.core.ddl.lock import LockState
from unshard.core.model import Shard
from unshard.core.window.suspension import preview_retry
from unshard.errors.config import UsageWrong
from unshard.operate import issuing
from unshard.operate.command import ACTIONS, DropShard, Force, LockCommand, Replace, Retry, Skip
from unshard.operate.documents import lock_document, lock_lines, suspended_document
from unshard.units.ddl import coordinate
from unshard.units.ddl.scene import LockView, Scene
from unshard.units.window.suspending import command_retry
from unshard.units.work import Work, open_work

VIA = "command line"
DRY_RUN = "dry run: nothing was done"


def unlock_command(options: Namespace, console: Console) -> Answer:
    """Force a lock; execute its DDL at once if nothing is in the way."""
    return _give(options, console, lambda _: Force(options.lock, options.owner))


def skip_command(options: Namespace, console: Console) -> Answer:
    """Resolve a DDL without executing it."""
    return _give(options, console, lambda named: Skip(options.lock, named()))


def replace_command(options: Namespace, console: Console) -> Answer:
    """Execute other statements instead of a DDL, at once if nothing is in the way."""
    return _give(options, console, lambda named: Replace(options.lock, tuple(options.sql), named()))


def drop_shard_command(options: Namespace, console: Console) -> Answer:
    """Remove a shard from its group."""

    def make(named: Callable[[], Shard | None]) -> LockCommand:
        shard = named()
        assert shard is not None  # the option is required
        return DropShard(options.lock, shard)

    return _give(options, console, make)


def retry_command(options: Namespace, console: Console) -> Answer:
    """Let the next windows release held rows, or try a DDL again."""
    if sum(map(bool, (options.lock, options.all_locks, options.table))) > 1:
        raise UsageWrong("--lock, --all-locks and --table are different commands: use one of them", "unshard retry")
    if options.lock:
        return _give(options, console, lambda _: Retry(options.lock))
    return _retry_locks(options, console) if options.all_locks else _retry_targets(options, console)


def _give(options: Namespace, console: Console, make: Callable[[Callable[[], Shard | None]], LockCommand]) -> Answer:
    """Show the effect of a command to a lock, then issue it. `make` gets a function that returns the named shard."""
    task = console.load(options.task)
    with open_work(task, only_reads=options.dry_run) as work:
        scene = coordinate.observe(work.meta)
        command = issuing.pinned(work.meta, make(lambda: _shard(options, work, scene)), scene)
        effects = [*issuing.preview(work.meta, command, scene)]
        view = coordinate.view(work.meta, command.lock, scene)
        told = [*lock_lines(view, str(task.path)), *effects]
        if options.dry_run:
            document = {"task": task.name, "dry_run": True, "lock": lock_document(view), "effects": effects}
            return Answer(document, [*told, DRY_RUN])
        console.confirm(f"{ACTIONS[type(command)]} {command.lock}", options.yes, told)
        scene = _carry_out(work, command, options)
        view = coordinate.view(work.meta, command.lock, scene)
        others = [scene.view(lock) for lock in scene.locks if lock.target == view.target and lock.id != view.id]
    document = {"task": task.name, "dry_run": False, "lock": lock_document(view), "effects": effects}
    return Answer(document, [_told(view), *(line for one in others for line in lock_lines(one, str(task.path)))])


def _shard(options: Namespace, work: Work, scene: Scene) -> Shard | None:
    return issuing.shard_of_lock(work.meta, options.lock, options.shard, scene) if options.shard else None


def _carry_out(work: Work, command: LockCommand, options: Namespace) -> Scene:
    return issuing.carry_out(work, command, getpass.getuser(), VIA, options.reason)


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


def _retry_locks(options: Namespace, console: Console) -> Answer:
    task = console.load(options.task)
    with open_work(task, only_reads=options.dry_run) as work:
        scene = coordinate.observe(work.meta)
        views = [view for view in map(scene.view, scene.locks) if view.is_refused]
        commands = [Retry(view.id) for view in views]
        effects = [line for command in commands for line in (command.lock, *issuing.preview(work.meta, command, scene))]
        if not (commands and not options.dry_run):
            told = [*effects, DRY_RUN] if commands else ["the target has refused no DDL"]
        else:
            console.confirm(f"retry {len(commands)} locks", options.yes, effects)
            views = [
                coordinate.view(work.meta, command.lock, _carry_out(work, command, options)) for command in commands
            ]
            told = [*map(_told, views)]
    shown = [lock_document(view) for view in views]
    return Answer({"task": task.name, "dry_run": options.dry_run, "effects": effects, "locks": shown}, told)


def _retry_targets(options: Namespace, console: Console) -> Answer:
    task = console.load(options.task)
    with open_work(task, only_reads=options.dry_run) as work:
        stops = [s for s in work.meta.suspended_targets.all() if not options.table or str(s.target) in options.table]
        effects = [*map(preview_retry, stops)]
        document = {
            "task": task.name,
            "dry_run": options.dry_run,
            "effects": effects,
            "suspended_targets": [suspended_document(stop) for stop in stops],
        }
        if not stops:
            return Answer(document, ["no target is suspended"])
        if options.dry_run:
            return Answer(document, [*effects, DRY_RUN])
        console.confirm("retry", options.yes, effects)
        command_retry(work, stops, getpass.getuser(), VIA, options.reason)
    return Answer(document, ["done; the next windows use it"])
