"""Columns that have another name in a shard than in the target: structures, later DDL, and the shard's queue."""

from dataclasses import replace

import pytest

from tests.unit.rows.test_waysout import TARGET, shard
from unshard.core.ddl.columnnames import (
    as_own,
    in_target,
    names_after_ddl,
    own_names,
    translated,
    with_names,
    with_target_names,
)
from unshard.core.ddl.lineage import ExecutedDdl
from unshard.core.ddl.queue import EntryState, OperatorDecision, QueueEntry, ShardState, UnnamedShard
from unshard.core.model import Column, Index, TableSchema

CREATE = (
    "CREATE TABLE `t` (\n  `id` int(11) NOT NULL,\n  `{name}` {kind},\n  PRIMARY KEY (`id`),\n  KEY `d` (`{name}`)\n)"
)


def structure(name: str = "d", kind: str = "int(11)", *more: str) -> TableSchema:
    """A table with an index that has the name of the shard's column."""
    names = (("id", "int(11)"), (name, kind), *((each, "int(11)") for each in more))
    columns = tuple(Column(each, what.split("(")[0], what, True, None, None, None, "") for each, what in names)
    indexes = (Index("PRIMARY", ("id",), True), Index("d", (name,), False))
    text = CREATE.format(name=name, kind=kind) + "".join(f" /* {each} */" for each in more)
    return TableSchema(columns, indexes, text)


def test_a_structure_has_the_names_of_the_target_and_keeps_its_own() -> None:
    here = structure("d")
    there = with_names(here, {"d": "c"})
    assert there == replace(structure("c"), create_sql=CREATE.format(name="c", kind="int(11)"))
    assert (there.shape, own_names(there)) == (structure("c").shape, {"d": "c"})
    assert there.digest not in (structure("c").digest, here.digest)
    assert as_own(there) == here and as_own(there).digest == here.digest
    assert as_own(here) is here
    stored = TableSchema.from_json(there.to_json())
    assert stored.digest == there.digest and own_names(stored) == {"d": "c"}


CASES = [
    ("renamed otherwise", {}, "CHANGE a d INT", ["CHANGE a c INT"], ("id", "d"), {"d": "c"}),
    ("renamed, the group has not", {}, "RENAME COLUMN a TO d", [], ("id", "d"), {"d": "a"}),
    ("renamed alike", {}, "CHANGE a c INT", ["RENAME COLUMN a TO c"], ("id", "c"), {}),
    ("renamed, and the group adds that name", {}, "CHANGE a d INT", ["CHANGE a c INT", "ADD d INT"], ("id", "d"), {}),
    ("dropped by the group", {}, "CHANGE a d INT", ["DROP a"], ("id", "d"), {}),
    ("changed", {"d": "c"}, "MODIFY d BIGINT", ["MODIFY c BIGINT"], ("id", "d"), {"d": "c"}),
    ("renamed to the target's name", {"d": "c"}, "CHANGE d c INT", ["CHANGE c c INT"], ("id", "c"), {}),
    ("renamed by all", {"d": "c"}, "CHANGE d e INT", ["CHANGE c e INT"], ("id", "e"), {}),
    ("renamed otherwise again", {"d": "c"}, "CHANGE d e INT", ["CHANGE c f INT"], ("id", "e"), {"e": "f"}),
    ("dropped", {"d": "c"}, "DROP d", ["DROP c"], ("id",), {}),
    (
        "another column gets the target's name",
        {"d": "c"},
        "ADD c INT",
        ["ADD e INT"],
        ("id", "d", "c"),
        {"d": "c", "c": "e"},
    ),
    ("has the added name already", {"p": "q"}, "ADD q INT", ["ADD p INT"], ("id", "p", "q"), {"p": "q", "q": "p"}),
    ("adds another", {}, "ADD d INT", ["ADD c INT"], ("id", "a", "d"), {"d": "c"}),
    ("adds more", {}, "ADD d INT", ["ADD c INT, ADD d INT"], ("id", "a", "d"), {}),
    ("adds another twice", {}, "ADD d INT", ["ADD c INT", "DROP c", "ADD C BIGINT"], ("id", "a", "d"), {"d": "C"}),
    ("adds others", {}, "ADD d INT, ADD e INT", ["ADD c INT, ADD f INT"], ("id", "a", "d", "e"), {}),
]


