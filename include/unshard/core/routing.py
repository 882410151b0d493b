"""Routing: from an upstream table to the target table that it is merged into.

Rules with a table pattern (table level) beat rules without (schema level). Two rules of one level may
match the same table only if they send it to the same place; DM replicates such a table under its own
name, here it is an error. A table that passes the list and matches no rule keeps its own name.

Rules are compiled once. Answers are remembered per table, and the rules in question per schema, so
that ten thousand tables cost little more than ten.
"""

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property

from unshard.core.codec import dumps
from unshard.core.eventfilter import EventFilter
from unshard.core.extract import Extractor
from unshard.core.filters import BlockAllowList
from unshard.core.mapping import MappingRule, mapped_by
from unshard.core.model import Shard, TableId
from unshard.core.pattern import Pattern, compile_pattern
from unshard.core.reshape import AS_IT_IS, Reshaping
from unshard.core.rowfilter import RowFilter
from unshard.errors.config import RouteAmbiguous

EVERYTHING = BlockAllowList()
NO_FILTER = EventFilter()


@dataclass(frozen=True, slots=True)
class RouteRule:
    """One named rule; without `table` it is of schema level, an empty target table keeps the name."""

    name: str
    schema: Pattern
    table: Pattern | None
    target_schema: str
    target_table: str = ""
    extractors: tuple[Extractor, ...] = ()

    def target(self, table: TableId) -> TableId:
        """Return where the rule sends a table that it matches."""
        return TableId(self.target_schema, self.target_table or table.name)


def compile_rule(name: str, patterns: tuple[str, str], target: tuple[str, str], case_sensitive: bool, whose: str = "",
                 extractors: tuple[Extractor, ...] = ()) -> RouteRule:  # fmt: skip
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
    """What the rules say about one table."""

    target: TableId | None
    reshaping: Reshaping = AS_IT_IS


@dataclass(frozen=True)
class Routing:
    """The compiled rules and list of one instance."""

    rules: tuple[RouteRule, ...] = ()
    allowed: BlockAllowList = EVERYTHING
    meta_schema: str = ""
    """unshard's own schema, which is never migrated."""
    source: str = ""
    """The source whose tables are routed, for extractors that ask for it."""
    mappings: tuple[MappingRule, ...] = ()
    events: EventFilter = NO_FILTER
    filters: tuple[RowFilter, ...] = ()
    _routed: dict[TableId, _Routed] = field(default_factory=dict, init=False, repr=False, compare=False)
    _passing: dict[str, bool] = field(default_factory=dict, init=False, repr=False, compare=False)
    _by_schema: dict[str, tuple[RouteRule, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def digest(self) -> str:
        """What tells these rules from others: equal for equal rules, wherever they stand in their files."""
        said = (self.rules, self.allowed, self.mappings, self.events, self.filters)
        return hashlib.sha256(dumps(said).encode()).hexdigest()[:32]

    def target_of(self, table: TableId) -> TableId | None:
        """Return the target table, None when the table is not migrated; two answers are an error."""
        return self._find(table).target

    def reshaping(self, table: TableId) -> Reshaping:
        """Return what the names of this shard do to its rows."""
        return self._find(table).reshaping

    def target_schema_of(self, schema: str) -> str | None:
        """Return where a CREATE or ALTER DATABASE goes; None when the schema is not migrated."""
        if not self._passes_schema(schema):
            return None
        rules = tuple(replace(rule, extractors=()) for rule in self._rules_of(schema) if rule.table is None)
        rule = _only(schema, TableId(schema, ""), rules)
        return rule.target_schema if rule else schema

    def _find(self, table: TableId) -> _Routed:
        if table not in self._routed:
            self._routed[table] = self._route(table)
        return self._routed[table]

    def _route(self, table: TableId) -> _Routed:
        if not (self._passes_schema(table.schema) and self.allowed.passes_table(table)):
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
