"""The three DAGs of a task: full load, windows, locks. Built from the task file alone, in milliseconds.

All three are active from the start. Windows of a source that is not handed over skip and say so, and
nothing runs before somebody triggers the full load, so there is no order in which to switch them on.
"""

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Asset, AssetOrTimeSchedule, CronTriggerTimetable, Param, TriggerRule, chain, task_group

from unshard.config import Task, TaskMode
from unshard_airflow.alerts import notify
from unshard_airflow.bulk import Dump, Load
from unshard_airflow.locks import ExecuteDdl, Unlock, WaitForShards
from unshard_airflow.operators import START_TIME, Apply, Handover, Precheck, Relay, Snapshot
from unshard_airflow.outcome import tell_failure
from unshard_airflow.replace import Replace
from unshard_airflow.windows import Again, Report, SomethingFailed, StartLock

NO_PARAMS: Mapping[str, Any] = {}
BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
RETRIES = 2
RETRY_DELAY = timedelta(seconds=5)
POKE_SECONDS = 15.0
WAIT_RETRIES = 10
"""A wait, or a question, that is broken off goes on; a lock's own time-out is never tried again."""
EVERY_MINUTE = "* * * * *"
"""As often as cron can say, so it is taken to mean: all the time."""
SOURCE_LABEL = "{{ task.source }}"
START_FIELD: dict[str, Any] = {
    "type": ["null", "string"],
    "title": "start time",
    "description": "Begin at the first transaction that every source has written at or after that time, like "
                   "2026-01-31T23:59:59 (in the task's time zone, or with an offset); empty: where the task file says. "
                   "A source that has begun is not moved.",
}  # fmt: skip
"""The field of the form by which a task without a dump is triggered."""
FULL = "unshard_full__"
SYNC = "unshard_sync__"
DDL = "unshard_ddl__"

FULL_DOC = """Dumps and loads what the shards hold, then hands the sources over to the windows.

Trigger it once. It may be triggered, retried and cleared at any time: it goes on where it was.
Task file: `{path}`
"""
SYNC_DOC = """One window of every source: pull the binlog, apply what may be applied, hold what waits at a DDL.

Runs by its schedule, and at once while there is a backlog; scheduled every minute it goes on as long as
anything moves. A source that fails does not stop the others.
Task file: `{path}`
"""
DDL_DOC = """One run per DDL lock; the run's id is the lock's. `wait_for_shards` shows which shards are missing.

**To go on without them, clear `unlock`.** To have other statements executed, or none, clear `replace` and answer
its question. To wait again, clear `wait_for_shards` alone; shards that come all the same need nobody: a run of
the same name with `.late` behind it executes the DDL. Clearing the whole run forces the lock and asks, too.
Task file: `{path}`
"""


def dags_of(task: Task, wanted: str | None = None) -> tuple[DAG, ...]:
    """Build the DAGs of a task, or only the wanted one; a task that only loads has no windows and no locks."""
    kinds = {FULL: full_dag, SYNC: sync_dag, DDL: ddl_dag} if task.task_mode.syncs else {FULL: full_dag}
    return tuple(build(task) for kind, build in kinds.items() if wanted in (None, kind + task.name))


def full_dag(task: Task) -> DAG:
    """Build `precheck >> snapshot >> dump >> load >> handover`, the middle once per source."""
    given = {"task_file": str(task.path)}
    params = {START_TIME: Param(None, **START_FIELD)} if task.task_mode is TaskMode.INCREMENTAL else {}
    with _dag(FULL, task, FULL_DOC, schedule=None, params=params) as dag:

        @task_group(group_id="per_source", prefix_group_id=False)
        def per_source(source: str) -> None:
            each = given | {"source": source, "map_index_template": SOURCE_LABEL}
            steps: list[Any] = []
            if task.task_mode.begins:
                steps += Snapshot(task_id="snapshot", **each), Dump(task_id="dump", **each)
            if task.task_mode is not TaskMode.DUMP:
                steps += (Load(task_id="load", **each),)
            chain(*steps)

        first = Precheck(task_id="precheck", **given)
        middle = first >> per_source.expand(source=list(task.sources))
        if task.task_mode is not TaskMode.DUMP:
            middle >> Handover(task_id="handover", outlets=[work_asset(task)], **given)
    return dag


