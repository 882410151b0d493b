"""US-2367 to US-2369, US-607x: foreign keys of tasks with `foreign_key_checks: 1` in the session of the target."""

from unshard.errors.base import TargetError
from unshard.errors.checks import CheckFailed, CheckWarned


class ForeignKeysCascade(CheckWarned, code="US-2367"):
    """Foreign keys of shards delete or change rows of other tables: ON DELETE or ON UPDATE with CASCADE or SET NULL.

    The binlog does not contain these changes. (MySQL logs them from 9.6 on, unless innodb_native_foreign_keys is ON.
    Then there is no warning.)

    Consequence: `unshard check` reports a warning. With `foreign_key_checks: 1` in the session of the target, foreign
    keys of the target make the same changes. Without them the target misses these changes.
    """

    source: str
    keys: str
    template = "source {source} changes rows by foreign keys, without a trace in its binlog: {keys}"
    hint = "the target's foreign keys must have the same actions"


class ForeignKeyLacking(CheckWarned, code="US-2368"):
    """The session of the target has `foreign_key_checks: 1`, and the target lacks a foreign key of its shards.

    unshard creates foreign keys together with a target table. An existing table gets only those that later DDL of the
    shards adds. A foreign key whose parent table is not in the task is not created.

    Consequence: `unshard check` reports a warning. The target does not enforce this foreign key and does not carry out
    its actions.
    """

    source: str
    keys: str
    template = "source {source} has foreign keys that the target lacks and does not get: {keys}"
    hint = "create them on the target (ALTER TABLE … ADD FOREIGN KEY), or route the parent tables too"


class ForeignKeyNotOfShards(CheckFailed, code="US-2369"):
    """The target enforces a foreign key that not all shards of the table have.

    unshard writes the rows of connected tables in the order of the binlog. That order satisfies the foreign keys of the
    shards, but not others: a child may come before its parent, and a parent may be deleted before its children.

    Consequence: `unshard check` reports an error. A window that violates the foreign key suspends the target.
    """

    target: str
    key: str
    shard: str
    template = (
        "the target has a foreign key, {key}, that shard {shard} does not have: no order of its rows satisfies it"
    )
    hint = "drop the foreign key on the target, or set foreign_key_checks of the target's session to 0"


class ReferencedRowMissing(TargetError, code="US-6070"):
    """A row references a row of another table, or of its own, that the target does not have.

    If several sources feed the tables, the row's parent may be in a window of another source that has not run yet. Or
    the parent was deleted in the target, or it was never written there.

    Consequence: unshard suspends the target and all targets that foreign keys connect with it, for this source, and
    holds their rows. When the target has the parent, the next window releases them.
    """

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
    """A row cannot be deleted or get another key, because rows of another table in the target reference it.

    If several sources feed the tables, the changes of these rows may be in a window of another source that has not run
    yet. Or the target's foreign key has another action than that of the shards (ON DELETE, ON UPDATE).

    Consequence: unshard suspends the target and all targets that foreign keys connect with it, for this source, and
    holds their rows. When no row references the row any more, the next window releases them.
    """

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
    """A target is suspended because foreign keys connect it with a target that is suspended.

    Rows of connected tables are applied in the order of the binlog, so none of them may go on alone.

    Consequence: unshard holds the rows of both for this source. When the other target goes on, this one does too.
    """

    target: str
    other: str
    template = "target table {target} waits for {other}: foreign keys connect them"
    hint = "the error of {other} says what to do"
