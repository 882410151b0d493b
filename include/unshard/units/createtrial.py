"""Tries on the target whether it can create a table like a shard, and finds the parts that it refuses.

The trial table is empty, is created with the statement that the run uses, and is dropped again. If the target refuses
the whole statement, smaller ones show which column, index or option is the cause.

Killed between CREATE and DROP: the empty table stays until `adapters.shadow` removes it with its own old tables.
"""

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.meta.database import migration_lock
from unshard.adapters.structures import read_schema, shown_create
from unshard.core.createparts import CreateParts, Part, PartKind, create_parts, placeholder, without_parts
from unshard.core.ddlcreate import PLACEHOLDER, create_text
from unshard.core.model import TableId, TableSchema
from unshard.core.quoting import identifier
from unshard.errors.meta import MigrationBusy
from unshard.errors.source import StatementRefused
from unshard.units.execute import target_text

LONGEST_WORDS = 200
LOCK_SECONDS = 30
CLUSTERED = "T![clustered_index] CLUSTERED"
"""SHOW CREATE TABLE of TiDB has it where the rows are stored by the primary key."""
PROBE = f"CREATE TABLE {identifier(PLACEHOLDER)} (`id` int NOT NULL PRIMARY KEY)"
DEPRECATED = frozenset({1287, 1681})
"""Warnings about later versions of the server, which change nothing now."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A part of a statement that the target refuses; without a part: it refuses the statement as a whole."""

    part: Part | None
    errno: int
    words: str


@dataclass(frozen=True, slots=True)
class Trial:
    """What the target made of a structure: a table, or refused parts."""

    refused: tuple[Refused, ...] = ()
    warnings: tuple[str, ...] = ()
    made: TableSchema | None = None
    is_clustered: bool = False


class TrialTables:
    """Tries structures on one connection; each different statement is tried once."""

    def __init__(self, connection: Connection, schema: str) -> None:
        self._connection = connection
        self._table = TableId(schema, f"_shadow_{os.getpid()}_{secrets.token_hex(6)}")
        self._known: dict[str, Trial] = {}

    def probe(self) -> None:
        """Create the simplest table; raises if the target refuses every table, for instance because it is read-only."""
        with self._created(PROBE):
            pass

    def key(self, like: TableSchema) -> str:
        """Return the statement by which structures are told apart."""
        return target_text(like)

    def tried(self, like: TableSchema) -> Trial:
        """Create a table like a shard, or find out why that is refused."""
        text = self.key(like)
        if text not in self._known:
            self._known[text] = self._try_out(text)
        return self._known[text]

    def supported(self, like: TableSchema) -> tuple[TableSchema, tuple[Refused, ...]]:
        """Return the structure without the non-unique indexes that the target refuses, and these."""
        gone = tuple(each for each in self.tried(like).refused if is_optional(each.part))
        parts = [each.part for each in gone if each.part]
        names = {part.name.lower() for part in parts}
        kept = tuple(index for index in like.indexes if index.name.lower() not in names)
        return replace(like, indexes=kept, create_sql=without_parts(like.create_sql, parts)), gone

    def _try_out(self, text: str) -> Trial:
        try:
            return self._made(text)
        except StatementRefused as error:
            whole = _refused(error)
        return Trial(tuple(find_refused(create_parts(text), self._refusal, whole)))

    def _refusal(self, text: str) -> Refused | None:
        """Return why the statement is refused; None: it is accepted."""
        try:
            with self._created(text):
                return None
        except StatementRefused as error:
            return _refused(error)

    def _made(self, text: str) -> Trial:
        with self._created(text):
            shown = mysql.query(self._connection, "SHOW WARNINGS")
            warnings = (str(words) for level, code, words in shown if level == "Warning" and code not in DEPRECATED)
            made = read_schema(self._connection, self._table)
            is_clustered = CLUSTERED in shown_create(self._connection, self._table)
            return Trial((), tuple(dict.fromkeys(warnings)), made, is_clustered)

    @contextlib.contextmanager
    def _created(self, text: str) -> Iterator[None]:
        try:
            mysql.create_as_shown(self._connection, create_text(text, self._table))
            yield
        finally:
            if self._connection.open:
                mysql.query(self._connection, f"DROP TABLE IF EXISTS {mysql.table_name(self._table)}")


