"""US-233x to US-236x, US-68xx: findings of the prechecks about the target."""

from unshard.errors.base import Scope, TargetError
from unshard.errors.checks import CheckFailed, CheckWarned


class CollationUnknown(CheckFailed, code="US-2330", scope=Scope.CONFIG):
    """The target does not know a collation of the shards, so it cannot create their table.

    `utf8mb4_0900_ai_ci`, the default of MySQL 8, is unknown to MariaDB 10.11 and known to 11.8. A task that syncs needs
    the collation even if the target table exists, because unshard tries each DDL on an empty table like the shard.
    """

    target: str
    collation: str
    what: str
    template = "the target does not know the collation {collation}, which shards of {target} have ({what})"
    hint = (
        "use a target that knows it (utf8mb4_0900_*: MySQL 8, TiDB, MariaDB 11.8), or convert the shards; if the task"
        " only loads, you can create its table beforehand with a collation that compares keys in the same way"
    )


class TargetNarrower(CheckWarned, code="US-2343"):
    """An existing target table has columns that do not hold every value that its shards can have.

    For example a shorter text, a smaller number, or NOT NULL.

    Consequence: `unshard check` reports a warning. The first value that does not fit suspends the table with
    [US-6002](#us-6002-rowrefused).
    Remedy: Widen the columns, or ignore the warning if you know that all values fit.
    """

    table: str
    reasons: str
    template = "target table {table} cannot store every row of its shards: {reasons}"
    hint = "widen the columns; else the first value that does not fit suspends the table (US-6002)"


class TargetTooOld(CheckFailed, code="US-2348", scope=Scope.CONFIG):
    """The target is MySQL 5.6. unshard's own tables have keys of more than the 767 bytes that its indexes hold.

    MySQL 5.6 is supported as a source.
    """

    version: str
    least: str
    template = "the target has version {version}: its indexes are too short for unshard's own tables before {least}"
    hint = "use a target of that version or a later one"


class StructureRefused(CheckFailed, code="US-2353", scope=Scope.CONFIG):
    """`unshard check` created an empty table like the shard in the meta schema of the target, and the target refused.

    The message names the column, index, constraint or option, with the target's own message.

    Remedy: Create the target table before the start with something that the target accepts, or alter the shards.
    unshard never recreates an existing table, but its columns must hold all values of the shards (US-2343 names those
    that do not). TiDB has no GEOMETRY, UUID, INET4 and INET6: use VARCHAR columns for the last three.
    """

    table: str
    shard: str
    what: str
    server_message: str
    remedy: str
    template = "the target cannot create {table} like its shard {shard}, it refuses {what}: {server_message}"
    hint = "{remedy}"


class TrialTableRefused(CheckWarned, code="US-2354"):
    """The target cannot create a table like one of the shards, but needs none for its rows.

    The target table exists, or it is created like the first shard of a source, and the target can do that.

    Consequence: `unshard check` reports a warning. Rows are merged. unshard tries a DDL on such a table before it
    executes the DDL, so each DDL of these shards waits for an operator.
    """

    table: str
    shard: str
    what: str
    server_message: str
    template = (
        "the rows of {shard} fit into {table}, but the target cannot create a table like this shard, it refuses {what}:"
        " {server_message}; so unshard cannot try a DDL of this shard, and each DDL will wait for an operator"
    )
    hint = "when such a DDL comes, use `unshard replace` or `unshard skip`; or change the shards before the start"


class StructureAltered(CheckWarned, code="US-2355"):
    """The target creates the table, but omits or changes a part of it.

    An index is missing (FULLTEXT on TiDB), a column is narrower, or the target itself warns (CHECK constraints,
    subpartitions).

    Consequence: `unshard check` reports a warning. Rows are merged unchanged.
    """

    table: str
    shard: str
    differences: str
    template = "the target would create {table} unlike its shard {shard}: {differences}"
    hint = "ignore this if the target needs none of it; else create {table} there before the start"


class KeyShortened(CheckFailed, code="US-2356", scope=Scope.CONFIG):
    """The target would create a primary or unique key over the first characters of its columns only.

    The whole key is too long for the target. Two rows that differ only after these characters would collide.
    """

    table: str
    shard: str
    wanted: str
    made: str
    template = "the target would create {table} with {made}, but its shard {shard} has {wanted}"
    hint = "shorten the columns of this key on the shards, or create {table} on the target before the start"


