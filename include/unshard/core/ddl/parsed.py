"""The result of parsing a DDL: its kind, and the tables that it names with their spans."""

from dataclasses import dataclass
from enum import StrEnum

from unshard.core.model import TableId


class DdlKind(StrEnum):
    """The kind of a statement, which decides its treatment (core.ddl.statement)."""

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
    """The role of a table in a statement that names it."""

    SUBJECT = "subject"
    """Altered, created, dropped, truncated or renamed."""
    NEW_NAME = "new name"
    """The new name of the SUBJECT before it."""
    LIKE = "like"
    EXCHANGED = "exchanged"
    REFERENCED = "referenced"
    """The parent table of a foreign key."""


@dataclass(frozen=True, slots=True)
class TableRef:
    """A table name in `Ddl.text`, from `start` to `end` (exclusive), including the schema if it is written."""

    table: TableId
    start: int
    end: int
    role: Role


@dataclass(frozen=True, slots=True)
class Ddl:
    """A parsed statement."""

    kind: DdlKind
    text: str
    """The statement without comments; spans refer to it."""
    tables: tuple[TableRef, ...] = ()
    database: str = ""
    """The schema that a statement about a schema names."""
    reason: str = ""
    """Why it is UNSUPPORTED."""
    if_not_exists: bool = False
    """CREATE TABLE IF NOT EXISTS; the server logs it even if it changed nothing."""
    dropped_keys: tuple[tuple[int, int], ...] = ()
    """Spans of DROP FOREIGN KEY. They are replaced, because stored structures have no foreign keys."""
    made_names: tuple[tuple[int, int, str], ...] = ()
    """Spans of names of constraints that the server has made from that of the table, with what follows it."""
    edits: tuple[tuple[int, int, str], ...] = ()
    """Spans with the text that takes their place."""
    cuts: tuple[tuple[int, int], ...] = ()
    """Spans to cut out, which do not belong to the change: WAIT, START TRANSACTION, RENAME TO next to other changes."""
    left_out: tuple[str, ...] = ()
    """Names of clauses about the storage of the shard, which `text` does not have (core.structures.storageclauses)."""
    or_replace: bool = False
    """CREATE OR REPLACE TABLE: an existing table is dropped with its rows."""

    @property
    def drops(self) -> bool:
        """Whether the object that it names is gone, or is a new one, after the statement."""
        return self.or_replace or self.kind in (DdlKind.DROP_TABLE, DdlKind.DROP_DATABASE, DdlKind.DROP_SEQUENCE)

    @property
    def subjects(self) -> tuple[TableId, ...]:
        return self.of(Role.SUBJECT)

    @property
    def renames(self) -> tuple[tuple[TableId, TableId], ...]:
        """Old and new names, in order; each pair applies to the result of those before it. An ALTER has at most one."""
        return tuple(zip(self.subjects, self.of(Role.NEW_NAME), strict=False))

    @property
    def like(self) -> TableId | None:
        return next(iter(self.of(Role.LIKE)), None)

    def of(self, role: Role) -> tuple[TableId, ...]:
        return tuple(ref.table for ref in self.tables if ref.role is role)
