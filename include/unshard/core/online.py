"""Tables by which gh-ost and pt-online-schema-change change a shard, which is `real` here, while it is written to.

A tool makes a shadow of the real table, runs the ALTER on that, copies the rows, and swaps the two. Its tables are
no shards: their rows are passed over. What is run on the shadow is remembered, and it is the shard's own DDL where the
shadow takes the shard's place.

A name alone decides nothing, because a table of its own may be called so:

| the table                                                          | is                                        |
|--------------------------------------------------------------------|-------------------------------------------|
| is called like a shadow of a shard, and made as a copy of it       | a shadow, as soon as a tool shows itself: |
|                                                                    | pt-osc's triggers, gh-ost's comment or log |
| the same, and rows come before a tool shows itself                 | a table like any other, rows included     |
| is called like a shadow, and has other columns                     | a table like any other                    |
| is called like trash of a shard, and is made by gh-ost             | trash                                     |
| gets such a name when a shadow takes the place of the shard        | trash                                     |
| is called so by rules that the task file gives, and made as a copy | a shadow or trash from the start          |
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Protocol

from unshard.core.effects import Effect, Undecided
from unshard.core.model import TableId, shape_of
from unshard.core.segment import Segment, Statement

SHADOW_RULES = (r"^_(.+)_(?:new|gho)$", r"^_{2,10}([^_].*)_new$")
"""DM's, and the names that pt-osc takes if the first one is taken."""
TRASH_RULES = (r"^_(.+)_(?:ghc|del|old)$", r"^_(.+)_\d{14}_del$", r"^_{2,10}([^_].*)_old$")
"""DM's, gh-ost's with a time in them, and pt-osc's if the first one is taken."""
BY_RULE, BY_GH_OST, BY_TRIGGER, BY_SWAP = "a rule of the task", "gh-ost", "pt-online-schema-change", "the cut-over"
GH_OST = re.compile(r"/\*\s*gh-ost\b|ghost-cut-over-sentry")
"""What gh-ost writes into the statements that make its tables."""
CHANGELOG = ("id", "last_update", "hint", "value")
"""Columns of gh-ost's log of its own doings, the table `_t_ghc`."""


class Role(StrEnum):
    """What a table of a tool is to it."""

    SHADOW = "shadow"
    """Gets the new structure and a copy of the rows."""
    TRASH = "trash"
    """The tool's own log, or what was the real table."""


@dataclass(frozen=True, slots=True)
class NameRules:
    """Regular expressions with one group, the name of the real table."""

    patterns: tuple[re.Pattern[str], ...]
    are_own: bool = False
    """The task file gives them: they are taken at their word."""

    def real(self, table: TableId, shards: Collection[TableId]) -> TableId | None:
        """Return the shard that the table belongs to by its name."""
        found = (match for pattern in self.patterns if (match := pattern.search(table.name)))
        reals = (TableId(table.schema, match[1]) for match in found if match[1])
        return next((real for real in reals if real != table and real in shards), None)


def name_rules(texts: Iterable[str], are_own: bool = False) -> NameRules:
    """Compile rules."""
    return NameRules(tuple(map(re.compile, texts)), are_own)


@dataclass(frozen=True, slots=True)
class OnlineRules:
    """How the tables of tools are called in a task."""

    shadow: NameRules
    trash: NameRules


DEFAULT_RULES = OnlineRules(name_rules(SHADOW_RULES), name_rules(TRASH_RULES))


@dataclass(frozen=True, slots=True)
class Ghost:
    """A table of a tool, or one that may turn out to be none."""

    table: TableId
    real: TableId
    role: Role
    seen: str
    """By what it is known; empty: by its name and structure only, until a tool or rows show what it is."""
    since: int = 0
    """Time stamp of the statement that made it; 0: it was there at the snapshot."""
    structure: str = ""
    """Digest of a shadow's structure; empty while it is not known."""
    statements: tuple[Statement, ...] = ()
    """What was run on a shadow, in order, as if it were run on the real table."""
    create: Statement | None = None
    is_whole: bool = True
    """All that was run on it has been seen."""
    is_away: bool = False
    """The real table was dropped or renamed away: the shadow is about to take its place."""

    @property
    def made_at(self) -> datetime | None:
        """When it was made; None if it was there at the snapshot."""
        return datetime.fromtimestamp(self.since, UTC) if self.since else None


Ghosts = tuple[Ghost, ...]


@dataclass(frozen=True, slots=True)
class Swapped:
    """A shadow takes the place of its real table: what was run on it is the shard's DDL now."""

    ghost: Ghost
    statement: Statement


@dataclass(frozen=True, slots=True)
class Step:
    """What a statement means where tools are at work."""

    ghosts: Ghosts
    """The tables of tools behind it."""
    happens: tuple[Statement | Effect | Swapped, ...]
    """What happens to shards in its place, one after another."""
    apart: frozenset[TableId] = frozenset()
    """Tables that are no shards in it, whatever they are called."""


class Online(Protocol):
    """Follows the tools of a source."""

    def step(self, statement: Statement, present: Mapping[TableId, str], ghosts: Ghosts) -> Step:
        """Return what the statement means; `present` has the structures of the shards before it."""

    def arrival(self, swapped: Swapped, structure: str) -> Undecided | None:
        """Return what an operator must decide if the shadow differs from what the shard's DDL has made of it."""


def shadow_of(ghosts: Iterable[Ghost], real: TableId) -> Ghost | None:
    """Return the shadow that a tool is filling for a real table."""
    return next((g for g in ghosts if g.real == real and g.role is Role.SHADOW and g.seen), None)


def confirmed(ghosts: Ghosts, seen: str, is_meant: Callable[[Ghost], bool]) -> Ghosts:
    """Return the tables with those confirmed that a tool has shown to be its own."""
    return tuple(replace(g, seen=seen) if not g.seen and is_meant(g) else g for g in ghosts)


def is_copy(structure: str, of: str) -> bool:
    """Whether a table has the structure of another one, as far as is known."""
    return not (structure and of) or shape_of(structure) == shape_of(of)


def unsure(ghosts: Iterable[Ghost]) -> frozenset[TableId]:
    """Return the tables of which rows would show that they are none of a tool."""
    return frozenset(ghost.table for ghost in ghosts if not ghost.seen)


def named_by(segments: Sequence[Segment], ghosts: Ghosts = ()) -> frozenset[TableId] | None:
    """Return the tables whose shards a plan is made of; None: any, because a statement may concern each of them.

    So may rows of a table that turns out to be no tool's: it joins a group.
    """
    tables = frozenset[TableId]().union(*(segment.tables for segment in segments))
    if any(segment.statement for segment in segments) or tables & unsure(ghosts):
        return None
    return tables


def is_of_gh_ost(table: TableId) -> bool:
    """Whether gh-ost would call a shadow so."""
    return table.name.endswith("_gho")


def names_word(text: str, name: str) -> bool:
    """Whether a text has that name as a word of its own."""
    return re.search(rf"(?<![\w$]){re.escape(name)}(?![\w$])", text) is not None
