"""Extractors: write parts of a shard's name into columns of the target.

A rule may extract from the name of the shard's table or schema, or from the id of its source. The value consists
of the texts that the capture groups of the regular expression matched, concatenated, as in DM. The value depends on
the shard only, so no file and no event contains it: it is added where rows are converted to the target's columns.

If the expression does not match, DM writes an empty text. Then two shards could have the same key without any error,
so unshard raises an error that names the shard and the rule. The value gets the type of the target's column here, so
load, windows and validation use the same bytes. A value that the column cannot hold or would change is an error.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from unshard.core.model import Column, TableId, TableSchema
from unshard.core.rules.pattern import compile_regex
from unshard.core.sql import charsets, literals
from unshard.core.sql.literals import INTEGERS, TEXTS
from unshard.errors.config import ExtractionNotFound, PatternInvalid
from unshard.errors.rules import ExtractedColumnMissing, ExtractedColumnTaken, ExtractedValueUnfit


class Origin(StrEnum):
    """The text that a value is extracted from; the values are those of DM's keys."""

    TABLE = "table"
    SCHEMA = "schema"
    SOURCE = "source"


@dataclass(frozen=True, slots=True)
class Extracted:
    """A value that all rows of a shard have in a column of the target."""

    column: str
    value: str


@dataclass(frozen=True, slots=True)
class Extractor:
    """The part of a rule that fills one column."""

    origin: Origin
    expression: re.Pattern[str]
    column: str

    def extract(self, source: str, table: TableId, rule: str) -> Extracted:
        """Return the value for one shard; raises ExtractionNotFound, which names `rule`."""
        text = {Origin.TABLE: table.name, Origin.SCHEMA: table.schema, Origin.SOURCE: source}[self.origin]
        found = self.expression.search(text)
        if found is None:
            raise ExtractionNotFound(rule, f"{source} {table}", f"{self.origin}", text, self.expression.pattern)
        return Extracted(self.column, "".join(group or "" for group in found.groups()))


def compile_extractor(origin: Origin, expression: str, column: str, case_sensitive: bool, whose: str) -> Extractor:
    """Compile one extractor; an error names `whose` as its place in the task file."""
    compiled = compile_regex(expression, case_sensitive, whose)
    if not compiled.groups:
        raise PatternInvalid(whose, expression, "it has no group in ( ), so it would extract nothing")
    return Extractor(origin, compiled, column)


# --- extracted values in the types of the target's columns


PRINTED_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")


def constants_of(
    shard: str, structure: TableSchema, target: TableId, schema: TableSchema, extracted: Sequence[Extracted]
) -> dict[str, bytes]:
    """Return the values of the target's extracted columns for all rows of a shard, by lower-case name."""
    found = {}
    for each in extracted:
        name = each.column.lower()
        if name in structure.by_name:
            raise ExtractedColumnTaken(shard, each.column, str(target))
        if name not in schema.by_name:
            raise ExtractedColumnMissing(str(target), each.column, shard)
        value = stored_value(schema.by_name[name], each.value)
        if value is None:
            raise ExtractedValueUnfit(str(target), each.column, schema.by_name[name].column_type, each.value, shard)
        found[name] = value
    return found


def with_constants(structure: TableSchema, schema: TableSchema, constants: dict[str, bytes]) -> TableSchema:
    """Return a shard's structure with the extracted columns added; they have the types of the target's columns."""
    added = tuple(
        replace(column, nullable=False, sent_as=None) for column in schema.columns if column.name.lower() in constants
    )
    return replace(structure, columns=(*structure.columns, *added))


def stored_value(column: Column, value: str) -> bytes | None:
    """Return the canonical value of a column; None if the column cannot hold the value unchanged."""
    if column.is_generated:
        return None
    if column.data_type in INTEGERS:
        return value.encode() if PRINTED_INTEGER.fullmatch(value) and _in_range(column, int(value)) else None
    if column.data_type not in TEXTS - {"enum", "set"} or not _is_short_enough(column, value):
        return None
    try:
        return charsets.encode(value, str(column.encoding))
    except UnicodeError:
        return None


def _in_range(column: Column, number: int) -> bool:
    low, high = literals.limits(column)
    return low <= number <= high


def _is_short_enough(column: Column, value: str) -> bool:
    if column.data_type == "char" and value.endswith(" "):
        return False  # the server would remove the trailing blanks
    return not column.numbers or len(value) <= column.numbers[0]
