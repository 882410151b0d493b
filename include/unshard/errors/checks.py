"""US-23xx, US-680[12]: findings of the prechecks (`unshard check`) about sources, shards, task file and target."""

from unshard.errors.base import OneTargetError, Scope, SourceError, TargetError


class CheckFailed(SourceError):
    """A finding with which the task would fail later."""


class CheckWarned(SourceError):
    """A finding that may be harmless."""


class SourceFailed(CheckFailed):
    """The same, about one source."""

    source: str


class SourceWarned(CheckWarned):
    """The same, about one source."""

    source: str


class TableWarned(CheckWarned):
    """The same, about one table."""

    table: str


class BinlogDisabled(SourceFailed, code="US-2302"):
    template = "source {source} writes no binlog (log_bin is OFF)"
    hint = "start the server with log-bin and binlog-format=ROW"


class BinlogSettingWrong(SourceFailed, code="US-2303"):
    variable: str
    value: str
    wanted: str
    template = "source {source} has {variable} = {value}, needed is {wanted}"
    hint = "SET GLOBAL {variable} = {wanted}, the same in the server's configuration, and reconnect every session"


class ServerIdZero(SourceFailed, code="US-2304"):
    template = "source {source} has server_id 0"
    hint = "give the server a server_id that no other server or replica uses"


class BinlogHidesSchemas(SourceFailed, code="US-2305"):
    option: str
    value: str
    schemas: str
    template = "source {source} has {option} = {value}: the binlog lacks changes of {schemas}"
    hint = "remove the option from the server's configuration and restart the server"


class PrivilegesMissing(CheckFailed, code="US-2306"):
    where: str
    account: str
    privileges: str
    scope_name: str
    template = "{account} lacks {privileges} on {scope_name} of {where}"
    hint = "GRANT {privileges} ON {scope_name} TO the account"


class ShardsDiffer(CheckFailed, code="US-2307"):
    target: str
    first: str
    other: str
    differences: str
    template = "shards of {target} differ: {first} and {other}: {differences}"
    hint = "give all shards of a target the same structure before the task starts"


class KeylessTable(TableWarned, code="US-2308"):
    template = "{table} has no primary key and no unique key without NULLs, prefixes and floats"
    hint = "add a primary key if you can: without one every change costs more"


class NotTransactional(TableWarned, code="US-2309"):
    engine: str
    template = "{table} has no usable key, and its engine {engine} has no snapshots"
    hint = "convert it to InnoDB, give it a key or use consistency: lock; else rows may be lost or doubled"


class FlavorWrong(SourceFailed, code="US-2310"):
    declared: str
    version: str
    template = "source {source} is declared as {declared}, but the server is {version}"
    hint = "correct flavor or host in the source file"


class PrecheckFailed(SourceError, code="US-2311"):
    count: int
    first: str
    template = "{count} precheck(s) failed, the first: {first}"
    hint = "`unshard check TASK.yaml` lists all of them with their remedies"


class RuleIdle(CheckWarned, code="US-2312", scope=Scope.CONFIG):
    rule: str
    sources: str
    template = "{rule} matches no table of {sources}"
    hint = "correct its patterns, or keep it for tables that come later; unshard sees only tables that the account sees"


class NoTablesYet(SourceWarned, code="US-2380", scope=Scope.CONFIG):
    account: str
    tables: int
    template = "source {source} has no table for this task yet among the {tables} that {account} may see"
    hint = (
        "nothing to do if its tables come later; else check routes and block-allow-list, and that the account has"
        " SELECT on the shards"
    )


class SequenceLeftOut(TableWarned, code="US-2313", scope=Scope.CONFIG):
    template = "{table} is a sequence: unshard does not merge its numbers"
    hint = "nothing has to be done; exclude it in the lists so that unshard does not read its rows"


class VersionUntested(CheckWarned, code="US-2320"):
    place: str
    version: str
    relation: str
    first: str
    last: str
    template = "{place} has version {version}, {relation} than the tested versions {first} to {last}"
    hint = "try it with `unshard run` and `unshard validate` on a copy first"


class RetentionShort(SourceWarned, code="US-2321"):
    retention: str
    template = "source {source} keeps its binlog for {retention} only"
    hint = "set binlog_expire_logs_seconds (or expire_logs_days) to more than the full load and any pause takes"


