"""Prechecks: which values of servers are problems, and the effect of ignoring a problem."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from unshard.core.checks.itemnames import ITEMS
from unshard.core.checks.items import (
    Item,
    Severity,
    alike_names,
    case_rules,
    collation_problems,
    engine_problems,
    ignoring,
    kept_for,
    mode_problems,
    retention_problems,
    shortened,
    target_problems,
    under_way,
    version_problems,
)
from unshard.core.ddl.online import BY_GH_OST, OnlineRole, OnlineTable
from unshard.core.model import TableId

BAD = Item("version", Severity.WARNING, "source s1", "is old", "US-2320", "upgrade")
FINE = Item("shards", Severity.OK, "source s1", "2 of 2")
DEAD = Item("reachable", Severity.ERROR, "source s1", "nothing answers", "US-2001", "start it")


@pytest.mark.parametrize("names", [("version",), ("all",), ("rules", "version")])
def test_only_problems_of_these_names_are_ignored(names: tuple[str, ...]) -> None:
    bad, fine, dead = ignoring((BAD, FINE, DEAD), names)
    assert bad.severity is Severity.IGNORED and bad.message == BAD.message
    assert (fine, dead) == (FINE, DEAD), "a server that does not answer cannot be left out"


def test_an_error_that_stops_the_task_anyway_is_not_ignored() -> None:
    unfit = Item("target_tables", Severity.ERROR, "target t", "lacks a column", "US-6802", "change it")
    warned = replace(unfit, severity=Severity.WARNING)
    (by_its_name,) = ignoring((unfit,), ("target_tables",), {"US-6802"})
    assert by_its_name.severity is Severity.ERROR
    found = ignoring((unfit, warned, BAD, FINE), ("all",), {"US-6802"})
    assert [item.severity for item in found] == [Severity.ERROR, Severity.IGNORED, Severity.IGNORED, Severity.OK]
    assert found[0].remedy.startswith("change it; `ignore-checking-items` has no effect")
    assert ignoring((unfit,), ("rules",), {"US-6802"}) == (unfit,)


def test_an_error_that_may_stop_the_task_is_ignored_only_by_its_own_name() -> None:
    likely = Item("key_overlap", Severity.ERROR, "target t", "the same key", "US-2326", "remove one")
    (found,) = ignoring((likely,), ("all",), (), {"US-2326"})
    assert found.severity is Severity.ERROR and found.remedy.endswith("name `key_overlap` to start anyway")
    (found,) = ignoring((likely,), ("all", "key_overlap"), (), {"US-2326"})
    assert found.severity is Severity.IGNORED


def test_nothing_is_ignored_unless_asked() -> None:
    assert ignoring((BAD, FINE, DEAD), ()) == (BAD, FINE, DEAD)
    assert ignoring((BAD,), ("rules",)) == (BAD,)


@pytest.mark.parametrize(
    ("version", "is_tested"),
    [
        ("10.11.6-MariaDB-log", True),
        ("11.4.2-MariaDB", True),
        ("10.4.30-MariaDB", False),
        ("12.1.1-MariaDB", False),
        ("5.6.51", True),
        ("8.4.3", True),
        ("9.7.0", True),
        ("5.5.62", False),
        ("10.0.1", False),
        ("26.7.0", False),
        ("26.10.1", False),
    ],
)
def test_versions(version: str, is_tested: bool) -> None:
    assert (version_problems("source s1", version) == []) == is_tested


@pytest.mark.parametrize(
    ("version", "relation"),
    [
        ("26.7.0", "newer than the tested versions 5.6 to 9.7"),
        ("26.10.0-commercial", "newer than the tested versions 5.6 to 9.7"),
        ("5.5.62", "older than the tested versions 5.6 to 9.7"),
        ("12.3.1-MariaDB-log", "newer than the tested versions 10.5 to 11.8"),
        ("10.4.30-MariaDB", "older than the tested versions 10.5 to 11.8"),
    ],
)
def test_an_untested_version_is_older_or_newer(version: str, relation: str) -> None:
    (warning,) = version_problems("source s1", version)
    assert warning.message == f"source s1 has version {version}, {relation}"


@pytest.mark.parametrize("version", ["26.7.0", "26.10.1", "9.7.0", "8.0.36", "5.7.44"])
def test_calendar_versions_are_not_too_old_for_a_target(version: str) -> None:
    assert target_problems(version) == []


def test_a_binlog_in_a_storage_engine_is_refused_with_its_own_code() -> None:
    assert engine_problems("s1", "") == []
    (error,) = engine_problems("s1", "innodb")
    assert error.code == "US-2364" and "binlog_storage_engine = innodb" in error.message


@pytest.mark.parametrize(
    ("values", "kept", "is_short"),
    [
        ({}, None, False),
        ({"expire_logs_days": "0.000000", "binlog_expire_logs_seconds": "0"}, None, False),
        ({"expire_logs_days": "10"}, timedelta(days=10), False),
        ({"expire_logs_days": "0.041667", "binlog_expire_logs_seconds": "3600"}, timedelta(hours=1), True),
        ({"binlog_expire_logs_seconds": "86400"}, timedelta(days=1), False),
    ],
)
def test_how_long_a_binlog_is_kept(values: dict[str, str], kept: timedelta | None, is_short: bool) -> None:
    assert kept_for(values) == kept
    assert bool(retention_problems("s1", kept)) == is_short


def test_tables_of_tools_and_those_that_only_look_like_one_are_warnings() -> None:
    real, shadow = TableId("a", "t_1"), TableId("a", "_t_1_gho")
    online_table = OnlineTable(shadow, real, OnlineRole.SHADOW, BY_GH_OST)
    found = under_way("s1", [online_table], [(TableId("a", "_t_1_new"), real)])
    assert [error.message for error in found] == [
        "source s1 has a._t_1_gho, the shadow table of a tool that changes a.t_1 online: ignored",
        "source s1 has a._t_1_new, named like the shadow table of a.t_1, and takes it for an ordinary table",
    ]


def test_case_rules_are_compared_over_all_servers() -> None:
    assert case_rules({"target": "0", "s1": "0"}) == []
    (error,) = case_rules({"target": "1", "s1": "0"})
    assert "target: 1, s1: 0" in error.message


@pytest.mark.parametrize(
    ("version", "is_too_old"),
    [
        ("5.6.51-log", True),
        ("5.7.44", False),
        ("9.7.4-2", False),
        ("8.0.11-TiDB-v8.5.1", False),
        ("10.11.19-MariaDB", False),
        ("5.5.5-10.5.23-MariaDB", False),
    ],
)
def test_a_target_whose_indexes_are_too_short(version: str, is_too_old: bool) -> None:
    assert bool(target_problems(version)) == is_too_old


@pytest.mark.parametrize(
    ("modes", "told"),
    [
        ({"target": "", "s1": ""}, ""),
        ({"target": "ANSI_QUOTES,STRICT_TRANS_TABLES", "s1": "STRICT_TRANS_TABLES,ANSI_QUOTES"}, ""),
        ({"target": "ONLY_FULL_GROUP_BY", "s1": "NO_AUTO_CREATE_USER"}, ""),
        (
            {"target": "NO_ZERO_DATE,NO_ZERO_IN_DATE", "s1": "", "s2": "ANSI_QUOTES"},
            "NO_ZERO_DATE, NO_ZERO_IN_DATE only on target; ANSI_QUOTES only on s2",
        ),
        ({"target": "", "s1": "ANSI_QUOTES", "s2": "ANSI_QUOTES"}, "ANSI_QUOTES only on s1, s2"),
    ],
)
def test_modes_that_only_some_servers_have(modes: dict[str, str], told: str) -> None:
    assert [told in error.message for error in mode_problems(modes)] == ([True] if told else [])


def test_collations_are_compared_by_the_names_that_servers_of_today_have() -> None:
    assert collation_problems("x", {"s1 a": "utf8_general_ci", "s1 b": "utf8mb3_general_ci"}) == []
    (error,) = collation_problems("x", {"s1 a": "utf8mb4_bin", "s1 b": "latin1_bin", "s2 a": "utf8mb4_bin"})
    assert "x differs: utf8mb4_bin (s1 a, s2 a), latin1_bin (s1 b)" in error.message


def test_long_lists_are_shortened() -> None:
    assert shortened(["a", "b"]) == "a, b"
    assert shortened(list("abcdefg"), 2) == "a, b and 5 more"


def test_every_item_says_what_it_is() -> None:
    assert all(ITEMS.values())


def test_the_manual_lists_every_item() -> None:
    manual = (Path(__file__).parents[3] / "docs/cli.md").read_text()
    assert [name for name, words in ITEMS.items() if f"| `{name}` | {words} |" not in manual] == []


def test_targets_are_alike_whatever_the_case_of_their_names() -> None:
    targets = [TableId("a", "T"), TableId("A", "t"), TableId("a", "u")]
    assert [error.message for error in alike_names(targets)] == [
        "the target ignores the case of names, so A.t and a.T are one table there"
    ]
    assert alike_names([TableId("a", "t"), TableId("a", "t"), TableId("b", "t")]) == []
