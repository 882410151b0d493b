"""US-6xxx: writing into the target and comparing with it."""

from dataclasses import dataclass
from typing import ClassVar

from unshard.errors.base import Scope, UnshardError


@dataclass(eq=False)
class TargetError(UnshardError):
    """The target refuses rows or holds other rows than it should."""

    scope = Scope.DOWNSTREAM


@dataclass(eq=False)
class NoTargetTable(TargetError):
    """A table that rows go to is not in the target."""

    target: str

    code = "US-6001"
    template = "target table {target} does not exist"
    hint = "run the full part of the task first, or create the table in the target as the shards have it"


@dataclass(eq=False)
class RowRefused(TargetError):
    """The target cannot store a row as it is."""

    target: str
    column: str
    key: str
    words: str
    line: bytes = b""
    """The row as it was sent; empty if it never was."""

    code = "US-6002"
    template = "target table {target} cannot store a row as it is: {words} (column '{column}', row {key})"
    hint = "make the target's column as wide as the shards' (SHOW CREATE TABLE on both), then run the task again"


@dataclass(eq=False)
class ColumnNotInTarget(TargetError):
    """A shard has a column for which the target has no place."""

    shard: str
    column: str
    target: str

    code = "US-6003"
    template = "shard {shard} has the column '{column}', target table {target} has not"
    hint = "add the column to the target, or drop it in the shard; then run the task again"


@dataclass(eq=False)
class ColumnTypesDiffer(TargetError):
    """Values of the shard's column would not mean the same in the target's."""

    shard: str
    column: str
    shard_type: str
    target: str
    target_type: str

    code = "US-6004"
    template = (
        "column '{column}' is {shard_type} in shard {shard} and {target_type} in target table {target}:"
        " its values would change silently"
    )
    hint = "give the target's column the type that it has in the shards, then run the task again"


@dataclass(eq=False)
class KeyColumnMissing(TargetError):
    """A column of the target's key is not among those that the shard's rows bring."""

    shard: str
    column: str
    target: str

    code = "US-6005"
    template = "target table {target} identifies rows by the column '{column}', which shard {shard} does not bring"
    hint = "run the DDL that adds the column on this shard too, or give the target the key that the shards have"


@dataclass(eq=False)
class Collision(TargetError):
    """Two shards have a row with the same key."""

    target: str
    key: str
    shard: str
    owner: str
    condition: str = ""
    """The key as an SQL condition, to look for its owner."""

    code = "US-6006"
    unnamed: ClassVar[str] = "another shard"
    """The owner, as long as only the target was asked: the key is there."""
    template = "target table {target} has {key} already, from {owner}, when shard {shard} brings it"
    hint = (
        "remove the row from one of the shards, or from the target if it has stayed there of a shard that was truncated"
        " or dropped, or set on-duplicate to replace or ignore in the task file; then run the task again"
    )


@dataclass(eq=False)
class KeyOutOfOrder(TargetError):
    """The changes of one key of one shard contradict each other."""

    scope = Scope.INTERNAL
    shard: str
    target: str
    key: str

    code = "US-6007"
    template = "shard {shard} takes the row {key} of target table {target} away twice, or brings it twice"
    hint = (
        "if the shard was truncated or its key is no unique key there, run the full part of the task again;"
        " otherwise report this"
    )


@dataclass(eq=False)
class RowsMissing(TargetError):
    """A table without a key does not hold the rows that are to go."""

    target: str
    row: str
    wanted: int
    found: int

    code = "US-6008"
    template = "target table {target} has {found} rows to delete where {wanted} must go: {row}"
    hint = "something else wrote into the target: compare with `unshard validate`, restore the rows and run again"


@dataclass(eq=False)
class EngineNotTransactional(TargetError):
    """A target table cannot take part in a transaction, so a window could be half applied."""

    target: str
    engine: str

    code = "US-6009"
    template = "target table {target} has the engine {engine}, which knows no transactions"
    hint = "ALTER TABLE … ENGINE=InnoDB on the target, then run the task again"


@dataclass(eq=False)
class FenceMissing(TargetError):
    """The fence row that guards a target table is gone."""

    scope = Scope.INTERNAL
    target: str
    source: str

    code = "US-6010"
    template = "the fence of source {source} for target table {target} is missing"
    hint = "the meta schema was changed by hand: restore it, or clear it and run the full part of the task again"


