"""The DAGs of a task: full load, windows, locks; in optimistic mode also differences.

They are built from the task file alone, in milliseconds.

All of them are active from the start, so there is no order in which to enable them. Live runs leave out a source
that is not handed over, and nothing runs before the full load is triggered.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import (
    DAG,
    Asset,
    AssetAlias,
    AssetAny,
    AssetWatcher,
    Param,
    TriggerRule,
    chain,
    task_group,
)

from unshard.config import ShardMode, Task, TaskMode
from unshard_airflow import deadlines
from unshard_airflow.bulk import Dump, Load
from unshard_airflow.checktasks import CheckTarget, ListTargets
from unshard_airflow.cutovertasks import FIELDS, CutOver, PlanCutover
from unshard_airflow.differencetasks import FollowDifference, ListDifferences, StartDifference
from unshard_airflow.follow import Again, Follow, Report, SomethingFailed, StartLock, TargetsFollow
from unshard_airflow.links import at
from unshard_airflow.locktasks import ExecuteDdl, Unlock, WaitForShards
from unshard_airflow.operators import START_TIME, Handover, Precheck, Snapshot
from unshard_airflow.outages import tell_people, tell_recovery
from unshard_airflow.outcome import tell_failure
from unshard_airflow.repairtasks import RepairTarget
from unshard_airflow.replace import ReplaceDdl
from unshard_airflow.versions import AssetOrTimeSchedule, CronTriggerTimetable
from unshard_airflow.watch import BinlogTrigger

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
RETRIES = 2
RETRY_DELAY = timedelta(seconds=5)
UNLOCK_TIMEOUT = timedelta(minutes=5)
"""The command takes seconds; a process that hangs is replaced by the next try, which repeats the command."""
UNLOCK = "unlock (clear it to force the lock)"
REPLACE = "replace (clear it to enter other statements)"
WAIT_RETRIES = 10
"""An interrupted wait or question continues; the time-out of a lock is never retried."""
EVERY_MINUTE = "* * * * *"
"""The most frequent cron schedule, which here means: continuously."""
CHECKS_AT_ONCE = 2
"""Tables of a task that are compared at the same time."""
MOST_WORKERS = 4
"""Processes of a live run, unless the task file says how many sources share one."""
SOURCE_LABEL = "{{ task.source }}"
START_FIELD: dict[str, Any] = {
    "type": ["null", "string"],
    "title": "start time",
    "description": "Begin with the first transaction of every source at or after this time, such as "
    "2026-01-31T23:59:59 (in the task's time zone, or with an offset). Empty: the start of the task file. "
    "A source that has begun keeps its position.",
}
"""The field of the form that triggers a task without a dump."""
FULL = "unshard_full__"
SYNC = "unshard_sync__"
DDL = "unshard_ddl__"
JOIN = "unshard_join__"
LAG = "unshard_lag__"
CHECK = "unshard_check__"
REPAIR = "unshard_repair__"
CUTOVER = "unshard_cutover__"
PREFIXES = (FULL, SYNC, DDL, JOIN, LAG, CHECK, REPAIR, CUTOVER)
"""The beginnings of the ids of DAGs; the name of the task follows."""

FULL_DOC = """Dumps and loads the rows of the shards, then hands the sources over to the windows.

Trigger it once. It may be triggered, retried and cleared at any time: it continues where it stopped.
Task file: `{path}`, [state of the task]({page})
"""
SYNC_DOC = """One live run: windows pull the binlog, apply rows, and hold rows that wait at a DDL.

If it is scheduled every minute, new binlog starts it, and it continues as long as rows come. With another schedule it
ends when it has caught up. A source that fails does not stop the others. Its task fails once; while the same error
lasts it is skipped.
Task file: `{path}`, [state of the task]({page})
"""
DDL_DOC = """One run per DDL lock; the id of the run is that of the lock. `wait_for_shards` shows the missing shards.

`unlock` and `replace` are skipped until you need them. **To continue without the missing shards, clear `unlock`.**
To execute other statements, or none, clear `replace` and answer its question. To wait again, clear `wait_for_shards`
alone. If the shards arrive later, a run of the same name with the suffix `.late` executes the DDL automatically.
Clearing the whole run forces the lock and asks the question, too.
Task file: `{path}`, [state of the task]({page})
"""

CHECK_DOC = """Compares the targets with their shards while everything runs; no range is compared twice within a day.

A proven difference fails the task of its table and names keys. When all ranges of a table are proven equal, its
asset and that of its proofs get an event.
Task file: `{path}`, [state of the task]({page})
"""

CUTOVER_DOC = """Switches the applications from the shards to the target; the last hour of a migration.

Trigger it and fill in its form. `plan` lists what is in the way. `cut_over` proves the targets while the shards are
written, waits until the sources are read-only, proves the rest, and returns a certificate. If it fails, the sources are
as before, and you clear it to go on.
Task file: `{path}`, [state of the task]({page})
"""

REPAIR_DOC = """Makes rows of the targets those of their shards. Trigger it when a check has failed.

