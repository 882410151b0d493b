"""Apply the changes of tables that foreign keys connect: in the order of the binlog (executors).

The server checks foreign keys and carries out their actions as it did on the source. All tables of a
group and their fences are one transaction, so a process that dies leaves all or nothing of a window. A large window is
cut into several transactions in the order of the binlog, at places where no row lacks the row that it references. Each
transaction records in the fence steps of all tables how many row images are written. The last one raises the fences and
deletes the steps.

| process dies                        | result                                                                     |
|-------------------------------------|----------------------------------------------------------------------------|
| before the steps are recorded       | nothing has happened                                                       |
| in a transaction                    | the server rolls it back; a retry goes on after the images that are done   |
| in COMMIT                           | a new connection reads how many images are done, and the fences            |
| between two transactions            | a retry goes on after the images that are done                             |
| another run begins                  | the epoch was raised: the check of the fences fails, rollback              |
| the window has other images then:   | the images no longer match: all are written again, as in a window that     |
| a shard was dropped, a target has   | begins before P1                                                           |
| another structure or foreign key    |                                                                            |
| the foreign keys are gone           | the tables stay one group until the window is done (units/window/sync)     |

A session writes the changes one by one:

| step                              | statements                                                                |
|-----------------------------------|---------------------------------------------------------------------------|
| INSERT, UPDATE, DELETE            | the same statement                                                        |
| INSERT or UPDATE of a row before  | unchecked: the same statement. The transaction ends only when the other   |
| the row that it references        | row is there; at the end of the window a missing row is an error          |
| INSERT or UPDATE in safe mode     | unchecked: DELETE of the key and REPLACE. Rows that reference the row are |
|                                   | neither deleted nor in the way. Then its own parents are looked for       |
| UPDATE in a table without a key   | UPDATE of one row that has all the values                                 |
| UPDATE of a key in safe mode      | unchecked: DELETE of the new key. Then UPDATE of the old key with all     |
|                                   | actions; without such a row as above                                      |
| UPDATE of which the binlog has    | UPDATE of these columns. A missing row is an error; in safe mode it is    |
| only some columns                 | deferred to a later change, and a row that has its new key already stays  |
| windows that begin before P1      | as in safe mode; a violation is no error, because the dump read the       |
|                                   | tables at different moments. A deleted row that does not exist takes the  |
|                                   | rows that reference it along, as it did on the source                     |

The session's foreign_key_checks is 1 except for statements marked *unchecked*.
"""

import contextlib
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

import pyarrow as pa
from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.target import deferring, fencesteps
from unshard.adapters.target.apply import naming_table
from unshard.adapters.target.completing import with_own_values
from unshard.adapters.target.deletes import any_of, conditions_of, delete_keys, remove_rows
from unshard.adapters.target.diverting import MAX_DIVERTED, Diverted, record
from unshard.adapters.target.fence import Fence, hold, hold_join, is_applied, raise_fence
from unshard.adapters.target.fencesteps import Bounds, ImageProgress, bounds_of
from unshard.adapters.target.rendering import ABSENT, unescaped
from unshard.adapters.target.sending import TRUNCATED, load_rendered, refused, run_statement
from unshard.adapters.target.session import LENIENT, STRICT, Writer, in_sessions
from unshard.adapters.target.takenkeys import SAVEPOINT as BEFORE_WRITES
from unshard.adapters.target.takenkeys import Ledger, write_rows
from unshard.adapters.target.targetrows import (
    Applied,
    Changes,
    DeferredRow,
    Destination,
    Lines,
    Loaded,
    Mode,
    Origins,
    RowRemoval,
    Writes,
    is_blankable,
    key_of,
    shown,
)
from unshard.core.model import Column, Shard, TableId, TableSchema
from unshard.core.rows.compaction import Collisions, RowStepKind
from unshard.core.rows.rowerrors import Found
from unshard.core.sql.literals import literal, stored
from unshard.core.sql.quoting import identifier
from unshard.core.structures.foreignkeys import ForeignKey
from unshard.core.structures.tablekeys import own_columns, unique_keys
from unshard.errors import UnshardError
from unshard.errors.meta import FenceMissing
from unshard.errors.rows import (
    ChangedRowMissing,
    Collision,
    MovedRowUnknown,
    ReferencedRowMissing,
    RowReferenced,
    RowRefused,
    RowsMissing,
    StatementWarned,
)
from unshard.errors.source import JsonNumberLost, ServerBusy, StatementRefused

