"""US-6010, US-6012, US-6805, US-7004, US-7009, US-7010: the order of windows, fences and checkpoints."""

from unshard.errors.base import MetaError, Scope, TargetError


class FenceMissing(TargetError, code="US-6010", scope=Scope.INTERNAL):
    """The row of the meta schema that shows whether a window is applied is missing. unshard never deletes it.

    Consequence: Nothing of the window is written.
    """

    target: str
    source: str
    template = "the fence of source {source} for target table {target} is missing"
    hint = "the meta schema was changed by hand: restore it, or clear it and run the full part of the task again"


class NotInSync(TargetError, code="US-6012", scope=Scope.CONFIG):
    """This source has no checkpoint yet. The full part of a task writes it at the handover.

    Consequence: No window begins.
    Remedy: Run `unshard run TASK.yaml --until full`, or the DAG `unshard_full__<task>`, to its end.
    """

    source: str
    phase: str
    template = "source {source} is in the phase '{phase}': it has no checkpoint from which windows could continue"
    hint = "run the full part of the task first: `unshard run TASK.yaml --until full`"


class NoProgress(TargetError, code="US-6805", scope=Scope.INTERNAL):
    """`unshard run` found no work, but a source has not reached the upstream position of the run's start.

    This is a defect of unshard.

    Consequence: Nothing is lost, and the checkpoint is correct.
    """

    source: str
    position: str
    goal: str
    template = "source {source} makes no progress at {position}, before {goal}"
    hint = "this is a defect: report it with the output of `unshard status --json` and the relay folder's index files"


class FencedOut(MetaError, code="US-7004"):
    """A newer run of the same source has begun the window anew.

    Consequence: This run was stopped before it could write anything twice.
    Remedy: Nothing has to be done. If it happens often, two schedulers run the same task.
    """

    source: str
    window: int
    mine: int
    found: int
    template = "window {window} of source {source} has epoch {mine}, but epoch {found} has taken over"
    hint = "nothing to do: the newer run continues; let only one run of a task be active at a time"


class WindowMismatch(MetaError, code="US-7009", scope=Scope.INTERNAL, transient=True):
    """Another run of the same source has committed a window between planning and beginning this one.

    Consequence: The window does not begin. The next try plans it again.
    """

    source: str
    begins: str
    checkpoint: str
    template = "a window of source {source} was planned from {begins}, but the checkpoint is at {checkpoint}"
    hint = "another run has committed a window meanwhile: plan again"


class NotBegun(MetaError, code="US-7010", scope=Scope.INTERNAL):
    """A window to be committed was never begun. This is a defect of unshard.

    Consequence: Nothing is changed.
    """

    source: str
    window: int
    template = "window {window} of source {source} is not open"
    hint = "this is a defect: report it; nothing was changed"
