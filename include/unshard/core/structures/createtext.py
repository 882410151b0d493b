"""Normalizes the text of SHOW CREATE TABLE: equal texts for tables that differ only in name and AUTO_INCREMENT.

The text of a structure does not contain the name of the table (the placeholder is `t`, and `*` in names of constraints
that the server has made from it), AUTO_INCREMENT=n, clauses about storage, or foreign keys, which a merged table or a
trial table cannot have. CHECK constraints are in the order of their names, as MySQL prints them. A default value that
is not valid UTF-8 is read as surrogates and written as a hexadecimal literal, so the result is always valid text.

Columns of MySQL and TiDB are described as MariaDB does, so that structures of different servers can be compared:

| part of the column | MySQL, TiDB | here, as on MariaDB |
|---|---|---|
| a nullable column without a default | no default | `NULL` |
| a default text, date or time | `abc` | `'abc'` |
| a default DECIMAL(5,2) | TiDB: `1.5`, as it was written | `1.50` |
| a default FLOAT or DOUBLE | TiDB: `1000000000000000` | `1e15` |
| a default of the current time | `CURRENT_TIMESTAMP` | `current_timestamp()` |
| ON UPDATE | `CURRENT_TIMESTAMP` | `current_timestamp()` |
| the character set `utf8` | MySQL 5, TiDB: `utf8` | `utf8mb3` |
| an integer, a year | MySQL 8: `int` | `int(11)` |
| GEOMETRYCOLLECTION | MySQL 8: `geomcollection` | `geometrycollection` |
| ZEROFILL | TiDB: only in SHOW CREATE TABLE | in the type |
| AUTO_RANDOM | TiDB: only in SHOW CREATE TABLE | `auto_random` |
"""

import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from functools import lru_cache

from unshard.core.model import Column, TableId
from unshard.core.sql.charsets import canonical
from unshard.core.sql.literals import BINARIES, EXACT, TEXTS
from unshard.core.sql.quoting import identifier, qualified
from unshard.core.sql.tokens import MARIADB, Dialect, Token, TokenKind, edited, outside, tokenize
from unshard.core.structures.constraintnames import CHECK, OWN, constraint_names, made_end, named_after
from unshard.core.structures.parsedtable import items, with_sorted_checks
from unshard.core.structures.storageclauses import without_storage

PLACEHOLDER = "t"
ESCAPED = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "Z": "\x1a"}
CHARSET = re.compile(r"( DEFAULT CHARSET=\w+)")


def normal_create(text: str, dialect: Dialect = MARIADB) -> str:
    """Return the normalized text of SHOW CREATE TABLE, printed in a session of `mysql.connect`."""
    return normal_with_names(text, dialect)[0]


@lru_cache(256)
def normal_with_names(text: str, dialect: Dialect = MARIADB) -> tuple[str, tuple[str, ...]]:
    """Return the normalized text, and the names of the clauses about storage that it does not have."""
    plain, tokens = tokenize(text, 0, dialect)
    rest, left_out = without_storage(plain, tokens)
    if left_out:
        plain, tokens = tokenize(rest, 0, dialect)
    edits = [(tokens[2].start, tokens[2].end, identifier(PLACEHOLDER))]
    for each in constraint_names(tokens):
        if each.kind == CHECK and (end := made_end(each.token.name, tokens[2].name)):
            edits.append((each.token.start, each.token.end, identifier(OWN + end)))
    next_number = outside(tokens[:-1], "AUTO_INCREMENT", "=")
    edits += [(tokens[at - 1].end, tokens[at + 2].end, "") for at in next_number]
    edits += [(comma.start, item[-1].end, "") for comma, item in items(tokens) if comma and _is_foreign_key(item)]
    edits += [(token.start, token.end, _hexadecimal(token)) for token in tokens if token.kind is TokenKind.STRING]
    return with_sorted_checks(edited(plain, edits)), left_out


def create_text(normal: str, table: TableId, *, if_not_exists: bool = False) -> str:
    """Return the statement that creates `table` from the text that `normal_create` returned."""
    head = f"CREATE TABLE {identifier(PLACEHOLDER)}"
    if not normal.startswith(head):
        raise ValueError(f"not a normal CREATE TABLE: {normal[:80]!r}")
    condition = "IF NOT EXISTS " if if_not_exists else ""
    rest = named_after(normal[len(head) :], table.name)
    return f"CREATE TABLE {condition}{qualified(table.schema, table.name)}{rest}"


