"""The block-allow list: which upstream tables a task migrates.

The rules are DM's. Schemas first: with `do-dbs`, only the schemas in it are allowed, and `ignore-dbs` has no effect.
Without it, all schemas except `ignore-dbs` are allowed. Then tables: a match in `do-tables` is allowed. Otherwise a
match in `ignore-tables` is not allowed. Any other table is allowed only if `do-tables` is empty. The system schemas
of the servers are never allowed.
"""

from dataclasses import dataclass

from unshard.core.model import TableId
from unshard.core.rules.pattern import Pattern, compile_pattern

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
        """Whether both patterns match."""
        return self.schema.matches(table.schema) and self.name.matches(table.name)


@dataclass(frozen=True, slots=True)
class BlockAllowList:
    """A compiled list; the empty list allows everything except system schemas."""

    do_dbs: tuple[Pattern, ...] = ()
    ignore_dbs: tuple[Pattern, ...] = ()
    do_tables: tuple[TablePattern, ...] = ()
    ignore_tables: tuple[TablePattern, ...] = ()

    def passes_schema(self, schema: str) -> bool:
        """Whether the lists of schemas allow tables of this schema."""
        if is_system_schema(schema):
            return False
        if self.do_dbs:
            return any(pattern.matches(schema) for pattern in self.do_dbs)
        return not any(pattern.matches(schema) for pattern in self.ignore_dbs)

    def passes(self, table: TableId) -> bool:
        """Whether the table is migrated."""
        return self.passes_schema(table.schema) and self.passes_table(table)

    def passes_table(self, table: TableId) -> bool:
        """Whether a table of an allowed schema is migrated."""
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