class OnlineDdlUnderWay(SourceWarned, code="US-2322"):
    online_table: str
    role: str
    table: str
    template = "source {source} has {online_table}, the {role} table of a tool that changes {table} online: ignored"
    hint = (
        "let the tool finish first, so that unshard knows its statement; if it is an ordinary table, set"
        " shadow-table-rules and trash-table-rules that do not match its name"
    )


class ServerIdTwice(CheckWarned, code="US-2323"):
    sources: str
    number: str
    template = "the sources {sources} have the same server_id {number}"
    hint = "give each server an id of its own, or check that the addresses are not the same server"


class CaseRulesDiffer(CheckWarned, code="US-2324"):
    values: str
    template = "lower_case_table_names differs: {values}"
    hint = "rename tables whose names differ in case only: on another server they would be one table"


class KeysCountUp(CheckWarned, code="US-2325"):
    target: str
    count: int
    first: str
    other: str
    template = "{count} shards of {target} number their rows by AUTO_INCREMENT, {first} and {other} among them"
    hint = "unless their numbers are kept apart, add a column that a route extracts to the target's key"


class KeysOverlap(CheckFailed, code="US-2326"):
    target: str
    key: str
    first: str
    other: str
    template = "shards {first} and {other} of {target} both have a row with the key {key}"
    hint = (
        "remove one, or create the target with a key that separates the shards (with a column of theirs, or one that"
        " a route extracts), or set `on-duplicate` of the loader to `replace` or `ignore`"
    )


class ForeignKeysLeft(SourceWarned, code="US-2327"):
    tables: str
    template = "source {source} has foreign keys at {tables}"
    hint = "the target does not enforce them, and row changes by ON DELETE or ON UPDATE are in no binlog"


class ConnectionsScarce(CheckWarned, code="US-2328"):
    place: str
    needed: int
    free: int
    template = "{place} has {free} free connections, the task opens up to {needed}"
    hint = "raise max_connections there, or lower `threads` of the mydumper or loader block"


class StartGone(SourceFailed, code="US-2329"):
    file: str
    first: str
    template = "source {source} has no binlog file {file}, its first is {first}"
    hint = "use a position that exists (SHOW BINARY LOGS), or let the task load everything anew (task-mode all)"


class StorageShort(CheckWarned, code="US-2331", scope=Scope.CONFIG):
    path: str
    free: int
    needed: int
    template = "{path} has {free} bytes free, the shards have about {needed} bytes"
    hint = "free some space or set `storage-path` to a larger disk"


class ShadowDoubtful(SourceWarned, code="US-2335"):
    table: str
    shard: str
    template = "source {source} has {table}, named like the shadow table of {shard}, and takes it for an ordinary table"
    hint = (
        "drop it or add it to ignore-tables if a tool has left it; if a tool is active, grant the account the privilege"
        " TRIGGER, so that unshard sees the tool, and do not turn online-ddl off"
    )


class RowImageSparse(SourceWarned, code="US-2341", scope=Scope.CONFIG):
    image: str
    template = (
        "source {source} has binlog_row_image = {image}: unshard completes rows by reading the target; a REPLACE of an"
        " existing row stops the source, and so does a row whose key changes while it is dumped"
    )
    hint = "SET GLOBAL binlog_row_image = FULL, the same in the server's configuration, and reconnect every session"


class StartBeyond(SourceFailed, code="US-2342"):
    place: str
    size: int
    template = "source {source} has nothing at {place} yet: the file has {size} bytes"
    hint = StartGone.hint


class StartWithin(SourceFailed, code="US-2344"):
    place: str
    template = "at {place} of source {source} no transaction begins: a part of the transaction would be missing"
    hint = "use the Pos of a Gtid event (SHOW BINLOG EVENTS IN 'file'), or a position from SHOW MASTER STATUS"


class ZonesDiffer(SourceWarned, code="US-2345", scope=Scope.CONFIG):
    theirs: str
    ours: str
    template = (
        "sessions of source {source} are in time zone {theirs}, but `timezone` of the task is {ours}: a"
        " DDL such as DEFAULT '2026-01-31 12:00:00' of a TIMESTAMP column may mean another time"
    )
    hint = "set `timezone` of the task file to the zone of the sources"


class ModesDiffer(CheckWarned, code="US-2346"):
    values: str
    template = (
        "sql_mode differs: {values}; rows and DDLs keep their meaning, but the same DDL may create different columns on"
        " two shards, and applications that move to the target are subject to its modes"
    )
    hint = "set the same modes everywhere, or ignore this if nothing relies on these modes"


