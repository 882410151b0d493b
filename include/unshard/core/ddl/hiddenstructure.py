"""The structure of a shard between a DDL of unknown effect and later statements of the same shard.

A source shows the present structure only, which is that after the later statements. They are tried on the structure
from before the DDL. The structure after the DDL follows from a comparison of the result with the present structure:

| the result                            | the structure after the DDL                                              |
|---------------------------------------|--------------------------------------------------------------------------|
| has the present columns and key       | is that before the DDL                                                   |
| differs, and lacks no former column   | has the present columns, without those that later statements add, and    |
|                                       | the former ones where the result does not differ. It is right if the     |
|                                       | later statements lead from it to the present structure.                  |
| a later statement may have changed a  | is unknown                                                               |
| column that the DDL may have changed  |                                                                          |
"""

from collections.abc import Sequence
from dataclasses import replace

from unshard.core.ddl.lineage import NO_COLUMNS
from unshard.core.ddl.parsed import DdlKind
from unshard.core.ddl.sessioneffects import added_columns
from unshard.core.ddl.statement import TokenCursor, alter_specs, is_option, read_ddl
from unshard.core.model import TableSchema
from unshard.core.relay.segment import Statement
from unshard.core.sql.tokens import MARIADB, tokenize
from unshard.core.sql.words import FOLLOWED, NOT_FOLLOWED
from unshard.core.structures.comparison import order_differences, type_and_rules
from unshard.core.structures.parsedtable import Part, create_parts
from unshard.errors.ddl import DdlUnreadable

NOTHING: frozenset[str] = frozenset()
CHANGES = ("ALTER", "CHANGE", "DROP", "MODIFY", "RENAME")
VERSIONED = ("PERIOD", "SYSTEM")
"""Words of changes that add or drop hidden columns."""
OTHERS = {words[0] for words in (*FOLLOWED, *NOT_FOLLOWED)} - {"CONVERT", "SEQUENCE"}
"""First words of changes of partitions and the like."""


def changed_columns(statement: Statement) -> frozenset[str] | None:
    """Return the columns that a statement adds, changes, renames or drops, in lower case; None if they are unknown."""
    try:
        ddl = read_ddl(statement.text, statement.sql_mode, statement.schema)
        found = [_changed(spec) for spec in alter_specs(*tokenize(ddl.text, statement.sql_mode, MARIADB))]
    except DdlUnreadable:
        return None
    if not found:
        return NOTHING if ddl.kind in (DdlKind.IGNORABLE, DdlKind.INDEX, DdlKind.TRUNCATE) else None
    return None if None in found else frozenset().union(*filter(None, found))


def _changed(spec: TokenCursor) -> frozenset[str] | None:
    first, second = spec.peek(), spec.peek(1)
    if second in VERSIONED:
        return None
    if first == "ADD":
        return frozenset(definition[0].name.lower() for definition in added_columns(spec))
    if is_option(spec) or (first == "RENAME" and second != "COLUMN"):
        return NOTHING
    if not spec.eat_any(*CHANGES):
        return NOTHING if first in OTHERS else None
    if not spec.eat("COLUMN") and spec.peek() in NO_COLUMNS:
        return NOTHING
    spec.eat("IF", "EXISTS")
    found = {spec.name().name.lower()}
    if first == "CHANGE" or spec.eat("TO"):
        found.add(spec.name().name.lower())
    return frozenset(found)


def is_hidden(ddl: Statement, later: Sequence[Statement], before: TableSchema, present: TableSchema) -> bool:
    """Whether a later statement may have changed a column that the DDL may have changed."""
    own, others = changed_columns(ddl), [changed_columns(statement) for statement in later]
    if None in others:
        return own != NOTHING
    again = frozenset().union(*filter(None, others))
    return bool(again - (present.by_name.keys() - before.by_name.keys()) if own is None else own & again)


def are_alike(one: TableSchema, other: TableSchema) -> bool:
    """Whether two structures have the same columns in the same order, and the same key."""
    keys = [[name.lower() for name in schema.key] for schema in (one, other)]
    return not order_differences(one, other) and keys[0] == keys[1]


def text_between(before: TableSchema, after: TableSchema, present: TableSchema) -> str:
    """Return CREATE TABLE of the structure after the DDL; empty if the later statements drop a column.

    `before` is from before the DDL, `after` the result of the later statements on it; all three are printed alike.
    """
    if before.by_name.keys() - after.by_name.keys():
        return ""
    old, parts = _columns(before), create_parts(present.create_sql)
    added = after.by_name.keys() - before.by_name.keys()
    indexes = {index.name.lower() for index in after.indexes} - {index.name.lower() for index in before.indexes}
    kept = (part for part in parts.columns if part.name.lower() not in added)
    columns = tuple(part if _differs(part, after, present) else old[part.name.lower()] for part in kept)
    keys = tuple(part for part in parts.keys if part.name.lower() not in indexes)
    return replace(parts, columns=columns, keys=keys).text


def _columns(schema: TableSchema) -> dict[str, Part]:
    return {part.name.lower(): part for part in create_parts(schema.create_sql).columns}


def _differs(part: Part, after: TableSchema, present: TableSchema) -> bool:
    one = after.by_name.get(part.name.lower())
    return one is None or type_and_rules(one) != type_and_rules(present.by_name[part.name.lower()])
