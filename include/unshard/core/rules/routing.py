"""Routing: finds the target table into which an upstream table is merged.

Rules with a table pattern (table level) take precedence over rules without (schema level). Two rules of one level may
match the same table only if they have the same target. DM replicates such a table under its own name; here it is an
error. A table that the list allows and that matches no rule keeps its own name.
`unshard_last_write`, which unshard creates in target schemas, is never a shard.

Rules are compiled once. Results are cached per table, and the matching rules per schema, so that ten thousand tables
cost little more than ten.

The block-allow list says which upstream tables a task migrates, by DM's rules. Schemas first: with `do-dbs`, only the
schemas in it are allowed, and `ignore-dbs` has no effect. Without it, all schemas except `ignore-dbs` are allowed. Then
tables: a match in `do-tables` is allowed. Otherwise a match in `ignore-tables` is not allowed. Any other table is
allowed only if `do-tables` is empty. The system schemas of the servers are never allowed.

Rules and list entries that match no table (`idle_rules`) give a warning: they may be for tables that are created later,
but with a misspelt name the user waits for rows that never arrive.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from unshard.core.codec import dumps
from unshard.core.model import Shard, TableId
from unshard.core.rules.columnmapping import MappingRule, mapped_by
from unshard.core.rules.filters import EventFilter, EventRule, RowFilter
from unshard.core.rules.pattern import Pattern, compile_pattern
from unshard.core.rules.reshaping import AS_IT_IS, Extractor, Reshaping
from unshard.core.sql.lastwrites import NAME
from unshard.errors.config import RouteAmbiguous

SYSTEM_SCHEMAS = frozenset(
    ("mysql", "sys", "information_schema", "performance_schema", "metrics_schema", "inspection_schema")
)


def is_system_schema(schema: str) -> bool:
    """Whether the schema belongs to the server itself (of MySQL, MariaDB or TiDB)."""
    return schema.lower() in SYSTEM_SCHEMAS


@dataclass(frozen=True, slots=True)
class TablePattern:
    """One entry of `do-tables` or `ignore-tables`."""

    schema: Pattern
    name: Pattern

    def matches(self, table: TableId) -> bool:
        return self.schema.matches(table.schema) and self.name.matches(table.name)


@dataclass(frozen=True, slots=True)
class BlockAllowList:
    """A compiled list; the empty list allows everything except system schemas."""

    do_dbs: tuple[Pattern, ...] = ()
    ignore_dbs: tuple[Pattern, ...] = ()
    do_tables: tuple[TablePattern, ...] = ()
    ignore_tables: tuple[TablePattern, ...] = ()

    def passes_schema(self, schema: str) -> bool:
        if is_system_schema(schema):
            return False
        if self.do_dbs:
            return any(pattern.matches(schema) for pattern in self.do_dbs)
        return not any(pattern.matches(schema) for pattern in self.ignore_dbs)

    def passes_table(self, table: TableId) -> bool:
        if any(pattern.matches(table) for pattern in self.do_tables):
            return True
        if any(pattern.matches(table) for pattern in self.ignore_tables):
            return False
        return not self.do_tables


def compile_tables(pairs: tuple[tuple[str, str], ...], case_sensitive: bool, rule: str) -> tuple[TablePattern, ...]:
    """Compile pairs of schema and table pattern."""
    return tuple(
        TablePattern(compile_pattern(schema, case_sensitive, rule), compile_pattern(name, case_sensitive, rule))
        for schema, name in pairs
    )


# --- routing


EVERYTHING = BlockAllowList()
NO_FILTER = EventFilter()


@dataclass(frozen=True, slots=True)
class RouteRule:
    """One named rule; a rule without `table` is of schema level, and an empty target table keeps the table's name."""

    name: str
    schema: Pattern
    table: Pattern | None
    target_schema: str
    target_table: str = ""
    extractors: tuple[Extractor, ...] = ()

    def target(self, table: TableId) -> TableId:
        return TableId(self.target_schema, self.target_table or table.name)


def compile_rule(
    name: str,
    patterns: tuple[str, str],
    target: tuple[str, str],
    case_sensitive: bool,
    whose: str = "",
    extractors: tuple[Extractor, ...] = (),
) -> RouteRule:
    """Compile (schema pattern, table pattern or "") and (target schema, target table or "")."""
    schema, table = patterns
    whose = whose or f"route '{name}'"
    return RouteRule(
        name,
        compile_pattern(schema, case_sensitive, whose),
        compile_pattern(table, case_sensitive, whose) if table else None,
        *target,
        extractors,
    )


@dataclass(frozen=True, slots=True)
class _Routed:
    """The result of the rules for one table."""

    target: TableId | None
    reshaping: Reshaping = AS_IT_IS


