"""Finds rules and list entries that match no table, usually because of a misspelt name.

DM does not report them. Such a rule does no harm by itself, and it may be for tables that are created later, so it is
only a warning. But if the name is misspelt, the user waits for rows that never arrive.
"""

from collections.abc import Iterable, Iterator, Mapping

from unshard.core.model import TableId
from unshard.core.rules.routing import Routing


def idle_rules(routing: Routing, tables: Iterable[TableId]) -> dict[str, bool]:
    """Return for each rule, by its name in messages, whether it matches none of the tables."""
    by_schema: dict[str, list[TableId]] = {}
    for table in tables:
        by_schema.setdefault(table.schema, []).append(table)
    return dict(_judged(routing, by_schema))


def _judged(routing: Routing, tables: Mapping[str, list[TableId]]) -> Iterator[tuple[str, bool]]:
    named_rules = [(f"route '{rule.name}'", rule.schema, rule.table) for rule in routing.rules]
    named_rules += [(f"filter '{rule.name}'", rule.schema, rule.table) for rule in routing.events.rules]
    named_rules += [(f"column mapping '{rule.name}'", rule.schema, rule.table) for rule in routing.mappings]
    for name, schema, table in named_rules:
        named = [found for found in tables if schema.matches(found)]
        yield (
            name,
            not named or (table is not None and not any(table.matches(t.name) for s in named for t in tables[s])),
        )
    allowed = routing.allowed
    for key, patterns in (("do-dbs", allowed.do_dbs), ("ignore-dbs", allowed.ignore_dbs)):
        for pattern in patterns:
            yield f"'{pattern.text}' of {key}", not any(map(pattern.matches, tables))
    for key, pairs in (("do-tables", allowed.do_tables), ("ignore-tables", allowed.ignore_tables)):
        for pair in pairs:
            found = any(pair.matches(t) for name, some in tables.items() if pair.schema.matches(name) for t in some)
            yield f"'{pair.schema.text}'.'{pair.name.text}' of {key}", not found
