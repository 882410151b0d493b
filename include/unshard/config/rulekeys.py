"""Keys of the rules of a task file, and the rules that they give: routes, lists, filters, column mappings."""

from difflib import get_close_matches

from unshard.config import checks
from unshard.config.declare import Block, FilePlace, Ignored, Key, Values
from unshard.config.kinds import blocks, boolean, choice, nested, text, texts, words
from unshard.core.model import TableId
from unshard.core.rules.columnmapping import INSTANCE_BITS, Affix, Expression, MappingRule, Partition
from unshard.core.rules.filters import (
    DDL,
    DML,
    GROUPS,
    UNMATCHED,
    Action,
    EventRule,
    RowFilter,
    unfit_expression,
    unknown_names,
)
from unshard.core.rules.pattern import compile_pattern, compile_regex
from unshard.core.rules.reshaping import Extractor, Origin, compile_extractor
from unshard.core.rules.routing import BlockAllowList, RouteRule, compile_rule, compile_tables
from unshard.errors.config import BadValue, KeysExclude, MissingKey

EXTRACT_FROM = {Origin.TABLE: "shard's table name", Origin.SCHEMA: "shard's schema name", Origin.SOURCE: "source id"}
EXTRACT = {
    origin: Block(
        f"Extractor: `extract-{origin}` of a route",
        (
            Key(
                f"{origin}-regexp",
                text("regular expression", checks.not_empty),
                "May match anywhere in the name; the value is the concatenation of its groups `( )`.",
                required=True,
            ),
            Key("target-column", text("text", checks.column_name), "Target column for the value.", required=True),
        ),
    )
    for origin in Origin
}

ROUTE = Block(
    "Route: a block below `routes`",
    (
        Key("schema-pattern", text("pattern", checks.not_empty), "Schemas to which the rule applies.", required=True),
        Key(
            "table-pattern",
            text("pattern"),
            "Tables; without it the rule applies to whole schemas, and rules with one take precedence.",
            "",
        ),
        Key("target-schema", text("text", checks.schema_name), "Schema in the target.", required=True),
        Key(
            "target-table", text("text", checks.table_name), "Table in the target; empty for the shard's own name.", ""
        ),
        *(
            Key(f"extract-{origin}", nested(EXTRACT[origin]), f"Writes a part of the {what} into a column.")
            for origin, what in EXTRACT_FROM.items()
        ),
    ),
)

MAPPING = Block(
    "Column mapping: a block below `column-mappings`",
    (
        Key("schema-pattern", text("pattern", checks.not_empty), "Schemas to which the rule applies.", required=True),
        Key("table-pattern", text("pattern"), "Tables; without it, rules with one take precedence.", ""),
        Key(
            "expression",
            choice(words(Expression)),
            "Mapping of the values: `partition id`, `add prefix` or `add suffix`.",
            required=True,
        ),
        Key(
            "source-column",
            text("text", checks.column_name),
            "Column of the shards with the original values.",
            shown="as `target-column`",
        ),
        Key(
            "target-column",
            text("text", checks.column_name),
            "Column of the shards that gets the mapped values.",
            required=True,
        ),
        Key(
            "arguments",
            texts(),
            "`partition id`: instance (0 to 15), prefix before the number in the schema's name, prefix in the table's "
            "name, and separator (default empty); an empty argument uses no bits. `add prefix`, `add suffix`: the "
            "text.",
            required=True,
        ),
        Key(
            "referencing-columns",
            texts(text("text", checks.column_name)),
            "Columns with the same mapping that need not be part of a key, such as references to mapped ids; "
            "`source-column` may be one.",
            (),
        ),
        Key("shared-bits", boolean(), "Shards may have the same bits, because their ids are distinct anyway.", False),
        Ignored("create-table-query", "rows are written into the columns of the target"),
    ),
)

TABLE_PATTERN = Block(
    "Entry of `do-tables` and `ignore-tables`",
    (
        Key("db-name", text("pattern", checks.not_empty), "Schemas.", required=True),
        Key("tbl-name", text("pattern", checks.not_empty), "Tables.", required=True),
    ),
)

ALLOW_LIST = Block(
    "Block-allow list: a block below `block-allow-list`",
    (
        Key("do-dbs", texts(text("pattern")), "Only these schemas are included; `ignore-dbs` is then not used.", ()),
        Key("ignore-dbs", texts(text("pattern")), "These schemas are excluded.", ()),
        Key("do-tables", blocks(TABLE_PATTERN), "Only these tables are included.", ()),
        Key("ignore-tables", blocks(TABLE_PATTERN), "These tables are excluded, unless `do-tables` names them.", ()),
    ),
)

EVENT_FILTER = Block(
    "Binlog event filter: a block below `filters`, or an entry of it in a source file",
    (
        Key("schema-pattern", text("pattern", checks.not_empty), "Schemas to which the rule applies.", required=True),
        Key("table-pattern", text("pattern"), "Tables; without it the rule applies to the whole schemas.", ""),
        Key("events", texts(), "Names of changes, see above.", ()),
        Key(
            "sql-pattern",
            texts(text("regular expression", checks.not_empty)),
            "Regular expressions for the source's statement without comments; they ignore case and may match anywhere.",
            (),
        ),
        Key(
            "action",
            choice(words(Action)),
            "`Ignore` drops matching changes, `Do` drops all others. `Error` stops the "
            "source at a matching statement, or the target at matching rows.",
            required=True,
        ),
    ),
)

EXPRESSIONS = ("insert-value-expr", "update-old-value-expr", "update-new-value-expr", "delete-value-expr")
OF_UPDATES = EXPRESSIONS[1:3]

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

