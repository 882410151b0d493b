"""What later statements leave visible of the structure after a DDL of unknown effect."""

import re

import pytest

from unshard.core.ddl.hiddenstructure import are_alike, changed_columns, is_hidden, text_between
from unshard.core.model import Column, Index, TableSchema
from unshard.core.relay.segment import Statement


def statement(change: str) -> Statement:
    """Return an ALTER TABLE, or another statement after an equals sign."""
    text = change[1:] if change.startswith("=") else f"ALTER TABLE t {change}"
    return Statement(text, "shop", 0, "utf8mb4", 1, "SYSTEM")


def table(*parts: str) -> TableSchema:
    """Return a table of columns (`a int`) and keys (`KEY k (a)`, named by their second word)."""
    columns = [part.split() for part in parts if "KEY" not in part]
    keys = [re.findall(r"\w+", part) for part in parts if "KEY" in part]
    texts = [f"`{name}` {' '.join(kind)}" for name, *kind in columns]
    texts += [f"KEY `{name}` (`{'`,`'.join(of)}`)" for _, name, *of in keys]
    return TableSchema(
        tuple(Column(name, kind[0], " ".join(kind), True, None, None, None, "") for name, *kind in columns),
        tuple(Index(name, tuple(of), False) for _, name, *of in keys),
        f"CREATE TABLE `t` ({', '.join(texts)}) ENGINE=InnoDB",
    )


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ("ADD a INT, ADD COLUMN IF NOT EXISTS (b INT, `C` INT), ADD KEY (d)", {"a", "b", "c"}),
        ("MODIFY a INT, CHANGE COLUMN b c INT AFTER d, ALTER e SET DEFAULT 1", {"a", "b", "c", "e"}),
        ("DROP IF EXISTS a, DROP COLUMN b, RENAME COLUMN c TO d", {"a", "b", "c", "d"}),
        (
            "DROP PRIMARY KEY, DROP KEY a, RENAME INDEX b TO c, ALTER INDEX d INVISIBLE, ENGINE=InnoDB, COMMENT 'a'",
            set(),
        ),
        ("EXCHANGE PARTITION p WITH TABLE u", set()),
        ("RENAME TO u", set()),
        ("=TRUNCATE TABLE t", set()),
        ("=CREATE INDEX a ON t (b)", set()),
        ("CONVERT TO CHARACTER SET latin1", None),
        ("ADD SYSTEM VERSIONING, MODIFY a INT", None),
        ("=DROP TABLE t", None),
        ("=RENAME TABLE t TO u", None),
        ("=odd t", None),
    ],
)
def test_columns_that_a_statement_changes(change: str, names: set[str] | None) -> None:
    assert changed_columns(statement(change)) == names


BEFORE, PRESENT = table("a int", "b int"), table("a bigint", "b int", "c int")


@pytest.mark.parametrize(
    ("ddl", "later", "hidden"),
    [
        ("MODIFY a BIGINT", ["ADD c INT", "MODIFY b INT"], False),
        ("MODIFY a BIGINT", ["MODIFY b INT, MODIFY a BIGINT"], True),
        ("ADD c INT", ["ADD COLUMN IF NOT EXISTS c INT"], True),
        ("MODIFY a BIGINT", ["=odd t"], True),
        ("DROP PRIMARY KEY", ["=odd t", "MODIFY a BIGINT"], False),
        ("=odd t", ["ADD c INT"], False),
        ("=odd t", ["MODIFY b INT"], True),
        ("=odd t", ["DROP IF EXISTS z"], True),
    ],
)
def test_a_column_that_changes_twice_is_hidden(ddl: str, later: list[str], hidden: bool) -> None:
    assert is_hidden(statement(ddl), [*map(statement, later)], BEFORE, PRESENT) == hidden


@pytest.mark.parametrize(
    ("after", "present", "found"),
    [
        (("a int", "b int", "w int"), ("a bigint", "b int", "w int"), ("a bigint", "b int")),
        (("w int", "a int", "b text"), ("w int", "a int", "n int", "b text"), ("a int", "n int", "b int")),
        (("a int", "b int", "KEY k (b)"), ("a int", "KEY j (a)", "KEY k (b)"), ("a int", "KEY j (a)")),
        (("b int",), ("b bigint",), ()),
    ],
)
def test_the_structure_after_the_ddl(after: tuple[str, ...], present: tuple[str, ...], found: tuple[str, ...]) -> None:
    text = text_between(BEFORE, table(*after), table(*present))
    assert "".join(text.split()) == ("".join(table(*found).create_sql.split()) if found else "")


def test_alike_are_columns_in_order_and_keys() -> None:
    assert are_alike(BEFORE, table("A int(11)", "b int", "KEY k (b)"))
    assert not are_alike(BEFORE, table("b int", "a int"))
    assert not are_alike(BEFORE, PRESENT)
