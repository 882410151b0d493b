"""Tables that are created after the start: sources without tables, and rules for tables that do not exist yet."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.dying import Died
from tests.lifetask import LifeTask, living
from tests.oracle import rows
from tests.taskfile import route
from unshard.core.checks.items import Severity
from unshard.units.checks.precheck import check
from unshard.units.window import sync
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration


@pytest.fixture
def later(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LifeTask]:
    """A task of two sources without any table; the second one has a filter and a mapping."""
    with living(unique, tmp_path, {"s1": source_1, "s2": source_2}, target) as task:
        yield task


def dying(step: Callable[..., object]) -> Callable[..., object]:
    """Return a step that dies when it is done."""

    def taken(*given: object) -> object:
        step(*given)
        raise Died

    return taken


def errors(task: LifeTask) -> list[str]:
    return [str(item.message) for item in check(task.load()) if item.severity is Severity.ERROR]


def test_a_source_without_tables_takes_part_from_its_first_table_on(
    later: LifeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in DM's cases with two sources, of which only one has tables (DM_023)."""
    s2 = later.sources["s2"]
    one = later.make_shard("s1", 1, 1, 2, 3)
    assert not errors(later) and "US-2380" in later.checked()
    later.go()
    assert later.assert_union() == 3
    two = later.make_shard("s2", 2, 11, 12, 13)
    s2.run(f"UPDATE {two} SET id = 14 WHERE id = 11", f"DELETE FROM {two} WHERE id = 12")
    with monkeypatch.context() as patch:
        patch.setattr(sync, "_move", dying(sync._move))
        with pytest.raises(Died):
            later.run()
    later.sources["s1"].run(f"UPDATE {one} SET v = 'new' WHERE id = 1")
    later.go()
    assert later.assert_union() == 5
    later.insert("s2", two, 15)
    s2.run(f"ALTER TABLE {two} ADD COLUMN w int")
    later.sources["s1"].run(f"ALTER TABLE {one} ADD COLUMN w int", f"INSERT INTO {one} VALUES (4, 'four', 4)")
    later.go()
    assert later.assert_union() == 7
    assert "US-2380" not in later.checked()


def test_a_task_can_begin_without_any_table(later: LifeTask) -> None:
    assert not errors(later)
    later.go()
    later.make_shard("s1", 1, 1, 2)
    later.make_shard("s2", 2, 3)
    later.go()
    assert later.assert_union() == 3


def test_rules_for_later_tables_are_warnings_and_take_effect(later: LifeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in DM's tests sharding2 and expression_filter."""
    name, s2 = later.name, later.sources["s2"]
    later.body["routes"]["m"] = route(name, "m_*", f"{name}_to", "m")
    later.body["expression-filter"] = {"few": {"schema": name, "table": "t_2", "insert-value-expr": "id > 100"}}
    prefix = {"schema-pattern": name, "table-pattern": "m_*", "target-column": "v", "expression": "add prefix"}
    later.body["column-mappings"] = {"p": {**prefix, "arguments": ["s2-"]}}
    for instance in later.body["mysql-instances"]:
        instance["route-rules"] = ["all", "m"]
    later.body["mysql-instances"][1] |= {"expression-filters": ["few"], "column-mapping-rules": ["p"]}
    later.write()
    later.make_shard("s1", 1, 1, 200)
    assert not errors(later)
    found = {item.message for item in check(later.load()) if item.severity is Severity.WARNING}
    for rule in ("expression filter 'few'", "column mapping 'p'", "route 'm'"):
        assert [message for message in found if message.startswith(rule)], rule
    later.go()
    two = later.make_shard("s2", 2, 2, 300)
    s2.run(
        f"CREATE TABLE {name}.m_1 (id int, v varchar(20) PRIMARY KEY)",
        f"INSERT INTO {name}.m_1 VALUES (1, 'a'), (2, 'b'), (3, 'c')",
        f"UPDATE {name}.m_1 SET id = 4, v = 'd' WHERE id = 1",
        f"DELETE FROM {name}.m_1 WHERE id = 2",
        f"UPDATE {two} SET id = 3 WHERE id = 2",
    )
    with monkeypatch.context() as patch:
        patch.setattr(sync, "_move", dying(sync._move))
        with pytest.raises(Died):
            later.run()
    later.go()
    wanted = rows(later.sources["s1"], f"{name}.t_1") + rows(s2, f"(SELECT * FROM {two} WHERE id <= 100) AS few")
    assert rows(later.target, f"{name}_to.t") == wanted
    assert rows(later.target, f"{name}_to.m") == Counter({(3, "s2-c"): 1, (4, "s2-d"): 1})
    assert not {"US-2312", "US-6025"} & later.checked().keys()