@dataclass(eq=False)
class RelayNeedsFolder(TargetError):
    """The storage path names HDFS by its RPC address, which only Hadoop's own libraries speak."""

    scope = Scope.CONFIG
    place: str
    storage: str

    code = "US-6013"
    template = "{place}: {storage} is the RPC address of HDFS, and unshard reaches it by its REST interface"
    hint = (
        "say webhdfs://host:port/folder with the HTTP address of the name node (dfs.namenode.http-address, port 9870)"
    )


@dataclass(eq=False)
class NotInSync(TargetError):
    """A window was asked for before the full part of the task has handed over."""

    scope = Scope.CONFIG
    source: str
    phase: str

    code = "US-6012"
    template = "source {source} is in the phase '{phase}': there is no checkpoint that windows could go on from"
    hint = "run the full part of the task first: `unshard run TASK.yaml --until full`"


@dataclass(eq=False)
class ExtractedColumnMissing(TargetError):
    """A route extracts into a column that the target table lacks."""

    target: str
    column: str
    shard: str

    code = "US-6014"
    template = "target table {target} has no column '{column}', into which the route of shard {shard} extracts"
    hint = "add it (VARCHAR(64) NOT NULL, say), and to the key too if two shards can have the same key; then run again"


@dataclass(eq=False)
class ExtractedColumnTaken(TargetError):
    """A route extracts into a column that the shard has itself."""

    scope = Scope.CONFIG
    shard: str
    column: str
    target: str

    code = "US-6015"
    template = "shard {shard} has the column '{column}' itself, into which its route to {target} extracts"
    hint = "let target-column of the route name a column that no shard has"


@dataclass(eq=False)
class ExtractedValueUnfit(TargetError):
    """A column cannot hold what is extracted for a shard."""

    target: str
    column: str
    column_type: str
    value: str
    shard: str

    code = "US-6016"
    template = "column '{column}' of target table {target} is {column_type} and cannot hold '{value}' of shard {shard}"
    hint = "make it a CHAR, VARCHAR or TEXT that is long enough, or an integer for values without leading zeros"


@dataclass(eq=False)
class ExtractionNeedsTable(TargetError):
    """A target table with extracted columns is not there."""

    target: str
    shard: str
    columns: str

    code = "US-6017"
    template = "target table {target} does not exist, and the route of shard {shard} extracts into it: {columns}"
    hint = (
        "create it like the shards, with these columns (VARCHAR(64) NOT NULL, say), which belong to the key if two"
        " shards can have the same key; then run the task again"
    )


@dataclass(eq=False)
class RowsFiltered(TargetError):
    """A filter of the task asks for an error at a change of rows."""

    rule: str
    shard: str
    kind: str
    rows: int

    code = "US-6023"
    template = "filter '{rule}' stops at the {kind} of {rows} rows in shard {shard}"
    hint = "nothing was skipped; change the filter's action to Do or Ignore, or its events, and run the task again"


@dataclass(eq=False)
class RowFilterFailed(TargetError):
    """The target cannot evaluate the expression of an expression filter."""

    rule: str
    expression: str
    words: str

    code = "US-6024"
    template = "the target cannot evaluate {expression!r} of expression filter '{rule}': {words}"
    hint = "correct the expression; it may name the columns of the shard as they are now, but no generated ones"


@dataclass(eq=False)
class RowFilterIdle(TargetError):
    """An expression filter is for a table that there is not."""

    rule: str
    table: str

    code = "US-6025"
    template = "expression filter '{rule}' is for {table}, which is no shard of a source that has the rule"
    hint = "correct schema and table of the rule, which are names and no patterns"


@dataclass(eq=False)
class MappedColumnMissing(TargetError):
    """A column mapping names a column that a shard lacks."""

    shard: str
    column: str
    rule: str

    code = "US-6018"
    template = "shard {shard} has no column '{column}', which column mapping '{rule}' names"
    hint = "correct the rule, or its patterns so that it does not match this table"


@dataclass(eq=False)
class MappedColumnUnfit(TargetError):
    """A column cannot hold what a column mapping makes of it, or take part in one at all."""

    place: str
    column: str
    kind: str
    rule: str
    wanted: str

    code = "US-6019"
    template = "column '{column}' of {place} is {kind}, column mapping '{rule}' needs {wanted}"
    hint = "create the target table by hand with a column that holds the mapped values, or correct the rule"