NOTHING = (ABSENT, b"\\N")
Key = tuple[bytes, ...]


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
        return sum(map(len, self.lines)) + sum(len(value) for key in self.keys for value in key)

    @property
    def table(self) -> TableId:
        return self.destination.table

    def without(self, row: int) -> "RowStep":

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
        names = {column.name.lower() for column in step.destination.columns}
        own = (key for key in self._keys if key.child == step.table)
        return [key for key in own if {name.lower() for name in key.columns} <= names]

    def to(self, step: RowStep) -> list[ForeignKey]:
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
        if not wanted:
            return None
        names, parent = ", ".join(identifier(column.name) for column in columns), mysql.table_name(table)
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
            columns, parents = (", ".join(map(identifier, names)) for names in (key.columns, key.parent_columns))
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


# --- single changes ---

PARENT_MISSING, REFERENCED = frozenset({1216, 1452}), frozenset({1217, 1451})
DUPLICATE = 1062
ABOUT_VALUES = frozenset({1048, 1264, 1265, 1292, 1366, 1367, 1406, 1411, 1690, 3819, 4025})
"""Errors about a value: NULL, out of range, not valid, too long, against a CHECK."""
NAMED = re.compile(r"for column [`']?(.*?)[`']? at row")
"""A column in a warning. TiDB prints `%s` in its place."""
SAVEPOINT = "before_step"
T = TypeVar("T")


