"""The changes of a task to the rows of a shard: extracted and mapped columns, and rows that filters omit.

Dumped and held files contain the rows of the source, unchanged. Rows are reshaped when they are converted to the
target's columns (units.rows.conversion). Where shards and target are compared, SQL applies the same rules.

**Extractors** write parts of a shard's name into columns of the target. A rule may extract from the name of the shard's
table or schema, or from the id of its source. The value consists of the texts that the capture groups of the regular
expression matched, concatenated, as in DM. The value depends on the shard only, so no file and no event contains it: it
is added where rows are converted to the target's columns.

If the expression does not match, DM writes an empty text. Then two shards could have the same key without any error,
so unshard raises an error that names the shard and the rule. The value gets the type of the target's column here, so
load, windows and validation use the same bytes. A value that the column cannot hold or would change is an error.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from unshard.core.model import Column, TableId, TableSchema
from unshard.core.rules.columnmapping import Mapped, fitted, mapped_comparison, mapped_expression
from unshard.core.rules.filters import Judged, RowFilter
from unshard.core.rules.pattern import compile_regex
from unshard.core.sql import charsets, literals
from unshard.core.sql.keyrange import KeyRange, condition, stored_comparison
from unshard.core.sql.literals import INTEGERS, TEXTS, literal
from unshard.core.sql.quoting import identifier, qualified
from unshard.errors.config import ExtractionNotFound, PatternInvalid
from unshard.errors.rows import ExtractedColumnMissing, ExtractedColumnTaken, ExtractedValueUnfit


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


# --- the changes to the rows of a shard


@dataclass(frozen=True, slots=True)
class Reshaping:
    """The changes to all rows of one shard."""

    extracted: tuple[Extracted, ...] = ()
    mapped: tuple[Mapped, ...] = ()
    events: tuple[tuple[str, Judged], ...] = ()
    """Kinds of row changes that are ignored or rejected, with the rule for it."""
    filters: tuple[RowFilter, ...] = ()
    """Expressions for rows that are omitted."""
    leaves_columns_out: bool = False
    """The task ignores ADD COLUMN of the shard: values without a column in the target are omitted."""

    def __bool__(self) -> bool:
        return self != AS_IT_IS

    @property
    def by_name(self) -> tuple[object, ...]:
        return self.extracted, self.mapped

    @property
    def keeps_rows(self) -> bool:
        """Whether every row of the shard is in the target, and rows that differ in the shard differ in the target."""
        return not (self.mapped or self.events or self.filters)

    @property
    def filters_changes(self) -> bool:
        """Whether the target may have another row than the shard had before a change, because a filter ignored one."""
        of_rows = any(rule.update_old or rule.update_new or rule.delete for rule in self.filters)
        return of_rows or any(kind != "insert" for kind, _ in self.events)


AS_IT_IS = Reshaping()


@dataclass(frozen=True, slots=True)
class ReshapedShard:
    """A shard after reshaping, in the form that the SQL for a comparison with the target uses."""

    structure: TableSchema
    table: str
    named: tuple[str, ...] = ()
    """Expressions of the columns under the names of the target; empty if the shard has these names itself."""
    values: tuple[str, ...] = ()
    """Expressions of the columns after that; empty if the rows are not changed."""
    constants: tuple[tuple[str, str], ...] = ()
    """Extracted columns, by lower-case name, with the expression of their value."""
    mapped: tuple[tuple[str, Mapped, Column], ...] = ()
    """Mapped columns, by lower-case name, with the mapping and the shard's column whose values are changed."""
    only: str = ""
    """Condition on the shard's own columns for the rows to compare; empty: all rows."""

    @property
    def rows(self) -> str:
        return self.where()

    def where(self, inside: str = "", outside: str = "") -> str:
        """Return the FROM clause with conditions on the shard's columns (`inside`) and reshaped ones (`outside`)."""
        table = self.table
        if self.named:
            table = f"(SELECT {', '.join(self.named)} FROM {table}) AS named"  # noqa: S608
        own = " AND ".join(f"({each})" for each in (inside, self.only) if each)
        if self.values:
            rows = f"SELECT {', '.join(self.values)} FROM {table}{own and f' WHERE {own}'}"  # noqa: S608
            return f"({rows}) AS shard" + (outside and f" WHERE {outside}")
        everything = " AND ".join(filter(None, (own, outside)))
        return f"{table}{everything and f' WHERE {everything}'}"

    def own_rows(self, first: str, own: Sequence[str], outside: str, inside: str = "") -> str:
        """Return a SELECT of an expression over the reshaped columns, and of others over the shard's own ones."""
        names = tuple(f"`own {number}`" for number in range(len(own)))
        made = tuple(f"{each} AS {name}" for each, name in zip(own, names, strict=True))
        named = (*self.named, *made) if self.named else ()
        values = (*self.values, *(names if named else made)) if self.values else ()
        rows = replace(self, named=named, values=values).where(inside, outside)
        return f"SELECT {', '.join((first, *(names if named or values else own)))} FROM {rows}"  # noqa: S608

    def within(self, key: Sequence[Column], span: KeyRange) -> str:
        """Return the condition, on the shard's own columns, for the rows in a range of the target's key."""
        return condition(key, span, self._compared)

    def _compared(self, column: Column, operator: str, value: bytes) -> str:
        """Return a comparison of the shard's own columns, for which the server can use their indexes."""
        name = column.name.lower()
        for changed, mapped, given in self.mapped:
            if changed == name:
                return mapped_comparison(mapped, given, column, operator, value)
        for filled, constant in self.constants:
            if filled == name:
                return f"{constant} {operator} {literal(column, value)}"
        return stored_comparison(column, operator, value)


