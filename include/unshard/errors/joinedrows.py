"""US-5120 to US-5121: rows of targets that follow the join of their shards."""

from unshard.errors.base import Scope, ShardDdlError


class JoinChanged(ShardDdlError, code="US-5120", scope=Scope.INTERNAL):
    """A change of the target table was recorded after this run had decided in which columns it writes its rows.

    Consequence: Nothing of the window was written. The same run converts the rows again.
    Remedy: Nothing has to be done.
    """

    target: str
    template = "target table {target} was changed while rows for it were converted"
    hint = "nothing to do: the next attempt writes them into the present columns"


class JoinChanging(ShardDdlError, code="US-5121", scope=Scope.INTERNAL, transient=True):
    """Statements that change the target table are being executed, so the columns for new rows are not known yet.

    Consequence: The rows of this window wait. Nothing is lost.
    Remedy: Nothing has to be done. If the process that executes the statements has died, the next coordination of locks
    finishes them.
    """

    target: str
    statement: str
    template = "target table {target} is being changed: {statement}"
    hint = "nothing to do: the next attempt writes the rows after the change"