class StepSession:
    """A session that writes steps in one transaction."""

    def __init__(self, connection: Connection, group: ConnectedTables) -> None:
        self._connection, self._group = connection, group
        self._references = References(connection, group.keys)
        self._checks = False
        self._touched: set[tuple[TableId, Key]] = set()
        self._deferred: dict[tuple[TableId, Key], DeferredRow] = {}
        self._diverted: dict[tuple[TableId, Key], Diverted] = {}
        self._early: deque[RowStep] = deque()
        """Steps that have written rows before the rows that they reference."""

    def write(self, step: RowStep, fence: Fence) -> Applied:
        """Write a step; raises StepRefused, and errors that pass by another attempt."""
        for key in (*step.keys, *([step.new_key] if step.new_key else [])):
            self._deferred.pop((step.table, key), None)
            self._diverted.pop((step.table, key), None)
            if step.table in self._group.deferred or self._group.diverts:
                self._touched.add((step.table, key))
        try:
            with naming_table(step.table):
                return self._write_or_divert(step, fence)
        except UnshardError as error:
            if error.transient:
                raise
            raise StepRefused(step.table, error) from error

    def is_complete(self) -> bool:
        """Whether the rows exist that rows reference which were written before them.

        A session without checks may write children first. From 9.6 on, MySQL logs a cascade before the parent's change.
        """
        return self._incomplete() is None

    def refuse_incomplete(self) -> None:
        """Raise StepRefused if a row references a row that does not exist."""
        found = self._incomplete()
        if found is None:
            return
        step, error = found
        parents = [key.parent for key in self._references.of(step)]
        for (table, _), row in self._diverted.items():
            if table in parents:  # the missing row may be this one
                raise StepRefused(table, row.error) from error
        raise StepRefused(step.table, error)

    def _incomplete(self) -> tuple[RowStep, ReferencedRowMissing] | None:
        """Return the first step with a row that lacks the row that it references; forgets the steps before it."""
        while self._early:
            error = self._references.missing_parent(self._early[0], is_end=True)
            if error is not None:
                return self._early[0], error
            self._early.popleft()
        return None

    def _write_or_divert(self, step: RowStep, fence: Fence) -> Applied:
        """Write a step, without rows that the table cannot store if they may be diverted.

        A row is not diverted if rows of the target reference an older version of it, which would stay or take them
        along. A later row that references it is a violation, which suspends the target after all.
        """
        if not (self._group.diverts and step.key):
            return self._write(step, fence)
        mysql.query(self._connection, f"SAVEPOINT {SAVEPOINT}")
        try:
            return self._write(step, fence)
        except RowRefused as error:
            if error.line not in step.lines or len(self._diverted) >= MAX_DIVERTED:
                raise
            mysql.query(self._connection, f"ROLLBACK TO SAVEPOINT {SAVEPOINT}")
            row = step.lines.index(error.line)
            key = step.new_key or step.keys[row]
            if step.is_safe or step.kind is RowStepKind.UPDATE:
                older = {step.keys[row], *([key] if step.is_safe else [])}
                if self._references.referencing(replace(step, keys=sorted(older))):
                    raise
                delete_keys(self._connection, step.table, step.key, sorted(older))
            self._diverted[step.table, key] = Diverted(step.destination, step.shard, error, is_known=False)
        rest = step.without(row)
        return self._write_or_divert(rest, fence) if rest.lines else Applied()

    def _write(self, step: RowStep, fence: Fence) -> Applied:
        match step.kind:
            case RowStepKind.INSERT:
                return self._insert(step, fence)
            case RowStepKind.UPDATE:
                return self._update(step, fence)
            case RowStepKind.DELETE:
                return self._delete(step)

    def close(self, fence: Fence) -> None:
        """Record which rows of a table the steps defer to later changes or divert, and which they have brought."""
        table, schema = fence.target, self._group.schemas[fence.target]
        key = tuple(schema.column(name) for name in schema.key)
        touched = sorted(key for its, key in self._touched if its == table)
        deferred = tuple(row for (its, _), row in self._deferred.items() if its == table)
        diverted = [row for (its, _), row in self._diverted.items() if its == table]
        nothing = Writes(table, (), (), self._group.collisions, diverts=self._group.diverts)
        has_deferred = table in self._group.deferred
        changes = Changes(table, key, touched, (), schema, nothing, newly_deferred=deferred, has_deferred=has_deferred)
        record(self._connection, fence, changes, diverted)
        deferring.update(self._connection, fence, changes)

    def _insert(self, step: RowStep, fence: Fence) -> Applied:
        if step.is_safe and step.key:
            return self._upsert(step)
        loaded, collided = self._insert_new(step, fence)
        return Applied(0, loaded.sent - loaded.skipped, loaded.skipped, collided)

    def _insert_new(self, step: RowStep, fence: Fence) -> tuple[Loaded, bool]:
        """Insert rows whose keys must be new; the task's policy applies to those that another shard has."""
        ledger, policy = Ledger(fence.meta_schema, fence.task, Found.WINDOW, fence.window), self._group.collisions
        self._check(not step.is_unsure)
        try:
            with self._violations(step):
                return write_rows(self._connection, self._writes(step, Collisions.ERROR), ledger)
        except Collision:
            if policy is Collisions.ERROR:
                raise
        except ReferencedRowMissing:
            if not self._references.of(step):
                raise
            self._early.append(step)
            mysql.query(self._connection, f"ROLLBACK TO SAVEPOINT {BEFORE_WRITES}")
        self._check(False)  # REPLACE would take along the rows that reference the other shard's row
        return write_rows(self._connection, self._writes(step, policy), ledger)

    def _upsert(self, step: RowStep) -> Applied:
        self._check(False)
        keys = step.keys if step.new_key is None else [*step.keys, step.new_key]
        whole, _ = self._with_own_values(step)
        deleted = delete_keys(self._connection, step.table, step.key, keys)
        for each in whole:
            load_rendered(self._connection, each.destination, each.lines, each.blank, each.mode)
        if not step.is_unsure and self._references.missing_parent(step):
            self._early.append(step)
        return Applied(deleted, len(step.lines))

    def _update(self, step: RowStep, fence: Fence) -> Applied:
        if not step.key:
            return self._exchange(step, fence)
        if ABSENT in fields_of(step.lines[0]):
            return self._patch(step)
        if step.is_safe and step.new_key is None:
            return self._upsert(step)
        kept: RowStep | None = None
        if step.is_safe and step.new_key is not None:
            kept = self._kept(step)
            self._check(False)
            delete_keys(self._connection, step.table, step.key, [step.new_key])
        try:
            matched = self._with_actions(step, lambda: self._change(step))
        except StatementRefused as error:
            if error.errno != DUPLICATE:
                raise
            # Another row has the value of a unique key: the row is written as a new one, so that the policy applies.
            kept = kept or self._kept(step)
            self._check(False)
            delete_keys(self._connection, step.table, step.key, step.keys)
            return self._insert(kept, fence)
        return Applied(0, 1) if matched else self._upsert(kept or step)

    def _exchange(self, step: RowStep, fence: Fence) -> Applied:
        """Change a row of a table without a key, in place: rows that reference it would refuse DELETE or go with it."""
        try:
            matched = self._with_actions(step, lambda: self._change(step))
        except StatementRefused as error:
            if error.errno != DUPLICATE:
                raise
            # Another row has the value of a unique key: the row is written as a new one, so that the policy applies.
            self._check(False)
            (whole,), removed = self._with_own_values(step)
            if whole.destination == step.destination:  # no own values: the row is still there
                removed = self._remove(step)
            return Applied(removed) + self._insert(_as_step(step, whole), fence)
        if not matched:
            raise RowsMissing(str(step.table), key_of(step.destination, _line_before(step)), 1, 0)
        return Applied(0, 1)

    def _kept(self, step: RowStep) -> RowStep:
        """Return an UPDATE with the values that own columns of its row have."""
        (whole,), _ = self._with_own_values(step)
        return _as_step(step, whole)

    def _with_own_values(self, step: RowStep) -> tuple[Sequence[Lines], int]:
        """Return the lines with the values of own columns; of a table without a key the changed row is removed."""
        schema, lines = self._group.schemas[step.table], self._lines(step, Mode.REPLACE)
        if not {column.name for column in own_columns(schema)} & {column.name for column in step.destination.columns}:
            keys = (step.keys,) if step.new_key is None else ([step.new_key], step.keys)
            removals = [RowRemoval(step.destination, line, 1) for line in step.before if line is not None]
            lines = replace(lines, origins=Origins(keys) if step.key else Origins(removals=removals))
        writes = Writes(step.table, [lines], (), self._group.collisions)
        changes, removed = with_own_values(self._connection, Changes(step.table, step.key, (), (), schema, writes))
        return changes.writes.lines, removed

    def _patch(self, step: RowStep) -> Applied:
        """Update a row of which the line has only some values: the others are in the table only.

        In safe mode the row may have its new key already, or it may be missing: then a later change must provide it.
        """
        if step.is_safe and step.new_key is not None:
            has_old, has_new = (self._references.has(step.table, step.key, key) for key in (step.keys[0], step.new_key))
            if has_old and has_new:
                raise MovedRowUnknown(str(step.table), str(step.shard), shown_key(step.key, [step.new_key]))
            step = replace(step, keys=[step.new_key], new_key=None) if not has_old else step
        if self._with_actions(step, lambda: self._change(step)):
            return Applied(0, 1)
        key = shown_key(step.key, step.keys)
        if not step.is_safe:
            raise ChangedRowMissing(str(step.table), str(step.shard), key)
        self._deferred[step.table, step.keys[0]] = DeferredRow(step.shard, step.keys[0], key)
        return Applied()

    def _change(self, step: RowStep) -> bool:
        where, is_blank = self._condition(step), step.blank[0]
        with _lenient_mode(self._connection) if is_blank else contextlib.nullcontext(), self._naming_row(step):
            values = [f"{identifier(c.name)} = {stored(c, value_of(t))}" for c, t in values_of(step) if t != ABSENT]
            statement = f"UPDATE {mysql.table_name(step.table)} SET {', '.join(values)} WHERE {where}"  # noqa: S608
            answer = run_statement(self._connection, statement)
            if answer.warning_count and (found := self._unexpected_warnings(step)):
                raise StatementWarned(str(step.table), "; ".join(found[:3]))
        return b"matched: 0" not in answer.message

    def _condition(self, step: RowStep) -> str:
        """Return the condition of an UPDATE: its key, or without one all its values, which several rows may have."""
        if step.key:
            return any_of(step.key, step.keys)
        conditions = conditions_of(step.destination, self._group.schemas[step.table], _line_before(step))
        return f"{' AND '.join(conditions)} LIMIT 1"

    def _delete(self, step: RowStep) -> Applied:
        deleted = self._with_actions(step, lambda: self._remove(step))
        if step.is_unsure and step.key and deleted < len(step.keys):
            self._take_along(step)
        return Applied(deleted)

    def _remove(self, step: RowStep) -> int:
        if step.key:
            return delete_keys(self._connection, step.table, step.key, step.keys)
        schema = self._group.schemas[step.table]
        lines = [line for line in step.before if line is not None]
        return sum(remove_rows(self._connection, step.destination, schema, line, 1) for line in lines)

    def _with_actions(self, step: RowStep, run: Callable[[], T]) -> T:
        """Run a statement with foreign keys; if the dump's moments are mixed, a violation is no error."""
        self._check(True)
        try:
            with self._violations(step):
                return run()
        except ReferencedRowMissing:
            if not self._references.of(step):
                raise
            if not step.is_unsure:
                self._early.append(step)
        except RowReferenced:
            if not step.is_unsure:
                raise
        self._check(False)
        return run()

    def _take_along(self, step: RowStep) -> None:
        """Carry out ON DELETE for rows that do not exist: the dump has read the tables before and after it."""
        names = [column.name.lower() for column in step.key]
        for key in self._references.to(step):
            parents = [name.lower() for name in key.parent_columns]
            if not set(parents) <= set(names):
                continue
            places = [names.index(name) for name in parents]
            columns = [replace(step.key[n], name=name) for n, name in zip(places, key.columns, strict=True)]
            where = any_of(columns, [tuple(values[n] for n in places) for values in step.keys])
            child = mysql.table_name(key.child)
            if key.on_delete == "CASCADE":
                statement = f"DELETE FROM {child} WHERE {where}"  # noqa: S608
            elif key.on_delete == "SET NULL":
                nulls = ", ".join(f"{identifier(name)} = NULL" for name in key.columns)
                statement = f"UPDATE {child} SET {nulls} WHERE {where}"  # noqa: S608
            else:
                continue
            run_statement(self._connection, statement)

    # --- violations ---

    @contextlib.contextmanager
    def _violations(self, step: RowStep) -> Iterator[None]:
        try:
            yield
        except (StatementRefused, RowRefused) as error:
            cause = error if isinstance(error, StatementRefused) else error.__cause__
            if not isinstance(cause, StatementRefused) or cause.errno not in (*PARENT_MISSING, *REFERENCED):
                raise
            is_child = cause.errno in PARENT_MISSING
            found = self._references.missing_parent(step) if is_child else self._references.referencing(step)
            if found is None and (self._references.of(step) if is_child else self._references.to(step)):
                # Another source's window has committed the parent, or the children's DELETE, in the meantime.
                raise ServerBusy(cause.where, cause.server, cause.server_message) from error
            raise found or unnamed(step, error.server_message, is_child) from error

    # --- values ---

    @contextlib.contextmanager
    def _naming_row(self, step: RowStep) -> Iterator[None]:
        """Convert an error about a value of an UPDATE to one that names the row, if its line is whole.

        A message need not name row and column ("Data Too Long, field len 3, data len 8" by TiDB). The statement changes
        one row. The column is the one that cannot be changed alone; the caller rolls back all that this changes.
        """
        try:
            yield
        except JsonNumberLost as error:
            line = step.lines[0]
            key = shown_key(step.key, step.keys) if ABSENT in fields_of(line) else key_of(step.destination, line)
            whole = b"" if ABSENT in fields_of(line) else line
            raise RowRefused(str(step.table), error.column, key, error.message, whole) from error
        except (StatementRefused, StatementWarned) as error:
            line, message = step.lines[0], error.server_message
            if ABSENT in fields_of(line):
                raise
            named = refused(step.destination, pa.array([line], pa.binary()), message)
            if named is None and isinstance(error, StatementRefused) and error.errno not in ABOUT_VALUES:
                raise
            if named is None:
                key = key_of(step.destination, line)
                named = RowRefused(str(step.table), self._refused_column(step), key, message, line)
            raise named from error

    def _unexpected_warnings(self, step: RowStep) -> list[str]:
        """Return the messages of the warnings, without one about each ENUM with index 0, which is stored correctly."""
        blank = {column.name.lower() for column, text in values_of(step) if is_blankable(column) and text == b""}
        unexpected, expected = list[str](), 0
        for _, code, message in mysql.query(self._connection, "SHOW WARNINGS"):
            found = NAMED.search(str(message))
            if code == TRUNCATED and found and found[1].lower() in {*blank, "%s"} and expected < len(blank):
                expected += 1
            else:
                unexpected.append(str(message))
        return unexpected

    def _refused_column(self, step: RowStep) -> str:
        """Return the first column whose value the server refuses to store; empty if it stores each one alone."""
        where = self._condition(step)
        mysql.query(self._connection, "SAVEPOINT before_column")
        for column, text in values_of(step):
            if is_blankable(column) and text == b"":
                continue
            value = f"{identifier(column.name)} = {literal(column, value_of(text))}"
            try:
                statement = f"UPDATE {mysql.table_name(step.table)} SET {value} WHERE {where}"  # noqa: S608
                if run_statement(self._connection, statement).warning_count:
                    return column.name
                # Without a key the row is found by its values again.
                mysql.query(self._connection, "ROLLBACK TO SAVEPOINT before_column")
            except StatementRefused as error:
                if error.errno in ABOUT_VALUES:
                    return column.name
        return ""

    # --- statements ---

    def _check(self, on: bool) -> None:
        if on is not self._checks:
            mysql.query(self._connection, f"SET SESSION foreign_key_checks = {int(on)}")
            self._checks = on

    def _lines(self, step: RowStep, mode: Mode) -> Lines:
        lines, shards = pa.array(step.lines, pa.binary()), [step.shard] * len(step.lines)
        return Lines(step.destination, mode, lines, pa.array(step.blank, pa.bool_()), shards)

    def _writes(self, step: RowStep, policy: Collisions) -> Writes:
        return Writes(step.table, [self._lines(step, Mode.PLAIN)], unique_keys(self._group.schemas[step.table]), policy)


