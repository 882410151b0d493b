"""US-4xxx: reading DDL, computing its effect, executing it."""

from dataclasses import dataclass

from unshard.errors.base import Scope, UnshardError


@dataclass(eq=False)
class DdlError(UnshardError):
    """A DDL cannot be classified, tried or executed."""

    scope = Scope.UPSTREAM


SHOWN = 300


@dataclass(eq=False)
class DdlUnreadable(DdlError):
    """A statement of the binlog is none that unshard knows, so it cannot tell which tables it changes."""

    text: str
    reason: str
    code = "US-4001"
    template = "cannot read the statement {text!r}: {reason}"
    hint = "nothing was skipped; if it is a legal statement report it, see docs/errors.md for what to do until then"


@dataclass(eq=False)
class EffectRefused(DdlError):
    """The target refuses a DDL on an empty table of the shard's structure."""

    table: str
    errno: int
    words: str
    text: str
    code = "US-4003"
    template = "the target refuses with error {errno}, {words}, the DDL of {table} on an empty copy: {text}"
    hint = "make the target take it (flavour, version, sql_mode) or let the operator decide to skip or replace it"


@dataclass(eq=False)
class StructureUnknown(DdlError):
    """A statement builds on a table whose structure is not known."""

    table: str
    text: str
    code = "US-4004"
    template = "the structure of {table}, which {text!r} builds on, is not known"
    hint = "add that table to the task, or take the shard out of it"


@dataclass(eq=False)
class DdlRefused(DdlError):
    """The target refuses to execute a DDL that its empty copy took: its rows stand against it."""

    scope = Scope.DOWNSTREAM
    target: str
    errno: int
    words: str
    text: str
    code = "US-4005"
    template = "{target} refuses with error {errno}, {words}, the DDL: {text}"
    hint = "remove what stands against it and unlock again, or skip or replace the DDL"


@dataclass(eq=False)
class TargetChanged(DdlError):
    """The target table's structure is not the one that it should have before or after a DDL."""

    scope = Scope.DOWNSTREAM
    target: str
    changes: str
    text: str
    code = "US-4006"
    template = "{target} was altered by someone else ({changes}), so it is unknown whether it has had the DDL {text}"
    hint = "give the table the structure that it should have, then unlock again"


@dataclass(eq=False)
class DdlStillRunning(DdlError):
    """Another session, perhaps one that was cut off, still works at a DDL of this table."""

    scope = Scope.DOWNSTREAM
    transient = True
    target: str
    seconds: int
    code = "US-4007"
    template = "another session has been executing a DDL on {target} for more than {seconds} s"
    hint = "it is tried again; SHOW PROCESSLIST on the target shows how far it is"


@dataclass(eq=False)
class TargetLacksColumns(DdlError):
    """A target table that exists already cannot take the rows of a shard."""

    scope = Scope.DOWNSTREAM
    target: str
    columns: str
    code = "US-4008"
    template = "the target table {target} exists and lacks columns of its shards: {columns}"
    hint = "add them, or drop the table and let unshard create it"


@dataclass(eq=False)
class DdlFiltered(DdlError):
    """A filter of the task asks for an error at this statement."""

    rule: str
    table: str
    text: str
    code = "US-4009"
    template = "filter '{rule}' stops at what {table} ran: {text}"
    hint = "nothing was skipped; change the filter's action to Do or Ignore, or its events, and run the task again"
