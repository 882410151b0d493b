"""A table that is swapped by hand for one with another structure: only ways out are offered that lead to the union."""

import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from tests.copytask import Copy, copying
from tests.integration.task.test_lock_page import browse
from tests.openlocks import open_locks
from tests.oracle import assert_union
from tests.taskfile import route
from unshard.operate.advice import barred, offers
from unshard.operate.command import Replace
from unshard.operate.issuing import give, preview
from unshard.units.ddl import coordinate
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration


@pytest.fixture
def copy(tmp_path: Path, source_1: MariaDb, target: MariaDb, unique: str) -> Iterator[Copy]:
    """A task that merges the tables `t` of its schemas; all other tables are copied one to one."""
    with copying(unique, tmp_path, {"s1": source_1}, target) as made:
        routes = {"merged": route(f"{unique}*", "t", f"{unique}_all", "t")}
        made.write({"route-rules": [*routes]}, routes=routes, **{"shard-mode": "pessimistic"})
        made.up("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
        made.go()
        yield made


def swap(copy: Copy, *changes: str) -> None:
    """Swap t for a copy of it with these changes, and go on writing to both."""
    copy.up(
        "CREATE TABLE n LIKE t",
        "INSERT INTO n SELECT * FROM t",
        *changes,
        "RENAME TABLE t TO old, n TO t",
        "INSERT INTO t (id, v) VALUES (3, 3)",
        "INSERT INTO old VALUES (9, 9)",
    )


def follow_offers(copy: Copy) -> list[str]:
    """Give the only command that each open lock offers, and return the statements of all."""
    found: list[str] = []
    with copy.work() as work:
        for view in coordinate.views(work.meta):
            (offer,) = offers(view)
            (command,) = offer.commands
            assert isinstance(command, Replace) and barred(view)
            assert preview(work.meta, command)
            give(work.meta, command, "operator", "test", "")
            found += command.statements
    return found


def assert_merged(copy: Copy) -> None:
    assert_union(copy.sources, {"s1": [f"{copy.name}.t"]}, copy.target, f"{copy.name}_all.t")
    with copy.work() as work:
        assert open_locks(work.meta) == ()


def test_the_target_gets_the_columns_of_the_new_table_with_their_defaults(copy: Copy) -> None:
    swap(copy, "ALTER TABLE n ADD c INT NOT NULL DEFAULT 5, ADD g INT AS (v + 1)")
    copy.go()
    created, altered = sorted(follow_offers(copy), key=lambda text: text.startswith("ALTER"))
    assert created.startswith(f"CREATE TABLE IF NOT EXISTS `{copy.name}`.`old`")
    added = f"ALTER TABLE `{copy.name}_all`.`t` ADD COLUMN `c` int(11) NOT NULL DEFAULT "
    assert altered in (f"{added}5", f"{added}'5'"), "TiDB prints '5'"
    copy.go()
    copy.target.run(f"ALTER TABLE {copy.name}_all.t ADD g INT AS (v + 1)")
    assert_merged(copy)
    assert copy.target.run(f"SELECT * FROM {copy.name}.old") == [(9, 9)]
    copy.up("ALTER TABLE t ADD d INT", "INSERT INTO t (id, v, c, d) VALUES (4, 4, 4, 4)", "ALTER TABLE old ADD e INT")
    copy.go()
    assert_merged(copy)
    assert copy.target.run(f"SELECT * FROM {copy.name}.old") == [(9, 9, None)]


def test_a_later_change_of_the_new_table_does_not_hide_its_structure(copy: Copy) -> None:
    swap(copy, "ALTER TABLE n ADD c INT DEFAULT 5")
    copy.up("ALTER TABLE t ADD d INT", "INSERT INTO t VALUES (4, 4, 4, 4)")
    copy.go()
    follow_offers(copy)
    copy.go()
    assert_merged(copy)


def test_an_equal_table_needs_nothing_of_the_target(copy: Copy) -> None:
    swap(copy)
    copy.go()
    with copy.work() as work:
        (view,) = (view for view in coordinate.views(work.meta) if view.target.name == "t")
        assert not view.lacks_place and offers(view) == ()


@pytest.mark.parametrize("is_new", [True, False])
def test_the_command_line_offers_what_leads_to_the_union(
    copy: Copy, capsys: pytest.CaptureFixture[str], is_new: bool
) -> None:
    swap(copy, *["ALTER TABLE n ADD c INT"][: int(is_new)])
    copy.go()
    assert copy.command("locks") == 3
    shown = capsys.readouterr().out.split("lock ")
    (merged,) = (text for text in shown if text.startswith(f"merge-{copy.name}_all"))
    assert ("ADD COLUMN `c` int(11) DEFAULT NULL" in merged) == is_new
    assert ("unshard skip" in merged) != is_new


def test_the_page_offers_it_with_one_button(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    swap(copy, "ALTER TABLE n ADD c INT DEFAULT 5")
    copy.go()
    if "airflow" not in sys.modules:
        monkeypatch.setenv("AIRFLOW_HOME", str(copy.path.parent))
    monkeypatch.setenv("UNSHARD_TASKS", str(copy.path.parent))
    at = f"/task/merge/lock/merge-{copy.name}_all.t-1"
    (page,) = browse(("GET", at, {}))
    assert 'id="ready-1"' in page and 'id="skip"' not in page and 'id="unlock"' not in page
    assert "The target gets, and the rows of the table are written from now on:" in page
    added = f"ALTER TABLE `{copy.name}_all`.`t` ADD COLUMN `c` int(11) DEFAULT "
    (text,) = (f"{added}{five}" for five in ("5", "'5'") if f"{added}{five}" in unescape(page))  # TiDB prints '5'
    chosen = {"action": "replace", "statements": f"{text};\n", "shard": ""}
    done = browse(("GET", at, {}), ("POST", f"{at}/preview", chosen), ("POST", f"{at}/give", {}))[-1]
    assert "The command is issued" in done
    copy.go()
    follow_offers(copy)
    copy.go()
    assert_merged(copy)
