"""What the task does to the rows of a shard: columns that its names fill or change, rows that filters leave out.

Rows are kept as the source has them, in dumped and held files; they are reshaped where they get the target's
columns (units.conversion), and by the same rule in SQL where shards and target are compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from unshard.core.constants import constants_of, with_constants
from unshard.core.eventfilter import Judged
from unshard.core.extract import Extracted
from unshard.core.keyrange import KeyRange, condition, stored
from unshard.core.literals import literal
from unshard.core.mappedkeys import compared
from unshard.core.mapping import Mapped, expression, fitted
from unshard.core.model import Column, TableId, TableSchema
from unshard.core.quoting import identifier, qualified
from unshard.core.rowfilter import RowFilter


@dataclass(frozen=True, slots=True)
class Reshaping:
    """What is done to all rows of one shard."""

    extracted: tuple[Extracted, ...] = ()
    mapped: tuple[Mapped, ...] = ()
    events: tuple[tuple[str, Judged], ...] = ()
    """Kinds of row changes that are ignored or refused, and by which rule."""
    filters: tuple[RowFilter, ...] = ()
    """Expressions that leave rows out."""
    leaves_columns_out: bool = False
    """The task ignores ADD COLUMN of the shard: values without a column in the target are left out."""

    def __bool__(self) -> bool:
        return self != AS_IT_IS

    @property
    def by_name(self) -> tuple[object, ...]:
        """What would be otherwise if the shard had another name."""
        return self.extracted, self.mapped

    @property
    def keeps_rows(self) -> bool:
        """Whether every row of the shard is in the target, and two that differ differ there."""
        return not (self.mapped or self.events or self.filters)

    @property
    def filters_changes(self) -> bool:
        """Whether a row in the target may be another than its shard had before a change."""
        of_rows = any(rule.update_old or rule.update_new or rule.delete for rule in self.filters)
        return of_rows or any(kind != "insert" for kind, _ in self.events)


AS_IT_IS = Reshaping()


@dataclass(frozen=True, slots=True)
class Seen:
    """A shard as statements see it that compare it with the target."""

    structure: TableSchema
    table: str
    values: tuple[str, ...] = ()
    """Expressions of the columns; empty if the rows are as they are."""
    constants: tuple[tuple[str, str], ...] = ()
    """Columns that names fill, by lower-case name, and the expression of their value."""
    mapped: tuple[tuple[str, Mapped, Column], ...] = ()
    """Columns that names change, by lower-case name, and the shard's column whose values are taken."""
    only: str = ""
    """Condition on what the shard itself has for rows that are looked at; empty: all are."""

    @property
    def rows(self) -> str:
        """What stands behind FROM."""
        return self.where()

    def where(self, inside: str = "", outside: str = "") -> str:
        """Return what stands behind FROM for rows under conditions on what the shard itself has and on what is seen."""
        own = " AND ".join(f"({each})" for each in (inside, self.only) if each)
        if self.values:
            return self._selected(f"{self.table}{own and f' WHERE {own}'}") + (outside and f" WHERE {outside}")
        everything = " AND ".join(filter(None, (own, outside)))
        return f"{self.table}{everything and f' WHERE {everything}'}"

    def within(self, key: Sequence[Column], span: KeyRange) -> str:
        """Return the condition, on what the shard itself has, for the rows of a range of the target's key."""
        return condition(key, span, self._compared)

    def _selected(self, table: str) -> str:
        return f"(SELECT {', '.join(self.values)} FROM {table}) AS shard"  # noqa: S608

    def _compared(self, column: Column, operator: str, value: bytes) -> str:
        """Compare what the shard itself has, so that its indexes are used."""
        name = column.name.lower()
        for changed, mapped, given in self.mapped:
            if changed == name:
                return compared(mapped, given, column, operator, value)
        for filled, constant in self.constants:
            if filled == name:
                return f"{constant} {operator} {literal(column, value)}"
        return stored(column, operator, value)


def seen(shard: str, table: TableId, structure: TableSchema, target: TableId, schema: TableSchema,
         reshaping: Reshaping) -> Seen:  # fmt: skip
    """Return the structure and the rows that a shard has once they are reshaped."""
    own = qualified(table.schema, table.name)
    if not reshaping:
        return Seen(structure, own)
    constants = constants_of(shard, structure, target, schema, reshaping.extracted)
    there = {column.name.lower(): column for column in schema.columns}
    mapped = fitted(shard, structure, target, there, reshaping.mapped)
    kept = [column for column in structure.columns if not reshaping.leaves_columns_out or column.name.lower() in there]
    columns, values = list(kept), [identifier(column.name) for column in kept]
    for place, column in enumerate(kept):
        name, wanted = column.name.lower(), there.get(column.name.lower())
        if name in mapped and wanted is not None:
            value = expression(mapped[name], structure.column(mapped[name].source), wanted)
            columns[place] = replace(wanted, name=column.name, nullable=column.nullable, sent_as=None)
            values[place] = f"{value} AS {identifier(column.name)}"
    filled = {name: _constant(schema.column(name), value) for name, value in constants.items()}
    values += [f"{value} AS {identifier(schema.column(name).name)}" for name, value in filled.items()]
    # By name, because * leaves out the invisible ones.
    return Seen(
        with_constants(replace(structure, columns=tuple(columns)), schema, constants), own, tuple(values),
        tuple(filled.items()),
        tuple((name, each, structure.column(each.source)) for name, each in mapped.items() if name in there),
    )  # fmt: skip


def _constant(column: Column, value: bytes) -> str:
    text = literal(column, value)
    if column.sent_as:
        text = f"CONVERT({text} USING {column.charset})"
    return f"{text} COLLATE {column.collation}" if column.collation else text
