"""The parts of operators' commands: replacement statements, differences between statements, and proposed commands."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from unshard.core.ddl.lock import LockState
from unshard.core.ddl.queue import QueueEntry
from unshard.core.ddl.replacement import replacing
from unshard.core.model import Location, Shard, TableId
from unshard.core.relay.segment import Statement
from unshard.core.shown import differing_words
from unshard.core.sql.mode import ANSI_QUOTES
from unshard.errors.locks import ReplacementRefused
from unshard.operate.advice import advice_lines
from unshard.operate.command import DropShard, Force, Replace, Retry, Skip, recorded
from unshard.units.ddl.scene import LockView

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TARGET, SHARD = TableId("shop", "orders"), Shard("s2", TableId("shop_1", "orders_3"))
RAN = Statement("x", "", 0, "utf8mb4", 0, "SYSTEM")
ENTRY = QueueEntry(SHARD, TARGET, 1, Location("b.1", 4), RAN, "x", "x", "A", "B")


def routed(*texts: str, entry: QueueEntry = ENTRY) -> tuple[tuple[str, ...], str]:
    return replacing("lock", texts, TARGET, [SHARD.table], entry)


@pytest.mark.parametrize("name", ["shop.orders", "orders", "`shop_1`.orders_3", "shop_1 . `orders_3`"])
def test_replacement_may_name_the_target_or_a_shard(name: str) -> None:
    assert routed(f"ALTER TABLE {name} ADD c int") == (
        ("ALTER TABLE `shop`.`orders` ADD c int",),
        "alter table shop . orders add c int",
    )


def test_several_statements_agree_with_the_same_ones_however_they_come() -> None:
    one = routed("alter table orders add c varchar(9) default 'a;b'; CREATE INDEX i ON orders (c);")
    two = routed("ALTER TABLE shop_1.orders_3 ADD c VARCHAR(9) DEFAULT 'a;b'", "create index i on shop.orders(c)")
    assert one[1] == two[1] and len(one[0]) == len(two[0]) == 2


def test_replacement_is_read_in_the_sql_mode_that_it_is_executed_in() -> None:
    ansi = replace(ENTRY, statement=replace(ENTRY.statement, sql_mode=ANSI_QUOTES))
    assert routed('ALTER TABLE "orders" ADD c int', entry=ansi)[0] == ("ALTER TABLE `shop`.`orders` ADD c int",)


def test_create_table_of_a_mismatched_shard_does_not_change_the_target() -> None:
    mismatched = replace(ENTRY, is_alone=True)
    assert routed("create table orders (id int)", "CREATE TABLE IF NOT EXISTS shop.orders (id int)", entry=mismatched)[
        0
    ] == (
        "create table IF NOT EXISTS `shop`.`orders` (id int)",
        "CREATE TABLE IF NOT EXISTS `shop`.`orders` (id int)",
    )
    with pytest.raises(ReplacementRefused):
        routed("CREATE OR REPLACE TABLE orders (id int)", entry=mismatched)


def test_create_table_states_the_structure_after_a_ddl_of_unknown_effect() -> None:
    unknown = replace(ENTRY, after="")
    assert routed("create table orders (id int)", entry=unknown)[0] == (
        "create table IF NOT EXISTS `shop`.`orders` (id int)",
    )


WRONG = [
    ("", "no statement"),
    ("UPDATE orders SET c = 1", ""),
    ("TRUNCATE orders", "truncate"),
    ("DROP TABLE orders", "drop"),
    ("ALTER TABLE shop.customers ADD c int", "neither the target nor a shard"),
    ("ALTER TABLE orders RENAME TO x", ""),
    ("RENAME TABLE orders TO x", "rename"),
    ("CREATE TABLE orders (c int)", "create"),
    ("ALTER TABLE orders ADD '", ""),
    ("ALTER TABLE orders ADD c int; DROP TABLE orders", "drop"),
    ("ALTER TABLE orders ADD d int, RENAME TO x", "renames"),
]


@pytest.mark.parametrize(("text", "why"), WRONG)
def test_what_cannot_replace_a_ddl_is_refused(text: str, why: str) -> None:
    with pytest.raises(ReplacementRefused) as raised:
        routed(text)
    assert why in raised.value.why.lower()


DIFFERENCES = [
    ("add c int", "add c int", ()),
    ("ADD  c int", "add c INT", ()),
    ("add c int default 'a'", "add c int default 'A'", ("`'A'` instead of `'a'`",)),
    ("add c varchar ( 20 )", "add c varchar ( 30 )", ("`30` instead of `20`",)),
    ("add c int default 0", "add c int default -1", ("`-1` instead of `0`",)),
    ("add c int", "add c int default - 1 not null", ("adds `default - 1 not null`",)),
    ("add c int", "add c int default 'a b'", ("adds `default 'a b'`",)),
    ("add `a b` int unsigned , drop d", "add `a c` int", ("`a c` instead of `a b`", "lacks `unsigned , drop d`")),
]


@pytest.mark.parametrize(("ours", "theirs", "said"), DIFFERENCES)
def test_differing_words_are_named(ours: str, theirs: str, said: tuple[str, ...]) -> None:
    assert tuple(one.replace("``", "`") for one in differing_words(ours, theirs)) == said


DDL = "ALTER TABLE `shop`.`orders` ADD c int"
VIEW = LockView(
    "t-shop.orders-1",
    TARGET,
    1,
    DDL,
    LockState.WAITING,
    NOW,
    NOW,
    None,
    "s1",
    False,
    False,
    {},
    (),
    (SHARD,),
    (),
    (),
    0,
    0,
    None,
)
HELP = [
    (
        VIEW,
        [
            "unshard unlock t.yaml t-shop.orders-1",
            "unshard drop-shard t.yaml t-shop.orders-1 --shard s2/shop_1.orders_3",
        ],
    ),
    (
        replace(VIEW, state=LockState.UNDECIDED, ready=(SHARD,)),
        [
            "unshard skip t.yaml",
            "unshard replace t.yaml",
            "unshard replace t.yaml t-shop.orders-1 --shard s2/shop_1.orders_3",
        ],
    ),
    (
        replace(VIEW, state=LockState.UNDECIDED, reason="[US-4003] the target refuses"),
        ["unshard retry t.yaml --lock t-shop.orders-1", "unshard skip t.yaml"],
    ),
    (
        replace(VIEW, state=LockState.FAILED),
        [
            "unshard run t.yaml",
            "unshard skip t.yaml",
            "unshard replace t.yaml",
            "unshard retry t.yaml --lock t-shop.orders-1",
        ],
    ),
    (
        replace(VIEW, state=LockState.CONFLICT, conflicts=(SHARD,), conflicting=("x",)),
        [
            "unshard replace t.yaml t-shop.orders-1 --shard s2/shop_1.orders_3"
            " --sql 'ALTER TABLE `shop`.`orders` ADD c int'",
            "unshard skip t.yaml t-shop.orders-1 --shard s2/shop_1.orders_3",
            "unshard unlock t.yaml",
        ],
    ),
    (
        replace(VIEW, state=LockState.CONFLICT, conflicts=(SHARD,), conflicting=("x",), reason="[US-4003] refused"),
        ["unshard retry t.yaml --lock t-shop.orders-1", "unshard unlock t.yaml"],
    ),
    (
        replace(VIEW, state=LockState.UNDECIDED, reason="[US-4030] the source does not show it"),
        ["unshard replace t.yaml t-shop.orders-1 --sql 'CREATE TABLE …'"],
    ),
]


HELP_IDS = ["waiting", "undecided", "refused", "failed", "conflict", "refused and in conflict", "undescribed"]


@pytest.mark.parametrize(("view", "commands"), HELP, ids=HELP_IDS)
def test_every_lock_says_which_commands_help(view: LockView, commands: list[str]) -> None:
    said = "\n".join(advice_lines(view, "t.yaml"))
    assert not [command for command in commands if command not in said]


def test_record_of_a_command_has_its_details() -> None:
    orders = [Force("x"), Force("x", "s1"), Skip("x", SHARD), Replace("x", ("a", "b")), DropShard("x", SHARD)]
    orders.append(Retry("x"))
    assert [(one.action, one.details) for one in (recorded(order, "ann", "page", "") for order in orders)] == [
        ("unlock", {}),
        ("unlock", {"owner": "s1"}),
        ("skip", {"shard": "s2 shop_1.orders_3"}),
        ("replace", {"statements": ["a", "b"]}),
        ("drop-shard", {"shard": "s2 shop_1.orders_3"}),
        ("retry", {}),
    ]
