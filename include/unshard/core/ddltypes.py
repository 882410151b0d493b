"""The values that reading a DDL gives: its kind, and the tables that it names with their spans."""

from dataclasses import dataclass
from enum import StrEnum

from unshard.core.model import TableId


class DdlKind(StrEnum):
    """How a statement is treated."""

    ALTER = "alter"
    INDEX = "index"
    CREATE_TABLE = "create table"
    DROP_TABLE = "drop table"
    CREATE_SEQUENCE = "create sequence"
    DROP_SEQUENCE = "drop sequence"
    TRUNCATE = "truncate"
    RENAME = "rename"
    CREATE_DATABASE = "create database"
    ALTER_DATABASE = "alter database"
    DROP_DATABASE = "drop database"
    IGNORABLE = "ignorable"
    UNSUPPORTED = "unsupported"


class Role(StrEnum):
    """What a table that is named in a statement has to do with it."""

    SUBJECT = "subject"
    """Altered, created, dropped, truncated or renamed."""
    NEW_NAME = "new name"
    """Follows the SUBJECT that is renamed to it."""
    LIKE = "like"
    EXCHANGED = "exchanged"
    REFERENCED = "referenced"
    """By a foreign key."""


@dataclass(frozen=True, slots=True)
class TableRef:
    """A table's name in `Ddl.text`, from `start` to `end` (excluded) with its schema if that is written."""

    table: TableId
    start: int
    end: int
    role: Role
    is_qualified: bool


@dataclass(frozen=True, slots=True)
class Ddl:
    """A statement that has been read."""

    kind: DdlKind
    text: str
    """The statement without comments; spans refer to it."""
    tables: tuple[TableRef, ...] = ()
    database: str = ""
    """The schema of a statement about a schema."""
    reason: str = ""
    """Why it is UNSUPPORTED."""
    if_exists: bool = False
    """RENAME TABLE IF EXISTS stands in the binlog even where it did nothing."""
    if_not_exists: bool = False
    """CREATE TABLE IF NOT EXISTS stands in the binlog even where it did nothing."""
    dropped_keys: tuple[tuple[int, int], ...] = ()
    """Spans of DROP FOREIGN KEY: structures are kept without foreign keys, so there is none to drop."""
    cuts: tuple[tuple[int, int], ...] = ()
    """Spans of what is no part of the change: RENAME TO among others, WAIT, START TRANSACTION."""
    or_replace: bool = False
    """CREATE OR REPLACE TABLE drops what was there, rows included."""

    @property
    def drops(self) -> bool:
        """Whether what it names is gone behind it, or is another one."""
        return self.or_replace or self.kind in (DdlKind.DROP_TABLE, DdlKind.DROP_DATABASE, DdlKind.DROP_SEQUENCE)

    @property
    def subjects(self) -> tuple[TableId, ...]:
        """The tables that the statement changes, in its order."""
        return self.of(Role.SUBJECT)

    @property
    def renames(self) -> tuple[tuple[TableId, TableId], ...]:
        """Old and new names, in order; each pair sees what the ones before it did. An ALTER has one at most."""
        return tuple(zip(self.subjects, self.of(Role.NEW_NAME), strict=False))

    @property
    def like(self) -> TableId | None:
        """The table whose structure a CREATE TABLE … LIKE takes."""
        return next(iter(self.of(Role.LIKE)), None)

    def of(self, role: Role) -> tuple[TableId, ...]:
        """Return the tables that have this role."""
        return tuple(ref.table for ref in self.tables if ref.role is role)