def with_collation(text: str, collation: str) -> str:
    """Return the text with the table's collation, which servers omit if it is the default of the character set."""
    options = text.rfind("\n) ")
    if options < 0 or not collation or " COLLATE=" in text[options:]:
        return text
    return text[:options] + CHARSET.sub(rf"\1 COLLATE={collation}", text[options:], count=1)


def _is_foreign_key(item: list[Token]) -> bool:
    words = [token.word for token in item if token.kind is not TokenKind.QUOTED]
    return words[:3] == ["CONSTRAINT", "FOREIGN", "KEY"] or words[:2] == ["FOREIGN", "KEY"]


def _hexadecimal(token: Token) -> str:
    """Return a string as a hexadecimal literal if it is not valid UTF-8; as it is if it is valid."""
    if not any("\udc80" <= character <= "\udcff" for character in token.raw):
        return token.raw

    def unescaped(match: re.Match[str]) -> str:
        return ESCAPED.get(match[1], match[1]) if match[1] else "'"

    text = re.sub(r"\\(.)|''", unescaped, token.raw[1:-1], flags=re.DOTALL)
    return f"x'{text.encode('utf-8', 'surrogateescape').hex()}'"


# --- columns of MySQL and TiDB as MariaDB describes them


WIDTHS = {"tinyint": (4, 3), "smallint": (6, 5), "mediumint": (9, 8), "int": (11, 10), "bigint": (20, 20)}
"""Default display widths, signed and unsigned."""
QUOTED = frozenset({*TEXTS, *BINARIES, "date", "time", "datetime", "timestamp"})
ESCAPES = str.maketrans({"'": "''", "\\": "\\\\", "\0": "\\0", "\n": "\\n", "\r": "\\r"})
ZEROFILL = re.compile(r" [a-z]+(?:\(\d+(?:,\d+)?\))?(?: unsigned)? zerofill\b")
AUTO_RANDOM = "/*T![auto_rand] AUTO_RANDOM("
MOMENT = re.compile(r"current_timestamp(?!\()", re.IGNORECASE)


def normal_column(column: Column, line: str, double: Callable[[float], str]) -> Column:
    """Return the column as MariaDB describes it.

    `line` is the column's line in SHOW CREATE TABLE; `double` prints a DOUBLE as servers do.
    """
    charset = "utf8mb3" if column.charset == "utf8" else column.charset
    collation = canonical(column.collation) if column.collation else column.collation
    if column.data_type == "geomcollection":
        column = replace(column, data_type="geometrycollection", column_type="geometrycollection")
    return replace(
        column,
        column_type=_type(column, line),
        charset=charset,
        collation=collation,
        default=_default(column, line, double),
        extra="auto_random" if AUTO_RANDOM in line else MOMENT.sub("current_timestamp()", column.extra),
    )


def _type(column: Column, line: str) -> str:
    text = column.column_type
    if "(" not in text and column.data_type in WIDTHS:
        width = WIDTHS[column.data_type][column.is_unsigned]
        text = text.replace(column.data_type, f"{column.data_type}({width})", 1)
    if text == "year":
        text = "year(4)"
    is_filled = "zerofill" not in text and ZEROFILL.match(line, len("  ") + len(identifier(column.name)))
    return f"{text} zerofill" if is_filled else text


def _default(column: Column, line: str, double: Callable[[float], str]) -> str | None:
    text = column.default
    if text is None or column.is_generated:
        return "NULL" if column.nullable and not column.is_generated else None
    quoted = f"'{text.translate(ESCAPES)}'"
    if f" DEFAULT {quoted}" not in line:
        return _expression(column, text)
    if column.data_type in QUOTED:
        return quoted
    return _number(column, text, double)


def _expression(column: Column, text: str) -> str:
    if column.data_type in ("datetime", "timestamp"):
        return MOMENT.sub("current_timestamp()", text).replace("CURRENT_TIMESTAMP(", "current_timestamp(")
    return "curdate()" if text.upper() == "CURRENT_DATE" else text


def _number(column: Column, text: str, double: Callable[[float], str]) -> str:
    try:
        if column.data_type == "decimal":
            scale = re.search(r",(\d+)\)", column.column_type)
            least = Decimal(1).scaleb(-int(scale[1]) if scale else 0)
            return format(Decimal(text).quantize(least, context=EXACT), "f")
        if column.column_type in ("float", "double"):
            value = float(f"{float(text):.6g}") if column.column_type == "float" else float(text)
            return double(value)
    except (ValueError, InvalidOperation):
        return text
    return text