class IndexesLeftOut(CheckWarned, code="US-2357"):
    """`unsupported-indexes: leave-out` is set, and the target refuses non-unique indexes of a shard.

    Consequence: `unshard check` reports a warning. unshard creates the table without them. The target refuses a later
    DDL of a shard that drops or alters such an index, and that DDL waits for an operator (`unshard skip`).
    """

    table: str
    shard: str
    indexes: str
    template = "{table} is created like its shard {shard}, but without indexes that the target refuses: {indexes}"
    hint = "nothing has to be done: `unsupported-indexes: leave-out` is set; queries that need them will be slower"


class EngineReplaced(CheckWarned, code="US-2390"):
    """The shard has an engine without transactions, such as MyISAM or Aria, and the target table does not exist.

    A target table must be able to roll back, so unshard creates it with InnoDB. It leaves out options about the storage
    of the other engine, such as ROW_FORMAT.

    Consequence: `unshard check` reports a warning. Rows are merged unchanged. `unshard run` repeats the warning when it
    creates the table.
    """

    table: str
    shard: str
    engine: str
    template = "{table} is created with InnoDB: its shard {shard} has the engine {engine}, which has no transactions"
    hint = "nothing has to be done; create {table} on the target before the start if it needs other storage options"


class StorageLeftOut(CheckWarned, code="US-2395"):
    """The shard has clauses that say where and how its server stores the table, and the target table does not exist.

    These are `DATA DIRECTORY`, `CONNECTION`, `UNION`, `TABLESPACE`, `ENCRYPTION` and the like. They could name files,
    keys or tables of the target, or another server with its password, so unshard leaves them out of every statement.

    Consequence: `unshard check` reports a warning. Rows are merged unchanged. `unshard run` repeats the warning when it
    creates the table. The log names such clauses of a later DDL.
    """

    table: str
    shard: str
    clauses: str
    template = (
        "{table} is created without {clauses} of its shard {shard}: a source does not decide on the target's storage"
    )
    hint = "nothing has to be done; create {table} on the target before the start if it needs such clauses"


class StartTimeNeedsKey(CheckFailed, code="US-2376", scope=Scope.CONFIG):
    """An existing target table with rows has no key that its shards fill, so unshard finds a row by all its values.

    The task begins with `--start-time`: the changes between this time and now may be in the table already. With a key
    they can be applied again. Without one, their rows would be there twice.
    """

    table: str
    source: str
    template = "{table} has rows and no key that its shards fill: changes of {source} after a start time could repeat"
    hint = (
        "write the exact position up to which {table} has all changes (binlog-name and binlog-pos, or binlog-gtid),"
        " or empty the table, or give it a unique key of columns that its shards fill"
    )


class PositionMustBeExact(CheckWarned, code="US-2377"):
    """An existing target table with rows has no key that its shards fill, so unshard finds a row by all its values.

    The task begins at a position. A change after it that the table already has cannot be recognized: an inserted row
    would be there twice, and a deleted row would not be found (US-6008). `safe-mode` does not change this.

    Remedy: Make sure that the table has exactly the changes before the position, or give it a unique key of columns
    that its shards fill.
    """

    table: str
    source: str
    start: str
    template = "{table} has no key that its shards fill: it must have exactly the changes of {source} before {start}"
    hint = "check that {table} was copied at this position, or give it a unique key of columns that its shards fill"


class EngineKept(CheckWarned, code="US-2375"):
    """The shard has an engine without transactions, such as MyISAM or Aria, or gets one by a DDL of the binlog.

    A target table must be able to roll back. So it keeps its engine, and options of a DDL about the engine and its
    storage are not executed there.

    Consequence: Rows are merged unchanged. `unshard check`, `unshard run` and the log report it.
    """

    table: str
    shard: str
    engine: str
    template = "{table} keeps its engine: its shard {shard} has the engine {engine}, which has no transactions"
    hint = "nothing has to be done; after a crash of its source a shard of this engine may differ from its binlog"