@contextlib.contextmanager
def _lenient_mode(connection: Connection) -> Iterator[None]:
    """Let the block write ENUM values with index 0."""
    mysql.query(connection, f"SET SESSION sql_mode = '{LENIENT}'")
    try:
        yield
    finally:
        if connection.open:
            mysql.query(connection, f"SET SESSION sql_mode = '{STRICT}'")


def _line_before(step: RowStep) -> bytes:
    (line,) = (line for line in step.before if line is not None)
    return line


def _as_step(step: RowStep, lines: Lines) -> RowStep:
    return replace(step, destination=lines.destination, lines=lines.lines.to_pylist(), blank=lines.blank.to_pylist())


# --- the transactions of a window ---


class OrderedChanges(Protocol):
    """All changes of a group in a window, in the order of the binlog."""

    @property
    def rows(self) -> int:
        """Return the number of row images."""

    @property
    def bytes(self) -> int:
        """Return their size."""

    @property
    def content(self) -> str:
        """Return a digest of all images."""

    def after(self, images: int) -> Iterator[RowStep]:
        """Yield the steps after this number of images."""


Counts = dict[TableId, Applied]
ALL = -1
"""In place of a number of images: the last transaction, which raises the fences."""


@dataclass(slots=True)
class _Attempts:
    """The transactions of this process, and the last one that reached its COMMIT: the answer to it may be lost."""

    counts: Counts = field(default_factory=dict)
    done: int = 0
    """Number of images that are in the target, as far as this process knows."""
    reached: int = 0
    """The same after the transaction in COMMIT."""
    committing: Counts = field(default_factory=dict)

    def commit(self, connection: Connection, written: Counts, reached: int) -> None:
        self.committing, self.reached = written, reached
        mysql.query(connection, "COMMIT")
        self.found(reached)

    def found(self, done: int) -> None:
        """Count the rows of the transaction in COMMIT if the target has them."""
        if done == self.reached:
            self.counts = {table: found + self.committing.get(table, Applied()) for table, found in self.counts.items()}
        elif done != self.done:  # by an earlier process
            self.counts = {table: found + Applied(before=True) for table, found in self.counts.items()}
        self.committing, self.done, self.reached = {}, done, done


