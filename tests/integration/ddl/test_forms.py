"""The forms of DDL end as `docs/ddl-on-tidb.md` says; `python -m tests.ddlforms` writes that page."""

from pathlib import Path

import pytest

from tests import ddlforms, versions
from tests.suite.portions import IS_ALL
from tests.tidbsettings import is_tidb
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

TELLING = [
    7,
    8,
    10,
    12,
    13,
    16,
    19,
    20,
    24,
    32,
    44,
    47,
    51,
    69,
    82,
    86,
    104,
    106,
    115,
    121,
    136,
    150,
    168,
    180,
    189,
    217,
]
"""Forms that TiDB takes in steps, with another message or not at all, and some that it takes unchanged."""


def test_the_page_has_every_form_and_none_is_different() -> None:
    told = ddlforms.told()
    assert list(told) == [form.number for form in ddlforms.forms()] == list(range(1, ddlforms.COUNT + 1))
    words = {cell.partition(":")[0] for cells in told.values() for cell in cells}
    assert words <= {
        "equal",
        "undecided",
        "ignored",
        "rejected by the source",
        "rejected before the start",
        "stops the source",
        "own values",
    }


@pytest.mark.on_tidb
def test_forms_end_as_the_page_says(source_1: MariaDb, target: MariaDb, tmp_path: Path) -> None:
    """A part of the forms, a third of it on TiDB; `make test-all` runs all of them, also those of MySQL."""
    chosen = [form for form in ddlforms.forms() if IS_ALL or form.number in TELLING[:: 1 + 2 * is_tidb(target)]]
    column = int("TiDB" in str(target.run("SELECT VERSION()")))
    wanted = {form.number: ddlforms.told()[form.number][column] for form in chosen if form.dialect != "mysql"}
    assert ddlforms.play(tmp_path, {"mariadb": source_1}, target, chosen) == wanted


@pytest.mark.test_all("all forms take minutes; those of MariaDB in the other test show the same paths")
def test_forms_of_mysql_end_as_the_page_says(target: MariaDb, tmp_path: Path) -> None:
    chosen = [form for form in ddlforms.forms() if form.dialect == "mysql"]
    column = int("TiDB" in str(target.run("SELECT VERSION()")))
    wanted = {form.number: ddlforms.told()[form.number][column] for form in chosen}
    with versions.MYSQL.running(tmp_path / "mysql") as source:
        assert ddlforms.play(tmp_path, {"mysql": source}, target, chosen) == wanted
