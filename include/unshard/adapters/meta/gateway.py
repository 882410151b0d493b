"""SELECT, INSERT, UPDATE and DELETE of the rows of one task.

Every condition and every new row of these methods has the task, so the modules about the subjects do not name it.
A condition that compares a column with a value is a keyword argument (None means NULL); all others are expressions.
A shard or a target table is one value, for the columns that name it:

    db.select(SHARD_DDL, SHARD_DDL.c.seq > after, shard=shard, order=SHARD_DDL.c.seq)
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from sqlalchemy import Connection, CursorResult, Row, Select, and_, bindparam, delete, func, select, update
from sqlalchemy.dialects.mysql import insert
from sqlalchemy.sql import ColumnElement

from unshard.core.model import Shard, TableId

T = TypeVar("T")
AnyRow = Row[*tuple[Any, ...]]
Values = Mapping[str, Any]
AT_ONCE = 500
"""Rows that one statement writes or names."""
COUNT = func.count()
OF_ROW = "of_row_"
"""Begins the names of parameters, so that none is the name of a column."""


class TaskReader:
    """Reads rows of one task."""

    task: str

    def fetch(self, query: Any, parameters: Values | None = None) -> Sequence[AnyRow]:
        raise NotImplementedError

    def mine(self, table: Any, /, *conditions: Any, **values: Any) -> ColumnElement[bool]:
        return and_(table.c.task == self.task, matches(table, values), *conditions)

    def select(
        self,
        table: Any,
        /,
        *conditions: Any,
        only: Sequence[Any] = (),
        order: Any = (),
        limit: int | None = None,
        lock: bool = False,
        **values: Any,
    ) -> Sequence[AnyRow]:
        """Return rows; `only`: these expressions instead of all columns; `lock`: lock the rows (FOR UPDATE)."""
        order = order if isinstance(order, tuple) else (order,)
        named = columns_of({"task": self.task, **values})
        query = _query(table, tuple(only), order, limit, lock, tuple((name, named[name] is None) for name in named))
        parameters = {OF_ROW + name: value for name, value in named.items() if value is not None}
        return self.fetch(query.where(*conditions) if conditions else query, parameters)

    def row(self, table: Any, /, *conditions: Any, **values: Any) -> AnyRow | None:
        """Return the first row; takes the arguments of `select`."""
        return next(iter(self.select(table, *conditions, **values)), None)

    def one(self, table: Any, /, *conditions: Any, **values: Any) -> AnyRow:
        """Return the row, which must exist."""
        (row,) = self.select(table, *conditions, **values)
        return row

    def value(self, table: Any, expression: Any, /, *conditions: Any, **values: Any) -> Any:
        """Return an expression of the first row; None if there is no row."""
        row = self.row(table, *conditions, only=(expression,), **values)
        return None if row is None else row[0]

    def has(self, table: Any, /, *conditions: Any, **values: Any) -> bool:
        return self.row(table, *conditions, only=(table.c.task,), limit=1, **values) is not None

    def count(self, table: Any, /, *conditions: Any, **values: Any) -> int:
        return int(self.value(table, COUNT, *conditions, **values))


class TaskWriter(TaskReader):
    """Reads and changes rows of one task on one connection."""

    def __init__(self, connection: Connection, task: str) -> None:
        self.connection, self.task = connection, task

    def execute(self, statement: Any, parameters: Any = None) -> CursorResult[Any]:
        return self.connection.execute(statement, parameters)

    def fetch(self, query: Any, parameters: Values | None = None) -> Sequence[AnyRow]:
        return self.execute(query, parameters).all()

    def insert(self, table: Any, row: Values) -> int:
        """Insert a row and return the id that the server has given it."""
        return self.execute(insert(table).values(columns_of({"task": self.task, **row}))).lastrowid

    def insert_all(self, table: Any, rows: Sequence[Values], *, only_new: bool = False) -> None:
        """Insert rows; `only_new`: not those whose key exists."""
        new = insert(table).prefix_with("IGNORE") if only_new else insert(table)
        for some in in_portions(rows):
            self.execute(new.values([columns_of({"task": self.task, **row}) for row in some]))

    def add(self, table: Any, row: Values) -> bool:
        """Insert a row unless its key exists; return whether it is new."""
        new = insert(table).prefix_with("IGNORE").values(columns_of({"task": self.task, **row}))
        return bool(self.execute(new).rowcount)

    def put(self, table: Any, key: Values, values: Values, again: Values | None = None) -> None:
        """Insert a row, or give these values to the row with its key; `again`: those values instead."""
        new = insert(table).values(columns_of({"task": self.task, **key, **values}))
        self.execute(new.on_duplicate_key_update([*columns_of(values if again is None else again).items()]))

    def update(self, table: Any, changed: Values, /, *conditions: Any, **values: Any) -> int:
        """Change rows; return how many were found, also those that had the values."""
        found = self.mine(table, *conditions, **values)
        return self.execute(update(table).where(found).values(columns_of(changed))).rowcount

    def delete(self, table: Any, /, *conditions: Any, **values: Any) -> int:
        return self.execute(delete(table).where(self.mine(table, *conditions, **values))).rowcount


@lru_cache(1000)
def _query(
    table: Any,
    only: tuple[Any, ...],
    order: tuple[Any, ...],
    limit: int | None,
    lock: bool,
    named: tuple[tuple[str, bool], ...],
) -> Select[*tuple[Any, ...]]:
    """Return a SELECT, which SQLAlchemy builds slowly. Its parameters are the values of the named columns that are not
    NULL.
    """
    values = {name: None if is_null else bindparam(OF_ROW + name, type_=table.c[name].type) for name, is_null in named}
    query = select(*(only or (table,))).where(matches(table, values)).order_by(*order).limit(limit)
    return query.with_for_update() if lock else query


def matches(table: Any, values: Values) -> ColumnElement[bool]:
    """Return the condition that each named column has that value."""
    return and_(True, *(table.c[name] == value for name, value in columns_of(values).items()))


def columns_of(values: Values) -> dict[str, Any]:
    """Return the values by column: several columns name a shard or a target table."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        match value:
            case Shard():
                found |= {"source": value.source, "shard_schema": value.table.schema, "shard_table": value.table.name}
            case TableId():
                found |= {"target_schema": value.schema, "target_table": value.name}
            case _:
                found[name] = value
    return found


def in_portions(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield the items in parts of AT_ONCE, so that the size of a statement is limited."""
    for start in range(0, len(items), AT_ONCE):
        yield items[start : start + AT_ONCE]