def apply_in_order(writer: Writer, group: ConnectedTables, changes: OrderedChanges) -> Counts:
    """Apply the window to all tables of a group exactly once; raises StepRefused."""
    limits, attempt = bounds_of(writer), _Attempts({fence.target: Applied() for fence in group.fences})
    while not in_sessions(writer, lambda connection: _apply_next(connection, group, changes, limits, attempt)):
        pass
    return attempt.counts


def _apply_next(
    connection: Connection, group: ConnectedTables, changes: OrderedChanges, limits: Bounds, attempt: _Attempts
) -> bool:
    """Run the next transaction; return whether the target has the whole window."""
    pending = [fence for fence in group.fences if not is_applied(connection, fence)]
    if not pending:
        attempt.found(ALL)
        return True
    progress = _progress(connection, group, pending, changes, limits)
    attempt.found(progress.images if progress else 0)
    connection.uses_load_data = False  # LOAD DATA leaves out a row whose parent is missing
    mysql.begin(connection)
    for fence in pending:
        hold_join(connection, fence)
    session = StepSession(connection, group)
    try:
        written, reached = _written(connection, session, pending, changes, limits, progress)
    except StepRefused:
        mysql.query(connection, "ROLLBACK")
        # The COMMIT of an attempt that was taken for lost may have been in progress.
        # Another transaction may have written more of the window.
        if any(
            is_applied(connection, each) or fencesteps.progress_of(connection, each) != progress for each in pending
        ):
            return False
        raise
    for fence in pending:
        session.close(fence)
    if reached == ALL or progress is None:
        return _finished(connection, pending, attempt, written)
    for fence in pending:
        hold(connection, fence)
    after = replace(progress, images=reached)
    if all(fencesteps.advance(connection, fence, progress, after) for fence in pending):
        attempt.commit(connection, written, reached)
    else:
        mysql.query(connection, "ROLLBACK")
    return False


