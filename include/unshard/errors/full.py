"""US-22xx: the snapshot and the dump. US-64xx: the load."""

from unshard.errors.base import OneTargetError, Scope, ShardRowsError, SourceError, TargetError
from unshard.errors.rows import Collision


class StructuresUnsteady(SourceError, code="US-2201", transient=True):
    source: str
    attempts: int
    template = "the tables of source {source} changed each of {attempts} times while their structures were read"
    hint = "wait until no DDL runs on the source, then try again"


class NoSnapshot(SourceError, code="US-2202"):
    source: str
    template = "source {source} has no snapshot yet"
    hint = "run the task's snapshot step first; `unshard run` and the full DAG do so automatically"


class StructureChanged(SourceError, code="US-2203"):
    shard: str
    template = "the structure of shard {shard} changed while its rows were dumped"
    hint = "unshard restarts the dump a few times; wait until no DDL runs on the source, then try again"


class TransactionsPrepared(SourceError, code="US-2204", transient=True):
    source: str
    count: int
    template = "source {source} has {count} XA transactions that are prepared (XA RECOVER lists them)"
    hint = "commit or roll them back, then try again; abandoned ones keep their locks and must be ended in any case"


class ConditionRefused(SourceError, code="US-2205", scope=Scope.CONFIG):
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
    source: str
    dumped: str
    present: str
    template = "source {source} is already dumped with `where: {dumped}`, but the task file now has `{present}`"
    hint = "restore the former condition; or begin again with `unshard stop --remove-meta` and empty targets"


class TargetNotEmpty(OneTargetError, code="US-6401"):
    template = "target table {target} has rows that this task has not loaded"
    hint = "empty the table, or set on-duplicate to replace or ignore in the task file to load into it as it is"


class NotDumped(TargetError, code="US-6402"):
    source: str
    template = "source {source} is not dumped yet"
    hint = "run the task's dump step first; `unshard run` and the full DAG do so automatically"


class NotLoaded(TargetError, code="US-6403"):
    sources: str
    template = "these sources are not loaded yet: {sources}"
    hint = "run their dump and load steps first; windows begin when all rows of all sources are in the target"


class ChunkGone(ShardRowsError, code="US-6404"):
    number: int
    template = "chunk {number} of shard {shard} is no longer waiting to be loaded"
    hint = "another run of the same task has started the source anew: run only one of them"


class LoadCollision(Collision, code="US-6405"):
    hint = (
        "remove or change the row in one of the shards and run the task again, which reads that shard anew;"
        " or set on-duplicate to replace or ignore in the task file"
    )


class DumpLeft(TargetError, code="US-6406"):
    source: str
    template = "source {source} has a dump, complete or begun, that task-mode incremental would never load"
    hint = (
        "restore the former task-mode, or use load&sync if the dump is complete;"
        " `unshard stop --remove-meta` forgets it, so that the task begins without a dump"
    )


class LoadRefused(TargetError, code="US-6407"):
    source: str
    targets: str
    chunks: int
    errors: str
    template = (
        "{chunks} chunks of source {source} cannot be loaded into {targets}, all others are loaded;"
        " first errors: {errors}"
    )
    hint = "remove the causes of the first errors, then run the task again: it loads the remaining chunks"
