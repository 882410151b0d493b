"""The oracle of every end-to-end test: the target's rows are the union of its shards' rows, row by row.

It reads with plain SELECTs and shares nothing with `unshard validate`, which is itself under test.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from unshard.core.sql.quoting import identifier
from unshard_demo.servers import MariaDb

Shards = Mapping[str, Sequence[str]]
"""Source id to the full names of its shards."""


def rows(server: MariaDb, table: str, columns: Sequence[str] = ("*",)) -> Counter[tuple[object, ...]]:
    """Return all rows of a table as a multiset; TIMESTAMPs in UTC."""
    return Counter(server.run("SET time_zone = '+00:00'", f"SELECT {', '.join(columns)} FROM {table}"))


def union(sources: Mapping[str, MariaDb], shards: Shards, columns: Sequence[str]) -> Counter[tuple[object, ...]]:
    """Return the rows of all shards together."""
    total: Counter[tuple[object, ...]] = Counter()
    for source, tables in shards.items():
        for table in tables:
            total += rows(sources[source], table, columns)
    return total


def columns_of(server: MariaDb, table: str) -> list[str]:
    """Return expressions that select a table's columns.

    Servers print a FLOAT with different numbers of digits, so it is selected as a DOUBLE.
    """
    columns = [(identifier(str(row[0])), str(row[1])) for row in server.run(f"SHOW COLUMNS FROM {table}")]
    return [f"{name} * 1e0" if kind.startswith("float") else name for name, kind in columns]


def assert_union(sources: Mapping[str, MariaDb], shards: Shards, target: MariaDb, table: str) -> int:
    """Assert that the target table holds exactly the union of its shards; return the number of rows."""
    columns = columns_of(target, table)
    want, got = union(sources, shards, columns), rows(target, table, columns)
    missing, extra = want - got, got - want
    assert not missing and not extra, (
        f"{table}: {sum(missing.values())} rows missing, {sum(extra.values())} too many; "
        f"missing {list(missing)[:3]}, extra {list(extra)[:3]}"
    )
    return sum(got.values())
