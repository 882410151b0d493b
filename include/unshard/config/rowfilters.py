"""Expression filters of a task file: their keys and rules."""

from unshard.config import checks
from unshard.config.declare import Block, Key, Values
from unshard.config.kinds import text
from unshard.core.model import TableId
from unshard.core.rules.filters import RowFilter, unfit_expression
from unshard.errors.config import KeysExclude, MissingKey

KINDS = ("insert-value-expr", "update-old-value-expr", "update-new-value-expr", "delete-value-expr")
OF_UPDATES = KINDS[1:3]

ROW_FILTER = Block(
    "Expression filter: a block below `expression-filter`",
    (
        Key("schema", text("text", checks.schema_name), "Name of the shard's schema.", required=True),
        Key("table", text("text", checks.not_empty), "Name of the shard's table.", required=True),
        Key(
            "insert-value-expr", text("expression", unfit_expression), "Inserted rows for which it is true are dropped."
        ),
        Key(
            "update-old-value-expr",
            text("expression", unfit_expression),
            "Updates are dropped if it is true for the old row. If the next key is set, both must be true.",
        ),
        Key("update-new-value-expr", text("expression", unfit_expression), "The same for the new row."),
        Key(
            "delete-value-expr",
            text("expression", unfit_expression),
            "Deletes of rows for which it is true are dropped.",
        ),
    ),
)


def row_filter(name: str, values: Values, case_sensitive: bool) -> RowFilter:
    """Return the rule; a rule applies to one kind of change, as in DM."""
    present = [key for key in KINDS if values[key]]
    if not present:
        raise MissingKey(str(values.place), KINDS[0], "without any expression the rule drops nothing")
    if len(present) > 1 and present != list(OF_UPDATES):
        raise KeysExclude(str(values.place), present[0], present[-1])
    table = TableId(values["schema"], values["table"])
    insert, update_old, update_new, delete = (values[key] or "" for key in KINDS)
    return RowFilter(name, table, insert, update_old, update_new, delete, case_sensitive)
