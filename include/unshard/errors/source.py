"""US-2xxx: the upstream servers, before the first row and in the dump."""

from dataclasses import dataclass

from unshard.errors.base import Scope, UnshardError


@dataclass(eq=False)
class SourceError(UnshardError):
    """A source refuses or lacks something that the task needs."""

    scope = Scope.UPSTREAM


@dataclass(eq=False)
class ServerError(UnshardError):
    """A server, upstream or target, cannot be reached or refuses to be used; `where` says which one."""

    where: str
    """What the server is to the task: `source s1`, `target`."""
    server: str
    """user@host:port."""
    words: str
    """The server's or the driver's own words."""


@dataclass(eq=False)
class ServerUnreachable(ServerError):
    """Nothing answers at that address."""

    code = "US-2001"
    transient = True
    template = "cannot reach {where} at {server}: {words}"
    hint = "check host and port in the source or task file, that the server runs, and the firewall between"


@dataclass(eq=False)
class AccessDenied(ServerError):
    """The server answers and refuses the account."""

    code = "US-2002"
    template = "{where} refuses to let {server} in: {words}"
    hint = (
        "check user, password and the account's host part; the password comes from conn-id, environment or the file;"
        " an account that asks for a certificate (REQUIRE X509) is shown the ssl-cert of the security block"
    )


@dataclass(eq=False)
class MissingPrivilege(ServerError):
    """The account exists and may not do what was asked."""

    code = "US-2003"
    template = "{server} lacks a privilege on {where}: {words}"
    hint = "grant the privilege that the server names, see docs/operations.md for the whole list"


@dataclass(eq=False)
class UnknownDatabase(ServerError):
    """A schema that was named does not exist."""

    code = "US-2004"
    template = "a schema is missing on {where} at {server}: {words}"
    hint = "create the schema or correct its name in the task file"


@dataclass(eq=False)
class ConnectionLost(ServerError):
    """The connection broke in the middle of something."""

    code = "US-2005"
    transient = True
    template = "the connection to {where} at {server} broke: {words}"
    hint = "run it again; if it repeats look into the server's error log, its wait_timeout and max_allowed_packet"


@dataclass(eq=False)
class ServerFull(ServerError):
    """The server or the account has no connection left, or too little of something else."""

    code = "US-2006"
    transient = True
    template = "{where} at {server} has no room for more: {words}"
    hint = "raise max_connections or the account's limit, or lower the threads in the task file"


@dataclass(eq=False)
class ServerBusy(ServerError):
    """A deadlock or a lock wait ended the statement; the server rolled it back."""

    code = "US-2007"
    transient = True
    template = "a conflict or an overload ended a statement on {where} at {server}: {words}"
    hint = "run it again; if it repeats find who else holds locks there with SHOW PROCESSLIST"


@dataclass(eq=False)
class StatementRefused(ServerError):
    """A statement of our own met an error that has no code of its own."""

    errno: int
    statement: str
    code = "US-2008"
    template = "{where} at {server} refuses with error {errno}, {words}, the statement: {statement}"
    hint = "check that the server's flavour and version are supported; if they are, report this"


@dataclass(eq=False)
class SessionVariableRefused(ServerError):
    """A variable of the `session` block is unknown to the server or has a value that it does not take."""

    variable: str
    code = "US-2009"
    template = "{where} at {server} refuses the session variable {variable}: {words}"
    hint = "correct or remove it in the session block of the source or task file"


@dataclass(eq=False)
class TableMissing(ServerError):
    """A table that was there, or should be, is not."""

    code = "US-2010"
    template = "a table is missing on {where} at {server}: {words}"
    hint = "check whether it was dropped or renamed, and the allow list of the task file"


@dataclass(eq=False)
class TableUnsupported(SourceError):
    """A table is of a kind whose rows cannot be followed."""

    table: str
    reason: str
    code = "US-2011"
    template = "the table {table} cannot be merged: {reason}"
    hint = "exclude it with the block-allow-list of the task file, or change the table"


@dataclass(eq=False)
class TlsFailed(ServerError):
    """The server offers no TLS although the task asks for it, or is not the one whose certificate it should have."""

    code = "US-2012"
    template = "no secure connection to {where} at {server}: {words}"
    hint = (
        "check the security block: ssl-ca must have issued the server's certificate, and its name must be the host's,"
        " unless verify is ca or cert-allowed-cn names it"
    )


# --- US-21xx structures and snapshot, US-22xx dump ------------------------------------------------


@dataclass(eq=False)
class UnknownColumnType(SourceError):
    """A column has a type that we cannot compare or write."""

    column: str
    column_type: str

    code = "US-2101"
    template = "column {column} has the type {column_type}, which is not supported"
    hint = "leave the table out with the block-allow-list, or change the column's type"


@dataclass(eq=False)
class ValueNotCanonical(SourceError):
    """A value is not printed as its type's values are; the value itself is not named."""

    scope = Scope.INTERNAL
    column: str
    column_type: str

    code = "US-2102"
    template = "a value of column {column} ({column_type}) is not written as that type prints"
    hint = "this is a defect: report it with the table's structure"


# --- US-23xx prechecks ----------------------------------------------------------------------------


@dataclass(eq=False)
class NoShards(SourceError):
    """No table of the source is part of the task."""

    source: str
    account: str
    tables: int

    code = "US-2301"
    template = "source {source} has no table for this task among the {tables} that {account} may see"
    hint = "check routes and block-allow-list, and that the account has SELECT on the shards"