def _progress(
    connection: Connection, group: ConnectedTables, pending: Sequence[Fence], changes: OrderedChanges, limits: Bounds
) -> ImageProgress | None:
    found = [fencesteps.progress_of(connection, fence) for fence in pending]
    known = [each for each in found if each is not None]
    if not known and not (group.has_keys and (changes.rows > limits.rows or changes.bytes > limits.bytes)):
        return None
    if len(known) == len(found) and all(each == known[0] for each in known) and known[0].content == changes.content:
        return known[0]
    progress = ImageProgress(changes.content, 0, any(each.images or each.is_again for each in known))
    mysql.begin(connection)
    for fence in pending:
        hold(connection, fence)
        fencesteps.begin(connection, fence, progress)
    mysql.query(connection, "COMMIT")
    return progress


def _written(
    connection: Connection,
    session: StepSession,
    pending: Sequence[Fence],
    changes: OrderedChanges,
    limits: Bounds,
    progress: ImageProgress | None,
) -> tuple[Counts, int]:
    """Write the next steps; return the counts, and the number of images that are done then."""
    fences = {fence.target: fence for fence in pending}
    # Tables with some of these rows, which an attempt has written that had other rows, or no foreign keys.
    again = {
        t for t, f in fences.items() if (progress and progress.is_again) or fencesteps.is_cut_by_key(connection, f)
    }
    written, start = {fence.target: Applied() for fence in pending}, progress.images if progress else 0
    images, size = 0, 0
    for step in changes.after(start):
        images, size = images + step.images, size + step.bytes
        is_first = images == step.images
        is_full = progress is not None and not is_first and (images > limits.rows or size > limits.bytes)
        if is_full and session.is_complete():
            return written, start + images - step.images
        if fence := fences.get(step.table):
            ours = replace(step, is_safe=True, is_unsure=True) if step.table in again else step
            written[step.table] += session.write(ours, fence)
    session.refuse_incomplete()
    return written, ALL


def _finished(connection: Connection, pending: Sequence[Fence], attempt: _Attempts, written: Counts) -> bool:
    """Raise the fences and commit; return False if another transaction has done so."""
    for fence in pending:
        fencesteps.forget(connection, fence)
        if not raise_fence(connection, fence):
            mysql.query(connection, "ROLLBACK")
            if is_applied(connection, fence):
                return False
            raise FenceMissing(str(fence.target), fence.source)
    attempt.commit(connection, written, ALL)
    return True