def _refused(error: StatementRefused) -> Refused:
    """Return the server's words on one line: TiDB quotes the rest of the statement after a syntax error."""
    words = " ".join(error.words.split())
    return Refused(None, error.errno, words if len(words) <= LONGEST_WORDS else f"{words[:LONGEST_WORDS]}…")


def is_optional(part: Part | None) -> bool:
    """Whether rows are the same without it: an index that is not unique."""
    return part is not None and part.kind is PartKind.INDEX and not part.is_unique


@contextlib.contextmanager
def trial_schema(connection: Connection, schema: str) -> Iterator[None]:
    """Give the meta schema for the block; if there is none yet, create it and drop it at the end.

    The lock keeps out a run that would put its tables into the schema before it is dropped.
    """
    if _exists(connection, schema):
        yield
        return
    name = migration_lock(schema)
    ((taken,),) = mysql.query(connection, "SELECT GET_LOCK(%s, %s)", (name, LOCK_SECONDS))
    if not taken:
        raise MigrationBusy(schema, LOCK_SECONDS)
    try:
        if _exists(connection, schema):
            yield
            return
        mysql.query(connection, f"CREATE DATABASE {mysql.identifier(schema)}")
        try:
            yield
        finally:
            if connection.open:
                mysql.query(connection, f"DROP DATABASE {mysql.identifier(schema)}")
    finally:
        if connection.open:
            mysql.query(connection, "SELECT RELEASE_LOCK(%s)", (name,))


def _exists(connection: Connection, schema: str) -> bool:
    sql = "SELECT 1 FROM information_schema.SCHEMATA WHERE LOWER(SCHEMA_NAME) = LOWER(%s)"
    return bool(mysql.query(connection, sql, (schema,)))


Ask = Callable[[str], Refused | None]


def find_refused(parts: CreateParts, ask: Ask, whole: Refused) -> Iterator[Refused]:
    """Yield the parts that a server refuses by themselves; if the rest is refused together, that too."""
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
    refuse([key for key in parts.keys if not key.columns & lost],
           lambda some: replace(plain, columns=base, keys=some))  # fmt: skip
    unique = tuple(key for key in parts.keys if key.is_unique and not key.columns & lost)
    unique = tuple(key for key in unique if key not in {each.part for each in found})
    for option in parts.options:
        keys = unique if option.kind is PartKind.PARTITION else ()
        refuse([option], lambda some, keys=keys: replace(plain, columns=base, keys=keys, options=some))  # type: ignore[misc]
    yield from found
    yield from _rest(parts, found, lost, ask, whole)


def _base(columns: Sequence[Part], found: Sequence[Refused]) -> tuple[Part, ...]:
    """Return the columns that are no generated ones; refused ones become columns that every server can have."""
    refused = {each.part for each in found}
    plain = [part for part in columns if not part.is_generated]
    return tuple(replace(part, text=placeholder(part) if part in refused else part.bare) for part in plain)


def _rest(parts: CreateParts, found: Sequence[Refused], lost: set[str], ask: Ask, whole: Refused) -> Iterator[Refused]:
    """Yield what is refused without the parts that are known to be refused."""
    gone = {each.part for each in found if each.part}
    gone |= {key for key in parts.keys if key.columns & lost}
    columns = tuple(
        replace(part, text=placeholder(part)) if part in gone and not part.is_generated else part
        for part in parts.columns
        if part not in gone or not part.is_generated
    )
    rest = ask(replace(parts.without(gone), columns=columns).text)
    if rest is not None:
        yield rest
    elif not found:
        yield whole


def _culprits(group: tuple[Part, ...], ask: Callable[[tuple[Part, ...]], Refused | None]) -> list[Refused]:
    """Return the parts that are refused, by halving the group; parts that are refused only together are not named."""
    refused = ask(group) if group else None
    if refused is None:
        return []
    if len(group) == 1:
        return [replace(refused, part=group[0])]
    half = len(group) // 2
    return _culprits(group[:half], ask) + _culprits(group[half:], ask)
