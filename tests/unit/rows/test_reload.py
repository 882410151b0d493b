"""Column reload, decided from values: which columns, whether it continues, the size of chunks, and the UPDATE."""

import dataclasses
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from unshard.adapters.target.chunkprogress import ColumnUpdate
from unshard.core.ddl.queue import ShardState
from unshard.core.model import Column, Index, Shard, TableId, TableSchema
from unshard.core.rows.columnreload import (
    CHUNK_BYTES,
    Reload,
    ReloadState,
    basis_of,
    continues,
    names_digest,
    next_rows,
    own_values,
    unfit_column,
    updated_by_server,
)

SHARD, TARGET = Shard("s1", TableId("d", "t_1")), TableId("to", "t")
ID = Column("id", "int", "int(11)", False, None, None, None, "")
V = Column("v", "int", "int(11)", True, None, None, None, "")
SEEN = Column("seen", "timestamp", "timestamp", True, None, None, None, "on update current_timestamp()")
SUM = Column("total", "int", "int(11)", True, None, None, None, "stored generated")
SCHEMA = TableSchema((ID, V, SEEN, SUM), (Index("PRIMARY", ("id",), True, False),), "")
STATE = ShardState(SHARD, TARGET, "digest", None, (), 3, (), shard_uid="uid")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
RELOAD = Reload(SHARD, TARGET, ("v",), ReloadState.READING, "basis", (b"7",), 1, 3, 2, NOW, NOW)


def test_columns_that_may_be_reloaded() -> None:
    assert unfit_column("V", SCHEMA, SCHEMA, "v") == ""
    assert "only id, v, seen, total" in unfit_column("x", SCHEMA, SCHEMA, None)
    assert "generated" in unfit_column("total", SCHEMA, SCHEMA, None)
    assert "rows of the target are found by it" in unfit_column("id", SCHEMA, SCHEMA, "id")
    assert "no such column" in unfit_column("v", SCHEMA, SCHEMA, None)
    unique = dataclasses.replace(SCHEMA, indexes=(*SCHEMA.indexes, Index("u", ("v", "seen"), True, False)))
    assert "u of the target" in unfit_column("v", SCHEMA, unique, "v")
    assert unfit_column("v", unique, SCHEMA, "v") == "", "the target has no such key"


def test_an_update_keeps_columns_that_the_server_would_change() -> None:
    assert updated_by_server(SCHEMA, ["v"]) == ("seen",)
    assert updated_by_server(SCHEMA, ["v", "SEEN"]) == ()


def test_a_reload_continues_only_on_the_same_basis() -> None:
    assert continues(RELOAD, "basis")
    assert not continues(None, "basis")
    assert not continues(RELOAD, "other")
    assert not continues(dataclasses.replace(RELOAD, state=ReloadState.DONE), "basis")
    other = TableSchema((ID,), SCHEMA.indexes, "")
    bases = {
        basis_of(STATE, SCHEMA, SCHEMA),
        basis_of(dataclasses.replace(STATE, last_seq=4), SCHEMA, SCHEMA),
        basis_of(dataclasses.replace(STATE, structure="x"), SCHEMA, SCHEMA),
        basis_of(STATE, other, SCHEMA),
        basis_of(STATE, SCHEMA, other),
    }
    assert len(bases) == 5


def test_the_order_of_the_columns_does_not_matter() -> None:
    assert names_digest(["a", "B"]) == names_digest(["b", "A", "a"]) != names_digest(["a"])


@given(st.integers(0, 10_000), st.integers(0, 1 << 40), st.integers(1, 10_000))
def test_chunks_stay_small(rows: int, size: int, most: int) -> None:
    chosen = next_rows(rows, size, most)
    assert 1 <= chosen <= most
    if rows and size:
        assert chosen == 1 or chosen * size <= rows * CHUNK_BYTES


def test_the_update_of_some_rows() -> None:
    update = ColumnUpdate(TARGET, (ID,), (V,), ("seen",))
    same = update.statement([(b"1", b"5"), (b"2", b"5")])
    assert same == "UPDATE `to`.`t` SET `seen` = `seen`, `v` = 5 WHERE `id` IN (1, 2)"
    mixed = update.statement([(b"1", b"5"), (b"2", None), (b"3", b"5")])
    assert "`v` = CASE WHEN `id` IN (1, 3) THEN 5 WHEN `id` IN (2) THEN NULL END" in mixed
    two = ColumnUpdate(TARGET, (ID, V), (SEEN,), ())
    assert "CASE WHEN (`id` = 1 AND `v` = 2) THEN " in two.statement([(b"1", b"2", b"2026-01-01"), (b"1", b"3", None)])


def test_the_warning_names_the_shards_that_are_left() -> None:
    assert own_values((), ()) == ""
    assert "from every shard" in own_values(("c",), ())
    told = own_values(("c", "d"), (SHARD,))
    assert "from s1/d.t_1 after this DDL" in told
    assert "--columns c,d" in told
