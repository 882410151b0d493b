"""Expression filters of a task file: their keys, and the rules that they say."""

from unshard.config import checks
from unshard.config.declare import Block, Key, Values
from unshard.config.kinds import text
from unshard.core.model import TableId
from unshard.core.rowfilter import RowFilter, unfit_expression
from unshard.errors.config import KeysExclude, MissingKey

KINDS = ("insert-value-expr", "update-old-value-expr", "update-new-value-expr", "delete-value-expr")
OF_UPDATES = KINDS[1:3]

ROW_FILTER = Block(
    "Expression filter: a block below `expression-filter`",
    (
        Key("schema", text("text", checks.schema_name), "Schema of the shard, by its name.", required=True),
        Key("table", text("text", checks.not_empty), "Table, by its name.", required=True),
        Key("insert-value-expr", text("expression", unfit_expression), "Inserted rows that it is true for are left "
            "out."),
        Key("update-old-value-expr", text("expression", unfit_expression), "Updates are left out if it is true for "
            "the row before; with the next key only if that is true for the row after, too."),
        Key("update-new-value-expr", text("expression", unfit_expression), "The same for the row after."),
        Key("delete-value-expr", text("expression", unfit_expression), "Deletes of rows that it is true for are left "
            "out."),
    ),
)  # fmt: skip


def row_filter(name: str, values: Values, case_sensitive: bool) -> RowFilter:
    """Return the rule; one rule is for one kind of change, as in DM."""
    given = [key for key in KINDS if values[key]]
    if not given:
        raise MissingKey(str(values.place), KINDS[0], "without any expression the rule leaves nothing out")
    if len(given) > 1 and given != list(OF_UPDATES):
        raise KeysExclude(str(values.place), given[0], given[-1])
    table = TableId(values["schema"], values["table"])
    insert, update_old, update_new, delete = (values[key] or "" for key in KINDS)
    return RowFilter(name, table, insert, update_old, update_new, delete, case_sensitive)
