"""US-23xx: findings of the prechecks (`unshard check`) about sources, shards and the task file.

targetchecks.py has the findings about the target.
"""

from unshard.errors.base import Scope, SourceError


class CheckFailed(SourceError):
    """A finding with which the task would fail later.

    Consequence: `unshard check` reports an error. `unshard run` and the full DAG do not start (US-2311).
    """


class CheckWarned(SourceError):
    """A finding that may be harmless.

    Consequence: `unshard check` reports a warning. The task may start.
    """


class BinlogDisabled(CheckFailed, code="US-2302"):
    """The source writes no binlog, so unshard cannot follow its changes."""

    source: str
    template = "source {source} writes no binlog (log_bin is OFF)"
    hint = "start the server with log-bin and binlog-format=ROW"


class BinlogSettingWrong(CheckFailed, code="US-2303"):
    """`binlog_format` is not ROW. A statement cannot be repeated on merged tables.

    Remedy: Set ROW globally and in the server's configuration. Open sessions keep the old value until they reconnect.
    """

    source: str
    variable: str
    value: str
    wanted: str
    template = "source {source} has {variable} = {value}, needed is {wanted}"
    hint = "SET GLOBAL {variable} = {wanted}, the same in the server's configuration, and reconnect every session"


class ServerIdZero(CheckFailed, code="US-2304"):
    """The source has no `server_id`. A server without one does not send its binlog."""

    source: str
    template = "source {source} has server_id 0"
    hint = "give the server a server_id that no other server or replica uses"


class BinlogHidesSchemas(CheckFailed, code="US-2305"):
    """`binlog-do-db` or `binlog-ignore-db` keeps changes of a shard's schema out of the binlog."""

    source: str
    option: str
    value: str
    schemas: str
    template = "source {source} has {option} = {value}: the binlog lacks changes of {schemas}"
    hint = "remove the option from the server's configuration and restart the server"


class PrivilegesMissing(CheckFailed, code="US-2306"):
    """The account lacks privileges that a later step needs. The message names them and their scope.

    Remedy: Grant them. Sources need REPLICATION SLAVE and REPLICATION CLIENT (MariaDB: BINLOG MONITOR) on `*.*`, and
    SELECT on the shards. The target needs SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP and INDEX on the target
    schemas and the meta schema.
    """

    where: str
    account: str
    privileges: str
    scope_name: str
    template = "{account} lacks {privileges} on {scope_name} of {where}"
    hint = "GRANT {privileges} ON {scope_name} TO the account"


class ShardsDiffer(CheckFailed, code="US-2307"):
    """Two shards of one target have different columns or keys, so no single table fits them.

    The order of columns, defaults, comments and non-unique indexes may differ.
    """

    target: str
    first: str
    other: str
    differences: str
    template = "shards of {target} differ: {first} and {other}: {differences}"
    hint = "give all shards of a target the same structure before the task starts"


class KeylessTable(CheckWarned, code="US-2308"):
    """The shard has no usable key, so unshard identifies its rows by all their values.

    Consequence: `unshard check` reports a warning. Every change is still applied exactly once, but costs more, and
    messages cannot distinguish equal rows.
    """

    table: str
    template = "{table} has no primary key and no unique key without NULLs, prefixes and floats"
    hint = "add a primary key if you can: without one every change costs more"


class NotTransactional(CheckWarned, code="US-2309"):
    """The shard has no key, so unshard dumps it in one snapshot, but its engine has no snapshots.

    Consequence: `unshard check` reports a warning. Rows that are written during the dump may be lost or doubled.
    Remedy: Convert the table to InnoDB, add a key, dump with `consistency: lock`, or do not write to it during the
    dump.
    """

    table: str
    engine: str
    template = "{table} has no usable key, and its engine {engine} has no snapshots"
    hint = "convert it to InnoDB, give it a key or use consistency: lock; else rows may be lost or doubled"


