"""US-5090 to US-5094, US-5170: reading columns of a shard again (`unshard reload`)."""

from unshard.errors.base import Scope, ShardDdlError


class ReloadError(ShardDdlError, scope=Scope.CONFIG):
    """Columns of a shard cannot be reloaded.

    Consequence: Chunks that are done stay. Nothing else is written.
    """

    shard: str


class ReloadShardUnknown(ReloadError, code="US-5090"):
    """`--shard` of `unshard reload` names no shard of the task.

    Write a shard as `SOURCE/SCHEMA.TABLE`. A shard that an operator has dropped from its group, or that was dropped or
    renamed on its source, cannot be reloaded.

    Consequence: Nothing is changed.
    """

    known: str
    template = "the task has no shard '{shard}' (it has {known})"
    hint = "write the shard as SOURCE/SCHEMA.TABLE, as `unshard locks` and `unshard validate` show it"


class ReloadColumnUnfit(ReloadError, code="US-5091"):
    """A column cannot be reloaded.

    The shard or the target does not have it, it is generated, or it is in a unique key of the target. Rows are found by
    their key. With another unique key, two rows could have the same value for a moment. In optimistic mode unshard
    drops a unique key of the shards until the column is read again; only one that the target has of its own remains.

    Consequence: Nothing is changed.
    Remedy: Drop the unique key of the target that the message names, reload, create it again. Or name other columns. Or
    load the target again (`unshard run --remove-meta`). In optimistic mode `unshard reload --accept` ends an open
    difference with the values that the target has.
    """

    column: str
    why: str
    template = "column {column} of {shard} cannot be reloaded: {why}"
    hint = "name other columns, drop that key of the target, or load the target again (`unshard run --remove-meta`)"


class ReloadMustWait(ReloadError, code="US-5092"):
    """The shard or its target is in a state in which its columns cannot be reloaded: the message says which.

    A DDL or rows of the shard wait, its target is suspended, or its source is ahead of the windows by a DDL.

    Consequence: Chunks that are done stay. The next call continues, or begins again if a structure has changed.
    Remedy: Follow the message: resolve the lock (`unshard locks`), correct the target (`unshard retry`) or resolve the
    collision (`unshard collisions`). Then give the same command again.
    """

    why: str
    next: str
    template = "{shard} cannot be reloaded now: {why}"
    hint = "{next}; then run the same command again"


class ReloadImpossible(ReloadError, code="US-5093"):
    """A shard of this kind cannot be reloaded: the message says why.

    It has no usable key that is also a key of the target, or the key begins with an ENUM or SET. Or its source does not
    log whole rows (`binlog_row_image`), so a window may write a value that it has read from the target before. Or it
    shares keys with other shards (`on-duplicate`), so the target's row may be another shard's. Or a column has
    two names.

    Consequence: Nothing is changed.
    Remedy: Follow the message: set `binlog_row_image` to FULL on the source, set the column by an UPDATE on the shard,
    or load the target again (`unshard run --remove-meta`).
    """

    why: str
    next: str
    template = "{shard} cannot be reloaded: {why}"
    hint = "{next}"


class ReloadStructureAhead(ReloadError, code="US-5094"):
    """The source's table differs from the structure that the windows have reached: a DDL is in the binlog ahead.

    Consequence: Chunks that are done stay. The next call begins again with the new structure.
    """

    differences: str
    template = "the source's table {shard} is ahead of the windows: {differences}"
    hint = "apply the binlog first (`unshard run TASK`) and resolve its lock (`unshard locks TASK`), then reload again"


class ReloadNotDue(ReloadError, code="US-5170"):
    """`unshard reload --accept` names columns that no open difference wants to read again.

    `--accept` ends an open difference in the state `reload` of a target in optimistic mode: the values that the target
    has are right, for example because UPDATEs on the shard have written them again.

    Consequence: Nothing is changed.
    """

    columns: str
    due: str
    template = "{columns} of {shard} need not be read again (to reload: {due})"
    hint = "`unshard locks` shows the columns that must be read again"