@pytest.mark.parametrize(
    ("names", "ran", "counted", "after", "wanted"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_names_after_a_ddl(
    names: dict[str, str], ran: str, counted: list[str], after: tuple[str, ...], wanted: dict[str, str]
) -> None:
    before = with_names(structure(next(iter(names), "a")), names)
    found = TableSchema(tuple(Column(n, "int", "int", True, None, None, None, "") for n in after), (), "")
    texts = [ExecutedDdl(f"ALTER TABLE t {one}", 0) for one in counted]
    assert names_after_ddl(before, found, ExecutedDdl(f"ALTER TABLE t {ran}", 0), texts) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("ALTER TABLE s.t MODIFY COLUMN d BIGINT", "ALTER TABLE s.t MODIFY COLUMN `c` BIGINT"),
        ("ALTER TABLE t CHANGE `D` d INT COMMENT 'd'", "ALTER TABLE t CHANGE `c` `c` INT COMMENT 'd'"),
        ("ALTER TABLE t CHANGE d e INT AFTER id", "ALTER TABLE t CHANGE `c` e INT AFTER id"),
        ("ALTER TABLE t RENAME COLUMN d TO e, DROP INDEX d", "ALTER TABLE t RENAME COLUMN `c` TO e, DROP INDEX d"),
        ("ALTER TABLE t ADD x INT AFTER d, ADD INDEX d (d)", "ALTER TABLE t ADD x INT AFTER `c`, ADD INDEX d (`c`)"),
        ("ALTER TABLE t ADD g INT AS (d + d(1)) VIRTUAL", "ALTER TABLE t ADD g INT AS (`c` + d(1)) VIRTUAL"),
        ("ALTER TABLE t ALTER d SET DEFAULT 5, DROP d", "ALTER TABLE t ALTER `c` SET DEFAULT 5, DROP `c`"),
        ("ALTER TABLE t DROP KEY d, ADD PRIMARY KEY (id, d)", "ALTER TABLE t DROP KEY d, ADD PRIMARY KEY (id, `c`)"),
        ("CREATE INDEX d ON t (d DESC)", "CREATE INDEX d ON t (`c` DESC)"),
        ("ALTER TABLE t COMMENT 'd'", "ALTER TABLE t COMMENT 'd'"),
        ("ALTER TABLE t WEIRD `d`", None),
    ],
)  # fmt: skip
def test_a_later_statement_gets_the_names_of_the_target(text: str, wanted: str | None) -> None:
    assert translated(text, 0, {"d": "c"}) == wanted


def change(before: TableSchema, found: TableSchema, spec: str) -> tuple[str, bool, bool, dict[str, str]]:
    text = f"ALTER TABLE t {spec}"
    made = in_target(before, found, ExecutedDdl(text, 0), text, text.lower())
    return made.fingerprint, made.is_certain, made.is_nothing, own_names(made.after)


def test_a_later_ddl_agrees_with_that_of_the_group_or_needs_an_operator() -> None:
    before = with_names(structure("d"), {"d": "c"})
    wider = structure("d", "bigint(20)")
    assert change(before, wider, "MODIFY d BIGINT") == ("alter table t modify c bigint", True, False, {"d": "c"})
    assert change(before, structure("c"), "CHANGE d c INT") == ("alter table t change c c int", True, True, {})
    assert change(before, structure("c", "bigint(20)"), "CHANGE d c BIGINT")[1:] == (True, False, {})
    assert change(before, structure("d", "int(11)", "c"), "ADD c INT")[1:] == (False, False, {})
    plain = structure("d")
    assert in_target(plain, wider, ExecutedDdl("x", 0), "x", "x").after is wider


def queue() -> tuple[ShardState, dict[str, TableSchema]]:
    """A shard with held rows after CHANGE a d, MODIFY d BIGINT and CHANGE d c."""
    after = (structure("a"), structure("d"), structure("d", "bigint(20)"), structure("c", "bigint(20)"))
    specs = ("CHANGE a d INT", "MODIFY d BIGINT", "CHANGE d c BIGINT")
    found = shard("s2", *((spec, one.digest) for spec, one in zip(specs, after[1:], strict=True)), held=(1, 2, 3))
    entries = [replace(entry, before=one.digest, target=TARGET) for entry, one in zip(found.queue, after, strict=False)]
    held = tuple(replace(file, structure=after[file.seq].digest) for file in found.held)
    state = replace(found, queue=tuple(entries), held=held, structure=after[3].digest)
    return state, {one.digest: one for one in after}


def counted(entry: QueueEntry) -> QueueEntry:
    text = "ALTER TABLE t CHANGE a c INT"
    return replace(entry, verdict=OperatorDecision.REPLACE, replacement=(text,), routed=text, is_unnamed=True)


def test_the_queue_of_a_shard_follows_the_decision_about_its_first_ddl() -> None:
    state, schemas = queue()
    first, *rest = state.queue
    before = UnnamedShard(state.shard, (counted(first), *rest), state.held, state.structure)
    found, made = with_target_names(before, {digest: schemas[digest] for digest in before.digests})
    known = {schema.digest: schema for schema in made}
    assert [own_names(known[entry.after]) for entry in found.entries] == [{"d": "c"}, {"d": "c"}, {}]
    assert [entry.routed for entry in found.entries][1:] == [
        "ALTER TABLE t MODIFY `c` BIGINT",
        "ALTER TABLE t CHANGE `c` c BIGINT",
    ]
    states = [EntryState.PENDING, EntryState.PENDING, EntryState.RESOLVED]
    assert [(entry.state, entry.is_unnamed) for entry in found.entries] == [(each, False) for each in states]
    assert [file.structure for file in found.held] == [entry.after for entry in found.entries]
    assert found.structure == found.entries[-1].after == state.structure
    again, _ = with_target_names(found, {**schemas, **known})
    assert (again.held, again.structure) == (found.held, found.structure)
    assert [(e.after, e.routed) for e in again.entries] == [(e.after, e.routed) for e in found.entries]
    assert [entry.seq for entry in found.of(state).queue] == [1, 2]


def test_another_decision_about_the_same_ddl_takes_the_names_back() -> None:
    state, schemas = queue()
    before = UnnamedShard(state.shard, (counted(state.queue[0]),), (), state.queue[0].after)
    found, made = with_target_names(before, schemas)
    text = "ALTER TABLE t CHANGE a d INT"
    otherwise = replace(found.entries[0], replacement=(text,), is_unnamed=True)
    known = {**schemas, **{schema.digest: schema for schema in made}}
    back, _ = with_target_names(replace(found, entries=(otherwise,)), known)
    assert (back.structure, back.entries[0].after) == (before.structure, state.queue[0].after)