class FlavorWrong(CheckFailed, code="US-2310"):
    """The server is not of the `flavor` that the source file names."""

    source: str
    declared: str
    version: str
    template = "source {source} is declared as {declared}, but the server is {version}"
    hint = "correct flavor or host in the source file"


class PrecheckFailed(SourceError, code="US-2311"):
    """`unshard run` and the full DAG begin with the prechecks, and at least one failed.

    Consequence: The task does not start.
    """

    count: int
    first: str
    template = "{count} precheck(s) failed, the first: {first}"
    hint = "`unshard check TASK.yaml` lists all of them with their remedies"


class RuleIdle(CheckWarned, code="US-2312", scope=Scope.CONFIG):
    """A route, or an entry of the block-allow list, matches no table of any source that has it.

    Usually a name is misspelt, or the account lacks SELECT and does not see the tables.
    """

    rule: str
    sources: str
    template = "{rule} matches no table of {sources}"
    hint = "correct its patterns, or keep it for tables that come later; unshard sees only tables that the account sees"


class NoTablesYet(CheckWarned, code="US-2380", scope=Scope.CONFIG):
    """No table of this source is in the block-allow list and in a route.

    The tables may come later. Otherwise the patterns are wrong, or the account does not see the tables:
    information_schema shows only tables on which the account has a privilege.

    Consequence: `unshard check` reports a warning. The task starts. A table that is created later takes part from its
    CREATE TABLE on, if the task syncs.
    """

    source: str
    account: str
    tables: int
    template = "source {source} has no table for this task yet among the {tables} that {account} may see"
    hint = (
        "nothing to do if its tables come later; else check routes and block-allow-list, and that the account has"
        " SELECT on the shards"
    )


class SequenceLeftOut(CheckWarned, code="US-2313", scope=Scope.CONFIG):
    """The block-allow list and the routes include a SEQUENCE, which writes rows into the binlog like a table.

    Consequence: `unshard check` reports a warning. unshard ignores and counts these rows, also after a rename. It does
    not merge the numbers.
    """

    table: str
    template = "{table} is a sequence: unshard does not merge its numbers"
    hint = "nothing has to be done; exclude it in the lists so that unshard does not read its rows"


class VersionUntested(CheckWarned, code="US-2320"):
    """unshard was not tested with this server version (tested: MariaDB 10.5 to 11.8, MySQL 5.6 to 9.7).

    MySQL's calendar versions (26.7, 26.10) are newer than 9.7.

    Consequence: `unshard check` reports a warning. unshard may later reject an event of this server's binlog.
    """

    place: str
    version: str
    relation: str
    first: str
    last: str
    template = "{place} has version {version}, {relation} than the tested versions {first} to {last}"
    hint = "try it with `unshard run` and `unshard validate` on a copy first"


class RetentionShort(CheckWarned, code="US-2321"):
    """The source deletes its binlog after less than a day.

    Consequence: `unshard check` reports a warning. If a full load takes longer, or the task is paused over a weekend,
    unshard misses a part of the binlog and only another full load helps.
    """

    source: str
    retention: str
    template = "source {source} keeps its binlog for {retention} only"
    hint = "set binlog_expire_logs_seconds (or expire_logs_days) to more than the full load and any pause takes"


class OnlineDdlUnderWay(CheckWarned, code="US-2322"):
    """A shard has a table of gh-ost (`_t_gho`, `_t_ghc`, `_t_del`) or pt-online-schema-change (`_t_new`, `_t_old`).

    Consequence: `unshard check` reports a warning. unshard does not treat the table as a shard. If the tool is active
    and has already run its ALTER, the binlog no longer has the statement, and unshard asks an operator for it at the
    cut-over.
    """

    source: str
    online_table: str
    role: str
    table: str
    template = "source {source} has {online_table}, the {role} table of a tool that changes {table} online: ignored"
    hint = (
        "let the tool finish first, so that unshard knows its statement; if it is an ordinary table, set"
        " shadow-table-rules and trash-table-rules that do not match its name"
    )


