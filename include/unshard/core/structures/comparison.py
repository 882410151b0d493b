"""Compares structures: shards with each other and with an existing target, and a target with its expected structure.

The order of columns, defaults, comments and non-unique indexes may differ: rows are written by column name and with
every value. Different names of the same type in different server versions are equal: MySQL prints `int` for `int(11)`
since 8.0.19, `year` for `year(4)`, and `utf8mb3_bin` for `utf8_bin` since 8.0.30, as MariaDB does since 10.6.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TypeVar

from unshard.core.model import Column, Index, TableId, TableSchema, lowered
from unshard.core.shown import listed
from unshard.core.sql.charsets import canonical
from unshard.core.sql.literals import INTEGERS, limits
from unshard.core.sql.quoting import qualified
from unshard.core.structures.columntypes import TEXT_BYTES
from unshard.core.structures.parsedtable import expressions
from unshard.core.structures.tablekeys import as_filled, finding_index

T = TypeVar("T", Column, Index)
DISPLAY_WIDTH = re.compile(r"^((?:tiny|small|medium|big)?int|year)\(\d+\)")
UNITS = {
    **dict.fromkeys(("char", "varchar"), "characters"),
    **dict.fromkeys(("binary", "varbinary"), "bytes"),
    **dict.fromkeys(TEXT_BYTES, "bytes of a large type"),
    **{"bit": "bits", "decimal": "digits before the point"},
}
"""What limits the values of a type; types with the same unit can be compared."""


def structure_differences(first: TableSchema, other: TableSchema) -> tuple[str, ...]:
    """Return the differences between two shards of one target; empty if they may be merged."""
    mine, theirs = first.by_name, other.by_name
    found = [f"only the first has column {mine[name].name}" for name in mine if name not in theirs]
    found += [f"only the second has column {theirs[name].name}" for name in theirs if name not in mine]
    for name in mine:
        if name in theirs and (own := type_and_rules(mine[name])) != (others := type_and_rules(theirs[name])):
            found.append(f"column {mine[name].name} is {own} and {others}")
    if lowered(first.key) != lowered(other.key):
        found.append(f"the key is ({', '.join(first.key)}) and ({', '.join(other.key)})")
    return tuple(found)


def order_differences(before: TableSchema, after: TableSchema) -> str:
    """Return the first column in which two structures of a shard differ; empty: rows of both are read alike."""
    shown = ([f"{name} {type_and_rules(c)}" for name, c in schema.by_name.items()] for schema in (before, after))
    different = ((number, *pair) for number, pair in enumerate(zip_longest(*shown), 1) if pair[0] != pair[1])
    return next((f"column {n} was {one or 'none'} and is {other or 'none'}" for n, one, other in different), "")


def decision_differences(decided: TableSchema, shown: TableSchema) -> str:
    """Return the first column in which a decided structure differs from the shown one; empty: it reads the rows.

    A STORED column may be decided as a plain one, because the rows have its values: TiDB adds no STORED column.
    """
    plain = {name for name, column in decided.by_name.items() if not column.is_generated}
    columns = (
        replace(each, extra="") if each.extra == "stored generated" and each.name.lower() in plain else each
        for each in shown.columns
    )
    return order_differences(decided, replace(shown, columns=tuple(columns)))


def has_columns_of(target: TableSchema, shard: TableSchema) -> bool:
    """Whether a target has the columns of a shard with the same types, and its key."""
    there, wanted = target.by_name, shard.by_name
    are_there = all(name in there and type_and_rules(there[name]) == type_and_rules(wanted[name]) for name in wanted)
    return are_there and lowered(as_filled(target, wanted.keys()).key) == lowered(shard.key)


def has_all_of(target: TableSchema, shard: TableSchema) -> bool:
    """Whether a target has the columns of a shard with the same types, its key and its unique indexes."""
    unique = {frozenset(lowered(index.columns)) for index in as_filled(target, shard.by_name.keys()).unique_indexes}
    return has_columns_of(target, shard) and all(
        frozenset(lowered(index.columns)) in unique for index in shard.unique_indexes
    )


def unfit_reasons(target: TableSchema, shard: TableSchema, extracted: Collection[str] = ()) -> tuple[str, ...]:
    """Return why rows of the shard cannot be written to the target; `extracted` are columns that its route fills."""
    there, wanted = target.by_name, shard.by_name
    found = [f"it lacks column {name}" for name in missing_columns(shard, target)]
    for name, column in there.items():
        if column.is_generated and name in wanted and not wanted[name].is_generated:
            found.append(f"its column {column.name} is generated, a shard's is not")
    return (*found, *foreign_reasons(target, shard.key, {*wanted, *extracted}))


def foreign_reasons(target: TableSchema, key: Sequence[str], filled: Collection[str]) -> tuple[str, ...]:
    """Return what the target alone has and what rejects rows; `filled` are its columns that get a value, in lower case.

    `key` is that of a shard.
    """
    found = [
        f"its column {column.name} needs a value that no shard has"
        for name, column in target.by_name.items()
        if name not in filled
        and not (column.nullable or column.default is not None or column.is_generated or column.is_numbered)
    ]
    if key and not as_filled(target, filled).key and not finding_index(target, key, filled):
        found.append(
            f"it has neither a key of columns that its shards fill, nor an index that begins with their key"
            f" ({', '.join(key)})"
        )
    return tuple(found)


def shape_differences(one: TableSchema, other: TableSchema) -> tuple[str, ...]:
    """Return the differences of `other` from `one`; empty if their shapes are equal."""
    columns = _by_name("column", one.columns, other.columns, _in_full)
    found = (*columns, *_order(one, other), *_by_name("index", one.indexes, other.indexes, _parts))
    if one.collation != other.collation:
        found += (f"the default collation is {other.collation} instead of {one.collation}",)
    return found


def target_differences(target: TableSchema, shards: Mapping[str, TableSchema]) -> tuple[str, ...]:
    """Return how a target's columns differ from those of its shards, and the indexes that it lacks.

    `shards` are structures by the name of the shard. Columns and indexes that only the target has may be intended.
    """
    there = {(index.unique, lowered(index.columns)) for index in target.indexes}
    found: dict[str, list[str]] = defaultdict(list)
    for name, shard in shards.items():
        for given in shard.columns:
            wanted = target.by_name.get(given.name.lower())
            if wanted is None:
                continue
            own, others = _value_rules(wanted, target), _value_rules(given, shard)
            if own != others:
                found[f"column {wanted.name} is {own} in the target and {others} in"].append(name)
        for index in shard.indexes:
            if (index.unique, lowered(index.columns)) not in there:
                found[f"index {index.name} {_parts(index)} is not in the target, but in"].append(name)
    return tuple(f"{text} {listed(names)}" for text, names in found.items())


ROWS_OF_TARGET = "its own rows"


def number_differences(target: TableId, number: int, following: Mapping[str, int]) -> tuple[str, ...]:
    """Return that the target's next AUTO_INCREMENT value is too small, and the statement that raises it.

    `following` are the numbers that must not be given again, by the name of the shard, and after the target's rows.
    """
    place, wanted = max(following.items(), key=lambda each: each[1], default=("", 0))
    if number >= wanted:
        return ()
    return (f"AUTO_INCREMENT is {number}, too small for {place}: {raise_number(target, wanted)}",)


def raise_number(target: TableId, number: int) -> str:
    """Return the statement after which a table gives this number next."""
    return f"ALTER TABLE {qualified(target.schema, target.name)} AUTO_INCREMENT = {number}"


def missing_columns(wanted: TableSchema, found: TableSchema) -> tuple[str, ...]:
    """Return the written columns of `wanted` that `found` does not have; names ignore case."""
    return tuple(column.name for column in wanted.written if column.name.lower() not in found.by_name)


def _by_name(kind: str, one: Sequence[T], other: Sequence[T], shown: Callable[[T], str]) -> Iterator[str]:
    mine, theirs = ({each.name: each for each in some} for some in (one, other))
    yield from (f"{kind} {name} is missing" for name in mine if name not in theirs)
    yield from (f"{kind} {name} is extra" for name in theirs if name not in mine)
    for name in mine.keys() & theirs.keys():
        if mine[name] != theirs[name]:
            yield f"{kind} {name} is {shown(theirs[name])} instead of {shown(mine[name])}"


def _order(one: TableSchema, other: TableSchema) -> Iterator[str]:
    if {*one.names} == {*other.names} and one.names != other.names:
        yield f"columns come as {', '.join(other.names)} instead of {', '.join(one.names)}"


def _parts(index: Index) -> str:
    kind = "unique " if index.unique else ""
    return f"{kind}({', '.join(index.columns)}){' with prefixes' if index.prefixed else ''}"


def narrower(target: TableSchema, shard: TableSchema, but: Container[str] = ()) -> tuple[str, ...]:
    """Return the columns of the target that are too narrow for a value of the shard, except `but` (lower case)."""
    there = {name: column for name, column in target.by_name.items() if name not in but}
    pairs = ((column, there[column.name.lower()]) for column in shard.written if column.name.lower() in there)
    return tuple(
        f"column {wanted.name} is {_type_and_null(wanted)} there and {_type_and_null(given)} in a shard"
        for given, wanted in pairs
        if not wanted.is_generated and not _holds(wanted, given)
    )


def _type_and_null(column: Column) -> str:
    return f"{column.column_type}{'' if column.nullable else ' NOT NULL'}"


def type_and_rules(column: Column) -> str:
    """Return the properties that must be equal in shards that are merged."""
    words = [
        DISPLAY_WIDTH.sub(r"\1", column.column_type),
        f"collate {canonical(column.collation)}" if column.collation else "",
        "" if column.nullable else "not null",
        "generated" if column.is_generated else "",
    ]
    return " ".join(filter(None, words))


def _value_rules(column: Column, schema: TableSchema) -> str:
    if column.is_generated:
        found = expressions(schema.create_sql).get(column.name.lower())
        return f"{type_and_rules(column)} as {_comparable(found.text)}" if found else type_and_rules(column)
    return type_and_rules(column) + (f" default {column.default}" if column.default is not None else "")


def _comparable(expression: str) -> str:
    """Return an expression without the parentheses and names of character sets that only some servers print."""
    return " ".join(word for word in expression.split() if word not in ("(", ")") and not word.startswith("_"))


def _in_full(column: Column) -> str:
    words = [
        column.column_type,
        f"collate {column.collation}" if column.collation else "",
        "null" if column.nullable else "not null",
        f"default {column.default}" if column.default else "",
        column.extra,
    ]
    return " ".join(filter(None, words))


def _holds(wanted: Column, given: Column) -> bool:
    """Whether `wanted` can hold every value of `given`; True for types that cannot be compared here."""
    if given.nullable and not wanted.nullable:
        return False
    if {wanted.data_type, given.data_type} <= INTEGERS:
        (low, high), (lowest, highest) = limits(wanted), limits(given)
        return low <= lowest and highest <= high
    (unit, most), (given_unit, given_most) = _capacity(wanted), _capacity(given)
    return not unit or unit != given_unit or most >= given_most


def _capacity(column: Column) -> tuple[str, int]:
    """Return what limits the values of a column, and the limit."""
    length, after_point, *_ = (*(column.numbers or (1,)), 0)
    return UNITS.get(column.data_type, ""), TEXT_BYTES.get(column.data_type, length - after_point)