class CollationsDiffer(CheckWarned, code="US-2347"):
    what: str
    values: str
    template = "{what} differs: {values}; a DDL without a character set creates different columns there"
    hint = (
        "set the same everywhere (SET GLOBAL, ALTER DATABASE or TABLE … DEFAULT CHARACTER SET … COLLATE …),"
        " or name a character set in DDLs"
    )


class KeylessUnderCondition(CheckFailed, code="US-2351", scope=Scope.CONFIG):
    tables: str
    condition: str
    template = (
        "{tables} have no usable key: an UPDATE or DELETE of a row outside `{condition}` could not be applied, because"
        " the target does not have the row"
    )
    hint = "give them a key, put them into a task without `where`, or dump them in task-mode full"


class ImageUnderCondition(SourceFailed, code="US-2352", scope=Scope.CONFIG):
    image: str
    condition: str
    template = (
        "source {source} has binlog_row_image = {image}: an UPDATE of a row outside `{condition}` could not be applied,"
        " because the target does not have the columns that the binlog omits"
    )
    hint = RowImageSparse.hint


class DecodersDiffer(CheckFailed, code="US-2362"):
    shard: str
    location: str
    column: str
    ours: str
    theirs: str
    template = "{shard} at {location}, {column}: unshard reads {ours}, mysql-replication reads {theirs}"
    hint = (
        "compare both with `mysqlbinlog --verbose` and with the row in the table; if unshard is wrong, do not start the"
        " task, and report the column type, the server's version and the event; docs/cli.md lists the known faults of"
        " mysql-replication"
    )


class ReferenceDecoderFailed(SourceWarned, code="US-2363"):
    location: str
    server_message: str
    template = "mysql-replication cannot read the binlog of source {source} at {location}: {server_message}"
    hint = "the task can run: this error concerns only `unshard check --decoder`"


class BinlogEngineWrong(SourceFailed, code="US-2364"):
    engine: str
    template = "source {source} has binlog_storage_engine = {engine}: its binlog is not in files"
    hint = "remove binlog_storage_engine from the server's configuration, restart the server, then start the task"


class ShardRowsAlike(CheckFailed, code="US-2370"):
    target: str
    why: str
    template = "the rows of a dropped shard of {target} could not be found: {why}"
    hint = (
        "extract a column from the name of the shard, or map its ids by `partition id` in a column that is NOT NULL; or"
        " set `drop-shard-rows: keep`"
    )


class CollationUnknown(CheckFailed, code="US-2330", scope=Scope.CONFIG):
    target: str
    collation: str
    what: str
    template = "the target does not know the collation {collation}, which shards of {target} have ({what})"
    hint = (
        "use a target that knows it (utf8mb4_0900_*: MySQL 8, TiDB, MariaDB 11.8), or convert the shards; if the task"
        " only loads, you can create its table beforehand with a collation that compares keys in the same way"
    )


class TargetNarrower(TableWarned, code="US-2343"):
    reasons: str
    template = "target table {table} cannot store every row of its shards: {reasons}"
    hint = "widen the columns; else the first value that does not fit suspends the table (US-6002)"


class TargetTooOld(CheckFailed, code="US-2348", scope=Scope.CONFIG):
    version: str
    least: str
    template = "the target has version {version}: its indexes are too short for unshard's own tables before {least}"
    hint = "use a target of that version or a later one"


class StructureRefused(CheckFailed, code="US-2353", scope=Scope.CONFIG):
    table: str
    shard: str
    what: str
    server_message: str
    remedy: str
    template = "the target cannot create {table} like its shard {shard}, it refuses {what}: {server_message}"
    hint = "{remedy}"


class TrialTableRefused(TableWarned, code="US-2354"):
    shard: str
    what: str
    server_message: str
    template = (
        "the rows of {shard} fit into {table}, but the target cannot create a table like this shard, it refuses {what}:"
        " {server_message}; so unshard cannot try a DDL of this shard, and each DDL will wait for an operator"
    )
    hint = "when such a DDL comes, use `unshard replace` or `unshard skip`; or change the shards before the start"


class StructureAltered(TableWarned, code="US-2355"):
    shard: str
    differences: str
    template = "the target would create {table} unlike its shard {shard}: {differences}"
    hint = "ignore this if the target needs none of it; else create {table} there before the start"


class KeyShortened(CheckFailed, code="US-2356", scope=Scope.CONFIG):
    table: str
    shard: str
    wanted: str
    made: str
    template = "the target would create {table} with {made}, but its shard {shard} has {wanted}"
    hint = "shorten the columns of this key on the shards, or create {table} on the target before the start"


