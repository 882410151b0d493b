"""Block-allow lists are evaluated in DM's order."""

import pytest

from unshard.core.model import TableId
from unshard.core.rules.pattern import compile_pattern
from unshard.core.rules.routing import BlockAllowList, compile_tables


def allow_list(do_dbs=(), ignore_dbs=(), do_tables=(), ignore_tables=()) -> BlockAllowList:
    return BlockAllowList(
        tuple(compile_pattern(text, False, "l") for text in do_dbs),
        tuple(compile_pattern(text, False, "l") for text in ignore_dbs),
        compile_tables(tuple(do_tables), False, "l"),
        compile_tables(tuple(ignore_tables), False, "l"),
    )


SHOP, LOG, OTHER = TableId("shop_1", "orders_1"), TableId("shop_1", "log"), TableId("crm", "orders_1")


def passes(filters, table: TableId) -> bool:
    return filters.passes_schema(table.schema) and filters.passes_table(table)


@pytest.mark.parametrize(
    ("lists", "passing"),
    [
        ({}, {SHOP, LOG, OTHER}),
        ({"do_dbs": ["shop_*"]}, {SHOP, LOG}),
        ({"do_dbs": ["~^shop_\\d+$"]}, {SHOP, LOG}),
        ({"ignore_dbs": ["shop_*"]}, {OTHER}),
        ({"do_dbs": ["shop_*"], "ignore_dbs": ["shop_1"]}, {SHOP, LOG}),
        ({"do_tables": [("shop_*", "orders_*")]}, {SHOP}),
        ({"ignore_tables": [("shop_1", "log")]}, {SHOP, OTHER}),
        ({"do_tables": [("*", "*_1")], "ignore_tables": [("crm", "*")]}, {SHOP, OTHER}),
        ({"do_dbs": ["crm"], "do_tables": [("shop_*", "orders_*")]}, set()),
        ({"ignore_dbs": ["crm"], "do_tables": [("*", "orders_*")]}, {SHOP}),
        ({"do_dbs": ["SHOP_1"]}, {SHOP, LOG}),
    ],
)
def test_order_of_the_lists(lists, passing) -> None:
    filters = allow_list(**lists)
    assert {table for table in (SHOP, LOG, OTHER) if passes(filters, table)} == passing


def test_no_list_lets_a_system_schema_pass() -> None:
    everything = allow_list(do_dbs=["*"], do_tables=[("*", "*")])
    for schema in ("mysql", "Mysql", "sys", "information_schema", "PERFORMANCE_SCHEMA"):
        assert not everything.passes_schema(schema)
        assert not passes(everything, TableId(schema, "user"))
