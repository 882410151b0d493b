"""US-232x: what the prechecks find that is no error of a server."""

from dataclasses import dataclass

from unshard.errors.base import Scope
from unshard.errors.source import SourceError


@dataclass(eq=False)
class VersionUntested(SourceError):
    """Nobody has tried this version of the server."""

    place: str
    version: str
    first: str
    beyond: str

    code = "US-2320"
    template = "{place} is {version}, tested are versions from {first} to below {beyond}"
    hint = "try it with `unshard run` and `unshard validate` on a copy first"


@dataclass(eq=False)
class RetentionShort(SourceError):
    """The source may delete its binlog before it has been read."""

    source: str
    kept: str

    code = "US-2321"
    template = "source {source} keeps its binlog for {kept} only"
    hint = "set binlog_expire_logs_seconds (or expire_logs_days) to more than the full load and any pause takes"


@dataclass(eq=False)
class OnlineDdlUnderWay(SourceError):
    """A table is there that gh-ost or pt-online-schema-change makes while it changes another."""

    source: str
    ghost: str
    role: str
    table: str

    code = "US-2322"
    template = "source {source} has {ghost}, the {role} table of a tool that changes {table} online: it is left out"
    hint = (
        "let the tool end first, so that its statement is known; if it is a table of its own, give shadow-table-rules"
        " and trash-table-rules that its name does not fit"
    )


@dataclass(eq=False)
class ShadowDoubtful(SourceError):
    """A table is called like the shadow of a shard, but no tool is seen at work on it."""

    source: str
    table: str
    shard: str

    code = "US-2335"
    template = "source {source} has {table}, called like the shadow of {shard}: it is taken for a table of its own"
    hint = (
        "drop it or put it on ignore-tables if a tool has left it; if a tool is at work, give the account the privilege"
        " TRIGGER, by which it is seen, and do not turn online-ddl off"
    )


@dataclass(eq=False)
class ServerIdTwice(SourceError):
    """Two sources say that they are the same server."""

    sources: str
    number: str

    code = "US-2323"
    template = "the sources {sources} have the same server_id {number}"
    hint = "give each server an id of its own, or check that the addresses are not the same server"


@dataclass(eq=False)
class CaseRulesDiffer(SourceError):
    """Names of tables are compared in different ways."""

    told: str

    code = "US-2324"
    template = "lower_case_table_names differs: {told}"
    hint = "tables whose names differ in case only would be one elsewhere; rename such tables"


@dataclass(eq=False)
class TargetTooOld(SourceError):
    """The target cannot hold the tables that unshard keeps there."""

    scope = Scope.CONFIG
    version: str
    least: str

    code = "US-2348"
    template = "the target has version {version}: its indexes are too short for unshard's own tables before {least}"
    hint = "take a target of that version or a later one"


@dataclass(eq=False)
class ModesDiffer(SourceError):
    """Servers have other rules about values and texts of statements."""

    told: str

    code = "US-2346"
    template = (
        "sql_mode differs: {told}; rows and DDLs go over as they were meant where they ran, but one text may make"
        " different columns on two shards, and an application that moves to the target meets its rules"
    )
    hint = "set the same modes everywhere, or leave it if nothing relies on these"


@dataclass(eq=False)
class CollationsDiffer(SourceError):
    """What a column gets whose DDL names no character set is not the same everywhere."""

    what: str
    told: str

    code = "US-2347"
    template = "{what} differs: {told}; where a DDL names no character set, columns come out different there"
    hint = (
        "set the same everywhere (SET GLOBAL, ALTER DATABASE or TABLE … DEFAULT CHARACTER SET … COLLATE …),"
        " or name a character set in DDLs"
    )


@dataclass(eq=False)
class KeysCountUp(SourceError):
    """Several shards of a target number their rows, each from 1."""

    target: str
    count: int
    first: str
    other: str

    code = "US-2325"
    template = "{count} shards of {target} number their rows by AUTO_INCREMENT, {first} and {other} among them"
    hint = "unless their numbers are kept apart, add a column that a route extracts to the target's key"


