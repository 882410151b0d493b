"""Column mapping: changes the values of a shard's columns depending on the shard's name, as DM's old rules do.

`partition id` puts numbers into the high bits of an id, so that shards which all count from 1 have different keys:
from the top one sign bit (0), 4 bits of the instance, 7 of the schema, 8 of the table, 44 of the id. An empty
argument uses no bits: the next fields move up, and the id has more bits. `add prefix` and `add suffix` do the same
with text.

Unlike DM, unshard supports every integer type and ids of all bits that are free, and it rejects shards with equal bits
(`overlaps`) and columns that are not in a key. A name that does not end in a number of the allowed range is an error.

Bounds of mapped keys become bounds of the shard's own columns, so that the server can use the shard's indexes.
`partition id` adds one number to all ids of a shard, and `add prefix` keeps the order of texts that are compared
character by character. In the other cases (numbers in a text, suffixes, collations with weights), the mapped value
itself is compared, row by row. NULL matches no bound. An id with more bits than are free is found by its mapped value.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from unshard.core.model import Column, TableId, TableSchema
from unshard.core.rules.pattern import Pattern
from unshard.core.sql import literals
from unshard.core.sql.charsets import WIDE
from unshard.core.sql.keyrange import NEVER, stored
from unshard.core.sql.literals import BITS, DECIMALS, INTEGERS, literal
from unshard.core.sql.quoting import identifier
from unshard.errors.config import MappingAmbiguous, MappingNameUnfit
from unshard.errors.rows import MappedColumnMissing, MappedColumnUnfit, MappedNotKey

ID_BITS = 63
INSTANCE_BITS, SCHEMA_BITS, TABLE_BITS = 4, 7, 8
LETTERS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
DIGITS = 19
"""The decimal digits of the largest mapped id."""


class Expression(StrEnum):
    """The ways to change a value, with DM's names."""

    PARTITION_ID = "partition id"
    ADD_PREFIX = "add prefix"
    ADD_SUFFIX = "add suffix"


@dataclass(frozen=True, slots=True)
class PartitionId:
    """The high bits of all ids of a shard."""

    high: int
    """The number that is added to each id."""
    free: int
    """The number of bits that are left for the id."""

    @property
    def end(self) -> int:
        """The first number after `high` that cannot be an id of this shard."""
        return self.high + (1 << self.free)


@dataclass(frozen=True, slots=True)
class Affix:
    """Text to add before or after a value."""

    before: str = ""
    after: str = ""


Change = PartitionId | Affix


@dataclass(frozen=True, slots=True)
class Mapped:
    """A column whose values are changed for the target."""

    rule: str
    source: str
    """The shard's column whose values are changed."""
    column: str
    """The shard's column that gets the changed values."""
    change: Change
    needs_key: bool
    is_shared: bool
    """Other shards may have the same bits, because their ids are distinct without them."""


@dataclass(frozen=True, slots=True)
class Partition:
    """The arguments of `partition id`; None uses no bits."""

    instance: int | None
    schema: str | None
    table: str | None
    separator: str = ""

    def change(self, rule: str, shard: str, table: TableId) -> PartitionId:
        fields = [(INSTANCE_BITS, self.instance)]
        for bits, prefix, name in ((SCHEMA_BITS, self.schema, table.schema), (TABLE_BITS, self.table, table.name)):
            fields.append((bits, None if prefix is None else self._number(rule, shard, name, prefix, bits)))
        high, free = 0, ID_BITS
        for bits, number in fields:
            if number is not None:
                free -= bits
                high |= number << free
        return PartitionId(high, free)

    def _number(self, rule: str, shard: str, name: str, prefix: str, bits: int) -> int:
        if name == prefix:
            return 0
        head, largest = prefix + self.separator, (1 << bits) - 1
        rest = name[len(head) :]
        if not name.startswith(head) or not (rest.isascii() and rest.isdigit()) or int(rest) > largest:
            raise MappingNameUnfit(rule, shard, name, head, largest)
        return int(rest)


@dataclass(frozen=True, slots=True)
class MappingRule:
    """One named rule; a rule without `table` applies to the whole schema."""

    name: str
    schema: Pattern
    table: Pattern | None
    source: str
    column: str
    how: Partition | Affix
    references: tuple[str, ...] = ()
    """More columns that are mapped in the same way; they need not belong to a key."""
    is_shared: bool = False

    def mapped(self, shard: str, table: TableId) -> tuple[Mapped, ...]:
        change = self.how.change(self.name, shard, table) if isinstance(self.how, Partition) else self.how
        free = {name.lower() for name in self.references}
        own = Mapped(self.name, self.source, self.column, change, self.source.lower() not in free, self.is_shared)
        others = [name for name in self.references if name.lower() not in (self.source.lower(), self.column.lower())]
        return (own, *(Mapped(self.name, name, name, change, False, True) for name in others))


