"""Values of the meta store without a server: from a row and back into columns."""

from dataclasses import dataclass
from enum import StrEnum
from types import SimpleNamespace

from unshard.adapters.meta.gateway import columns_of
from unshard.adapters.meta.rowvalues import HELD_FILE, Persisted
from unshard.core.ddl.queue import HeldFile
from unshard.core.model import Location, Shard, TableId

SHARD = Shard("s1", TableId("shop_1", "orders_1"))
TARGET = TableId("shop", "orders")
NAMES = {"source": "s1", "shard_schema": "shop_1", "shard_table": "orders_1"}


class Kind(StrEnum):
    ONE = "one"


@dataclass(frozen=True)
class Found:
    target: TableId
    kind: Kind | None
    at: Location | None
    is_new: bool
    told: str


def test_a_value_has_the_columns_of_its_fields() -> None:
    file = HeldFile(SHARD, 3, 17, 1, "held/f", 5, 99, "d", True, True, 7)
    columns = columns_of(HELD_FILE.columns(file))
    assert columns.items() >= {**NAMES, "row_count": 5, "raw": True, "structure": "d"}.items()
    assert HELD_FILE.of(SimpleNamespace(**columns)) == file


def test_types_decide_how_a_column_is_read() -> None:
    stored = Persisted(Found, "told", at="at_", is_new="fresh")
    names = {"target_schema": "shop", "target_table": "orders", "fresh": 1}
    row = SimpleNamespace(**names, kind="one", at_file="b.1", at_position=4)
    assert stored.of(row, told="x") == Found(TARGET, Kind.ONE, Location("b.1", 4), True, "x")
    row = SimpleNamespace(**names, kind=None, at_file=None, at_position=None)
    assert stored.of(row, told="x") == (found := Found(TARGET, None, None, True, "x"))
    assert columns_of(stored.columns(found)) == {
        **names,
        "fresh": True,
        "kind": None,
        "at_file": None,
        "at_position": None,
    }
