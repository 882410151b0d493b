"""US-504x: orders about single statements of a binlog (`unshard ddl`)."""

from dataclasses import dataclass

from unshard.errors.base import Scope
from unshard.errors.shardddl import ShardDdlError


@dataclass(eq=False)
class StatementOrderError(ShardDdlError):
    """An order about a statement cannot be given, or not be carried out."""

    scope = Scope.CONFIG
    place: str


@dataclass(eq=False)
class OrderAtNoStatement(StatementOrderError):
    """There are rows where an order expects a statement."""

    number: int

    code = "US-5040"
    template = "order {number}: at {place} there are rows, and no statement"
    hint = "take it back: `unshard ddl revert TASK --order {number}`; SHOW BINLOG EVENTS tells where statements are"


@dataclass(eq=False)
class OrderUnfit(ShardDdlError):
    """A statement cannot be replaced as an order says."""

    scope = Scope.CONFIG
    number: int
    place: str
    text: str
    why: str

    code = "US-5041"
    template = "order {number} for {place} does not fit `{text}`: {why}"
    hint = "take it back (`unshard ddl revert TASK --order {number}`), then give one that fits"


@dataclass(eq=False)
class OrderPast(StatementOrderError):
    """The windows have passed the statement."""

    checkpoint: str

    code = "US-5042"
    template = "{place} is past: the windows stand at {checkpoint}"
    hint = "if the statement waits, give the order to its lock (`unshard locks`, `unshard skip`, `unshard replace`)"


@dataclass(eq=False)
class OrderLate(StatementOrderError):
    """A window has begun with the statement, and its plan does not change any more."""

    window: int

    code = "US-5043"
    template = "window {window} has begun with {place}; what it does is settled"
    hint = "let it end (`unshard run`); if the statement waits then, give the order to its lock (`unshard locks`)"


@dataclass(eq=False)
class OrderTaken(StatementOrderError):
    """Another order is given for the same statement."""

    number: int
    kind: str

    code = "US-5044"
    template = "order {number} says {kind} for {place} already"
    hint = "take it back first: `unshard ddl revert TASK --order {number}`"


@dataclass(eq=False)
class NothingStuck(ShardDdlError):
    """No source stands at a statement that it cannot get past."""

    scope = Scope.CONFIG
    source: str
    why: str

    code = "US-5045"
    template = "{source} does not stand at a statement that it cannot get past: {why}"
    hint = "name the statement by --at FILE:POSITION or --gtid GTID, or see `unshard status` and `unshard locks`"


@dataclass(eq=False)
class OrderSpent(ShardDdlError):
    """An order that is to be taken back is none that waits."""

    scope = Scope.CONFIG
    named: str
    state: str

    code = "US-5046"
    template = "{named} is no order that can be taken back: {state}"
    hint = "`unshard ddl list TASK` shows all orders and what became of them"


@dataclass(eq=False)
class PlaceUnreadable(ShardDdlError):
    """The place of a statement is not written as one."""

    scope = Scope.CONFIG
    text: str
    why: str

    code = "US-5047"
    template = "'{text}' names no statement: {why}"
    hint = "write a position as mysql-bin.000003:1234, a GTID as 0-1-55 (MariaDB) or uuid:55 (MySQL), with one --source"


@dataclass(eq=False)
class OrdersChanged(ShardDdlError):
    """Orders about a source's statements came or went while its window was planned."""

    scope = Scope.INTERNAL
    transient = True
    source: str

    code = "US-5048"
    template = "orders about statements of {source} were given while its next window was planned"
    hint = "the window is planned anew by the next try"


@dataclass(eq=False)
class HistoryUnknown(StatementOrderError):
    """Whether a GTID was passed cannot be told."""

    number: int
    location: str

    code = "US-5049"
    template = "order {number}: whether {place} was passed cannot be told, the GTIDs at {location} are not known"
    hint = "take it back (`unshard ddl revert TASK --order {number}`) and name the statement by its position"
