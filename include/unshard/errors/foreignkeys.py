"""US-2367 to US-2369, US-607x: foreign keys of tasks with `foreign_key_checks: 1` in the session of the target."""

from unshard.errors.base import TargetError
from unshard.errors.checks import CheckFailed, CheckWarned


class ForeignKeysCascade(CheckWarned, code="US-2367"):
    source: str
    keys: str
    template = "source {source} changes rows by foreign keys, without a trace in its binlog: {keys}"
    hint = "the target's foreign keys must have the same actions"


class ForeignKeyLacking(CheckWarned, code="US-2368"):
    source: str
    keys: str
    template = "source {source} has foreign keys that the target lacks and does not get: {keys}"
    hint = "create them on the target (ALTER TABLE … ADD FOREIGN KEY), or route the parent tables too"


class ForeignKeyNotOfShards(CheckFailed, code="US-2369"):
    target: str
    key: str
    shard: str
    template = (
        "the target has a foreign key, {key}, that shard {shard} does not have: no order of its rows satisfies it"
    )
    hint = "drop the foreign key on the target, or set foreign_key_checks of the target's session to 0"


class ReferencedRowMissing(TargetError, code="US-6070"):
    target: str
    key: str
    parent: str
    parent_key: str
    condition: str = ""
    """The parent's row as an SQL condition; empty if it was not found out."""
    rows: str = ""
    """The parent, quoted for SQL."""
    template = "row {key} of target table {target} references {parent_key}, which {parent} does not have"
    hint = (
        "if another source writes the parent row, wait for its next window; otherwise write the row into its shard, or"
        " remove the reference there, then run `unshard retry`"
    )


class RowReferenced(TargetError, code="US-6071"):
    target: str
    key: str
    child: str
    condition: str = ""
    """The referencing rows of the child as an SQL condition; empty if they were not found out."""
    rows: str = ""
    """The child, quoted for SQL."""
    template = "row {key} of target table {target} cannot be deleted or moved: rows of {child} reference it"
    hint = (
        "if another source deletes the rows that reference it, wait for its next window; otherwise compare the foreign"
        " keys of the target with those of the shards, then run `unshard retry`"
    )


class ConnectedTargetWaits(TargetError, code="US-6072"):
    target: str
    other: str
    template = "target table {target} waits for {other}: foreign keys connect them"
    hint = "the error of {other} says what to do"
