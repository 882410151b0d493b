"""US-6014 to US-6025: extractors, column mappings and filters of the task file."""

from unshard.errors.base import Scope, TargetError


class ExtractedColumnMissing(TargetError, code="US-6014"):
    """A route has `extract-table`, `extract-schema` or `extract-source`, and the target lacks the named column.

    Remedy: Add the column. If two shards can have rows with the same key, add it to the target's key too:
    `ALTER TABLE … ADD COLUMN c_table VARCHAR(64) NOT NULL, DROP PRIMARY KEY, ADD PRIMARY KEY (id, c_table)`.
    """

    target: str
    column: str
    shard: str
    template = "target table {target} has no column '{column}', into which the route of shard {shard} extracts"
    hint = "add it (VARCHAR(64) NOT NULL, say), and to the key too if two shards can have the same key; then run again"


class ExtractedColumnTaken(TargetError, code="US-6015", scope=Scope.CONFIG):
    """A route extracts into a column that the shard itself has, so one of the two values would be lost."""

    shard: str
    column: str
    target: str
    template = "shard {shard} has the column '{column}' itself, into which its route to {target} extracts"
    hint = "set target-column of the route to a column that no shard has"


class ExtractedValueUnfit(TargetError, code="US-6016"):
    """The target's column cannot store the extracted value.

    The column is too short, of another kind (integers store digits without leading zeros), generated, or its character
    set lacks a character.
    """

    target: str
    column: str
    column_type: str
    value: str
    shard: str
    template = "column '{column}' of target table {target} is {column_type} and cannot hold '{value}' of shard {shard}"
    hint = "make it a CHAR, VARCHAR or TEXT that is long enough, or an integer for values without leading zeros"


class ExtractionNeedsTable(TargetError, code="US-6017"):
    """A target table with extracted columns does not exist.

    unshard creates target tables like a shard, but not those with extracted columns: whether these columns belong to
    the key depends on the data.
    """

    target: str
    shard: str
    columns: str
    template = "target table {target} does not exist, and the route of shard {shard} extracts into it: {columns}"
    hint = (
        "create it like the shards, with these columns (VARCHAR(64) NOT NULL, say), and add them to the key if two"
        " shards can have the same key; then run the task again"
    )


class MappedColumnMissing(TargetError, code="US-6018"):
    """A rule of `column-mappings` names a column that a matching shard does not have, perhaps since a DDL.

    Remedy: Correct `source-column`, `target-column` or `referencing-columns` of the rule, or its patterns.
    """

    shard: str
    column: str
    rule: str
    template = "shard {shard} has no column '{column}', which column mapping '{rule}' names"
    hint = "correct the rule, or its patterns so that it does not match this table"


class MappedColumnUnfit(TargetError, code="US-6019"):
    """A column cannot hold mapped values, or a column mapping cannot map its type.

    `partition id` maps integers, whole DECIMALs and numbers in CHAR or VARCHAR to numbers of 19 digits. `add prefix`
    and `add suffix` map text to text. The message names the column, in the shard or in the target, and the needed type.

    Remedy: unshard creates a missing target table like the shards. Create it with a wider column, or correct the rule.
    """

    place: str
    column: str
    kind: str
    rule: str
    wanted: str
    template = "column '{column}' of {place} is {kind}, column mapping '{rule}' needs {wanted}"
    hint = "create the target table by hand with a column that holds the mapped values, or correct the rule"


class MappedNotKey(TargetError, code="US-6020"):
    """A column mapping changes a column that is in no primary or unique key.

    Column mappings keep keys apart, so this is usually a mistake.
    """

    shard: str
    column: str
    rule: str
    template = "column mapping '{rule}' changes '{column}' of shard {shard}, which is in no primary or unique key"
    hint = "correct the rule; if the column refers to mapped ids, name it in the rule's referencing-columns"


class MappedIdsTooLarge(TargetError, code="US-6021"):
    """A shard has ids that are negative or do not fit into the bits that the rule leaves.

    Consequence: `unshard check` reports an error. `unshard run` and the full DAG do not start (US-2311).
    Remedy: Empty arguments take no bits: omit the instance, schema or table number that you do not need.
    """

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
    """Two shards of one target may get the same number in a mapped column.

    They have the same instance, schema and table numbers (`t_1` and `t_01`), their rules use the bits differently, or
    no rule matches one of them.

    Consequence: `unshard check` reports an error. `unshard run` and the full DAG do not start (US-2311).
    Remedy: Correct rules or names. If the ids of these shards are distinct anyway, set `shared-bits: true`.
    """

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
    """A rule of `filters` with the action `Error` matches inserts, updates or deletes of a shard.

    Consequence: Nothing of the window is written to this target; unshard suspends it for the source.
    Remedy: Change the rule. The next window uses the new rule, also for held rows.
    """

    rule: str
    shard: str
    kind: str
    rows: int
    template = "filter '{rule}' stops at the {kind} of {rows} rows in shard {shard}"
    hint = "nothing was skipped; change the filter's action to Do or Ignore, or its events, and run the task again"


class RowFilterFailed(TargetError, code="US-6024"):
    """The target rejects the expression of a rule of `expression-filter`.

    The expression is not valid, or it names a column that the shard does not have, perhaps since a DDL, or a generated
    column.
    """

    rule: str
    expression: str
    server_message: str
    template = "the target cannot evaluate {expression!r} of expression filter '{rule}': {server_message}"
    hint = "correct the expression; it may name the columns of the shard as they are now, but no generated ones"


class RowFilterIdle(TargetError, code="US-6025"):
    """A rule of `expression-filter` names a table that is not a shard of any source with this rule.

    Consequence: `unshard check` reports a warning. The rule has no effect until such a table is created.
    Remedy: Nothing, if the table comes later. Otherwise correct schema and table of the rule. They are names, not
    patterns.
    """

    rule: str
    table: str
    template = "expression filter '{rule}' is for {table}, which is no shard of a source that has the rule"
    hint = "nothing to do if the table comes later; else correct schema and table, which are names and not patterns"