class ServerIdTwice(CheckWarned, code="US-2323"):
    """Two sources have the same `server_id`. They may be one server under two addresses."""

    sources: str
    number: str
    template = "the sources {sources} have the same server_id {number}"
    hint = "give each server an id of its own, or check that the addresses are not the same server"


class CaseRulesDiffer(CheckWarned, code="US-2324"):
    """`lower_case_table_names` is not the same on all servers.

    Consequence: `unshard check` reports a warning. Tables whose names differ in case only are two tables on one server
    and one table on another.
    """

    values: str
    template = "lower_case_table_names differs: {values}"
    hint = "rename tables whose names differ in case only: on another server they would be one table"


class KeysCountUp(CheckWarned, code="US-2325"):
    """Several shards of one target number their rows by AUTO_INCREMENT.

    Consequence: `unshard check` reports a warning. The shards have the same keys, unless `auto_increment_increment` and
    `auto_increment_offset`, or separate ranges, keep them apart.
    """

    target: str
    count: int
    first: str
    other: str
    template = "{count} shards of {target} number their rows by AUTO_INCREMENT, {first} and {other} among them"
    hint = "unless their numbers are kept apart, add a column that a route extracts to the target's key"


class KeysOverlap(CheckFailed, code="US-2326"):
    """Values sampled in one shard were found in another shard, and a unique key of their target allows them only once.

    The keys of an existing target table count, not those of the shards. That no sampled key is found proves nothing:
    only the load sees all keys.

    Consequence: With `on-duplicate: error` the load would fail, so `unshard check` reports an error. With `replace` or
    `ignore` it reports a warning.
    """

    target: str
    key: str
    first: str
    other: str
    template = "shards {first} and {other} of {target} both have a row with the key {key}"
    hint = (
        "remove one, or create the target with a key that separates the shards (with a column of theirs, or one that"
        " a route extracts), or set `on-duplicate` of the loader to `replace` or `ignore`"
    )


class ForeignKeysLeft(CheckWarned, code="US-2327"):
    """Shards have foreign keys.

    Consequence: `unshard check` reports a warning. The target gets no foreign keys. Changes that `ON DELETE CASCADE`
    and similar rules make on the source are not in its binlog, so the target misses them.
    """

    source: str
    tables: str
    template = "source {source} has foreign keys at {tables}"
    hint = "the target does not enforce them, and row changes by ON DELETE or ON UPDATE are in no binlog"


class ConnectionsScarce(CheckWarned, code="US-2328"):
    """The task may open more connections than the server has free at present."""

    place: str
    needed: int
    free: int
    template = "{place} has {free} free connections, the task opens up to {needed}"
    hint = "raise max_connections there, or lower `threads` of the mydumper or loader block"


class StartGone(CheckFailed, code="US-2329"):
    """The binlog file that `meta` names is no longer, or not yet, on the source."""

    source: str
    file: str
    first: str
    template = "source {source} has no binlog file {file}, its first is {first}"
    hint = "use a position that exists (SHOW BINARY LOGS), or let the task load everything anew (task-mode all)"


class StorageShort(CheckWarned, code="US-2331", scope=Scope.CONFIG):
    """The storage path has less free space than the rows of the shards take on their servers.

    The dump is compressed, and its files are removed after the load, so the space may be sufficient.
    """

    path: str
    free: int
    needed: int
    template = "{path} has {free} bytes free, the shards have about {needed} bytes"
    hint = "free some space or set `storage-path` to a larger disk"