class PrimaryKeyClustered(CheckWarned, code="US-2358"):
    """TiDB stores the rows of these tables by the primary key and can never drop or change it.

    Remedy: If the shards may change their primary keys, let unshard create the tables with
    `target-primary-key: nonclustered`; an existing table must be copied for that. Otherwise set
    `target-primary-key: clustered`, which also removes the warning.
    """

    tables: str
    template = "the primary key is clustered in {tables}: the target refuses every later DDL that drops or changes it"
    hint = (
        "set `target-primary-key: nonclustered` in the block `unshard` before the tables are created; set it to"
        " `clustered` if the shards will never change their primary keys"
    )


class PrimaryKeyChoiceUnknown(CheckFailed, code="US-2359", scope=Scope.CONFIG):
    """The task file has `target-primary-key`, but the target does not know `tidb_enable_clustered_index`.

    The target is not TiDB.
    """

    version: str
    template = "`target-primary-key` chooses how TiDB stores primary keys, but the target has no such choice: {version}"
    hint = "remove `target-primary-key` from the block `unshard`"


class TargetSettingWrong(CheckFailed, code="US-2360", scope=Scope.CONFIG):
    """A session variable of the target breaks transactions, shows old rows or stores invalid text.

    The server or the `session` block of the task file sets it. The message names the reason and the value to set.
    """

    variable: str
    value: str
    why: str
    wanted: str
    template = "the target's sessions have {variable} = {value}: {why}"
    hint = "set {variable} to {wanted}, in the `session` block of target-database or with SET GLOBAL"


class TargetReadOnly(CheckFailed, code="US-2361", scope=Scope.CONFIG):
    """`unshard check` could not create a table on the target: the server, or the account's session, is read-only."""

    server_message: str
    template = "the target is read-only: {server_message}"
    hint = (
        "turn off the setting that makes it read-only: read_only, super_read_only, tidb_restricted_read_only or"
        " tidb_super_read_only"
    )


class TargetNamesAlike(CheckFailed, code="US-2391", scope=Scope.CONFIG):
    """Two target tables have names that differ only in case, and the target ignores case (`lower_case_table_names`).

    They would be one table with the rows of both.
    """

    names: str
    template = "the target ignores the case of names, so {names} are one table there"
    hint = "give one of them another name by a route, or use a target with lower_case_table_names = 0"


class LocalInfileOff(TargetError, code="US-6801"):
    """The target refuses LOAD DATA LOCAL.

    Consequence: `unshard check` reports a warning. unshard writes rows by INSERT and REPLACE, which is correct but
    slower.
    """

    target: str
    template = "target {target} has local_infile OFF"
    hint = "SET GLOBAL local_infile = ON, and the same in the server's configuration"


class TargetTableUnfit(TargetError, code="US-6802"):
    """An existing target table does not fit its shards.

    It lacks a column of its shards, or has a column without default that no shard has. Or it has neither a usable key
    of columns that its shards fill nor an index that begins with their key: then each change would search the table.

    Consequence: `unshard check` reports an error. `unshard run` and the full DAG do not start (US-2311).
    Remedy: Change the table, or drop it if it is empty: unshard then creates it from a shard's structure.
    """

    table: str
    reasons: str
    template = "target table {table} cannot store the rows of its shards: {reasons}"
    hint = "change or drop the table (a lacking index: ADD INDEX); unshard creates a missing one like a shard"


class ImageFindsNoRow(CheckFailed, code="US-2381"):
    """An existing target table has no key that its shards fill, so unshard finds a row by all its values.

    The source logs only some columns of a changed row (`binlog_row_image`), so these values are unknown.
    """

    table: str
    source: str
    image: str
    template = "{table} has no key that its shards fill, and {source} logs no whole rows (binlog_row_image = {image})"
    hint = "SET GLOBAL binlog_row_image = FULL and reconnect every session, or give the table such a key"


class ConditionFindsNoRow(CheckFailed, code="US-2382", scope=Scope.CONFIG):
    """An existing target table has no key that its shards fill, so unshard finds a row by all its values.

    The dump has a `where`. The first change of a row that it leaves out would not find the row.
    """

    table: str
    source: str
    template = "{table} has no key that its shards fill, and the dump of {source} leaves rows out by `where`"
    hint = "remove `where`, or give the table a unique key of columns that its shards fill"