@dataclass(frozen=True)
class Routing:
    """The compiled rules and the block-allow list of one instance."""

    rules: tuple[RouteRule, ...] = ()
    allowed: BlockAllowList = EVERYTHING
    meta_schema: str = ""
    """unshard's own schema, which is never migrated."""
    source: str = ""
    """The source whose tables are routed, for extractors that use its id."""
    mappings: tuple[MappingRule, ...] = ()
    events: EventFilter = NO_FILTER
    filters: tuple[RowFilter, ...] = ()
    _routed: dict[TableId, _Routed] = field(default_factory=dict, init=False, repr=False, compare=False)
    _passing: dict[str, bool] = field(default_factory=dict, init=False, repr=False, compare=False)
    _by_schema: dict[str, tuple[RouteRule, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def digest(self) -> str:
        """32 hexadecimal digits that identify the rules: equal for equal rules, at any place in the task file."""
        rules = (self.rules, self.allowed, self.mappings, self.events, self.filters)
        return hashlib.sha256(dumps(rules).encode()).hexdigest()[:32]

    def target_of(self, table: TableId) -> TableId | None:
        """Return the target table; None if the table is not migrated. Raises RouteAmbiguous if it has two targets."""
        return self._find(table).target

    def reshaping(self, table: TableId) -> Reshaping:
        return self._find(table).reshaping

    def target_schema_of(self, schema: str) -> str | None:
        """Return the target schema of a CREATE or ALTER DATABASE; None if the schema is not migrated."""
        if not self._passes_schema(schema):
            return None
        rules = tuple(replace(rule, extractors=()) for rule in self._rules_of(schema) if rule.table is None)
        rule = _only(schema, TableId(schema, ""), rules)
        return rule.target_schema if rule else schema

    def takes_schema(self, schema: str) -> bool:
        """Whether the schema is migrated as a whole: no rule is about tables of it, and lists of tables name it."""
        listed = self.allowed.do_tables
        is_listed = not listed or any(entry.schema.matches(schema) for entry in listed)
        return self._passes_schema(schema) and is_listed and all(rule.table is None for rule in self._rules_of(schema))

    def _find(self, table: TableId) -> _Routed:
        if table not in self._routed:
            self._routed[table] = self._route(table)
        return self._routed[table]

    def _route(self, table: TableId) -> _Routed:
        if table.name.lower() == NAME or not (self._passes_schema(table.schema) and self.allowed.passes_table(table)):
            return _Routed(None)
        candidates = self._rules_of(table.schema)
        exact = tuple(rule for rule in candidates if rule.table is not None and rule.table.matches(table.name))
        rule = _only(str(table), table, exact or tuple(rule for rule in candidates if rule.table is None))
        mappings = tuple(rule for rule in self.mappings if rule.schema.matches(table.schema))
        mapped = mapped_by(mappings, str(Shard(self.source, table)), table) if mappings else ()
        extracted = tuple(e.extract(self.source, table, rule.name) for e in rule.extractors) if rule else ()
        rows = tuple(self.events.rows(table).items())
        filters = tuple(rule for rule in self.filters if rule.matches(table))
        reshaping = Reshaping(extracted, mapped, rows, filters, not self.events.passes_columns(table))
        return _Routed(rule.target(table) if rule else table, reshaping)

    def _passes_schema(self, schema: str) -> bool:
        if schema not in self._passing:
            passes = schema.lower() != self.meta_schema.lower() and self.allowed.passes_schema(schema)
            self._passing[schema] = passes
        return self._passing[schema]

    def _rules_of(self, schema: str) -> tuple[RouteRule, ...]:
        if schema not in self._by_schema:
            self._by_schema[schema] = tuple(rule for rule in self.rules if rule.schema.matches(schema))
        return self._by_schema[schema]


def _only(what: str, table: TableId, rules: tuple[RouteRule, ...]) -> RouteRule | None:
    for rule in rules[1:]:
        first, other = (rules[0].target(table), rules[0].extractors), (rule.target(table), rule.extractors)
        if first != other:
            raise RouteAmbiguous(what, rules[0].name, _shown(*first), rule.name, _shown(*other))
    return rules[0] if rules else None


def _shown(target: TableId, extractors: tuple[Extractor, ...]) -> str:
    place = str(target) if target.name else target.schema
    columns = ", ".join(f"{each.column} from the {each.origin}" for each in extractors)
    return f"{place} with {columns}" if columns else place


# --- rules and list entries that match no table


def idle_rules(routing: Routing, tables: Iterable[TableId]) -> dict[str, bool]:
    """Return for each rule, by its name in messages, whether it matches none of the tables."""
    by_schema: dict[str, list[TableId]] = {}
    for table in tables:
        by_schema.setdefault(table.schema, []).append(table)
    return dict(_judged(routing, by_schema))


def _judged(routing: Routing, tables: Mapping[str, list[TableId]]) -> Iterator[tuple[str, bool]]:
    kinds: dict[str, Sequence[RouteRule | EventRule | MappingRule]] = {
        "route": routing.rules,
        "filter": routing.events.rules,
        "column mapping": routing.mappings,
    }
    for kind, rule in ((kind, rule) for kind, rules in kinds.items() for rule in rules):
        some = [t for schema, found in tables.items() if rule.schema.matches(schema) for t in found]
        yield f"{kind} '{rule.name}'", not any(rule.table is None or rule.table.matches(t.name) for t in some)
    allowed = routing.allowed
    for key, patterns in (("do-dbs", allowed.do_dbs), ("ignore-dbs", allowed.ignore_dbs)):
        for pattern in patterns:
            yield f"'{pattern.text}' of {key}", not any(map(pattern.matches, tables))
    for key, pairs in (("do-tables", allowed.do_tables), ("ignore-tables", allowed.ignore_tables)):
        for pair in pairs:
            found = any(pair.matches(t) for name, some in tables.items() if pair.schema.matches(name) for t in some)
            yield f"'{pair.schema.text}'.'{pair.name.text}' of {key}", not found
