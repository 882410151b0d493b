"""Operators for DAGs of your own, and a task group of them. docs/api.md describes them; the rest is private.

    with DAG("orders"):
        migration("/etc/unshard/tasks/orders.yaml") >> SomeOperator(task_id="report")

Each operator may be retried and cleared at any time: the state is in the meta tables of the target.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import AirflowException
from airflow.sdk import TaskGroup, chain

from unshard.core.model import TableId
from unshard.core.shown import as_json
from unshard_airflow.alerts import Alert, FailureNotifier
from unshard_airflow.bulk import telling
from unshard_airflow.bundle import UnshardTasksBundle
from unshard_airflow.checktasks import ComparingOperator
from unshard_airflow.connections import airflow_connections
from unshard_airflow.hook import UnshardHook
from unshard_airflow.locktasks import force
from unshard_airflow.operators import TaskOperator, opened_task
from unshard_airflow.stats import send, send_state

if TYPE_CHECKING:
    from airflow.sdk import Context

    from unshard.units.task.run import Note, RunOutcome
    from unshard.units.work import Work

__all__ = [
    "Alert",
    "FailureNotifier",
    "UnshardCheck",
    "UnshardFollow",
    "UnshardFullLoad",
    "UnshardHook",
    "UnshardTasksBundle",
    "UnshardUnlock",
    "migration",
]
VIA = "operator"


class UnshardFullLoad(TaskOperator):
    """Dumps and loads the rows of all shards, as far as it is not done yet.

    `task_file`: absolute path of a task file. XCom: rows and phase of each source.
    """

    until: ClassVar[str] = "full"

    def execute(self, context: "Context") -> Any:
        from unshard.units.task.metrics import of_live_run
        from unshard.units.task.run import Until, run
        from unshard.units.task.tablelineage import loaded_rows

        state, written = partial(send_state, self.task_file), Counter[TableId]()
        with opened_task(self.task_file) as work:
            sources = work.task.sources
            send(of_live_run(work.task.name, sources))
            with telling(self.log, lambda: _progress(work)), telling(self.log, state):
                outcome = run(
                    work, Until(self.until), airflow_connections, lambda note: self._tell(work, note, written)
                )
            self.observe(work, sources, lambda: written or loaded_rows(work, sources))
            self.require(outcome)
        return as_json(outcome.sources)

    def require(self, outcome: "RunOutcome") -> None:
        """Raise the first error of the run; Airflow retries a transient one."""
        for trouble in outcome.errors:
            self.log.error("%s: %s", trouble.place, trouble.error)
        for trouble in outcome.errors:
            raise trouble.error

    def _tell(self, work: "Work", note: "Note", written: Counter[TableId]) -> None:
        """Send metrics, count rows for the lineage, and log everything but windows, which log themselves."""
        from unshard.units.task.live import WindowDone
        from unshard.units.task.run import measurements_of

        send(measurements_of(work.task, note))
        if isinstance(note, WindowDone):
            written.update(note.report.written)
        else:
            self.log.info("%s", note)


class UnshardFollow(UnshardFullLoad):
    """Applies the binlog until each source is caught up with the moment at which the task has begun.

    It loads first if that is not done. While a DDL lock is open it fails and is retried: give it `retries` and
    `retry_delay` as long as a rollout takes.
    """

    until: ClassVar[str] = "caught-up"

    def require(self, outcome: "RunOutcome") -> None:
        super().require(outcome)
        if outcome.locks:
            raise AirflowException(
                "rows wait at DDL locks: " + "; ".join(f"{lock.id}: {lock.ddl}" for lock in outcome.locks)
            )


class UnshardCheck(ComparingOperator):
    """Compares target tables with their shards, and fails if a difference is proven.

    `tables`: names such as `shop.orders`; empty for all. XCom: the tables that are proven equal.
    """

    template_fields: Sequence[str] = ("tables",)

    def __init__(self, *, tables: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tables = list(tables)

    def execute(self, context: "Context") -> Any:
        found = self.compare([TableId(*table.split(".", 1)) for table in self.tables])
        return [str(each.target) for each, _ in found if each.equal]


class UnshardUnlock(TaskOperator):
    """Continues a DDL lock without the shards that have not run the DDL.

    `lock`: the id of the lock. `reason`: for the audit. It is skipped if the lock is resolved already.
    """

    template_fields: Sequence[str] = ("lock", "reason")

    def __init__(self, *, lock: str, reason: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.lock, self.reason = lock, reason

    def execute(self, context: "Context") -> Any:
        with opened_task(self.task_file) as work:
            return force(work, self.lock, context, VIA, self.reason)


def migration(task_file: str, group_id: str = "migration", **kwargs: Any) -> TaskGroup:
    """Return the group `full_load >> follow >> check`; other arguments go to each of its tasks."""
    with TaskGroup(group_id=group_id) as group:
        common = {"task_file": task_file, **kwargs}
        chain(
            UnshardFullLoad(task_id="full_load", **common),
            UnshardFollow(task_id="follow", **common),
            UnshardCheck(task_id="check", **common),
        )
    return group


def _progress(work: "Work") -> str:
    """`s1: loaded 3/8 chunks, 37.5 %, …; s2: …` of the sources that are not loaded."""
    from unshard.core.full.fullprogress import progress_line
    from unshard.units.task.status import full_progress

    found = full_progress(work.meta, work.task.sources)
    return "; ".join(progress_line(source, *each) for source, each in found.items() if each[1].done < each[1].chunks)
