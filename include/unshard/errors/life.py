"""US-73xx: the life of a task: halted, removed, changed."""

from dataclasses import dataclass

from unshard.errors.base import Scope
from unshard.errors.meta import MetaError


@dataclass(eq=False)
class TaskHalted(MetaError):
    """Somebody has paused or stopped the task, so nothing of it begins."""

    scope = Scope.CONFIG
    task: str
    halt: str

    code = "US-7301"
    template = "task {task} is {halt}"
    hint = "`unshard resume` lets it go on where it was"


@dataclass(eq=False)
class TaskAtWork(MetaError):
    """What a task has left cannot be removed while a process works on it."""

    transient = True
    scope = Scope.CONFIG
    task: str
    places: str

    code = "US-7302"
    template = "task {task} is still at work: {places}"
    hint = "it is stopped now and begins nothing new: wait until that has ended and give the command again"


@dataclass(eq=False)
class StartTimePurged(MetaError):
    """The source has no binlog of the time at which the task is to start."""

    scope = Scope.UPSTREAM
    source: str
    time: str
    oldest: str

    code = "US-7303"
    template = "source {source} has purged its binlog of {time}: its oldest file is {oldest}, which was begun later"
    hint = "choose a later --start-time, or load the task from the start (task-mode: all)"


@dataclass(eq=False)
class StartTimeAhead(MetaError):
    """The time at which the task is to start has not come yet on the source."""

    scope = Scope.CONFIG
    source: str
    time: str

    code = "US-7304"
    template = "the start time {time} has not come yet on source {source}"
    hint = "give a time in the past; one without an offset is in the task's timezone"


@dataclass(eq=False)
class StartNotNew(MetaError):
    """A start time is given to a task that has begun already, or that does not begin by a place in the binlog."""

    scope = Scope.CONFIG
    task: str
    why: str

    code = "US-7305"
    template = "task {task} cannot be started at a time: {why}"
    hint = "a start time is for a task in task-mode incremental that has no state; `--remove-meta` removes it"


@dataclass(eq=False)
class RulesSpoilRows(MetaError):
    """Changed rules would make rows differ that are in the target already."""

    scope = Scope.CONFIG
    source: str
    what: str

    code = "US-7306"
    template = "the changed rules of source {source} do not fit the rows that are in the target: {what}"
    hint = ("put the former rules back; or begin anew: a task of another name, or `unshard stop --remove-meta` and "
            "empty targets")  # fmt: skip


@dataclass(eq=False)
class RulesWait(MetaError):
    """Changed rules cannot be taken while something waits that the former ones have brought about."""

    scope = Scope.CONFIG
    source: str
    what: str

    code = "US-7307"
    template = "the changed rules of source {source} cannot be taken now: {what}"
    hint = "put the former rules back until that has passed (`unshard locks`, `unshard status`), then change them again"
