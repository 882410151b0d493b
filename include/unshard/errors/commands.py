"""US-504x: commands about single statements of a binlog (`unshard ddl`)."""

from unshard.errors.base import Scope, ShardDdlError


class StatementCommandError(ShardDdlError, scope=Scope.CONFIG):
    """A command about a statement is rejected or cannot be carried out.

    Consequence: Nothing is changed.
    """

    place: str


class CommandAtNoStatement(StatementCommandError, code="US-5040"):
    """A command of `unshard ddl` names a position or GTID at which the binlog has rows, not a statement.

    Consequence: The source stops before this position, because the command may be meant for the next statement.
    """

    number: int
    template = "command {number}: at {place} there are rows, not a statement"
    hint = "revert it: `unshard ddl revert TASK --number {number}`; SHOW BINLOG EVENTS shows where statements are"


class CommandUnfit(ShardDdlError, code="US-5041", scope=Scope.CONFIG):
    """A statement cannot be replaced in the way that a command asks for.

    The statement does not alter a shard (CREATE, DROP, RENAME, TRUNCATE), or the replacement is not an ALTER TABLE,
    CREATE INDEX or DROP INDEX of the target or one of its shards.

    Consequence: The source stops before the statement.
    """

    number: int
    place: str
    text: str
    why: str
    template = "command {number} for {place} does not fit `{text}`: {why}"
    hint = "revert it (`unshard ddl revert TASK --number {number}`), then give a command that fits"


class CommandPast(StatementCommandError, code="US-5042"):
    """The windows have already applied the statement. If it is a pending DDL, its lock accepts commands."""

    checkpoint: str
    template = "{place} is past: the windows are at {checkpoint}"
    hint = "if the statement waits, use the commands for its lock (`unshard locks`, `unshard skip`, `unshard replace`)"


class CommandLate(StatementCommandError, code="US-5043"):
    """A window has begun with the statement. Its plan is stored and never changes."""

    window: int
    template = "window {window} has begun with {place}, and its plan does not change"
    hint = "let it end (`unshard run`); if the statement waits then, use the commands for its lock (`unshard locks`)"


class CommandTaken(StatementCommandError, code="US-5044"):
    """Another command for the same statement is waiting."""

    number: int
    kind: str
    template = "command {number} ({kind}) for {place} exists already"
    hint = "revert it first: `unshard ddl revert TASK --number {number}`"


class NothingStuck(ShardDdlError, code="US-5045", scope=Scope.CONFIG):
    """`--current` was used, but the source does not wait at a statement that it cannot apply.

    The message says what it waits for. Rows that cannot be applied are not a statement.

    Consequence: Nothing is changed.
    """

    source: str
    why: str
    template = "{source} does not wait at a statement that it cannot apply: {why}"
    hint = "name the statement by --at FILE:POSITION or --gtid GTID, or see `unshard status` and `unshard locks`"


class CommandSpent(ShardDdlError, code="US-5046", scope=Scope.CONFIG):
    """The command to be reverted was already used or does not exist. You can only revert a waiting command.

    Consequence: Nothing is changed.
    """

    named: str
    state: str
    template = "{named} cannot be reverted: {state}"
    hint = "`unshard ddl list TASK` shows all commands and their results"


class PlaceUnreadable(ShardDdlError, code="US-5047", scope=Scope.CONFIG):
    """The place of a statement is not valid.

    Write a position as `mysql-bin.000003:1234` and a GTID as `0-1-55` or `uuid:55`, for one source. A GTID needs a
    source whose GTID history is known (`unshard status`).

    Consequence: Nothing is changed.
    """

    text: str
    why: str
    template = "'{text}' names no statement: {why}"
    hint = "write a position as mysql-bin.000003:1234, a GTID as 0-1-55 (MariaDB) or uuid:55 (MySQL), with one --source"


class CommandsChanged(ShardDdlError, code="US-5048", scope=Scope.INTERNAL, transient=True):
    """A command was added or reverted between planning a window and beginning it.

    Consequence: Nothing has happened. The next try plans the window with the command.
    """

    source: str
    template = "commands about statements of {source} changed while its next window was planned"
    hint = "the next try plans the window again"


class HistoryUnknown(StatementCommandError, code="US-5049"):
    """A command names a GTID, but the stored binlog does not show which GTIDs precede its transactions.

    The relay began without a GTID history.

    Consequence: The source stops before this location.
    """

    number: int
    location: str
    template = "command {number}: unknown whether {place} is past, because the GTIDs at {location} are not known"
    hint = "revert it (`unshard ddl revert TASK --number {number}`) and name the statement by its position"
