"""The statements that give the rows of a new shard a place in its target.

A table that gets the name of a shard has its own structure. If an operator only skips the statement, rows of columns
that the target lacks stop (US-6003). Only the names of columns are compared, as in core.rows.waysout.
"""

from collections.abc import Sequence

from unshard.core.model import TableId, TableSchema
from unshard.core.sql.quoting import qualified
from unshard.core.structures.createtext import create_text
from unshard.core.structures.hiddencolumns import unversioned
from unshard.core.structures.parsedtable import create_parts


def place(target: TableId, shard: TableSchema, present: Sequence[TableSchema]) -> tuple[str, ...]:
    """Return the statements that the target lacks for the rows of a new shard; empty if it lacks none.

    `present` are the structures whose columns the target has; it is empty if no shard has ever had this target.
    """
    if not present:
        return (create_text(unversioned(shard.create_sql), target, if_not_exists=True),)
    there = {name.lower() for schema in present for name in schema.names}
    missing = {column.name.lower() for column in shard.written} - there
    texts = [part.bare for part in create_parts(shard.create_sql).columns if part.name.lower() in missing]
    if not texts:
        return ()
    added = ", ".join(f"ADD COLUMN {text}" for text in texts)
    return (f"ALTER TABLE {qualified(target.schema, target.name)} {added}",)