def mapped_by(rules: Sequence[MappingRule], shard: str, table: TableId) -> tuple[Mapped, ...]:
    """Return the mappings of a table by the rules that match its schema; rules with a table pattern take precedence."""
    found: dict[str, Mapped] = {}
    exact = [rule for rule in rules if rule.table is not None and rule.table.matches(table.name)]
    for level in (exact, [rule for rule in rules if rule.table is None]):
        of_level: dict[str, Mapped] = {}
        for each in (each for rule in level for each in rule.mapped(shard, table)):
            first = of_level.setdefault(each.column.lower(), each)
            if first.rule != each.rule:
                raise MappingAmbiguous(shard, each.column, first.rule, each.rule)
        found = {**of_level, **found}
    return tuple(found.values())


def fitted(
    shard: str, structure: TableSchema, target: TableId, wanted: Mapping[str, Column], mapped: Iterable[Mapped]
) -> dict[str, Mapped]:
    """Return the mappings by the lower-case name of the shard's column that they change.

    `wanted` are the target's columns by the shard's name for them. Raises every error that is detectable before any row
    is read: MappedColumnMissing, MappedNotKey, MappedColumnUnfit.
    """
    found = {}
    for each in mapped:
        name = each.column.lower()
        for needed in (each.source, each.column):
            if needed.lower() not in structure.by_name:
                raise MappedColumnMissing(shard, needed, each.rule)
        if each.needs_key and not _is_in_key(structure, each.source):
            raise MappedNotKey(shard, each.source, each.rule)
        _reject_unfit(shard, structure.column(each.source), each)
        if name in wanted:
            _reject_unfit_target(target, wanted[name], each)
        found[name] = each
    return found


def _is_in_key(structure: TableSchema, column: str) -> bool:
    return any(column.lower() == name.lower() for index in structure.unique_indexes for name in index.columns)


def _reject_unfit(shard: str, column: Column, mapped: Mapped) -> None:
    whole = column.data_type in DECIMALS and _scale(column) == 0
    match mapped.change:
        case PartitionId():
            fits = column.data_type in INTEGERS | {"char", "varchar"} or whole
        case Affix():
            fits = column.data_type in LETTERS
    if column.is_generated or not fits:
        raise MappedColumnUnfit(shard, column.name, column.column_type, mapped.rule, _kinds(mapped.change))


def _reject_unfit_target(target: TableId, column: Column, mapped: Mapped) -> None:
    kind, wanted = column.data_type, _kinds(mapped.change)
    match mapped.change:
        case PartitionId():
            wanted = (
                f"BIGINT, DECIMAL({DIGITS},0) or a text of {DIGITS} characters, for numbers from {mapped.change.high}"
            )
            fits = kind == "bigint" or (kind in DECIMALS and _scale(column) == 0 and length(column) >= DIGITS)
            fits |= kind in LETTERS and column.charset not in WIDE and length(column) >= DIGITS
        case Affix(after=after):
            # A CHAR loses trailing blanks.
            fits = kind in LETTERS and not (kind == "char" and after.endswith(" "))
    if column.is_generated or not fits:
        raise MappedColumnUnfit(f"target {target}", column.name, column.column_type, mapped.rule, wanted)


def _kinds(change: Change) -> str:
    return "an integer, a whole DECIMAL or a number in a CHAR" if isinstance(change, PartitionId) else "a text"


def _scale(column: Column) -> int:
    return (*column.numbers, 0, 0)[1]


def length(column: Column) -> int:
    """Return the number of characters or digits that the column can hold; 256 for a text without a length."""
    return (*column.numbers, 1 << 8)[0]


