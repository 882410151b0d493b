"""US-22xx: the snapshot and the dump. US-64xx: the load."""

from unshard.errors.base import Scope, SourceError, TargetError
from unshard.errors.rows import Collision


class StructuresUnsteady(SourceError, code="US-2201", transient=True):
    """A DDL ran in each attempt to take a snapshot.

    unshard reads the structures of the shards before and after it takes the location P0. They must be equal; otherwise
    it would read rows with the wrong columns.
    """

    source: str
    attempts: int
    template = "the tables of source {source} changed each of {attempts} times while their structures were read"
    hint = "wait until no DDL runs on the source, then try again"


class NoSnapshot(SourceError, code="US-2202"):
    """The dump of a source was started before its location and structures were recorded.

    Consequence: Nothing is dumped.
    """

    source: str
    template = "source {source} has no snapshot yet"
    hint = "run the task's snapshot step first; `unshard run` and the full DAG do so automatically"


class StructureChanged(SourceError, code="US-2203"):
    """A DDL changed or dropped a shard between its snapshot and the end of its dump.

    Consequence: unshard starts the dump anew, up to three times, as long as it has loaded nothing of the source.
    Remedy: Run no DDL until the dump has ended, or let all shards complete the DDL first.
    """

    shard: str
    template = "the structure of shard {shard} changed while its rows were dumped"
    hint = "unshard restarts the dump a few times; wait until no DDL runs on the source, then try again"


class TransactionsPrepared(SourceError, code="US-2204", transient=True):
    """XA transactions are prepared on the source.

    The dump would not see their rows, and their first part is before the position from which unshard reads the binlog.
    On MySQL the account needs XA_RECOVER_ADMIN to list them; without it, unshard notices only their commit (US-3024).

    Remedy: Commit them or roll them back, then try again. `XA RECOVER` lists them. An abandoned transaction keeps its
    locks forever and blocks DDL too.
    """

    source: str
    count: int
    template = "source {source} has {count} XA transactions that are prepared (XA RECOVER lists them)"
    hint = "commit or roll them back, then try again; abandoned ones keep their locks and must be ended in any case"


class ConditionRefused(SourceError, code="US-2205", scope=Scope.CONFIG):
    """A source cannot evaluate `where` of the mydumper block for a shard.

    The expression does not fit the shard's columns or a value of one of its rows (a number out of range, invalid JSON).
    `unshard check` tries one shard of each structure; problems of single values appear during the dump.

    Remedy: Correct the condition. It may name columns that all shards of the source have, without their table. The
    message has the line of the task file and the server's message. A new condition is accepted until a chunk of the
    source is dumped.
    """

    shard: str
    condition: str
    place: str
    server_message: str
    template = "shard {shard} cannot be read where `{condition}` ({place}): {server_message}"
    hint = (
        "if the message is about the condition, correct `where`: it is an expression of the source over columns that"
        " all of its shards have, named without their table"
    )


class ConditionChanged(SourceError, code="US-2206", scope=Scope.CONFIG):
    """Rows of a source are already dumped with one condition (`where`), and the task file now has another.

    Rows read with the new condition would not match the dumped rows. The error also occurs when a new table is added to
    a task whose `where` was changed after its dump.
    """

    source: str
    dumped: str
    present: str
    template = "source {source} is already dumped with `where: {dumped}`, but the task file now has `{present}`"
    hint = "restore the former condition; or begin again with `unshard stop --remove-meta` and empty targets"


class TargetNotEmpty(TargetError, code="US-6401"):
    """A new task finds rows in a target table that it has not loaded.

    Consequence: Nothing is loaded.
    Remedy: Empty the table. If the rows belong there, set `on-duplicate` to `replace` or `ignore`.
    """

    target: str
    template = "target table {target} has rows that this task has not loaded"
    hint = "empty the table, or set on-duplicate to replace or ignore in the task file to load into it as it is"


class NotDumped(TargetError, code="US-6402"):
    """The load of a source was started before its dump was complete.

    Consequence: Nothing is loaded.
    """

    source: str
    template = "source {source} is not dumped yet"
    hint = "run the task's dump step first; `unshard run` and the full DAG do so automatically"


class NotLoaded(TargetError, code="US-6403"):
    """The handover was started before every source was loaded.

    Windows may begin only when the rows of all sources are in the target. Before that, a key that seems new could
    belong to a row that another source has not loaded yet.

    Consequence: The task stays in the full load.
    """

    sources: str
    template = "these sources are not loaded yet: {sources}"
    hint = "run their dump and load steps first; windows begin when all rows of all sources are in the target"


class ChunkGone(TargetError, code="US-6404"):
    """A chunk to be loaded is no longer in the meta tables, or no longer dumped.

    Two runs of one task are active, and one of them has started the source anew.

    Consequence: The chunk is not loaded by this run.
    Remedy: Stop one of the two runs.
    """

    shard: str
    number: int
    template = "chunk {number} of shard {shard} is no longer waiting to be loaded"
    hint = "another run of the same task has started the source anew: run only one of them"


class LoadCollision(Collision, code="US-6405"):
    """Two shards had a row with the same key when they were dumped, so their union does not fit into one table.

    Consequence: The chunk is not loaded. `unshard collisions` lists the open collisions. With `on-duplicate: replace`
    there is no error: the row that is loaded last wins. With `ignore` the first one wins.
    Remedy: Remove or change the row in one of the shards and run the task again. The message names the key and both
    shards. unshard reads that shard anew; everything else that is loaded stays.
    """

    hint = (
        "remove or change the row in one of the shards and run the task again, which reads that shard anew;"
        " or set on-duplicate to replace or ignore in the task file"
    )


class DumpLeft(TargetError, code="US-6406"):
    """The source was dumped in another task-mode, but task-mode `incremental` never loads a dump.

    Consequence: The task does not start, because the rows of the dump would never reach the target.
    Remedy: Use `all`, or `load&sync` if the dump is complete, or forget the dump with `unshard stop --remove-meta`.
    """

    source: str
    template = "source {source} has a dump, complete or begun, that task-mode incremental would never load"
    hint = (
        "restore the former task-mode, or use load&sync if the dump is complete;"
        " `unshard stop --remove-meta` forgets it, so that the task begins without a dump"
    )


class LoadRefused(TargetError, code="US-6407"):
    """Several chunks of a dump have rows that their target tables cannot store, or do not fit the tables.

    The message has the first errors with column and key.

    Consequence: unshard loads all other chunks, also those of other tables.
    Remedy: Remove the cause and run the task again: it loads the remaining chunks. With `row-errors: divert`, unshard
    diverts single rows that a table cannot store.
    """

    source: str
    targets: str
    chunks: int
    errors: str
    template = (
        "{chunks} chunks of source {source} cannot be loaded into {targets}, all others are loaded;"
        " first errors: {errors}"
    )
    hint = "remove the causes of the first errors, then run the task again: it loads the remaining chunks"
