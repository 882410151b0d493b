"""US-6014 to US-6025: extractors, column mappings and filters of the task file."""

from unshard.errors.base import Scope, TargetError


class ExtractedColumnMissing(TargetError, code="US-6014"):
    target: str
    column: str
    shard: str
    template = "target table {target} has no column '{column}', into which the route of shard {shard} extracts"
    hint = "add it (VARCHAR(64) NOT NULL, say), and to the key too if two shards can have the same key; then run again"


class ExtractedColumnTaken(TargetError, code="US-6015", scope=Scope.CONFIG):
    shard: str
    column: str
    target: str
    template = "shard {shard} has the column '{column}' itself, into which its route to {target} extracts"
    hint = "set target-column of the route to a column that no shard has"


class ExtractedValueUnfit(TargetError, code="US-6016"):
    target: str
    column: str
    column_type: str
    value: str
    shard: str
    template = "column '{column}' of target table {target} is {column_type} and cannot hold '{value}' of shard {shard}"
    hint = "make it a CHAR, VARCHAR or TEXT that is long enough, or an integer for values without leading zeros"


class ExtractionNeedsTable(TargetError, code="US-6017"):
    target: str
    shard: str
    columns: str
    template = "target table {target} does not exist, and the route of shard {shard} extracts into it: {columns}"
    hint = (
        "create it like the shards, with these columns (VARCHAR(64) NOT NULL, say), and add them to the key if two"
        " shards can have the same key; then run the task again"
    )


class MappedColumnMissing(TargetError, code="US-6018"):
    shard: str
    column: str
    rule: str
    template = "shard {shard} has no column '{column}', which column mapping '{rule}' names"
    hint = "correct the rule, or its patterns so that it does not match this table"


class MappedColumnUnfit(TargetError, code="US-6019"):
    place: str
    column: str
    kind: str
    rule: str
    wanted: str
    template = "column '{column}' of {place} is {kind}, column mapping '{rule}' needs {wanted}"
    hint = "create the target table by hand with a column that holds the mapped values, or correct the rule"


class MappedNotKey(TargetError, code="US-6020"):
    shard: str
    column: str
    rule: str
    template = "column mapping '{rule}' changes '{column}' of shard {shard}, which is in no primary or unique key"
    hint = "correct the rule; if the column refers to mapped ids, name it in the rule's referencing-columns"


class MappedIdsTooLarge(TargetError, code="US-6021"):
    shard: str
    column: str
    low: int
    high: int
    bits: int
    rule: str
    template = (
        "the ids in '{column}' of shard {shard} go from {low} to {high}, column mapping '{rule}' leaves {bits} bits,"
        " from 0 on"
    )
    hint = "leave an argument of the rule empty that no shard needs, so that more bits are free"


class MappingOverlap(TargetError, code="US-6022"):
    target: str
    column: str
    first: str
    second: str
    start: int
    template = "shards {first} and {second} may both have ids from {start} on in '{column}' of target {target}"
    hint = (
        "give each its own instance, schema or table number in column-mappings; if their ids are distinct without it,"
        " set shared-bits: true"
    )


class RowsFiltered(TargetError, code="US-6023"):
    rule: str
    shard: str
    kind: str
    rows: int
    template = "filter '{rule}' stops at the {kind} of {rows} rows in shard {shard}"
    hint = "nothing was skipped; change the filter's action to Do or Ignore, or its events, and run the task again"


class RowFilterFailed(TargetError, code="US-6024"):
    rule: str
    expression: str
    server_message: str
    template = "the target cannot evaluate {expression!r} of expression filter '{rule}': {server_message}"
    hint = "correct the expression; it may name the columns of the shard as they are now, but no generated ones"


class RowFilterIdle(TargetError, code="US-6025"):
    rule: str
    table: str
    template = "expression filter '{rule}' is for {table}, which is no shard of a source that has the rule"
    hint = "nothing to do if the table comes later; else correct schema and table, which are names and not patterns"
