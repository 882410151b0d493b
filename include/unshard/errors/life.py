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