@dataclass(eq=False)
class BinlogDisabled(SourceError):
    """The source writes no binlog."""

    source: str

    code = "US-2302"
    template = "source {source} writes no binlog (log_bin is OFF)"
    hint = "start the server with log-bin and binlog-format=ROW"


@dataclass(eq=False)
class BinlogSettingWrong(SourceError):
    """A setting of the binlog loses what we need."""

    source: str
    variable: str
    value: str
    wanted: str

    code = "US-2303"
    template = "source {source} has {variable} = {value}, needed is {wanted}"
    hint = "SET GLOBAL {variable} = {wanted}, the same in the server's configuration, and reconnect every session"


@dataclass(eq=False)
class ServerIdZero(SourceError):
    """The source has no server_id, so it gives its binlog to nobody."""

    source: str

    code = "US-2304"
    template = "source {source} has server_id 0"
    hint = "give the server a server_id of its own"


@dataclass(eq=False)
class BinlogHidesSchemas(SourceError):
    """The server keeps schemas of shards out of its binlog."""

    source: str
    option: str
    value: str
    schemas: str

    code = "US-2305"
    template = "source {source} has {option} = {value}: the binlog lacks changes of {schemas}"
    hint = "take the option out of the server's configuration and restart it"


@dataclass(eq=False)
class PrivilegesMissing(SourceError):
    """The account lacks privileges that a later step needs."""

    where: str
    account: str
    privileges: str
    scope_name: str

    code = "US-2306"
    template = "{account} lacks {privileges} on {scope_name} of {where}"
    hint = "GRANT {privileges} ON {scope_name} TO the account"


@dataclass(eq=False)
class ShardsDiffer(SourceError):
    """Two shards of one target have different structures before the first row."""

    target: str
    first: str
    other: str
    differences: str

    code = "US-2307"
    template = "shards of {target} differ: {first} and {other}: {differences}"
    hint = "give all shards of a target the same structure before the task starts"


@dataclass(eq=False)
class KeylessTable(SourceError):
    """A shard has no usable key, so its rows are a multiset."""

    table: str

    code = "US-2308"
    template = "{table} has no primary key and no unique key without NULLs, prefixes and floats"
    hint = "add a primary key if you can: without one every change costs more"


@dataclass(eq=False)
class NotTransactional(SourceError):
    """A shard without a key is in an engine that cannot be read in one snapshot."""

    table: str
    engine: str

    code = "US-2309"
    template = "{table} has no usable key and the engine {engine}, which knows no snapshot"
    hint = "convert it to InnoDB, give it a key or use consistency: lock; else rows may be lost or doubled"


@dataclass(eq=False)
class FlavorWrong(SourceError):
    """The source file names another make of server than answers."""

    source: str
    declared: str
    version: str

    code = "US-2310"
    template = "source {source} is declared as {declared}, the server says {version}"
    hint = "correct flavor or host in the source file"


@dataclass(eq=False)
class PrecheckFailed(SourceError):
    """The prechecks found what would stop the task later."""

    count: int
    first: str

    code = "US-2311"
    template = "{count} precheck(s) failed, the first: {first}"
    hint = "`unshard check TASK.yaml` lists all of them with their remedies"


@dataclass(eq=False)
class RuleIdle(SourceError):
    """A route or an entry of a list matches no table of the sources that have it."""

    scope = Scope.CONFIG
    rule: str
    sources: str

    code = "US-2312"
    template = "{rule} matches no table of {sources}"
    hint = "correct its patterns, or leave it for tables that come later; the account must see a table to count it"


@dataclass(eq=False)
class SequenceLeftOut(SourceError):
    """The lists and routes take a sequence, which writes rows into the binlog like a table and is none."""

    scope = Scope.CONFIG
    table: str

    code = "US-2313"
    template = "{table} is a sequence: its numbers are left out"
    hint = "nothing has to be done; leave it off the lists so that its rows are not even looked at"


# --- US-22xx snapshot and dump -------------------------------------------------------------------------


@dataclass(eq=False)
class StructuresUnsteady(SourceError):
    """Tables are created, changed or dropped faster than they can be read."""

    source: str
    attempts: int

    code = "US-2201"
    transient = True
    template = "the tables of source {source} changed each of {attempts} times while their structures were read"
    hint = "wait until no DDL runs on the source, then try again"


@dataclass(eq=False)
class NoSnapshot(SourceError):
    """The dump was called before the snapshot."""

    source: str

    code = "US-2202"
    template = "source {source} has no snapshot yet"
    hint = "run the task's snapshot step first; `unshard run` and the full DAG do so by themselves"


@dataclass(eq=False)
class StructureChanged(SourceError):
    """A DDL changed or dropped a shard while its rows were dumped."""

    shard: str

    code = "US-2203"
    template = "the structure of shard {shard} changed while its rows were dumped"
    hint = "the dump starts anew by itself a few times; wait until no DDL runs on the source, then try again"


@dataclass(eq=False)
class TransactionsPrepared(SourceError):
    """XA transactions are prepared whose rows the dump would not see and whose beginning the relay would not."""

    source: str
    count: int

    code = "US-2204"
    transient = True
    template = "source {source} has {count} XA transactions that are prepared (XA RECOVER lists them)"
    hint = "commit or roll them back, then try again; those that nobody finishes hold locks and must go anyway"