class ShadowDoubtful(CheckWarned, code="US-2335"):
    """A table has the name of a shard's shadow table, but no online-DDL tool seems to be active on it.

    No trigger of pt-online-schema-change fills it and no log table of gh-ost exists, or `online-ddl` is off. unshard
    sees triggers only with the privilege TRIGGER.

    Consequence: `unshard check` reports a warning. unshard follows the table like any other.
    """

    source: str
    table: str
    shard: str
    template = "source {source} has {table}, named like the shadow table of {shard}, and takes it for an ordinary table"
    hint = (
        "drop it or add it to ignore-tables if a tool has left it; if a tool is active, grant the account the privilege"
        " TRIGGER, so that unshard sees the tool, and do not turn online-ddl off"
    )


class RowImageSparse(CheckWarned, code="US-2341", scope=Scope.CONFIG):
    """The source logs only the columns that a statement sets (`binlog_row_image` MINIMAL, NOBLOB, FULL_NODUP).

    Consequence: `unshard check` reports a warning. unshard completes rows with values of the target. If it cannot, it
    reports US-3016, US-3031 or US-6041 to US-6043 when such a row comes.
    """

    source: str
    image: str
    template = (
        "source {source} has binlog_row_image = {image}: unshard completes rows by reading the target; a REPLACE of an"
        " existing row stops the source, and so does a row whose key changes while it is dumped"
    )
    hint = "SET GLOBAL binlog_row_image = FULL, the same in the server's configuration, and reconnect every session"


class StartBeyond(CheckFailed, code="US-2342"):
    """The binlog file of `meta` ends before the position. It is mistyped, or belongs to another server."""

    source: str
    place: str
    size: int
    template = "source {source} has nothing at {place} yet: the file has {size} bytes"
    hint = StartGone.hint


class StartWithin(CheckFailed, code="US-2344"):
    """The position of `meta` is inside a transaction or inside an event.

    The task would begin with a part of a transaction, and the missing rows would not be noticed.
    """

    source: str
    place: str
    template = "at {place} of source {source} no transaction begins: a part of the transaction would be missing"
    hint = "use the Pos of a Gtid event (SHOW BINLOG EVENTS IN 'file'), or a position from SHOW MASTER STATUS"


class ZonesDiffer(CheckWarned, code="US-2345", scope=Scope.CONFIG):
    """The global time zone of a source, or that of its machine, is not the task's `timezone` (default UTC).

    Consequence: `unshard check` reports a warning. Rows are not affected. If the source has `time_zone = SYSTEM`, the
    binlog does not say which zone that is, and unshard executes its DDL in the task's zone. That matters for
    `DEFAULT '2026-01-31 12:00:00'` of a TIMESTAMP column, and for changes from or to TIMESTAMP. If sources have
    different zones, such a DDL has different effects on their shards and ends in a conflict.
    """

    source: str
    theirs: str
    ours: str
    template = (
        "sessions of source {source} are in time zone {theirs}, but `timezone` of the task is {ours}: a"
        " DDL such as DEFAULT '2026-01-31 12:00:00' of a TIMESTAMP column may mean another time"
    )
    hint = "set `timezone` of the task file to the zone of the sources"


class ModesDiffer(CheckWarned, code="US-2346"):
    """Servers have different values of `sql_mode`. Modes that affect only queries, accounts and files are ignored.

    unshard writes rows in a mode of its own that changes no value, and executes a DDL in the mode of the first shard
    that ran it.

    Consequence: `unshard check` reports a warning. `REAL` in the same DDL may be a different type on each shard;
    [US-6004](#us-6004-columntypesdiffer) reports this when rows come. Applications that move to the target are subject
    to the target's modes, for zero dates for instance.
    """

    values: str
    template = (
        "sql_mode differs: {values}; rows and DDLs keep their meaning, but the same DDL may create different columns on"
        " two shards, and applications that move to the target are subject to its modes"
    )
    hint = "set the same modes everywhere, or ignore this if nothing relies on these modes"