@dataclass(eq=False)
class MappedNotKey(TargetError):
    """A column mapping changes a column that identifies nothing."""

    shard: str
    column: str
    rule: str

    code = "US-6020"
    template = "column mapping '{rule}' changes '{column}' of shard {shard}, which is in no primary or unique key"
    hint = "correct the rule; if the column refers to mapped ids, name it in the rule's referencing-columns"


@dataclass(eq=False)
class MappedIdsTooLarge(TargetError):
    """Rows that are in a shard already have ids that a column mapping cannot map."""

    shard: str
    column: str
    low: int
    high: int
    bits: int
    rule: str

    code = "US-6021"
    template = (
        "the ids in '{column}' of shard {shard} go from {low} to {high}, column mapping '{rule}' leaves {bits} bits,"
        " from 0 on"
    )
    hint = "leave an argument of the rule empty that no shard needs, so that more bits are free"


@dataclass(eq=False)
class MappingOverlap(TargetError):
    """Two shards of a target may get the same mapped ids."""

    target: str
    column: str
    first: str
    second: str
    start: int

    code = "US-6022"
    template = "shards {first} and {second} may both have ids from {start} on in '{column}' of target {target}"
    hint = (
        "give each its own instance, schema or table number in column-mappings; if their ids are distinct by"
        " themselves, say so with shared-bits: true"
    )


# --- US-68xx prechecks of the target, validation ---------------------------------------------------


@dataclass(eq=False)
class LocalInfileOff(TargetError):
    """The target refuses LOAD DATA LOCAL."""

    target: str

    code = "US-6801"
    template = "target {target} has local_infile OFF"
    hint = "SET GLOBAL local_infile = ON, and the same in the server's configuration"


@dataclass(eq=False)
class TargetTableUnfit(TargetError):
    """A target table exists that cannot take the rows of its shards."""

    table: str
    reasons: str

    code = "US-6802"
    template = "target table {table} cannot take the rows of its shards: {reasons}"
    hint = "change or drop the table; one that does not exist is created from a shard's structure"


@dataclass(eq=False)
class PacketTooSmall(TargetError):
    """The server would cut the text of a row to NULL and hide a difference."""

    server: str
    value: int
    wanted: int

    code = "US-6803"
    template = "{server} has max_allowed_packet = {value}, comparing needs {wanted} at least"
    hint = "SET GLOBAL max_allowed_packet to 16777216 and try again"


@dataclass(eq=False)
class NothingToValidate(TargetError):
    """No target table is left to compare."""

    tables: str

    code = "US-6804"
    template = "no target table to validate{tables}"
    hint = "check the task's routes, and the names given with --table"


@dataclass(eq=False)
class NoProgress(TargetError):
    """The windows stand still before the position that they must pass."""

    scope = Scope.INTERNAL
    source: str
    position: str
    goal: str

    code = "US-6805"
    template = "source {source} stands still at {position}, before {goal}"
    hint = "this is a defect: report it with the output of `unshard status --json` and the relay folder's index files"


# --- US-64xx load ---------------------------------------------------------------------------------------


@dataclass(eq=False)
class TargetNotEmpty(TargetError):
    """A new task would mix its rows with others."""

    target: str

    code = "US-6401"
    template = "target table {target} holds rows that this task has not loaded"
    hint = "empty the table, or set on-duplicate to replace or ignore in the task file to load into it as it is"


@dataclass(eq=False)
class NotDumped(TargetError):
    """The load was called before the dump."""

    source: str

    code = "US-6402"
    template = "source {source} is not dumped yet"
    hint = "run the task's dump step first; `unshard run` and the full DAG do so by themselves"


@dataclass(eq=False)
class NotLoaded(TargetError):
    """The handover was called before every source was loaded."""

    sources: str

    code = "US-6403"
    template = "these sources are not loaded yet: {sources}"
    hint = "run their dump and load steps first; windows begin when all rows of all sources are in the target"


@dataclass(eq=False)
class ChunkGone(TargetError):
    """A chunk that is being loaded is not in the meta tables any more."""

    shard: str
    number: int

    code = "US-6404"
    template = "chunk {number} of shard {shard} is not waiting to be loaded any more"
    hint = "another run of the same task has started the source anew: let only one of them work"


@dataclass(eq=False)
class LoadCollision(Collision):
    """Two shards had a row with the same key when they were dumped."""

    code = "US-6405"
    hint = (
        "remove or change the row in one of the shards and run the task again, which reads that shard anew;"
        " or set on-duplicate to replace or ignore in the task file"
    )