For each table that differs, `repair` shows keys with the values of target and shard under *Required Actions*, and waits
up to a day for an answer. Nothing is written without it.
Task file: `{path}`, [state of the task]({page})
"""

JOIN_DOC = """One run per open difference between the shards of a target; it ends when shards and target are equal.

A rollout may take as long as it needs. Only a conflict fails its run, after `lock-timeout`: both sides are in the log.
Task file: `{path}`, [state of the task]({page})
"""

LAG_DOC = """Ends when the targets have all changes from before the run. It has a deadline: `lag-deadline`.

Airflow's deadline alert tells people of a missed deadline, also while a source or the target is down.
Task file: `{path}`, [state of the task]({page})
"""


def dags_of(task: Task, wanted: str | None = None) -> tuple[DAG, ...]:
    """Build the DAGs of a task, or only the wanted one; a task that only loads has no windows and no locks."""
    kinds = (
        {FULL: full_dag, SYNC: sync_dag, DDL: ddl_dag, CUTOVER: cutover_dag}
        if task.task_mode.syncs
        else {FULL: full_dag}
    )
    if follows_join(task):
        kinds[JOIN] = join_dag
    if task.task_mode.syncs and task.options.lag_deadline:
        kinds[LAG] = lag_dag
    if task.task_mode is not TaskMode.DUMP:
        kinds |= {CHECK: check_dag, REPAIR: repair_dag}
    return tuple(build(task) for kind, build in kinds.items() if wanted in (None, kind + task.plain_name))


def full_dag(task: Task) -> DAG:
    """Build `precheck >> snapshot >> dump >> load >> handover`, the middle once per source."""
    common = {"task_file": str(task.path)}
    params = {START_TIME: Param(None, **START_FIELD)} if task.task_mode is TaskMode.INCREMENTAL else {}
    with _dag(FULL, task, FULL_DOC, schedule=None, params=params) as dag:

        @task_group(group_id="per_source", prefix_group_id=False)
        def per_source(source: str) -> None:
            each = common | {"source": source, "map_index_template": SOURCE_LABEL}
            steps: list[Any] = []
            if task.task_mode.begins:
                steps += Snapshot(task_id="snapshot", **each), Dump(task_id="dump", **each)
            if task.task_mode is not TaskMode.DUMP:
                steps += (Load(task_id="load", **each),)
            chain(*steps)

        first = Precheck(task_id="precheck", **common)
        middle = first >> per_source.expand(source=list(task.sources))
        if task.task_mode is not TaskMode.DUMP:
            middle >> Handover(task_id="handover", outlets=[work_asset(task)], **common)
    return dag


def sync_dag(task: Task) -> DAG:
    """Build `follow` once per group of sources, then `report` and what follows from it."""
    common = {"task_file": str(task.path)}
    with _dag(SYNC, task, SYNC_DOC, schedule=_schedule(task)) as dag:
        groups = sources_by_process(task)
        windows = Follow.partial(
            task_id="follow",
            map_index_template="{{ task.source }}",
            is_continuous=_is_continuous(task),
            dag_of_locks=DDL + task.plain_name,
            dag_of_differences=JOIN + task.plain_name if follows_join(task) else "",
            **common,
        ).expand(sources=groups)
        changed = AssetAlias(f"unshard_changed__{task.plain_name}")
        report = Report(task_id="report", groups=groups, trigger_rule=TriggerRule.ALL_DONE, outlets=[changed], **common)
        windows >> report >> Again(task_id="again", outlets=[work_asset(task)])
        StartLock.partial(
            task_id="start_lock", dag_of_locks=DDL + task.plain_name, map_index_template="{{ task.lock }}", **common
        ).expand(lock=report.output)
        if follows_join(task):
            found = ListDifferences(task_id="differences")
            report >> [found, TargetsFollow(task_id="targets_follow", retries=0)]
            StartDifference.partial(
                task_id="start_difference",
                dag_of_differences=JOIN + task.plain_name,
                map_index_template="{{ task.difference }}",
            ).expand(difference=found.output)
        windows >> SomethingFailed(
            task_id="failed", retries=0, trigger_rule=TriggerRule.ONE_FAILED, on_failure_callback=tell_failure
        )
    return dag


def ddl_dag(task: Task) -> DAG:
    """Build `[unlock, replace] >> wait_for_shards >> execute_ddl`, the last once per source."""
    common = {"task_file": str(task.path)}
    late = deadlines.of_lock(task)
    with _dag(DDL, task, DDL_DOC, schedule=None, max_active_runs=100, deadline=late) as dag:
        wait = WaitForShards(
            task_id="wait_for_shards", retries=WAIT_RETRIES, trigger_rule=TriggerRule.ALL_DONE, **common
        )
        execute = ExecuteDdl.partial(
            task_id="execute_ddl", outlets=[work_asset(task)], map_index_template=SOURCE_LABEL, **common
        )
        unlock = Unlock(task_id="unlock", task_display_name=UNLOCK, execution_timeout=UNLOCK_TIMEOUT, **common)
        replace = ReplaceDdl(task_id="replace", task_display_name=REPLACE, retries=WAIT_RETRIES, **common)
        [unlock, replace] >> wait
        wait >> execute.expand(source=list(task.sources))
    return dag


def join_dag(task: Task) -> DAG:
    """Build `follow_difference`."""
    with _dag(JOIN, task, JOIN_DOC, schedule=None, max_active_runs=100) as dag:
        FollowDifference(
            task_id="follow_difference", task_file=str(task.path), retries=WAIT_RETRIES, outlets=[work_asset(task)]
        )
    return dag


def lag_dag(task: Task) -> DAG:
    """Build `caught_up`."""
    each, late = task.options.lag_deadline, deadlines.of_lag(task)
    with _dag(LAG, task, LAG_DOC, schedule=each, deadline=late) as dag:
        deadlines.CaughtUp(task_id="caught_up", task_file=str(task.path), retries=WAIT_RETRIES)
    return dag


def check_dag(task: Task) -> DAG:
    """Build `list_targets >> check`, the last once per target table."""
    common = {"task_file": str(task.path)}
    cron = task.options.check_schedule
    with _dag(CHECK, task, CHECK_DOC, schedule=CronTriggerTimetable(cron, timezone="UTC") if cron else None) as dag:
        listed = ListTargets(task_id="list_targets", **common)
        CheckTarget.partial(
            task_id="check",
            outlets=[AssetAlias(f"unshard_proven__{task.plain_name}")],
            max_active_tis_per_dagrun=CHECKS_AT_ONCE,
            map_index_template="{{ task.target }}",
            **common,
        ).expand(target=listed.output)
    return dag


def cutover_dag(task: Task) -> DAG:
    """Build `plan >> cut_over`."""
    common: dict[str, Any] = {"task_file": str(task.path), "retries": 0}
    with _dag(CUTOVER, task, CUTOVER_DOC, schedule=None, params=FIELDS) as dag:
        PlanCutover(task_id="plan", **common) >> CutOver(task_id="cut_over", **common)
    return dag


def repair_dag(task: Task) -> DAG:
    """Build `list_targets >> repair`, the last once per target table."""
    common = {"task_file": str(task.path)}
    with _dag(REPAIR, task, REPAIR_DOC, schedule=None) as dag:
        listed = ListTargets(task_id="list_targets", **common)
        RepairTarget.partial(
            task_id="repair",
            max_active_tis_per_dagrun=CHECKS_AT_ONCE,
            map_index_template="{{ task.target }}",
            **common,
        ).expand(target=listed.output)
    return dag


def follows_join(task: Task) -> bool:
    """Whether the targets of a task follow the join of their shards."""
    return task.task_mode.syncs and task.shard_mode is ShardMode.OPTIMISTIC


def work_asset(task: Task) -> Asset:
    """Return the asset whose events trigger the live runs of this task."""
    return Asset(name=f"unshard_work__{task.plain_name}", uri=f"unshard://{task.plain_name}/work")


def sources_by_process(task: Task) -> list[list[str]]:
    """Return the sources of each process: neighbours, so that the number of processes stays small."""
    size = task.options.sources_per_worker or -(-len(task.sources) // MOST_WORKERS)
    return [list(task.sources[start : start + size]) for start in range(0, len(task.sources), size)]


def binlog_asset(task: Task) -> Asset:
    """Return the asset whose events say that a source has new binlog."""
    watcher = AssetWatcher(name=f"unshard_binlog__{task.plain_name}", trigger=BinlogTrigger(task_file=str(task.path)))
    name, uri = f"unshard_binlog__{task.plain_name}", f"unshard://{task.plain_name}/binlog"
    return Asset(name=name, uri=uri, watchers=[watcher])


def _is_continuous(task: Task) -> bool:
    return task.options.schedule == EVERY_MINUTE


def _schedule(task: Task) -> Any:
    """Return the schedule of the live runs: by events alone if it is continuous."""
    if _is_continuous(task):
        return AssetAny(work_asset(task), binlog_asset(task))
    cron = CronTriggerTimetable(task.options.schedule, timezone="UTC")
    return AssetOrTimeSchedule(timetable=cron, assets=[work_asset(task)])


def _dag(prefix: str, task: Task, doc: str, schedule: Any, **options: Any) -> DAG:
    defaults = {
        "retries": RETRIES,
        "retry_delay": RETRY_DELAY,
        "on_failure_callback": [tell_failure, tell_people],
        "on_success_callback": tell_recovery,
        "owner": "unshard",
    }
    return DAG(
        prefix + task.plain_name,
        schedule=schedule,
        start_date=BEGINNING,
        catchup=False,
        is_paused_upon_creation=False,
        disable_bundle_versioning=True,  # see unshard_airflow.bundle
        default_args=defaults,
        doc_md=doc.format(path=task.path, page=at("unshard", "task", task.name)),
        tags=["unshard", task.name],
        **({"max_active_runs": 1} | options),
    )
