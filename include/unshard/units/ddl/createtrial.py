"""Test whether the target can create a table like a shard, and find the parts that it refuses. Runs in the driver.

The trial table is empty, is created with the statement that the run uses, and is dropped again. If the target refuses
the whole statement, smaller statements show which column, index or option is the cause.

If the process is killed between CREATE and DROP, the empty table stays until `adapters.targetddl` removes it with its
own old tables.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from pymysql.connections import Connection

from unshard.adapters import mysql, serverstate, targetddl
from unshard.adapters.meta.database import migration_lock
from unshard.adapters.structures import has_schema, read_schema, shown_create
from unshard.adapters.targetddl import trial_table
from unshard.core.model import TableSchema
from unshard.core.structures.constraintnames import TrialNames, trial_names
from unshard.core.structures.createtext import PLACEHOLDER, create_text
from unshard.core.structures.parsedtable import CreateParts, Part, PartKind, create_parts, without_parts
from unshard.errors.meta import MigrationBusy
from unshard.errors.source import StatementRefused
from unshard.units.ddl.execute import target_text

LONGEST_MESSAGE = 200
LOCK_SECONDS = 30
CLUSTERED = "T![clustered_index] CLUSTERED"
"""SHOW CREATE TABLE of TiDB contains it if the rows are stored by the primary key."""
DEPRECATED = frozenset({1287, 1681})
"""Warnings about later versions of the server; they have no effect now."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A part of a statement that the target refuses; `part` is None if it refuses the whole statement."""

    part: Part | None
    errno: int
    message: str


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of creating a structure on the target: a table, or refused parts."""

    refused: tuple[Refused, ...] = ()
    warnings: tuple[str, ...] = ()
    made: TableSchema | None = None
    is_clustered: bool = False


class TrialTables:
    """Tries structures on one connection; tries each distinct statement once."""

    def __init__(self, connection: Connection, schema: str) -> None:
        self._connection = connection
        self._table = trial_table(schema)
        self._known: dict[str, Trial] = {}

    def probe(self) -> None:
        """Create the simplest table; raises if the target refuses every table, for instance because it is read-only."""
        with self._created(targetddl.simplest_table(PLACEHOLDER)):
            pass

    def key(self, like: TableSchema) -> str:
        return target_text(like)

    def tried(self, like: TableSchema) -> Trial:
        text = self.key(like)
        if text not in self._known:
            self._known[text] = self._try_out(text)
        return self._known[text]

    def supported(self, like: TableSchema) -> tuple[TableSchema, tuple[Refused, ...]]:
        """Return the structure without the non-unique indexes that the target refuses, and these indexes."""
        gone = tuple(each for each in self.tried(like).refused if is_optional(each.part))
        parts = [each.part for each in gone if each.part]
        names = {part.name.lower() for part in parts}
        kept = tuple(index for index in like.indexes if index.name.lower() not in names)
        return replace(like, indexes=kept, create_sql=without_parts(like.create_sql, parts)), gone

    def _try_out(self, text: str) -> Trial:
        try:
            return self._made(text)
        except StatementRefused as error:
            whole = self._refused(error, text)
        return Trial(tuple(find_refused(create_parts(text), self._refusal, whole)))

    def _refusal(self, text: str) -> Refused | None:
        try:
            with self._created(text):
                return None
        except StatementRefused as error:
            return self._refused(error, text)

    def _refused(self, error: StatementRefused, text: str) -> Refused:
        """Return the server message on one line: TiDB quotes the rest of the statement after a syntax error."""
        message = " ".join(self._names(text).message(error.server_message).split())
        return Refused(
            None, error.errno, message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}…"
        )

    def _names(self, text: str) -> TrialNames:
        return trial_names(PLACEHOLDER, self._table.name, (text, 0))

    def _made(self, text: str) -> Trial:
        with self._created(text):
            shown = serverstate.warnings(self._connection)
            warnings = (str(message) for level, code, message in shown if level == "Warning" and code not in DEPRECATED)
            made = read_schema(self._connection, self._table)
            is_clustered = CLUSTERED in shown_create(self._connection, self._table)
            return Trial((), tuple(dict.fromkeys(warnings)), made, is_clustered)

    @contextlib.contextmanager
    def _created(self, text: str) -> Iterator[None]:
        try:
            mysql.create_as_shown(self._connection, create_text(self._names(text).put_in(text), self._table))
            yield
        finally:
            if self._connection.open:
                targetddl.drop_table(self._connection, self._table, if_exists=True)


def is_optional(part: Part | None) -> bool:
    """Whether the part is a non-unique index: the rows are the same without it."""
    return part is not None and part.kind is PartKind.INDEX and not part.is_unique


@contextlib.contextmanager
def trial_schema(connection: Connection, schema: str) -> Iterator[None]:
    """Provide the meta schema for the block; if it does not exist, create it and drop it at the end.

    The lock keeps a run from creating its tables in the schema before the schema is dropped.
    """
    if has_schema(connection, schema):
        yield
        return
    name = migration_lock(schema)
    if not serverstate.take_lock(connection, name, LOCK_SECONDS):
        raise MigrationBusy(schema, LOCK_SECONDS)
    try:
        if has_schema(connection, schema):
            yield
            return
        targetddl.create_schema(connection, schema)
        try:
            yield
        finally:
            if connection.open:
                targetddl.drop_schema(connection, schema)
    finally:
        if connection.open:
            serverstate.release_lock(connection, name)


Ask = Callable[[str], Refused | None]


def find_refused(parts: CreateParts, ask: Ask, whole: Refused) -> Iterator[Refused]:
    """Yield the parts that a server refuses; if it refuses the remaining parts only together, yield those too."""
    plain = CreateParts(parts.head, (), (), ())
    found: list[Refused] = []

    def refuse(group: Sequence[Part], build: Callable[[tuple[Part, ...]], CreateParts]) -> None:
        found.extend(_culprits(tuple(group), lambda some: ask(build(some).text)))

    def with_columns(some: tuple[Part, ...]) -> CreateParts:
        return replace(plain, columns=tuple(replace(part, text=part.bare) for part in some))

    refuse([part for part in parts.columns if not part.is_generated], with_columns)
    base = _base(parts.columns, found)
    refuse([part for part in parts.columns if part.is_generated], lambda some: replace(plain, columns=(*base, *some)))
    gone = {each.part for each in found}
    base = (*base, *(part for part in parts.columns if part.is_generated and part not in gone))
    if together := ask(replace(plain, columns=base).text):
        yield from (*found, together)
        return
    lost = {part.name.lower() for part in gone if part}
    refuse([key for key in parts.keys if not key.columns & lost], lambda some: replace(plain, columns=base, keys=some))
    unique = tuple(key for key in parts.keys if key.is_unique and not key.columns & lost)
    unique = tuple(key for key in unique if key not in {each.part for each in found})
    for option in parts.options:
        keys = unique if option.kind is PartKind.PARTITION else ()
        refuse([option], lambda some, keys=keys: replace(plain, columns=base, keys=keys, options=some))  # type: ignore[misc]
    yield from found
    yield from _rest(parts, found, lost, ask, whole)


def _base(columns: Sequence[Part], found: Sequence[Refused]) -> tuple[Part, ...]:
    """Return the columns that are not generated; refused ones become columns that every server can have."""
    refused = {each.part for each in found}
    plain = [part for part in columns if not part.is_generated]
    return tuple(replace(part, text=part.placeholder if part in refused else part.bare) for part in plain)


def _rest(parts: CreateParts, found: Sequence[Refused], lost: set[str], ask: Ask, whole: Refused) -> Iterator[Refused]:
    """Yield what is still refused without the parts that are known to be refused."""
    gone = {each.part for each in found if each.part}
    gone |= {key for key in parts.keys if key.columns & lost}
    columns = tuple(
        replace(part, text=part.placeholder) if part in gone and not part.is_generated else part
        for part in parts.columns
        if part not in gone or not part.is_generated
    )
    rest = ask(replace(parts.without(gone), columns=columns).text)
    if rest is not None:
        yield rest
    elif not found:
        yield whole


def _culprits(group: tuple[Part, ...], ask: Callable[[tuple[Part, ...]], Refused | None]) -> list[Refused]:
    """Return the refused parts, by halving the group; parts that are refused only together are not named."""
    refused = ask(group) if group else None
    if refused is None:
        return []
    if len(group) == 1:
        return [replace(refused, part=group[0])]
    half = len(group) // 2
    return _culprits(group[:half], ask) + _culprits(group[half:], ask)