def touched_mapping(mapped: Iterable[Mapped], before: TableSchema, after: TableSchema) -> str:
    """Return the effect of a DDL on the columns of a mapping; empty if it has none, so that the mapping stays valid."""
    old, new = before.by_name, after.by_name
    for each in mapped:
        for name in dict.fromkeys((each.source.lower(), each.column.lower())):
            if name in old and name not in new:
                return f"column mapping '{each.rule}' names the column '{name}', which it removes"
            if name in old and old[name].column_type != new[name].column_type:
                return f"column mapping '{each.rule}' changes the column '{name}', whose type it changes"
        if each.needs_key and _is_in_key(before, each.source) and not _is_in_key(after, each.source):
            return f"column mapping '{each.rule}' changes the column '{each.source}', which it removes from the key"
    return ""


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two shards of one target whose ids may be equal."""

    first: str
    second: str
    start: int


def overlaps(shards: Mapping[str, tuple[TableSchema, Sequence[Mapped]]]) -> dict[str, Overlap]:
    """Return, by column, the first two shards of a target, mapped or not, that may have an equal mapped id."""
    bits = (each for _, mapped in shards.values() for each in mapped if isinstance(each.change, PartitionId))
    columns = {each.column.lower() for each in bits if not each.is_shared}
    found = {}
    for column in sorted(columns):
        spans = (s for name, (schema, mapped) in shards.items() for s in _spans(name, schema, mapped, column))
        furthest, owner = 0, ""
        for start, end, name in sorted(spans):
            if start < furthest:
                found[column] = Overlap(owner, name, start)
                break
            furthest, owner = end, name
    return found


def _spans(name: str, schema: TableSchema, mapped: Sequence[Mapped], column: str) -> Iterable[tuple[int, int, str]]:
    of_column = [each for each in mapped if each.column.lower() == column]
    for each in of_column:
        if isinstance(each.change, PartitionId) and not each.is_shared:
            yield each.change.high, each.change.end, name
    if not of_column:
        own = schema.by_name.get(column)
        if own is not None and own.data_type in BITS:
            yield 0, 1 << BITS[own.data_type], name


def expression(mapped: Mapped, given: Column, wanted: Column) -> str:
    """Return the SQL expression for the mapped value of a row, with the type of the target's column `wanted`."""
    name = identifier(given.name)
    match mapped.change:
        case PartitionId(high=high):
            # As DECIMAL, so that an id that is out of range is a difference and not an error.
            value = f"(CAST({name} AS DECIMAL(65,0)) + {high})"
            value = f"CAST({value} AS CHAR)" if wanted.charset else value
        case Affix(before=before, after=after):
            value = f"CONCAT({_text(before)}, {name}, {_text(after)})"
    return f"CONVERT({value} USING {wanted.charset}) COLLATE {wanted.collation}" if wanted.charset else value


def _text(value: str) -> str:
    return literal(Column("", "varchar", "", True, "utf8mb4", None, None, ""), value.encode())


# --- bounds of mapped keys as bounds of the shard's own columns


UNICODE = frozenset({"utf8", "utf8mb3", "utf8mb4"})


def compared(mapped: Mapped, given: Column, wanted: Column, operator: str, value: bytes) -> str:
    """Return the SQL condition that compares the mapped value of a shard's column with a value of the target."""
    match mapped.change:
        case PartitionId(high=high) if wanted.charset is None and given.data_type in INTEGERS | DECIMALS:
            return _number(given, operator, int(value) - high)
        case Affix(before=before, after="") if _is_ordered_by_characters(given, wanted):
            start = before.encode()
            if value.startswith(start):
                return stored(given, operator, value[len(start) :])
            if not start.startswith(value):  # else the result depends on the collation's padding
                return _all_or_none(given, (start > value) == (operator[0] == ">"))
    return f"{expression(mapped, given, wanted)} {operator} {literal(wanted, value)}"


def _number(column: Column, operator: str, number: int) -> str:
    """Return the condition for a number; a number out of the column's range never gets into the SQL."""
    low, high = _limits(column)
    if not low <= number <= high:
        return _all_or_none(column, (number < low) == (operator[0] == ">"))
    return f"{identifier(column.name)} {operator} {number}"


def _limits(column: Column) -> tuple[int, int]:
    if column.data_type in INTEGERS:
        return literals.limits(column)
    largest = 10 ** length(column) - 1
    return (0 if column.is_unsigned else -largest), largest


def _is_ordered_by_characters(given: Column, wanted: Column) -> bool:
    """Whether both compare texts by code points, which in UTF-8 have the same order as the bytes."""
    collation = wanted.collation or ""
    return (
        given.collation == collation
        and given.charset == wanted.charset
        and wanted.charset in UNICODE
        and collation == f"{wanted.charset}_bin"
    )


def _all_or_none(column: Column, is_all: bool) -> str:
    return f"{identifier(column.name)} IS NOT NULL" if is_all else NEVER
