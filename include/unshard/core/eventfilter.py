"""Binlog event filters: which changes of a shard are passed over, as DM's `filters` say.

Every rule that matches the table is asked in order. A rule with `events` compares the names that the change has, one
with `sql-pattern` its text, one with both does one after the other; `Ignore` drops what matches, `Do` drops what does
not, `Error` stops the source at DDL, the target at rows. A rule without `events` says nothing about rows (DM's `Do`
would drop all of them).

DM knows a change by one name, and `alter table` is only what has no other; here a change has all names that fit
(core.ddlevents), and `alter table` covers every specification. Names that no MySQL or MariaDB can bring are refused.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from unshard.core.model import TableId
from unshard.core.pattern import Pattern

DML = ("insert", "update", "delete")
GROUPS = ("all", "all dml", "all ddl", "none", "none dml", "none ddl", "incompatible ddl changes")
DDL = (
    "create database", "drop database", "alter database", "create table", "drop table", "truncate table",
    "rename table", "alter table", "create index", "drop index", "create view", "drop view", "add table partition",
    "drop table partition", "truncate table partition", "value range decrease", "precision decrease", "modify column",
    "rename column", "rename index", "drop column", "drop primary key", "drop unique key", "modify default value",
    "modify constraint", "modify columns order", "modify charset", "modify collation", "remove auto increment",
    "modify storage engine", "reorganize table partition", "rebuild table partition", "coalesce table partition",
    "exchange table partition", "add foreign key", "drop foreign key", "modify schema charset and collate",
    "modify table charset and collate", "modify table comment", "alter table partitioning",
    "remove table partitioning", "add column", "set default value", "rebase auto id", "add primary key",
    "alter index visibility", "multi schema change",
)  # fmt: skip
OTHER_NAMES = {"create schema": "create database", "drop schema": "drop database", "alter schema": "alter database"}
OF_TIDB = ("recover table", "split table partition", "alter ttl info", "alter ttl remove")
"""Statements that only TiDB has: no source can bring them."""
NAMES = frozenset({*DML, *GROUPS, *DDL, *OTHER_NAMES})
COMPATIBLE = frozenset({
    "create database", "alter database", "create table", "create index", "create view", "drop view", "alter table",
    "add table partition",
})  # fmt: skip
"""What is none of the `incompatible ddl changes`, by the name that DM knows a change by."""


class Action(StrEnum):
    """What a rule asks for; DM minds their case."""

    DO = "Do"
    IGNORE = "Ignore"
    ERROR = "Error"


@dataclass(frozen=True, slots=True)
class Event:
    """A change as rules see it."""

    names: tuple[str, ...]
    """The first is DM's; none: nobody can tell what it is."""
    text: str = ""

    @property
    def is_rows(self) -> bool:
        return bool(self.names) and self.names[0] in DML


@dataclass(frozen=True, slots=True)
class Judged:
    """What the rules say about a change."""

    action: Action = Action.DO
    rule: str = ""


PASSES = Judged()


@dataclass(frozen=True, slots=True)
class EventRule:
    """One compiled rule."""

    name: str
    schema: Pattern
    table: Pattern | None
    events: tuple[str, ...]
    sql: tuple[re.Pattern[str], ...]
    action: Action

    def matches(self, table: TableId) -> bool:
        """Whether the rule is about the table; one of a schema has an empty name."""
        return self.schema.matches(table.schema) and (self.table is None or self.table.matches(table.name))

    def drops(self, event: Event) -> bool:
        """Whether the change is not let through."""
        found = []
        if self.events and event.names:
            found.append(self.names(event))
        if self.sql and not event.is_rows:
            found.append(any(pattern.search(event.text) for pattern in self.sql))
        return any(match is not (self.action is Action.DO) for match in found)

    def names(self, event: Event) -> bool:
        """Whether an entry of `events` fits; of those that stand for many the first that says anything decides."""
        for name in self.events:
            match name:
                case "all" | "none":
                    return name == "all"
                case "all dml" | "none dml" if event.is_rows:
                    return name == "all dml"
                case "all ddl" | "none ddl" if not event.is_rows:
                    return name == "all ddl"
                case "incompatible ddl changes" if not event.is_rows and event.names[0] not in COMPATIBLE:
                    return True
                case _ if OTHER_NAMES.get(name, name) in event.names:
                    return True
        return False


@dataclass(frozen=True, slots=True)
class EventFilter:
    """The rules of one instance, in order."""

    rules: tuple[EventRule, ...] = ()

    def judge(self, table: TableId, event: Event) -> Judged:
        """Return what the first rule says that does not let the change through."""
        for rule in self.rules:
            if rule.matches(table) and rule.drops(event):
                return Judged(Action.ERROR if rule.action is Action.ERROR else Action.IGNORE, rule.name)
        return PASSES

    def rows(self, table: TableId) -> Mapping[str, Judged]:
        """Return what is said about each kind of row change that is not simply let through."""
        found = {name: self.judge(table, Event((name,))) for name in DML}
        return {name: judged for name, judged in found.items() if judged != PASSES}

    def passes_columns(self, table: TableId) -> bool:
        """Whether columns that a shard gets come to the target; where they do not, their values are left out."""
        return self.judge(table, Event(("alter table", "add column"))).action is not Action.IGNORE


def unknown_names(names: Iterable[str]) -> list[str]:
    """Return the names that no change of a source has."""
    return [name for name in names if name not in NAMES]
