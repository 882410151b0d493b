"""Operators, one per unit. Each loads the task file, opens its connections, runs the unit and reports.

The report goes to XCom for people and for the next task of the same run. The state is in the meta tables, so any task
may be cleared at any time.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import DagRunTriggerException
from airflow.sdk import Asset, BaseOperator

from unshard.core.model import Server, TableId
from unshard.core.shown import as_json
from unshard_airflow.connections import airflow_connections
from unshard_airflow.links import TaskPageLink
from unshard_airflow.options import task_with_options
from unshard_airflow.outages import ToldOnce
from unshard_airflow.outcome import failures_told

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from unshard.config import Task
    from unshard.units.task.tablelineage import TargetLineage
    from unshard.units.work import Work

START_TIME = "start_time"
"""Key in the configuration of a full run: start of a task in task-mode incremental."""
LEVELS = {"warning": logging.WARNING, "error": logging.ERROR}
"""Log level of a precheck, by its severity."""
NOT_HANDED_OVER = "source {source} is not handed over to the windows yet (phase {phase}): run {dag} first"


@contextlib.contextmanager
def opened_task(task_file: str) -> "Iterator[Work]":
    """Open the task with Airflow's connections; errors end or retry the task instance."""
    from unshard.units.checks.backups import refuse_older
    from unshard.units.work import open_work

    with failures_told(), open_work(task_with_options(Path(task_file)), airflow_connections) as work:
        refuse_older(work)
        yield work


def only_run(dag: str, run: str, conf: dict[str, str]) -> DagRunTriggerException:
    """Return what an operator raises to start a DAG run that exists only once, however often it is requested."""
    return DagRunTriggerException(
        trigger_dag_id=dag,
        dag_run_id=run,
        conf=conf,
        logical_date=None,
        reset_dag_run=False,
        skip_when_already_exists=True,
        wait_for_completion=False,
        allowed_states=[],
        failed_states=[],
        poke_interval=60,
        deferrable=False,
    )


def table_asset(server: Server, table: TableId) -> Asset:
    """Return the asset of a target table: consumers may be scheduled by its events."""
    return Asset(f"mysql://{server.host}:{server.port}/{table.schema}/{table.name}")


class TaskOperator(BaseOperator):
    """Works for one task file."""

    lineage: "Sequence[TargetLineage]" = ()

    def __init__(self, *, task_file: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.task_file = task_file

    def observe(self, work: "Work", sources: Sequence[str], rows: "Callable[[], Mapping[TableId, int]]") -> None:
        """Collect the lineage of the targets that have changed, if OpenLineage asks for it."""
        from unshard.errors import UnshardError
        from unshard.units.task.tablelineage import lineage_of
        from unshard_airflow.lineagefacets import is_observed

        try:
            self.lineage = lineage_of(work, sources, rows()) if is_observed() else ()
        except UnshardError as error:
            self.log.warning("no lineage is sent: %s", error)

    def get_openlineage_facets_on_complete(self, _: Any) -> "OperatorLineage[Any, Any] | None":
        """Return the lineage; OpenLineage's provider calls it, also after a failure."""
        from unshard_airflow.lineagefacets import operator_lineage

        return operator_lineage(self.lineage)


class UnitOperator(TaskOperator):
    """Runs one unit of a task, for one source or for all."""

    template_fields: Sequence[str] = ("source",)
    ui_color = "#eef4fb"

    def __init__(self, *, source: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.source = source

    def execute(self, context: "Context") -> Any:
        with opened_task(self.task_file) as work:
            return as_json(self.unit(work, context))

    def unit(self, work: "Work", context: "Context") -> Any:
        """Run the unit; the result becomes the XCom value."""
        raise NotImplementedError


class Precheck(UnitOperator):
    """Runs the prechecks before the first row is read."""

    operator_extra_links = (TaskPageLink(),)

    def execute(self, context: "Context") -> Any:
        from unshard.core.checks.items import summaries
        from unshard.units.checks.precheck import precheck, raise_if_failed, store_items
        from unshard.units.task.status import begun, refuse_paused_task

        with failures_told():
            task = _starting(task_with_options(Path(self.task_file)), context)
            for warning in task.brief_warnings:
                self.log.warning("%s", warning)
            refuse_paused_task(task, airflow_connections)
            items = precheck(task, airflow_connections, begun(task, airflow_connections))
            for item in summaries(items):
                self.log.log(LEVELS.get(item.severity, logging.INFO), "%s", item)
            store_items(task, airflow_connections, items, make_meta=True)
            raise_if_failed(items)
        return {"items": len(items), "warnings": [as_json(item) for item in items if item.severity != "ok"]}


class Snapshot(UnitOperator):
    """Records the binlog position of a source and the structures of its shards."""

    def unit(self, work: "Work", context: "Context") -> Any:
        from unshard.core.task.state import Phase
        from unshard.units.full.snapshot import take_snapshot

        if is_past(work, self.source, Phase.SNAPSHOT):
            return f"source {self.source} has its snapshot already"
        return take_snapshot(replace(work, task=_starting(work.task, context)), self.source)


class Handover(UnitOperator):
    """Hands loaded sources over to the windows and triggers a live run."""

    def unit(self, work: "Work", context: "Context") -> Any:
        from unshard.units.full.load import handover

        return handover(work)


class WindowOperator(ToldOnce, UnitOperator):
    """A task of a live run. Of failures with one cause in consecutive runs, only the first is told."""

    def execute(self, context: "Context") -> Any:
        with self.told_once(context):
            return super().execute(context)


def _starting(task: "Task", context: "Context") -> "Task":
    """Return the task with the start time of the run's configuration, if there is one."""
    from unshard.config.reading import starting_at

    at = (context["dag_run"].conf or {}).get(START_TIME)
    return starting_at(task, str(at)) if at else task


def is_past(work: "Work", source: str, phase: Any) -> bool:
    """Whether the source has reached the phase."""
    state = work.meta.sources.get(source)
    return state is not None and state.phase.order >= phase.order
