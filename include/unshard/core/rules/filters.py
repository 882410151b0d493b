"""The three filters of a task: events of the binlog, expressions for rows, and the condition of the dump.

**Event filters** (DM's `filters`): every rule that matches the table is evaluated in order. `events` compares the names
of the change, `sql-pattern` its text; a rule with both applies them one after the other. `Ignore` drops matching
changes, `Do` drops all others, and `Error` stops the source at a DDL or suspends the target at a row. A rule without
`events` does not apply to rows (DM's `Do` would drop all of them). In DM, a change has one name, and `alter table` is
the name of a change without another name. Here a change has all names that apply (core.ddl.events), and `alter table`
matches every specification. Names that are not DM's are rejected.

**Expression filters** (DM's `expression-filter`) leave out rows for which an SQL expression is true. A server evaluates
it. Here it is only checked that the text is one expression that cannot leave the parentheses around it.

**The condition of a dump** (`where`) is used again when a target is compared with its shards. After the dump, every
change of a row is applied, whether or not the condition is true for it. So the rows for which it is true must be equal
on both sides, if it has the same value for a row of the shard and for the same row of the target.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from unshard.core.model import TableId
from unshard.core.rules.pattern import Pattern
from unshard.core.sql.words import phrases_of

DML = ("insert", "update", "delete")
GROUPS = ("all", "all dml", "all ddl", "none", "none dml", "none ddl", "incompatible ddl changes")
DDL = phrases_of("""
    create database, drop database, alter database, create table, drop table, truncate table, rename table,
    alter table, create index, drop index, create view, drop view, add table partition, drop table partition,
    truncate table partition, value range decrease, precision decrease, modify column, rename column, rename index,
    drop column, drop primary key, drop unique key, modify default value, modify constraint, modify columns order,
    modify charset, modify collation, remove auto increment, modify storage engine, reorganize table partition,
    rebuild table partition, coalesce table partition, exchange table partition, add foreign key, drop foreign key,
    modify schema charset and collate, modify table charset and collate, modify table comment,
    alter table partitioning, remove table partitioning, add column, set default value, rebase auto id,
    add primary key, alter index visibility, multi schema change
""")
OTHER_NAMES = {
    "create schema": "create database",
    "drop schema": "drop database",
    "alter schema": "alter database",
    "modify constaints": "modify constraint",
}
"""Other names of the same changes; the last one is that of DM's older versions."""
UNMATCHED = ("recover table", "split table partition", "alter ttl info", "alter ttl remove", "")
"""DM's names of statements that no source has, because only TiDB has them; DM also accepts an empty name."""
NAMES = frozenset({*DML, *GROUPS, *DDL, *OTHER_NAMES, *UNMATCHED})
COMPATIBLE = phrases_of("""
    create database, alter database, create table, create index, create view, drop view, alter table,
    add table partition
""")
"""DM's names of the changes that are not in the group `incompatible ddl changes`."""


class Action(StrEnum):
    """The action of a rule; in DM the values are case-sensitive."""

    DO = "Do"
    IGNORE = "Ignore"
    ERROR = "Error"


@dataclass(frozen=True, slots=True)
class Event:
    """A change, in the form that rules match."""

    names: tuple[str, ...]
    """The first is DM's name; empty: the statement could not be read."""
    text: str = ""

    @property
    def is_rows(self) -> bool:
        return bool(self.names) and self.names[0] in DML


@dataclass(frozen=True, slots=True)
class Judged:
    """The decision of the rules about a change."""

    action: Action = Action.DO
    rule: str = ""
    event: str = ""
    """The name by which the rule matched; empty: its pattern matched the text."""


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
        """Whether the rule applies to the table; the table of a statement about a schema has an empty name."""
        return self.schema.matches(table.schema) and (self.table is None or self.table.matches(table.name))

    def drops(self, event: Event) -> bool:
        found = []
        if self.events and event.names:
            found.append(self.names(event))
        if self.sql and not event.is_rows:
            found.append(any(pattern.search(event.text) for pattern in self.sql))
        return any(match is not (self.action is Action.DO) for match in found)

    def matched(self, event: Event) -> str:
        """Return the event of the change to which the rule's list of events refers; empty if only its text matched."""
        listed = (OTHER_NAMES.get(name, name) for name in self.events if OTHER_NAMES.get(name, name) in event.names)
        return next(listed, event.names[0] if self.events and event.names and self.names(event) else "")

    def names(self, event: Event) -> bool:
        """Whether an entry of `events` matches; among the names of groups, the first that covers the change decides."""
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
        """Return the decision of the first rule that drops the change; PASSES if no rule does."""
        for rule in self.rules:
            if rule.matches(table) and rule.drops(event):
                action = Action.ERROR if rule.action is Action.ERROR else Action.IGNORE
                return Judged(action, rule.name, rule.matched(event))
        return PASSES

    def rows(self, table: TableId) -> Mapping[str, Judged]:
        """Return the decisions about the kinds of row changes, without those that all rules let through."""
        found = {name: self.judge(table, Event((name,))) for name in DML}
        return {name: judged for name, judged in found.items() if judged != PASSES}

    def passes_columns(self, table: TableId) -> bool:
        """Whether a new column of a shard is added to the target; if not, its values are omitted."""
        return self.judge(table, Event(("alter table", "add column"))).action is not Action.IGNORE