@dataclass(eq=False)
class KeysOverlap(SourceError):
    """Two shards of a target have a row with the same key."""

    target: str
    key: str
    first: str
    other: str

    code = "US-2326"
    template = "shards {first} and {other} of {target} both have a row with the key {key}"
    hint = (
        "remove one, or add a column that a route extracts to the target's key, or set `on-duplicate` of the "
        "loader to `replace` or `ignore`"
    )


@dataclass(eq=False)
class ForeignKeysLeft(SourceError):
    """Shards have foreign keys, which the target does not get."""

    source: str
    tables: str

    code = "US-2327"
    template = "source {source} has foreign keys at {tables}"
    hint = "the target does not enforce them, and rows that ON DELETE or ON UPDATE changes are in no binlog"


@dataclass(eq=False)
class ConnectionsScarce(SourceError):
    """The server has not room for the connections of the task."""

    place: str
    needed: int
    free: int

    code = "US-2328"
    template = "{place} has {free} free connections, the task opens up to {needed}"
    hint = "raise max_connections there, or lower `threads` of the mydumper or loader block"


@dataclass(eq=False)
class StartGone(SourceError):
    """The binlog file that a task should begin with is not there."""

    source: str
    file: str
    first: str

    code = "US-2329"
    template = "source {source} has no binlog file {file}, its first is {first}"
    hint = "take a position that exists (SHOW BINARY LOGS), or let the task load everything anew (task-mode all)"


@dataclass(eq=False)
class StartBeyond(SourceError):
    """The binlog file that a task should begin with ends before its position."""

    source: str
    place: str
    size: int

    code = "US-2342"
    template = "source {source} has nothing at {place} yet: the file has {size} bytes"
    hint = StartGone.hint


@dataclass(eq=False)
class StartWithin(SourceError):
    """The position that a task should begin at is within a transaction, or within an event."""

    source: str
    place: str

    code = "US-2344"
    template = "at {place} of source {source} no transaction begins: of the one around it a part would be missing"
    hint = "take the Pos of a Gtid event (SHOW BINLOG EVENTS IN 'file'), or what SHOW MASTER STATUS has shown"


@dataclass(eq=False)
class TargetNarrower(SourceError):
    """A target table exists that cannot take every value that its shards can have."""

    table: str
    reasons: str

    code = "US-2343"
    template = "target table {table} cannot take every row of its shards: {reasons}"
    hint = "widen the columns; else the first value that does not fit stops the table (US-6002)"


@dataclass(eq=False)
class CollationUnknown(SourceError):
    """The target does not know a collation of the shards."""

    scope = Scope.CONFIG
    target: str
    collation: str
    what: str

    code = "US-2330"
    template = "the target does not know the collation {collation}, which shards of {target} have ({what})"
    hint = (
        "take a target that knows it (utf8mb4_0900_*: MySQL 8, TiDB, MariaDB 11.8), or convert the shards; a task that"
        " only loads may have its table made beforehand with a collation that compares keys alike"
    )


@dataclass(eq=False)
class RowImageSparse(SourceError):
    """The source logs only some columns of a row that changes."""

    scope = Scope.CONFIG
    source: str
    image: str

    code = "US-2341"
    template = (
        "source {source} has binlog_row_image = {image}: rows are made whole with what the target has, which costs a"
        " read of it; a REPLACE that meets a row stops the source, and a row that changes its key while it is dumped"
    )
    hint = "SET GLOBAL binlog_row_image = FULL, the same in the server's configuration, and reconnect every session"


@dataclass(eq=False)
class StorageShort(SourceError):
    """The storage path has not the room that the dump may take."""

    scope = Scope.CONFIG
    path: str
    free: int
    needed: int

    code = "US-2331"
    template = "{path} has {free} bytes free, the shards have about {needed} bytes"
    hint = "free some space or set `storage-path` to a larger disk"


