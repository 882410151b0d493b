"""The tables that gh-ost and pt-online-schema-change create to alter a shard (the `real` table) while it is in use.

A tool creates a shadow of the real table, runs the ALTER on the shadow, copies the rows, and swaps the two tables. The
tables of a tool are not shards: their rows are ignored. The statements that run on the shadow are stored. When the
shadow replaces the shard, they become the shard's own DDL.

The name alone does not identify such a table, because an ordinary table may have that name:

| the table                                                       | is                                            |
|-----------------------------------------------------------------|-----------------------------------------------|
| has the name of a shadow of a shard, and is created as its copy | a shadow, once there is a sign of a tool:     |
|                                                                 | pt-osc's triggers, gh-ost's comment or log    |
| the same, and rows arrive before any sign of a tool             | an ordinary table, these rows included        |
| has the name of a shadow, and has other columns                 | an ordinary table                             |
| has the name of trash of a shard, and is created by gh-ost      | trash                                         |
| gets such a name when a shadow replaces the shard               | trash                                         |
| matches the rules of the task file, and is created as a copy    | a shadow or trash from the start              |
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Protocol

from unshard.core.ddl.effects import Effect, Undecided
from unshard.core.model import TableId, shape_of
from unshard.core.relay.segment import Segment, Statement

SHADOW_RULES = (r"^_(.+)_(?:new|gho)$", r"^_{2,10}([^_].*)_new$")
"""DM's rule, and the names that pt-osc uses if the first name exists already."""
TRASH_RULES = (r"^_(.+)_(?:ghc|del|old)$", r"^_(.+)_\d{14}_del$", r"^_{2,10}([^_].*)_old$")
"""DM's rule, gh-ost's names with a time in them, and pt-osc's names if the first name exists already."""
BY_RULE, BY_GH_OST, BY_TRIGGER, BY_SWAP = "a rule of the task", "gh-ost", "pt-online-schema-change", "the cut-over"
GH_OST = re.compile(r"/\*\s*gh-ost\b|ghost-cut-over-sentry")
"""The marks that gh-ost writes into its CREATE TABLE statements."""
CHANGELOG = ("id", "last_update", "hint", "value")
"""Columns of gh-ost's change log, the table `_t_ghc`."""


class Role(StrEnum):
    """The purpose of a tool's table."""

    SHADOW = "shadow"
    """Gets the new structure and a copy of the rows."""
    TRASH = "trash"
    """The tool's own log, or the former real table."""


@dataclass(frozen=True, slots=True)
class NameRules:
    """Regular expressions for the names of a tool's tables; their one group matches the name of the real table."""

    patterns: tuple[re.Pattern[str], ...]
    are_own: bool = False
    """The rules are in the task file: a matching table needs no sign of a tool."""

    def real(self, table: TableId, shards: Collection[TableId]) -> TableId | None:
        """Return the shard to which the table belongs by its name; None if there is no such shard."""
        found = (match for pattern in self.patterns if (match := pattern.search(table.name)))
        reals = (TableId(table.schema, match[1]) for match in found if match[1])
        return next((real for real in reals if real != table and real in shards), None)


def name_rules(texts: Iterable[str], are_own: bool = False) -> NameRules:
    """Compile the regular expressions of rules."""
    return NameRules(tuple(map(re.compile, texts)), are_own)


@dataclass(frozen=True, slots=True)
class OnlineRules:
    """The rules for the names of the tools' tables in a task."""

    shadow: NameRules
    trash: NameRules


DEFAULT_RULES = OnlineRules(name_rules(SHADOW_RULES), name_rules(TRASH_RULES))


@dataclass(frozen=True, slots=True)
class OnlineTable:
    """A table of a tool, or a table that has the name of one and is not confirmed yet."""

    table: TableId
    real: TableId
    role: Role
    seen: str
    """The sign that confirmed it as a tool's table; empty while only its name and structure suggest that."""
    since: int = 0
    """Time stamp of the statement that created it; 0: it existed at the snapshot."""
    structure: str = ""
    """Digest of a shadow's structure; empty while it is unknown."""
    statements: tuple[Statement, ...] = ()
    """The statements that ran on a shadow, in order, with the real table in its place."""
    create: Statement | None = None
    is_whole: bool = True
    """unshard has seen all statements that ran on it."""
    is_away: bool = False
    """The real table was dropped or renamed, and the shadow is about to replace it."""

    @property
    def made_at(self) -> datetime | None:
        return datetime.fromtimestamp(self.since, UTC) if self.since else None


OnlineTables = tuple[OnlineTable, ...]


@dataclass(frozen=True, slots=True)
class Swapped:
    """A shadow replaces its real table: the statements that ran on it are the shard's DDL now."""

    online_table: OnlineTable
    statement: Statement


@dataclass(frozen=True, slots=True)
class OnlineStep:
    """The effects of a statement on the tools' tables and on the shards."""

    online_tables: OnlineTables
    happens: tuple[Statement | Effect | Swapped, ...]
    """The effects on shards, in order; they replace the statement."""
    apart: frozenset[TableId] = frozenset()
    """Tables that are not treated as shards in this statement, whatever their names are."""


class Online(Protocol):
    """Follows the online schema changes of a source."""

    def step(self, statement: Statement, present: Mapping[TableId, str], online_tables: OnlineTables) -> OnlineStep:
        """Return the effects of the statement; `present` has the structures of the shards before it."""

    def arrival(self, swapped: Swapped, structure: str) -> Undecided | None:
        """Compare the shadow with `structure`, the result of the shard's DDL; an operator must decide a difference."""


def shadow_of(online_tables: Iterable[OnlineTable], real: TableId) -> OnlineTable | None:
    """Return the confirmed shadow of a real table, which a tool is filling; None without a shadow."""
    return next((g for g in online_tables if g.real == real and g.role is Role.SHADOW and g.seen), None)


def confirmed(online_tables: OnlineTables, seen: str, is_meant: Callable[[OnlineTable], bool]) -> OnlineTables:
    """Confirm the tables for which `is_meant` is true by the sign `seen`, and return all tables."""
    return tuple(replace(g, seen=seen) if not g.seen and is_meant(g) else g for g in online_tables)


def is_copy(structure: str, of: str) -> bool:
    """Whether a table has the structure of another table; also True if either structure is unknown."""
    return not (structure and of) or shape_of(structure) == shape_of(of)


def named_by(segments: Sequence[Segment], online_tables: OnlineTables = ()) -> frozenset[TableId] | None:
    """Return the tables whose shards a plan needs; None: all, because a statement may concern each of them.

    It also returns None for rows of an unconfirmed table: they show that it is an ordinary table, which joins a group.
    """
    tables = frozenset[TableId]().union(*(segment.tables for segment in segments))
    unsure = {online_table.table for online_table in online_tables if not online_table.seen}
    if any(segment.statement or segment.changes for segment in segments) or tables & unsure:
        return None
    return tables


def is_of_gh_ost(table: TableId) -> bool:
    """Whether the name of the table is one that gh-ost gives to a shadow."""
    return table.name.endswith("_gho")


def names_word(text: str, name: str) -> bool:
    """Whether a text contains the name as a separate word."""
    return re.search(rf"(?<![\w$]){re.escape(name)}(?![\w$])", text) is not None
