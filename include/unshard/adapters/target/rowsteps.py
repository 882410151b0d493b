"""Steps of tables that foreign keys connect, and the search for the rows that they reference (executors)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.target.deletes import any_of
from unshard.adapters.target.fence import Fence
from unshard.adapters.target.rendering import ABSENT, unescaped
from unshard.adapters.target.targetrows import Destination, key_of, shown
from unshard.core.model import Column, Shard, TableId, TableSchema
from unshard.core.rows.compaction import Collisions, RowStepKind
from unshard.core.structures.foreignkeys import ForeignKey
from unshard.errors import UnshardError
from unshard.errors.foreignkeys import ReferencedRowMissing, RowReferenced

NOTHING = (ABSENT, b"\\N")
Key = tuple[bytes, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RowStep:
    """Changes that one statement can make; all rows are of one shard and have the same columns."""

    kind: RowStepKind
    destination: Destination
    key: tuple[Column, ...]
    """The columns that find a row; empty: all columns."""
    keys: Sequence[Key]
    """Of each row, before the change; for an INSERT after it."""
    before: Sequence[bytes | None]
    """The lines before the change, in tables without a key."""
    lines: Sequence[bytes]
    r"""The lines after the change; `\A` is a column that does not change."""
    blank: Sequence[bool]
    shard: Shard
    new_key: Key | None = None
    """The key after an UPDATE, if it is another one."""
    is_safe: bool = False
    is_unsure: bool = False
    """The dump may have read the tables before this change or after it."""
    images: int = 0
    """Number of the row images in the binlog that it was made of."""

    @property
    def bytes(self) -> int:
        """Approximate size of its values."""
        return sum(map(len, self.lines)) + sum(len(value) for key in self.keys for value in key)

    @property
    def table(self) -> TableId:
        return self.destination.table

    def without(self, row: int) -> "RowStep":
        """Return the step without the row with this index."""

        def rest(values: Sequence[T]) -> list[T]:
            return [value for number, value in enumerate(values) if number != row]

        return replace(
            self, keys=rest(self.keys), before=rest(self.before), lines=rest(self.lines), blank=rest(self.blank)
        )


@dataclass(frozen=True, slots=True)
class ConnectedTables:
    """Tables that foreign keys connect, with everything that their steps share."""

    fences: tuple[Fence, ...]
    keys: tuple[ForeignKey, ...]
    schemas: Mapping[TableId, TableSchema]
    collisions: Collisions
    deferred: frozenset[TableId] = frozenset()
    """Tables that wait for deferred rows."""
    diverts: bool = False
    """Whether rows that a table cannot store go to `row_error` instead."""

    @property
    def has_keys(self) -> bool:
        """Whether all tables have a key, so that a window that is partly applied can be written again."""
        return all(schema.key for schema in self.schemas.values())


class StepRefused(Exception):
    """A table refuses a step; nothing of the group is written."""

    def __init__(self, table: TableId, error: UnshardError) -> None:
        super().__init__(table, error)
        self.table, self.error = table, error


class References:
    """Searches for rows that steps reference, and for rows that reference those of steps."""

    def __init__(self, connection: Connection, keys: Sequence[ForeignKey]) -> None:
        self._connection, self._keys = connection, keys

    def of(self, step: RowStep) -> list[ForeignKey]:
        """Return the foreign keys of the step's table whose columns its rows have."""
        names = {column.name.lower() for column in step.destination.columns}
        own = (key for key in self._keys if key.child == step.table)
        return [key for key in own if {name.lower() for name in key.columns} <= names]

    def to(self, step: RowStep) -> list[ForeignKey]:
        """Return the foreign keys that reference the step's table, if its rows have a key."""
        return [key for key in self._keys if key.parent == step.table and step.key]

    def missing_parent(self, step: RowStep, *, is_end: bool = False) -> ReferencedRowMissing | None:
        """Return the error for the first row that references a row that does not exist.

        With `is_end`, later steps may have changed or deleted the rows of this one. Then the rows that they reference
        are locked: they were written without the server's check, which would have locked them.
        """
        names = [column.name.lower() for column in step.destination.columns]
        for key in self.of(step):
            places = [names.index(name.lower()) for name in key.columns]
            columns = [
                replace(step.destination.columns[n], name=name)
                for n, name in zip(places, key.parent_columns, strict=True)
            ]
            wanted: dict[Key, bytes] = {}
            for line in step.lines:
                values = tuple(value for n in places if (value := value_of(fields_of(line)[n])) is not None)
                if len(values) == len(places):
                    wanted.setdefault(values, line)
            children = [step.destination.columns[n] for n in places]
            while absent := self._absent(key.parent, columns, list(wanted), is_end):
                line = wanted.pop(absent)
                if is_end and not self.has(step.table, children, absent):
                    continue
                own = shown_key(step.key, step.keys) if ABSENT in fields_of(line) else key_of(step.destination, line)
                parent, condition = shown_key(columns, [absent]), any_of(columns, [absent])
                rows = mysql.table_name(key.parent)
                return ReferencedRowMissing(str(step.table), own, str(key.parent), parent, condition, rows)
        return None

    def _absent(self, table: TableId, columns: Sequence[Column], wanted: Sequence[Key], locks: bool) -> Key | None:
        """Return the first of these values that no row of a table has."""
        if not wanted:
            return None
        names, parent = ", ".join(mysql.identifier(column.name) for column in columns), mysql.table_name(table)
        locking = " FOR UPDATE" if locks else ""
        sql = f"SELECT COUNT(DISTINCT {names}) FROM {parent} WHERE {any_of(columns, wanted)}{locking}"  # noqa: S608
        ((count,),) = mysql.query(self._connection, sql)
        if count == len(wanted):
            return None
        for values in wanted:  # two values may be equal by collation
            if not self.has(table, columns, values):
                return values
        return None

    def referencing(self, step: RowStep) -> RowReferenced | None:
        """Return the error for the first row that rows of another table reference."""
        for key in self.to(step):
            columns, parents = (", ".join(map(mysql.identifier, names)) for names in (key.columns, key.parent_columns))
            for values in step.keys:
                # The inner SELECT lets MySQL read a table that references itself.
                condition = (
                    f"({columns}) IN (SELECT {parents} FROM {mysql.table_name(step.table)}"  # noqa: S608
                    f" WHERE {any_of(step.key, [values])})"
                )
                child = mysql.table_name(key.child)
                if mysql.query(self._connection, f"SELECT 1 FROM {child} WHERE {condition} LIMIT 1"):  # noqa: S608
                    row = shown_key(step.key, [values])
                    return RowReferenced(str(step.table), row, str(key.child), condition, child)
        return None

    def has(self, table: TableId, columns: Sequence[Column], values: Key) -> bool:
        """Whether a row of a table has these values."""
        sql = f"SELECT 1 FROM {mysql.table_name(table)} WHERE {any_of(columns, [values])} LIMIT 1"  # noqa: S608
        return bool(mysql.query(self._connection, sql))


def values_of(step: RowStep) -> Iterator[tuple[Column, bytes]]:
    """Yield the columns of the first row with their fields."""
    yield from zip(step.destination.columns, fields_of(step.lines[0]), strict=True)


def fields_of(line: bytes) -> list[bytes]:
    """Return the fields of a line, as they are written."""
    return line[:-1].split(b"\t")


def value_of(text: bytes) -> bytes | None:
    """Return the value of a field; None for NULL and for a column that does not change."""
    return None if text in NOTHING else unescaped(text)


def shown_key(key: Sequence[Column], keys: Sequence[Key]) -> str:
    """Return a key as messages show it, and the number of the others."""
    if not keys or not key:
        return "without a key"
    more = f" (or one of {len(keys) - 1} others)" if len(keys) > 1 else ""
    return ", ".join(shown(*pair) for pair in zip(key, keys[0], strict=True)) + more


def unnamed(step: RowStep, message: str, is_child: bool) -> ReferencedRowMissing | RowReferenced:
    """Return the error about a foreign key that is not one of the group."""
    key = shown_key(step.key, step.keys)
    if is_child:
        return ReferencedRowMissing(str(step.table), key, "another table", f"a row ({message})")
    return RowReferenced(str(step.table), key, f"another table ({message})")
