"""The event names of a DDL, which event filters match: one set per ALTER TABLE specification, one per other statement.

The first name of each set is the name that DM uses (for the group `incompatible ddl changes`); a filter may use the
others as well. The effect of MODIFY and CHANGE is found by comparing the column before and after the statement, and
the index that DROP INDEX drops is looked up in the structure before it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from unshard.core.ddl.parsed import Ddl, DdlKind
from unshard.core.ddl.statement import HINTS, TokenCursor, alter_specs, object_kind
from unshard.core.model import Column, TableId, TableSchema
from unshard.core.rules.filters import Event
from unshard.core.sql.literals import BITS, PREFIX_BYTES
from unshard.core.sql.tokens import MARIADB, Token, outside, tokenize

ALTER = "alter table"
OF_KIND = {
    DdlKind.CREATE_TABLE: ("create table",),
    DdlKind.DROP_TABLE: ("drop table",),
    DdlKind.TRUNCATE: ("truncate table",),
    DdlKind.RENAME: ("rename table",),
    DdlKind.CREATE_DATABASE: ("create database",),
    DdlKind.DROP_DATABASE: ("drop database",),
    DdlKind.ALTER_DATABASE: ("alter database", "modify schema charset and collate"),
}
PARTITIONS = {
    word: f"{word.lower()} table partition"
    for word in ("ADD", "DROP", "TRUNCATE", "REORGANIZE", "REBUILD", "COALESCE", "EXCHANGE")
}
OPTIONS = {
    "ENGINE": ("modify storage engine",),
    "TYPE": ("modify storage engine",),
    "CHARSET": ("modify charset", "modify table charset and collate"),
    "CHARACTER": ("modify charset", "modify table charset and collate"),
    "COLLATE": ("modify collation", "modify table charset and collate"),
    "COMMENT": (ALTER, "modify table comment"),
    "AUTO_INCREMENT": (ALTER, "rebase auto id"),
}


@dataclass(frozen=True, slots=True)
class StructureChange:
    """The structure of a table before and after a statement; None where it is unknown."""

    before: TableSchema | None = None
    after: TableSchema | None = None


UNKNOWN_CHANGE = StructureChange()


@dataclass(frozen=True, slots=True)
class EventPart:
    """One specification of an ALTER TABLE, or a whole statement (`spec` None)."""

    event: Event
    spec: int | None = None


def parts_of(ddl: Ddl, sql_mode: int, change: StructureChange = UNKNOWN_CHANGE) -> tuple[EventPart, ...]:
    """Return the parts of a statement about tables or a schema, with their event names; empty for other statements."""
    text, tokens = tokenize(ddl.text, sql_mode, MARIADB)
    specs = alter_specs(text, tokens)
    if specs:
        return tuple(_of_specs(text, specs, change))
    names = OF_KIND.get(ddl.kind, ())
    if ddl.kind is DdlKind.INDEX:
        names = ("create index",) if tokens[0].word == "CREATE" else _index_dropped(_index_name(tokens), change)
    return (EventPart(Event(names, text)),) if names else ()


def view_of(ddl: Ddl, sql_mode: int, schema: str) -> tuple[TableId, Event] | None:
    """Return the view that a statement creates, changes or drops."""
    text, tokens = tokenize(ddl.text, sql_mode, MARIADB)
    cursor = TokenCursor(text, tokens, schema)
    if ddl.kind is not DdlKind.IGNORABLE or not cursor.eat_any("CREATE", "ALTER", "DROP"):
        return None
    cursor.eat("OR", "REPLACE")
    if object_kind(cursor) != "VIEW":
        return None
    cursor.position += 1
    cursor.eat("IF", "NOT", "EXISTS") or cursor.eat("IF", "EXISTS")
    first = cursor.name().name
    table = TableId(first, cursor.name().name) if cursor.eat(".") else TableId(schema, first)
    return table, Event(("drop view" if tokens[0].word == "DROP" else "create view",), text)


def _of_specs(text: str, specs: Sequence[TokenCursor], change: StructureChange) -> Iterator[EventPart]:
    changes = [number for number, spec in enumerate(specs) if spec.tokens[0].word not in HINTS]
    head = text[: specs[0].tokens[0].start]
    several = ("multi schema change",) if len(changes) > 1 else ()
    for number in changes:
        spec = specs[number]
        names = dict.fromkeys((*_names(spec, change), *_trailing(spec), ALTER, *several))
        yield EventPart(Event(tuple(names), head + text[spec.tokens[0].start : spec.tokens[-1].end]), number)


def _trailing(spec: TokenCursor) -> Iterator[str]:
    """Yield the events of partitioning clauses, which follow a specification without a comma."""
    if any(True for _ in outside(spec.tokens, "PARTITION", "BY")):
        yield "alter table partitioning"
    if any(True for _ in outside(spec.tokens, "REMOVE", "PARTITIONING")):
        yield "remove table partitioning"


def _names(spec: TokenCursor, change: StructureChange) -> tuple[str, ...]:
    if spec.peek(1) == "PARTITION" and spec.peek() in PARTITIONS:
        return (PARTITIONS[spec.peek()],)
    match spec.peek():
        case "ADD":
            found = _added(spec)
        case "DROP":
            found = _dropped(spec, change)
        case "MODIFY" | "CHANGE":
            found = _modified(spec, change)
        case "RENAME":
            kinds = {"COLUMN": "rename column", "INDEX": "rename index", "KEY": "rename index"}
            found = (kinds.get(spec.peek(1), "rename table"),)
        case "ALTER":
            found = _altered(spec)
        case "CONVERT" if spec.peek(1) == "TO":
            found = ("modify charset", "modify collation", "modify table charset and collate")
        case _:
            words = (spec.tokens[at].word for at in outside(spec.tokens))
            found = tuple(name for word in words for name in OPTIONS.get(word, ())) or (ALTER,)
    return found


def _added(spec: TokenCursor) -> tuple[str, ...]:
    spec.eat("ADD")
    if spec.eat("CONSTRAINT") and spec.peek() not in ("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
        spec.position += 1
    match spec.peek():
        case "PRIMARY":
            return "modify constraint", "add primary key"
        case "FOREIGN":
            return "modify constraint", "add foreign key"
        case "UNIQUE" | "INDEX" | "KEY" | "FULLTEXT" | "SPATIAL" | "VECTOR":
            return "modify constraint", "create index"
        case "CHECK":
            return ("modify constraint",)
        case "SYSTEM" | "PERIOD":
            return (ALTER,)
        case _:
            return ALTER, "add column"


def _dropped(spec: TokenCursor, change: StructureChange) -> tuple[str, ...]:
    spec.eat("DROP")
    if spec.eat("PRIMARY", "KEY"):
        return ("drop primary key",)
    if spec.eat("FOREIGN", "KEY"):
        return ("drop foreign key",)
    if spec.eat("SYSTEM", "VERSIONING") or spec.eat("PERIOD"):
        return (ALTER,)
    if spec.eat_any("CONSTRAINT", "CHECK"):
        spec.eat("IF", "EXISTS")
        dropped = _index_dropped(spec.name().name, change)
        return ("modify constraint", *(dropped if len(dropped) > 1 else ()))
    if spec.eat_any("INDEX", "KEY"):
        spec.eat("IF", "EXISTS")
        return _index_dropped(spec.name().name, change)
    return ("drop column",)


def _index_dropped(name: str, change: StructureChange) -> tuple[str, ...]:
    if name.upper() == "PRIMARY":
        return "drop index", "drop primary key"
    unique = change.before.unique_indexes if change.before else ()
    is_unique = any(index.name.lower() == name.lower() for index in unique)
    return ("drop index", "drop unique key") if is_unique else ("drop index",)


def _index_name(tokens: tuple[Token, ...]) -> str:
    cursor = TokenCursor("", tokens, "")
    while not cursor.eat("INDEX"):
        cursor.position += 1
    cursor.eat("IF", "EXISTS")
    return cursor.name().name


def _altered(spec: TokenCursor) -> tuple[str, ...]:
    spec.eat("ALTER")
    if spec.eat_any("INDEX", "KEY"):
        return ALTER, "alter index visibility"
    if spec.peek() in ("CONSTRAINT", "CHECK"):
        return ALTER, "modify constraint"
    if any(True for _ in outside(spec.tokens, "DEFAULT")):
        return "modify default value", "set default value"
    return (ALTER,)


def _modified(spec: TokenCursor, change: StructureChange) -> tuple[str, ...]:
    is_change = spec.eat("CHANGE") or not spec.eat("MODIFY")
    spec.eat("COLUMN")
    spec.eat("IF", "EXISTS")
    old = spec.name().name
    new = spec.name().name if is_change else old
    before, after = (known.by_name if known else {} for known in (change.before, change.after))
    found = list(_compared(before.get(old.lower()), after.get(new.lower())))
    if spec.tokens[-1].word == "FIRST" or (len(spec.tokens) > 1 and spec.tokens[-2].word == "AFTER"):
        found.append("modify columns order")
    if old.lower() != new.lower():
        found.append("rename column")
    return tuple(found) or (ALTER,)


def _compared(before: Column | None, after: Column | None) -> Iterator[str]:
    if before is None or after is None:
        yield "modify column"
        return
    if _holds_less(before, after):
        yield "value range decrease"
    if _is_coarser(before, after):
        yield "precision decrease"
    if (before.column_type, before.nullable) != (after.column_type, after.nullable):
        yield "modify column"
    if "auto_increment" in before.extra and "auto_increment" not in after.extra:
        yield "remove auto increment"
    if before.default != after.default:
        yield "modify default value"
    if before.charset != after.charset:
        yield "modify charset"
    if before.collation != after.collation:
        yield "modify collation"


def _holds_less(before: Column, after: Column) -> bool:
    old, new = before.data_type, after.data_type
    if old in BITS and new in BITS:
        return BITS[new] < BITS[old] or (before.is_unsigned != after.is_unsigned and BITS[new] <= BITS[old])
    if old in PREFIX_BYTES and new in PREFIX_BYTES:
        return PREFIX_BYTES[new] < PREFIX_BYTES[old]
    if old in ("enum", "set") and new == old:
        return not set(_labels(before)) <= set(_labels(after))
    if old != new and {old, new} - {"char", "varchar", "binary", "varbinary", "decimal", "numeric"}:
        return _rank(new) < _rank(old)
    (length, digits), (new_length, new_digits) = _lengths(before), _lengths(after)
    if old in ("decimal", "numeric"):
        return new_length - new_digits < length - digits
    return old in ("char", "varchar", "binary", "varbinary") and new_length < length


def _rank(kind: str) -> int:
    """Return how wide the values of a type are within its family; 0 for a type that is not compared."""
    ranks = {**dict.fromkeys(BITS, 1), "decimal": 2, "float": 3, "double": 4, "date": 1, "datetime": 2}
    ranks |= {**dict.fromkeys(("char", "varchar", "binary", "varbinary"), 5), **dict.fromkeys(PREFIX_BYTES, 6)}
    return ranks.get(kind, 0)


def _is_coarser(before: Column, after: Column) -> bool:
    if (before.data_type, after.data_type) == ("double", "float"):
        return True
    if before.data_type in ("decimal", "numeric") and after.data_type in BITS:
        return _lengths(before)[1] > 0
    if before.data_type in ("decimal", "numeric"):
        return after.data_type == before.data_type and _lengths(after)[1] < _lengths(before)[1]
    times = ("datetime", "timestamp", "time")
    return before.data_type in times and after.data_type in times and _lengths(after)[0] < _lengths(before)[0]


def _lengths(column: Column) -> tuple[int, int]:
    length, digits, *_ = (*column.numbers, 0, 0)
    return length, digits


def _labels(column: Column) -> list[str]:
    return re.findall(r"'((?:[^']|'')*)'", column.column_type)