INSTANCES = 1 << INSTANCE_BITS
PARTITION = (3, 4)


def route_rule(name: str, values: Values, case_sensitive: bool) -> RouteRule:
    """Return the compiled route; a pattern or an extractor that does not fit is an error with its place."""
    patterns = (values["schema-pattern"], values["table-pattern"])
    target = (values["target-schema"], values["target-table"])
    if values["target-table"] and not values["table-pattern"]:
        raise BadValue(str(values.place), name, "a rule that merges tables: target-table needs a table-pattern")
    return compile_rule(name, patterns, target, case_sensitive, str(values.place), _extractors(values, case_sensitive))


def _extractors(values: Values, case_sensitive: bool) -> tuple[Extractor, ...]:
    found: dict[str, Extractor] = {}
    for origin in Origin:
        block: Values | None = values[f"extract-{origin}"]
        if block is None:
            continue
        column, key = block["target-column"], f"{origin}-regexp"
        if column.lower() in found:
            raise BadValue(str(block.place_of("target-column")), column, "a column that no other extractor uses")
        place = str(block.place_of(key))
        found[column.lower()] = compile_extractor(origin, block[key], column, case_sensitive, place)
    return tuple(found.values())


def allow_list(values: Values, case_sensitive: bool) -> BlockAllowList:
    """Return the compiled block-allow list."""
    dbs = {
        key: tuple(compile_pattern(text, case_sensitive, str(values.place_of(key))) for text in values[key])
        for key in ("do-dbs", "ignore-dbs")
    }
    tables = {
        key: compile_tables(
            tuple((entry["db-name"], entry["tbl-name"]) for entry in values[key]),
            case_sensitive,
            str(values.place_of(key)),
        )
        for key in ("do-tables", "ignore-tables")
    }
    return BlockAllowList(dbs["do-dbs"], dbs["ignore-dbs"], tables["do-tables"], tables["ignore-tables"])


def event_rule(name: str, values: Values, case_sensitive: bool) -> EventRule:
    """Return the compiled rule; unknown names of changes are rejected."""
    whose, table = str(values.place), values["table-pattern"]
    events = tuple(event.strip().lower() for event in values["events"])
    for event in unknown_names(events):
        close = get_close_matches(event, (*DML, *GROUPS, *DDL), 1, 0.6) or ["drop column"]
        wanted = f"the name of a change, like '{close[0]}'; docs/config.md lists them"
        raise BadValue(str(values.place_of("events")), event, wanted)
    for event in events:
        if event in UNMATCHED:
            values.place_of("events").warn_idle(event, "no statement of a source has this name")
    if not events and not values["sql-pattern"]:
        raise MissingKey(whose, "events", "without it and sql-pattern the rule matches nothing")
    sql = tuple(compile_regex(each, False, str(values.place_of("sql-pattern"))) for each in values["sql-pattern"])
    return EventRule(
        name,
        compile_pattern(values["schema-pattern"], case_sensitive, whose),
        compile_pattern(table, case_sensitive, whose) if table else None,
        events,
        sql,
        values["action"],
    )


def row_filter(name: str, values: Values, case_sensitive: bool) -> RowFilter:
    """Return the rule; a rule applies to one kind of change, as in DM."""
    present = [key for key in EXPRESSIONS if values[key]]
    if not present:
        raise MissingKey(str(values.place), EXPRESSIONS[0], "without any expression the rule drops nothing")
    if len(present) > 1 and present != list(OF_UPDATES):
        raise KeysExclude(str(values.place), present[0], present[-1])
    table = TableId(values["schema"], values["table"])
    insert, update_old, update_new, delete = (values[key] or "" for key in EXPRESSIONS)
    return RowFilter(name, table, insert, update_old, update_new, delete, case_sensitive)


def mapping_rule(name: str, values: Values, case_sensitive: bool) -> MappingRule:
    """Return the compiled rule; arguments that do not fit its expression are an error with its place."""
    whose = str(values.place)
    table = values["table-pattern"]
    return MappingRule(
        name,
        compile_pattern(values["schema-pattern"], case_sensitive, whose),
        compile_pattern(table, case_sensitive, whose) if table else None,
        values["source-column"] or values["target-column"],
        values["target-column"],
        _how(values["expression"], values["arguments"], values.place_of("arguments")),
        values["referencing-columns"],
        values["shared-bits"],
    )


def _how(expression: Expression, arguments: tuple[str, ...], place: FilePlace) -> Partition | Affix:
    if expression is Expression.PARTITION_ID:
        return _partition(arguments, place)
    if len(arguments) != 1:
        raise BadValue(str(place), _shown(arguments), f"one text for '{expression}'")
    return Affix(before=arguments[0]) if expression is Expression.ADD_PREFIX else Affix(after=arguments[0])


def _partition(arguments: tuple[str, ...], place: FilePlace) -> Partition:
    if len(arguments) not in PARTITION:
        wanted = "three texts or four for 'partition id': instance, schema prefix, table prefix, separator"
        raise BadValue(str(place), _shown(arguments), wanted)
    instance, schema, table, separator = (*arguments, "")[:4]
    if instance and not (instance.isascii() and instance.isdigit() and int(instance) < INSTANCES):
        raise BadValue(str(place), instance, f"an instance from 0 to {INSTANCES - 1}, or empty")
    return Partition(int(instance) if instance else None, schema or None, table or None, separator)


def _shown(arguments: tuple[str, ...]) -> str:
    return f"[{', '.join(arguments)}]"
