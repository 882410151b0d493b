"""Changes of the online-DDL rules (whether tables of tools are followed, and their names) in a task that is in sync."""

import pytest

from tests.lifetask import LifeTask, task
from unshard.core.checks.items import Severity
from unshard.core.ddl.lock import LockState
from unshard.core.sql.lastwrites import NAME
from unshard.units.checks.precheck import changed_rules

pytestmark = pytest.mark.integration
__all__ = ["task"]

BEGIN = (
    "create /* gh-ost */ table _{0}_ghc (id bigint auto_increment primary key, hint varchar(64))",
    "create /* gh-ost */ table _{0}_gho like {0}",
    "alter /* gh-ost */ table _{0}_gho add column n int",
    "insert /* gh-ost */ ignore into _{0}_gho (id, v) select id, v from {0}",
)
CUT_OVER = (
    "rename /* gh-ost */ table {0} to _{0}_del, _{0}_gho to {0}",
    "drop /* gh-ost */ table _{0}_ghc",
)


def tool(task: LifeTask, source: str, table: str, statements: tuple[str, ...]) -> None:
    task.sources[source].run(f"USE {task.name}", *(statement.format(table) for statement in statements))


def refused(task: LifeTask) -> tuple[str, str]:
    """Run; return the exit code and the error text, which `unshard check` also reports."""
    task.write()
    (error,) = {str(trouble.error): trouble.error for trouble in task.run().errors}.values()
    with task.work() as work:
        items = [item for item in changed_rules(work.meta, work.task) if item.code]
    assert [(item.code, item.severity) for item in items] == [(error.code, Severity.ERROR)]
    return error.code, str(error)


def test_rules_do_not_change_under_a_tool_that_is_at_work(task: LifeTask) -> None:
    task.go()
    tool(task, "s1", "t_1", BEGIN)
    task.go()
    for change in (
        {"online-ddl": False},
        {"shadow-table-rules": ["^(.+)_shadow$"]},
        {"trash-table-rules": ["^(.+)_x$"]},
    ):
        task.body |= change
        code, said = refused(task)
        assert code == "US-7307" and f"{task.name}._t_1_gho is about to take the place of {task.name}.t_1" in said
        for key in change:
            del task.body[key]
    task.body["routes"]["all"]["target-table"] = "elsewhere"
    task.write()
    assert {trouble.error.code for trouble in task.run().errors} == {"US-7306"}
    task.body["routes"]["all"]["target-table"] = "t"
    task.body["filters"] = {"no": {"schema-pattern": task.name, "events": ["truncate table"], "action": "Ignore"}}
    for instance in task.body["mysql-instances"]:
        instance["filter-rules"] = ["no"]
    task.write()
    task.go()
    tool(task, "s1", "t_1", CUT_OVER)
    tool(task, "s2", "t_2", ("ALTER TABLE {0} ADD COLUMN n INT", "UPDATE {0} SET n = 4"))
    assert not task.go().locks
    assert task.assert_union() == 3

    # The old real table remains: with online-ddl off it is a table like any other, with its rows.
    task.body["online-ddl"] = False
    task.write()
    task.go()
    assert task.target.run(f"SELECT id FROM {task.name}._t_1_del ORDER BY id") == [(1,), (2,)]
    tool(task, "s1", "_t_1_del", ("INSERT INTO {0} VALUES (9, 'own')",))
    task.go()
    assert task.target.run(f"SELECT COUNT(*) FROM {task.name}._t_1_del") == [(3,)]
    assert task.assert_union() == 3


def test_switched_on_it_follows_what_begins_behind_that(task: LifeTask) -> None:
    task.body["online-ddl"] = False
    task.write()
    task.go()
    tool(task, "s1", "t_1", BEGIN)
    task.go()
    assert task.target.run(f"SELECT COUNT(*) FROM {task.name}._t_1_gho") == [(2,)], "a table like others"
    del task.body["online-ddl"]
    task.write()
    task.go()
    tool(task, "s2", "t_2", (*BEGIN, *CUT_OVER))
    tool(task, "s2", "t_2", ("INSERT INTO {0} VALUES (31, 'new', 5)",))
    task.run()  # behind the other source's RENAME, the DDL of this one would wait
    tool(task, "s1", "t_1", CUT_OVER)
    locks = task.go().locks
    assert {str(lock.target): lock.state for lock in locks} == {
        f"{task.name}._t_1_del": LockState.UNDECIDED,
        f"{task.name}_to.t": LockState.UNDECIDED,
    }
    assert all(lock.ddl.startswith("rename ") and "gets the name of a shard of" in lock.reason for lock in locks)
    made = {str(name) for (name,) in task.target.run(f"SHOW TABLES FROM {task.name}")}
    assert made == {"_t_1_gho", NAME}, "nothing of the tool that was followed; s1 dropped _t_1_ghc"
    assert task.target.run(f"SELECT id, n FROM {task.name}_to.t WHERE id IN (3, 31)") == [(3, None), (31, 5)]
