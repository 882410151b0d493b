"""US-504x: commands about single statements of a binlog (`unshard ddl`). US-509x, US-5170: `unshard reload`."""

from unshard.errors.base import Scope, ShardDdlError


class StatementCommandError(ShardDdlError, scope=Scope.CONFIG):
    """A command about a statement is rejected or cannot be carried out."""

    place: str


class CommandAtNoStatement(StatementCommandError, code="US-5040"):
    number: int
    template = "command {number}: at {place} there are rows, not a statement"
    hint = "revert it: `unshard ddl revert TASK --number {number}`; SHOW BINLOG EVENTS shows where statements are"


class CommandUnfit(ShardDdlError, code="US-5041", scope=Scope.CONFIG):
    number: int
    place: str
    text: str
    why: str
    template = "command {number} for {place} does not fit `{text}`: {why}"
    hint = "revert it (`unshard ddl revert TASK --number {number}`), then give a command that fits"


class CommandPast(StatementCommandError, code="US-5042"):
    checkpoint: str
    template = "{place} is past: the windows are at {checkpoint}"
    hint = "if the statement waits, use the commands for its lock (`unshard locks`, `unshard skip`, `unshard replace`)"


class CommandLate(StatementCommandError, code="US-5043"):
    window: int
    template = "window {window} has begun with {place}, and its plan does not change"
    hint = "let it end (`unshard run`); if the statement waits then, use the commands for its lock (`unshard locks`)"


class CommandTaken(StatementCommandError, code="US-5044"):
    number: int
    kind: str
    template = "command {number} ({kind}) for {place} exists already"
    hint = "revert it first: `unshard ddl revert TASK --number {number}`"


class NothingStuck(ShardDdlError, code="US-5045", scope=Scope.CONFIG):
    source: str
    why: str
    template = "{source} does not wait at a statement that it cannot apply: {why}"
    hint = "name the statement by --at FILE:POSITION or --gtid GTID, or see `unshard status` and `unshard locks`"


class CommandSpent(ShardDdlError, code="US-5046", scope=Scope.CONFIG):
    named: str
    state: str
    template = "{named} cannot be reverted: {state}"
    hint = "`unshard ddl list TASK` shows all commands and their results"


class PlaceUnreadable(ShardDdlError, code="US-5047", scope=Scope.CONFIG):
    text: str
    why: str
    template = "'{text}' names no statement: {why}"
    hint = "write a position as mysql-bin.000003:1234, a GTID as 0-1-55 (MariaDB) or uuid:55 (MySQL), with one --source"


class CommandsChanged(ShardDdlError, code="US-5048", scope=Scope.INTERNAL, transient=True):
    source: str
    template = "commands about statements of {source} changed while its next window was planned"
    hint = "the next try plans the window again"


class HistoryUnknown(StatementCommandError, code="US-5049"):
    number: int
    location: str
    template = "command {number}: unknown whether {place} is past, because the GTIDs at {location} are not known"
    hint = "revert it (`unshard ddl revert TASK --number {number}`) and name the statement by its position"


class ReloadError(ShardDdlError, scope=Scope.CONFIG):
    """Columns of a shard cannot be reloaded."""

    shard: str


class ReloadShardUnknown(ReloadError, code="US-5090"):
    known: str
    template = "the task has no shard '{shard}' (it has {known})"
    hint = "write the shard as SOURCE/SCHEMA.TABLE, as `unshard locks` and `unshard validate` show it"


class ReloadColumnUnfit(ReloadError, code="US-5091"):
    column: str
    why: str
    template = "column {column} of {shard} cannot be reloaded: {why}"
    hint = "name other columns, drop that key of the target, or load the target again (`unshard run --remove-meta`)"


class ReloadMustWait(ReloadError, code="US-5092"):
    why: str
    next: str
    template = "{shard} cannot be reloaded now: {why}"
    hint = "{next}; then run the same command again"


class ReloadImpossible(ReloadError, code="US-5093"):
    why: str
    next: str
    template = "{shard} cannot be reloaded: {why}"
    hint = "{next}"


class ReloadStructureAhead(ReloadError, code="US-5094"):
    differences: str
    template = "the source's table {shard} is ahead of the windows: {differences}"
    hint = "apply the binlog first (`unshard run TASK`) and resolve its lock (`unshard locks TASK`), then reload again"


class ReloadNotDue(ReloadError, code="US-5170"):
    columns: str
    due: str
    template = "{columns} of {shard} need not be read again (to reload: {due})"
    hint = "`unshard locks` shows the columns that must be read again"
