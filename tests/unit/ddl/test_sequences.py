"""Which tables are sequences after each statement: the table in the module's docstring, and its special cases."""

import pytest

from unshard.core.ddl.effects import Coordinated, IgnoredEffect, Joins, Leaves, Undecided
from unshard.core.ddl.sequences import followed, is_about_sequence
from unshard.core.model import TableId
from unshard.core.relay.segment import Statement

A, B, SHARD = (TableId("d", name) for name in ("a", "b", "shard"))
STATEMENTS = [
    # (statement, sequences after it; before it, only d.a is a sequence)
    ("create sequence b start with 5", {A, B}),
    ("create or replace sequence if not exists `d`.`b`", {A, B}),
    ("create sequence if not exists shard", {A}),
    ("create table b (x int) sequence=1", {A, B}),
    ("create table b (sequence int) comment = 'sequence'", {A}),
    ("create table b (x int) sequence = 0", {A}),
    ("create table b like a", {A, B}),
    ("create table b like shard", {A}),
    ("create table if not exists shard like a", {A}),
    ("create table if not exists a (x int)", {A}),
    ("create or replace table a (x int)", set()),
    ("create temporary sequence b", {A}),
    ("alter sequence a restart 5", {A}),
    ("alter table a engine = aria", {A}),
    ("alter table a comment 'x', rename to b", {B}),
    ("alter table a sequence=0", set()),
    ("rename table a to e.b, shard to a", {TableId("e", "b")}),
    ("rename table a to x, b to a, x to b", {B}),
    ("drop sequence x, a", set()),
    ("drop table a", set()),
    ("truncate table a", {A}),
    ("drop database d", set()),
    ("create or replace database d", set()),
    ("drop database e", {A}),
    ("florble the sequence a", {A}),
]


@pytest.mark.parametrize(("text", "want"), STATEMENTS, ids=[text for text, _ in STATEMENTS])
def test_followed(text: str, want: set[TableId]) -> None:
    statement = Statement(text, "d", 0, "utf8mb4", 1, "SYSTEM")
    assert followed(frozenset({A}), statement, {SHARD}) == want


def test_effects_on_sequences_are_none_on_shards() -> None:
    changed, gone, named = Coordinated(A, "", "", ""), Leaves(A), Undecided(A, "", "", "", is_new=True)
    is_one, was_one, never = (frozenset({A}), frozenset({A})), (frozenset({A}), frozenset()), (frozenset(), frozenset())
    assert all(is_about_sequence(effect, *is_one) for effect in (changed, gone, named, IgnoredEffect(A), Joins(A, "")))
    assert [is_about_sequence(effect, *was_one) for effect in (changed, gone, named, Joins(A, ""))] == [
        True,
        True,
        False,
        False,
    ]
    assert not any(is_about_sequence(effect, *never) for effect in (changed, gone, named, Joins(A, "")))