class CollationsDiffer(CheckWarned, code="US-2347"):
    """Servers (`collation_server`), merged schemas, or tables of one target have different default collations.

    Consequence: `unshard check` reports a warning. Existing columns are not affected. A later
    `ADD COLUMN v varchar(9)` names no character set: each shard uses the default of its table, and the target its own.
    A value that does not exist in the target's character set suspends the target with [US-6002](#us-6002-rowrefused).
    `CREATE TABLE` uses the schema's default and `CREATE DATABASE` the server's. unshard adds these to the text, so the
    target's defaults have no effect, but the shards still differ.
    """

    what: str
    values: str
    template = "{what} differs: {values}; a DDL without a character set creates different columns there"
    hint = (
        "set the same everywhere (SET GLOBAL, ALTER DATABASE or TABLE … DEFAULT CHARACTER SET … COLLATE …),"
        " or name a character set in DDLs"
    )


class KeylessUnderCondition(CheckFailed, code="US-2351", scope=Scope.CONFIG):
    """The task dumps some rows only (`where`) and follows the binlog, but a shard has no key.

    An UPDATE or DELETE of a row that was not dumped would find no row in the target (US-6008).
    """

    tables: str
    condition: str
    template = (
        "{tables} have no usable key: an UPDATE or DELETE of a row outside `{condition}` could not be applied, because"
        " the target does not have the row"
    )
    hint = "give them a key, put them into a task without `where`, or dump them in task-mode full"


class ImageUnderCondition(CheckFailed, code="US-2352", scope=Scope.CONFIG):
    """The task dumps some rows only (`where`) and follows the binlog, but the source logs only some columns of a row.

    unshard could not restore a row that was not dumped from such a change (US-6042).
    """

    source: str
    image: str
    condition: str
    template = (
        "source {source} has binlog_row_image = {image}: an UPDATE of a row outside `{condition}` could not be applied,"
        " because the target does not have the columns that the binlog omits"
    )
    hint = RowImageSparse.hint


class DecodersDiffer(CheckFailed, code="US-2362"):
    """unshard and mysql-replication read different values from the same binlog event, so one of them is wrong.

    Consequence: `unshard check --decoder` exits with 1.

    Remedy: Compare the event with `mysqlbinlog --verbose` (`mariadb-binlog --verbose`) and the value with the table.
    [cli.md](cli.md) lists the known faults of mysql-replication. If unshard is wrong, do not start the task. Report
    the column type, the server's version and the event.
    """

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


class ReferenceDecoderFailed(CheckWarned, code="US-2363"):
    """mysql-replication failed at an event of the source, so `unshard check --decoder` cannot compare it.

    Consequence: Nothing is known about this event. unshard may read it correctly.
    """

    source: str
    location: str
    server_message: str
    template = "mysql-replication cannot read the binlog of source {source} at {location}: {server_message}"
    hint = "the task can run: this error concerns only `unshard check --decoder`"


class BinlogEngineWrong(CheckFailed, code="US-2364"):
    """The source keeps its binlog in a storage engine (`binlog_storage_engine = innodb`, MariaDB 12.3).

    Such a binlog has no positions other than GTIDs, and its events have no checksums. unshard reads a binlog by the
    positions of its files.
    """

    source: str
    engine: str
    template = "source {source} has binlog_storage_engine = {engine}: its binlog is not in files"
    hint = "remove binlog_storage_engine from the server's configuration, restart the server, then start the task"


class ShardRowsAlike(CheckFailed, code="US-2370"):
    """The task has `drop-shard-rows: delete`, and the rows of a shard cannot be told from those of other shards.

    A DROP or TRUNCATE in the binlog does not name the rows that it removes. unshard finds them by extracted columns or
    by ids that a column mapping `partition id` has changed. Keys that happen to be disjoint are no proof, because the
    next row may be in the range of another shard (docs/adr/0014-rows-of-a-dropped-shard.md).
    """

    target: str
    why: str
    template = "the rows of a dropped shard of {target} could not be found: {why}"
    hint = (
        "extract a column from the name of the shard, or map its ids by `partition id` in a column that is NOT NULL; or"
        " set `drop-shard-rows: keep`"
    )
