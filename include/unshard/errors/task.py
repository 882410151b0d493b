"""US-73xx: the life of a task: paused, removed, started at a time, rules changed. US-7012: defects of unshard."""

from unshard.errors.base import MetaError, Scope


class UnexpectedError(MetaError, code="US-7012", scope=Scope.INTERNAL):
    """An exception occurred that unshard does not expect. This is a defect of unshard.

    The file with the traceback contains no password and is readable by its owner only.

    Remedy: Report it with the file. If it recurs, run the command with `--verbose` and add the output.
    """

    what: str
    traceback: str
    template = "unexpected {what}; {traceback}"
    hint = "this is a defect of unshard: report it with that file; committed work stays, and the next run goes on"


class PackageMissing(MetaError, code="US-7014", scope=Scope.CONFIG):
    """A Python package that unshard needs is not installed.

    Remedy: Install it in the Python that the command or the Airflow component uses. [Install](install.md) lists all
    packages.
    """

    module: str
    template = "the Python module {module} is not installed"
    hint = "docs/install.md lists the packages of each machine"


class TaskPaused(MetaError, code="US-7301", scope=Scope.CONFIG):
    """The task is paused or stopped. The message says by whom, when and why.

    Consequence: Nothing of the task begins. Airflow skips its tasks.
    Remedy: `unshard resume TASK.yaml`, or the button on the page, continues the task where it stopped.
    """

    task: str
    pause: str
    template = "task {task} is {pause}"
    hint = "`unshard resume` continues it where it stopped"


class TaskAtWork(MetaError, code="US-7302", scope=Scope.CONFIG, transient=True):
    """`--remove-meta` was used while a window, a dump, a load or a DDL of the task is active, here or elsewhere.

    Consequence: The task is stopped, so nothing new begins. Its state is not removed.
    """

    task: str
    places: str
    template = "task {task} is still active: {places}"
    hint = "it is stopped now and begins nothing new: wait until that has ended and repeat the command"


class StartTimePurged(MetaError, code="US-7303", scope=Scope.UPSTREAM):
    """`--start-time` is before the oldest binlog file that the source still has.

    Consequence: The task does not start.
    """

    source: str
    time: str
    oldest: str
    template = "source {source} has purged its binlog of {time}: its oldest file is {oldest}, which was begun later"
    hint = "choose a later --start-time, or load the task from the start (task-mode: all)"


class StartTimeAhead(MetaError, code="US-7304", scope=Scope.CONFIG):
    """The start time is in the future by the source's clock.

    Consequence: The task does not start.
    """

    source: str
    time: str
    template = "the start time {time} has not come yet on source {source}"
    hint = "use a time in the past; a time without an offset is in the task's timezone"


class StartNotNew(MetaError, code="US-7305", scope=Scope.CONFIG):
    """A start time is set for a task that has state, or that does not begin at a place in the binlog.

    Only a task in task-mode `incremental` without state accepts one. A task that has begun cannot move its start,
    because rows would be applied twice or never.

    Consequence: The task does not start.
    Remedy: `unshard run TASK.yaml --remove-meta --start-time …` begins again.
    """

    task: str
    why: str
    template = "task {task} cannot be started at a time: {why}"
    hint = "a start time is for a task in task-mode incremental that has no state; `--remove-meta` removes the state"


class RulesSpoilRows(MetaError, code="US-7306", scope=Scope.CONFIG):
    """Changed routes, column mappings or extractors of a source do not fit the rows that are already in the target.

    A shard would go to another target, or its values would change; or a table that was excluded for a time would come
    back.

    Consequence: The windows of the source do not begin.
    Remedy: Restore the former rules. To use the new ones, create a task of another name with targets of its own, or use
    `unshard stop TASK.yaml --remove-meta`, empty the targets and load from the start.
    """

    source: str
    what: str
    template = "the changed rules of source {source} do not fit the rows that are in the target: {what}"
    hint = (
        "restore the former rules; or begin again with a task of another name, or with `unshard stop --remove-meta` and"
        " empty targets"
    )


class RulesWait(MetaError, code="US-7307", scope=Scope.CONFIG):
    """The rules of a source changed while work that depends on the former rules is pending.

    This is a DDL of an affected group, rows held after it, a window that has begun, a DDL of a new table that windows
    have not reached, or an online-DDL tool whose tables the new rules no longer recognise.

    Consequence: The windows of the source do not begin. The other sources continue.
    Remedy: Restore the former rules, resolve the lock or let the source catch up, then change the rules again.
    """

    source: str
    what: str
    template = "the changed rules of source {source} cannot be used now: {what}"
    hint = "restore the former rules until that has ended (`unshard locks`, `unshard status`), then change them again"