@dataclass(eq=False)
class ZonesDiffer(SourceError):
    """The clock of a source's sessions is not in the zone that the task file says."""

    scope = Scope.CONFIG
    source: str
    theirs: str
    ours: str

    code = "US-2345"
    template = (
        "sessions of source {source} are in its SYSTEM time zone, {theirs}, but `timezone` of the task is {ours}: the"
        " time in a DDL like DEFAULT '2026-01-31 12:00:00' of a TIMESTAMP column would be taken for another one"
    )
    hint = "set `timezone` of the task file to the zone of the sources"


@dataclass(eq=False)
class StructureRefused(SourceError):
    """The target refuses a part of the table that it would have to create."""

    scope = Scope.CONFIG
    table: str
    shard: str
    what: str
    words: str
    remedy: str

    code = "US-2353"
    template = "the target cannot create {table} like its shard {shard}, it refuses {what}: {words}"
    hint = "{remedy}"


@dataclass(eq=False)
class TrialTableRefused(SourceError):
    """The target table exists, but the target cannot create a table like the shards, on which it would try a DDL."""

    table: str
    shard: str
    what: str
    words: str

    code = "US-2354"
    template = (
        "{table} exists, but the target cannot create a table like its shard {shard}, it refuses {what}: {words};"
        " so no DDL of such a shard can be tried out, and each will wait for an operator"
    )
    hint = "when such a DDL comes, order `unshard replace` or `unshard skip`; or change the shards before the start"


@dataclass(eq=False)
class StructureAltered(SourceError):
    """The target creates a table like a shard, but not everything of it."""

    table: str
    shard: str
    differences: str

    code = "US-2355"
    template = "the target would create {table} unlike its shard {shard}: {differences}"
    hint = "nothing is to be done if the target needs none of this; else create {table} there before the start"


@dataclass(eq=False)
class KeyShortened(SourceError):
    """The target would create a table with another key than its shards have, so different rows could collide."""

    scope = Scope.CONFIG
    table: str
    shard: str
    wanted: str
    made: str

    code = "US-2356"
    template = "the target would create {table} with {made} where its shard {shard} has {wanted}"
    hint = "shorten the columns of this key on the shards, or create {table} on the target before the start"


@dataclass(eq=False)
class IndexesLeftOut(SourceError):
    """Indexes that the target refuses are left out of it, because the task file asks for this."""

    table: str
    shard: str
    indexes: str

    code = "US-2357"
    template = "{table} is created like its shard {shard}, but without indexes that the target refuses: {indexes}"
    hint = "nothing is to be done: `unsupported-indexes: leave-out` asks for it; queries that need them will be slower"


@dataclass(eq=False)
class PrimaryKeyClustered(SourceError):
    """TiDB stores the rows by the primary key, which no later DDL can then change."""

    tables: str

    code = "US-2358"
    template = "the primary key is clustered in {tables}: the target refuses every later DDL that drops or changes it"
    hint = (
        "set `target-primary-key: nonclustered` in the block `unshard` before the tables are created; set it to"
        " `clustered` if the shards will never change their primary keys"
    )


@dataclass(eq=False)
class PrimaryKeyChoiceUnknown(SourceError):
    """The task file chooses how primary keys are stored, and the target has no such choice."""

    scope = Scope.CONFIG
    version: str

    code = "US-2359"
    template = "`target-primary-key` chooses how TiDB stores primary keys, but the target has no such choice: {version}"
    hint = "remove `target-primary-key` from the block `unshard`"


@dataclass(eq=False)
class TargetSettingWrong(SourceError):
    """A setting of the target breaks what unshard relies on."""

    scope = Scope.CONFIG
    variable: str
    value: str
    why: str
    wanted: str

    code = "US-2360"
    template = "the target's sessions have {variable} = {value}: {why}"
    hint = "set {variable} to {wanted}, in the `session` block of target-database or with SET GLOBAL"


@dataclass(eq=False)
class TargetReadOnly(SourceError):
    """The target refuses every write."""

    scope = Scope.CONFIG
    words: str

    code = "US-2361"
    template = "the target is read-only: {words}"
    hint = (
        "turn off what makes it so: read_only, super_read_only, or tidb_restricted_read_only and tidb_super_read_only"
    )