class IndexesLeftOut(TableWarned, code="US-2357"):
    shard: str
    indexes: str
    template = "{table} is created like its shard {shard}, but without indexes that the target refuses: {indexes}"
    hint = "nothing has to be done: `unsupported-indexes: leave-out` is set; queries that need them will be slower"


class EngineReplaced(TableWarned, code="US-2390"):
    shard: str
    engine: str
    template = "{table} is created with InnoDB: its shard {shard} has the engine {engine}, which has no transactions"
    hint = "nothing has to be done; create {table} on the target before the start if it needs other storage options"


class StorageLeftOut(TableWarned, code="US-2395"):
    shard: str
    clauses: str
    template = (
        "{table} is created without {clauses} of its shard {shard}: a source does not decide on the target's storage"
    )
    hint = "nothing has to be done; create {table} on the target before the start if it needs such clauses"


class StartTimeNeedsKey(CheckFailed, code="US-2376", scope=Scope.CONFIG):
    table: str
    source: str
    template = "{table} has rows and no key that its shards fill: changes of {source} after a start time could repeat"
    hint = (
        "write the exact position up to which {table} has all changes (binlog-name and binlog-pos, or binlog-gtid),"
        " or empty the table, or give it a unique key of columns that its shards fill"
    )


class PositionMustBeExact(TableWarned, code="US-2377"):
    source: str
    start: str
    template = "{table} has no key that its shards fill: it must have exactly the changes of {source} before {start}"
    hint = "check that {table} was copied at this position, or give it a unique key of columns that its shards fill"


class EngineKept(TableWarned, code="US-2375"):
    shard: str
    engine: str
    template = "{table} keeps its engine: its shard {shard} has the engine {engine}, which has no transactions"
    hint = "nothing has to be done; after a crash of its source a shard of this engine may differ from its binlog"


class PrimaryKeyClustered(CheckWarned, code="US-2358"):
    tables: str
    template = "the primary key is clustered in {tables}: the target refuses every later DDL that drops or changes it"
    hint = (
        "set `target-primary-key: nonclustered` in the block `unshard` before the tables are created; set it to"
        " `clustered` if the shards will never change their primary keys"
    )


class PrimaryKeyChoiceUnknown(CheckFailed, code="US-2359", scope=Scope.CONFIG):
    version: str
    template = "`target-primary-key` chooses how TiDB stores primary keys, but the target has no such choice: {version}"
    hint = "remove `target-primary-key` from the block `unshard`"


class TargetSettingWrong(CheckFailed, code="US-2360", scope=Scope.CONFIG):
    variable: str
    value: str
    why: str
    wanted: str
    template = "the target's sessions have {variable} = {value}: {why}"
    hint = "set {variable} to {wanted}, in the `session` block of target-database or with SET GLOBAL"


class TargetReadOnly(CheckFailed, code="US-2361", scope=Scope.CONFIG):
    server_message: str
    template = "the target is read-only: {server_message}"
    hint = (
        "turn off the setting that makes it read-only: read_only, super_read_only, tidb_restricted_read_only or"
        " tidb_super_read_only"
    )


class TargetNamesAlike(CheckFailed, code="US-2391", scope=Scope.CONFIG):
    names: str
    template = "the target ignores the case of names, so {names} are one table there"
    hint = "give one of them another name by a route, or use a target with lower_case_table_names = 0"


class LocalInfileOff(OneTargetError, code="US-6801"):
    template = "target {target} has local_infile OFF"
    hint = "SET GLOBAL local_infile = ON, and the same in the server's configuration"


class TargetTableUnfit(TargetError, code="US-6802"):
    table: str
    reasons: str
    template = "target table {table} cannot store the rows of its shards: {reasons}"
    hint = "change or drop the table (a lacking index: ADD INDEX); unshard creates a missing one like a shard"


class ImageFindsNoRow(CheckFailed, code="US-2381"):
    table: str
    source: str
    image: str
    template = "{table} has no key that its shards fill, and {source} logs no whole rows (binlog_row_image = {image})"
    hint = "SET GLOBAL binlog_row_image = FULL and reconnect every session, or give the table such a key"


class ConditionFindsNoRow(CheckFailed, code="US-2382", scope=Scope.CONFIG):
    table: str
    source: str
    template = "{table} has no key that its shards fill, and the dump of {source} leaves rows out by `where`"
    hint = "remove `where`, or give the table a unique key of columns that its shards fill"