def shard_with_names(table: TableId, structure: TableSchema) -> ReshapedShard:
    """Return the rows of a shard with the target's names of its columns (core.ddl.columnnames)."""
    columns = (f"{identifier(each.own_name or each.name)} AS {identifier(each.name)}" for each in structure.columns)
    return ReshapedShard(structure, qualified(table.schema, table.name), tuple(columns))


def seen(
    shard: str, table: TableId, structure: TableSchema, target: TableId, schema: TableSchema, reshaping: Reshaping
) -> ReshapedShard:
    """Return the structure and the rows of a shard after reshaping."""
    own = qualified(table.schema, table.name)
    if not reshaping:
        return ReshapedShard(structure, own)
    constants = constants_of(shard, structure, target, schema, reshaping.extracted)
    there = schema.by_name
    mapped = fitted(shard, structure, target, there, reshaping.mapped)
    kept = [column for column in structure.columns if not reshaping.leaves_columns_out or column.name.lower() in there]
    columns, values = list(kept), [identifier(column.name) for column in kept]
    for index, column in enumerate(kept):
        name, wanted = column.name.lower(), there.get(column.name.lower())
        if name in mapped and wanted is not None:
            value = mapped_expression(mapped[name], structure.column(mapped[name].source), wanted)
            columns[index] = replace(wanted, name=column.name, nullable=column.nullable, sent_as=None)
            values[index] = f"{value} AS {identifier(column.name)}"
    filled = {name: _constant(schema.column(name), value) for name, value in constants.items()}
    values += [f"{value} AS {identifier(schema.column(name).name)}" for name, value in filled.items()]
    # The columns are named, because * omits invisible columns.
    return ReshapedShard(
        with_constants(replace(structure, columns=tuple(columns)), schema, constants),
        own,
        (),
        tuple(values),
        tuple(filled.items()),
        tuple((name, each, structure.column(each.source)) for name, each in mapped.items() if name in there),
    )


def _constant(column: Column, value: bytes) -> str:
    text = literal(column, value)
    if column.sent_as:
        text = f"CONVERT({text} USING {column.charset})"
    return f"{text} COLLATE {column.collation}" if column.collation else text