def sync_dag(task: Task) -> DAG:
    """Build `relay >> apply` per source, then `report` and what follows from it."""
    given = {"task_file": str(task.path)}
    with _dag(SYNC, task, SYNC_DOC, schedule=_schedule(task)) as dag:

        @task_group(group_id="per_source", prefix_group_id=False)
        def per_source(source: str) -> None:
            each = given | {"source": source, "map_index_template": SOURCE_LABEL}
            Relay(task_id="relay", **each) >> Apply(task_id="apply", **each)

        windows = per_source.expand(source=list(task.sources))
        report = Report(task_id="report", sources=task.sources, continuous=task.options.schedule == EVERY_MINUTE,
                        trigger_rule=TriggerRule.ALL_DONE, **given)  # fmt: skip
        windows >> report >> Again(task_id="again", outlets=[work_asset(task)])
        StartLock.partial(task_id="start_lock", dag_of_locks=DDL + task.name, map_index_template="{{ task.lock }}",
                          **given).expand(lock=report.output)  # fmt: skip
        windows >> SomethingFailed(task_id="failed", retries=0, trigger_rule=TriggerRule.ONE_FAILED)
    return dag


def ddl_dag(task: Task) -> DAG:
    """Build `[unlock, replace] >> wait_for_shards >> execute_ddl`, the last once per member source."""
    given = {"task_file": str(task.path)}
    with _dag(DDL, task, DDL_DOC, schedule=None, max_active_runs=100) as dag:
        wait = WaitForShards(task_id="wait_for_shards", poke_interval=poke_seconds(), retries=WAIT_RETRIES,
                             timeout=task.options.lock_timeout.total_seconds(),
                             trigger_rule=TriggerRule.ALL_DONE, **given)  # fmt: skip
        execute = ExecuteDdl.partial(task_id="execute_ddl", outlets=[work_asset(task)],
                                     map_index_template="{{ task.member.source }}", **given)  # fmt: skip
        replace = Replace(task_id="replace", retries=WAIT_RETRIES, **given)
        [Unlock(task_id="unlock", **given), replace] >> wait
        execute.expand(member=wait.output)
    return dag


def work_asset(task: Task) -> Asset:
    """Return the asset whose event says: the windows of this task have something to do."""
    return Asset(name=f"unshard_work__{task.name}", uri=f"unshard://{task.name}/work")


def poke_seconds() -> float:
    """Return after how long a waiting lock is looked at again."""
    return float(os.environ.get("UNSHARD_POKE_SECONDS", POKE_SECONDS))


def _schedule(task: Task) -> AssetOrTimeSchedule:
    cron = CronTriggerTimetable(task.options.schedule, timezone="UTC")
    return AssetOrTimeSchedule(timetable=cron, assets=[work_asset(task)])


def _dag(prefix: str, task: Task, doc: str, schedule: Any, max_active_runs: int = 1,
         params: Mapping[str, Any] = NO_PARAMS) -> DAG:  # fmt: skip
    defaults = {
        "retries": RETRIES,
        "retry_delay": RETRY_DELAY,
        "on_failure_callback": [tell_failure, notify],
        "owner": "unshard",
    }
    return DAG(
        prefix + task.name, schedule=schedule, start_date=BEGINNING, catchup=False, max_active_runs=max_active_runs,
        is_paused_upon_creation=False, default_args=defaults, doc_md=doc.format(path=task.path),
        tags=["unshard", task.name], params=dict(params),
    )  # fmt: skip