def unknown_names(names: Iterable[str]) -> list[str]:
    """Return the names that DM does not know."""
    return [name for name in names if name not in NAMES]


# --- expression filters


TOKEN = re.compile(
    r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`|(?P<out>;|--|\#|/\*)|(?P<word>[\w$]+)|(?P<other>\S)""",
    re.DOTALL,
)
QUOTES = ("'", '"', "`")
NOT_IN_EXPRESSIONS = frozenset({"SELECT", "INTO", "UNION", "TABLE"})


@dataclass(frozen=True, slots=True)
class RowFilter:
    """One rule for one table; an empty expression drops nothing."""

    name: str
    table: TableId
    insert: str = ""
    update_old: str = ""
    update_new: str = ""
    """With `update_old` both must be true."""
    delete: str = ""
    case_sensitive: bool = False

    @property
    def expressions(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.insert, self.update_old, self.update_new, self.delete)))

    def matches(self, table: TableId) -> bool:
        """Whether the rule is for this table; both names are compared, not matched as patterns."""
        if self.case_sensitive:
            return self.table == table
        return (self.table.schema.lower(), self.table.name.lower()) == (table.schema.lower(), table.name.lower())


def unfit_expression(text: str) -> str | None:
    """Return what the text should be; None if it is valid in parentheses after WHERE."""
    depth = 0
    for token in TOKEN.finditer(text):
        other = token["other"] or ""
        if other in QUOTES:
            return "an SQL expression whose quotes are closed"
        depth += (other == "(") - (other == ")")
        if depth < 0 or token["out"] or (token["word"] or "").upper() in NOT_IN_EXPRESSIONS:
            return "one SQL expression over the columns of the row, without queries and comments"
    return None if text.strip() and not depth else "an SQL expression whose parentheses are closed"


def names_in(text: str) -> frozenset[str]:
    """Return all words and quoted names of an expression in lower case; they include the columns that it names."""
    tokens = [token.group() for token in TOKEN.finditer(text) if token["word"] or token.group().startswith("`")]
    return frozenset(token.strip("`").replace("``", "`").lower() for token in tokens)


# --- the condition of a dump (`where`), used as a filter when a target is compared with its shards


@dataclass(frozen=True, slots=True)
class ValidationFilter:
    """The rows to compare of a target whose rows were dumped with a condition."""

    condition: str = ""
    """Only rows for which it is true are compared; empty: all rows."""
    why_not: str = ""
    """Why all rows are compared although the dump omitted some."""

    @property
    def told(self) -> tuple[str, ...]:
        if self.condition:
            return (f"  where: only rows were compared for which `{self.condition}` is true now, in shards and target",)
        if self.why_not:
            missing = "rows that the dump omitted and that have not changed since are missing in the target"
            return (f"  where: the condition of the dump was not applied: {self.why_not}; {missing}",)
        return ()


ALL_ROWS = ValidationFilter()


def look_through(conditions: Mapping[str, str], changed: Collection[str]) -> ValidationFilter:
    """Return the filter, from the condition of each source and the columns whose values differ in the target."""
    if not any(conditions.values()):
        return ALL_ROWS
    if len(set(conditions.values())) > 1:
        told = ", ".join(f"{source}: `{condition or 'TRUE'}`" for source, condition in sorted(conditions.items()))
        return ValidationFilter(why_not=f"the sources have different conditions ({told})")
    (condition,) = set(conditions.values())
    if named := sorted(names_in(condition) & {column.lower() for column in changed}):
        differing = ", ".join(named)
        return ValidationFilter(why_not=f"`{condition}` names columns whose values differ in the target: {differing}")
    return ValidationFilter(condition)


def refused(wanted: ValidationFilter, messages: Mapping[str, str]) -> ValidationFilter:
    """Return the filter to use if some places cannot evaluate the condition; `messages` are their errors by place."""
    if not wanted.condition or not messages:
        return wanted
    place, message = next(iter(sorted(messages.items())))
    return ValidationFilter(why_not=f"{place} cannot evaluate `{wanted.condition}`: {message}")
