"""One live run in Airflow: the task `follow` applies the binlog of its sources until Airflow has something to do.

| reason to end | next |
|---|---|
| `live-run` is over | `again` starts the next run |
| nothing came to any source for `idle-after` | none; new binlog starts the next run (unshard_airflow.watch) |
| the same, and a lock was resolved after it | `again` |
| a lock or a difference has no DAG run yet | `report` starts it, `again` the next live run |
| a source has failed, and nobody was told | the task fails; `again` starts the next run for the other sources |
| a target was suspended | the same |
| the task file has changed | `again` |
| the task is paused | none |
| the schedule is not continuous: all sources are caught up | none |

`report` then reads the state of all sources and locks, not only the results of this run, so a later run completes the
work of a killed or cleared one.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException
from airflow.sdk import BaseOperator

from unshard.config import has_changed
from unshard.core.masking import refusal
from unshard.core.model import TableId
from unshard.core.shown import as_json
from unshard_airflow.bulk import telling
from unshard_airflow.differencetasks import DIFFERENCES, raise_transient
from unshard_airflow.links import LockRunLink
from unshard_airflow.operators import NOT_HANDED_OVER, TaskOperator, WindowOperator, only_run, opened_task, table_asset
from unshard_airflow.outages import ToldOnce, cause, tell_recovery
from unshard_airflow.outcome import of_stop
from unshard_airflow.stats import send, send_state

if TYPE_CHECKING:
    from airflow.sdk import Context

    from unshard.core.window.suspension import SuspendedTarget
    from unshard.errors import UnshardError
    from unshard.units.task.live import Locks, RunTally, Trouble
    from unshard.units.task.run import Note
    from unshard.units.work import Work

TELL_SECONDS = 10.0
"""The progress is published at most so often."""
REST_SECONDS, LOOK_SECONDS = 0.4, 3.0
"""The rest of a source after a window, and the time between two looks at the locks: they save CPU time."""
LEFT = "left"
"""XCom key: whether the next live run has work at once."""
OVER = "over"
"""XCom key: True if a process has ended before its time, and Airflow does not try it again. Then the others end, too:
only the next live run works on its sources."""
CHANGED = "changed"
"""XCom key: the number of changed rows of each target."""
PROGRESS = "progress"
FAILED = "failed"


class Follow(WindowOperator):
    """Applies the binlog of some sources until there is a reason to end; each source has a thread."""

    template_fields: Sequence[str] = ("sources",)
    stopped: "Sequence[SuspendedTarget]" = ()
    failing: "Sequence[UnshardError]" = ()
    """The errors of its sources, those of which people do not know first."""

    def __init__(
        self,
        *,
        sources: Sequence[str] = (),
        is_continuous: bool,
        dag_of_locks: str,
        dag_of_differences: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(source=", ".join(sources), **kwargs)
        self.sources = list(sources)
        self.is_continuous = is_continuous
        self.dag_of_locks, self.dag_of_differences = dag_of_locks, dag_of_differences

    @property
    def is_told_elsewhere(self) -> bool:
        """A target is suspended only once, so the failure that tells of it never lasts."""
        return bool(self.stopped)

    def causes(self, error: BaseException | None) -> frozenset[str]:
        return frozenset(map(cause, self.failing)) or super().causes(error)

    def unit(self, work: "Work", context: "Context") -> Any:
        from unshard.core.task.state import Phase
        from unshard.units.task.live import End, Ends, RunTally, follow
        from unshard.units.task.metrics import of_live_run
        from unshard.units.task.run import goals

        work.meta.pauses.refuse()
        known = {each.source: each.phase for each in work.meta.sources.all()}
        ready = [source for source in self.sources if known.get(source) is Phase.SYNC]
        if not ready:
            phase = known.get(self.sources[0], Phase.NEW)
            dag = f"unshard_full__{work.task.plain_name}"
            raise AirflowSkipException(NOT_HANDED_OVER.format(source=self.source, phase=phase, dag=dag))
        tally = RunTally(work.limits.pause_seconds)
        run = _Run(self, work, context, tally)
        options = work.task.options
        if self.is_continuous:
            ends = Ends(
                deadline=time.monotonic() + options.live_run.total_seconds(),
                idle_seconds=options.idle_after.total_seconds(),
                is_asked=run.is_asked,
                executes=False,
                rest_seconds=REST_SECONDS,
                look_seconds=LOOK_SECONDS,
            )
        else:
            found = goals(work, ready, tally, run.note)
            ready, ends = list(found), Ends(goals=found, is_asked=run.is_asked, executes=False)
        send(of_live_run(work.task.name, ready))
        # The watcher sends the state of a continuous task, also while no live run is at work.
        state = partial(send_state, self.task_file)
        with contextlib.nullcontext() if self.is_continuous else telling(self.log, state):
            end = follow(work, ready, ends, tally, run.note) if ready else End.FAILED
        self.log.info("live run has ended reason=%s", end)
        context["ti"].xcom_push(key=LEFT, value=end in (End.ASKED, End.TIME_OVER))
        context["ti"].xcom_push(key=CHANGED, value={str(target): rows for target, rows in run.changed.items()})
        self.observe(work, self.sources, lambda: run.changed)
        told = run.tell(str(end))
        self.stopped, self.failing = run.stopped, [each.error for each in run.troubles]
        error = next(iter([*(each.refusal.error for each in self.stopped), *self.failing]), None)
        is_tried_again = error is not None and error.transient and context["ti"].try_number <= context["ti"].max_tries
        if end is End.ASKED and not is_tried_again:
            context["ti"].xcom_push(key=OVER, value=True)
        if error is not None:
            raise error
        return told

    def remedies(self) -> Sequence[str]:
        """Return the suspended targets and the commands for each."""
        return tuple(line for stop in self.stopped for line in of_stop(stop, self.task_file))


class _Run:
    """The results of a live run, and whether Airflow has something to do."""

    def __init__(self, operator: Follow, work: "Work", context: "Context", tally: "RunTally") -> None:
        self._operator, self._work, self._context, self._tally = operator, work, context, tally
        self._told = 0.0
        self._told_state: object = ()
        self._has_run: set[str] = set()
        """Locks and differences that have a DAG run."""
        self._known = operator.known_causes(context)
        self._looked = time.monotonic()
        self._locks: Locks = ()
        self.stopped: tuple[SuspendedTarget, ...] = ()
        self.changed: Counter[TableId] = Counter()

    def note(self, note: "Note") -> None:
        """Log an error and the engines that a target does not get; keep suspended targets; send metrics."""
        from unshard.units.task.live import Trouble, WindowDone
        from unshard.units.task.run import measurements_of

        send(measurements_of(self._work.task, note))
        match note:
            case WindowDone(_, report):
                self.changed.update(report.written)
                self.stopped += report.stopped
                for warning in report.engines:
                    self._operator.log.warning("%s", warning)
            case Trouble(place, error, again):
                self._operator.log.warning("%s: %s%s", place, error, ", trying again" if again else "")
            case _:
                pass

    def is_asked(self, locks: "Locks") -> bool:
        """Whether Airflow has something to do; publishes the progress."""
        self._locks = locks
        if self._state() != self._told_state and time.monotonic() - self._told >= TELL_SECONDS:
            self.tell("running")
        if self._known and self._tally.worked.issuperset(self._operator.sources):
            tell_recovery(self._context)
            self._known = frozenset()
        is_asked = bool(self.stopped) or self._has_news(locks) or self._must_fail() or has_changed(self._work.task)
        return is_asked or self._is_another_over()

    def tell(self, state: str) -> dict[str, Any]:
        counts, errors = self._state()
        self._told, self._told_state = time.monotonic(), (counts, errors)
        waiting = [f"{lock.id} {lock.state}" for lock in self._locks]
        told = {"state": state, **counts, "locks": waiting, "errors": errors}
        self._operator.log.info("live run %s", " ".join(f"{name}={value}" for name, value in told.items()))
        self._context["ti"].xcom_push(key=PROGRESS, value=told)
        return told

    def _state(self) -> tuple[Mapping[str, int], list[str]]:
        """Return the counts of all sources, and the errors that are not over."""
        counts = sum((Counter(counts) for counts in [*self._tally.counts.values()]), Counter[str]())
        return counts, [f"{each.place} {each.error.code}" for each in [*self._tally.errors.values()]]

    def _has_news(self, locks: "Locks") -> bool:
        from unshard.units.task.opendifferences import open_differences
        from unshard_airflow.connections import airflow_connections

        operator = self._operator
        needed = [(operator.dag_of_locks, lock.id, lock.is_executable) for lock in locks]
        if operator.dag_of_differences:
            views = open_differences(self._work.task, self._work.meta, airflow_connections)
            needed += [(operator.dag_of_differences, view.id, False) for view in views if not view.is_change]
        missing = [each for each in needed if self._needs_run(*each)]
        return bool(missing)

    def _needs_run(self, dag: str, run: str, is_due: bool) -> bool:
        """Whether a run is missing; one that has failed before its lock became executable has a second run."""
        if (key := f"{run} {is_due}") in self._has_run:
            return False
        count = self._context["ti"].get_dr_count
        runs = [run, *((run + LATE,) if is_due and count(dag, run_ids=[run], states=[FAILED]) else ())]
        if is_missing := count(dag, run_ids=runs) < len(runs):
            return True
        self._has_run.add(key)
        return is_missing

    @property
    def troubles(self) -> "list[Trouble]":
        """The errors of the sources, those of which people do not know first."""
        from unshard.errors.meta import FencedOut

        # A run that came second leaves the source to the first one.
        mine = [each for each in [*self._tally.errors.values()] if each.place in self._operator.sources]
        found = [each for each in mine if not isinstance(each.error, FencedOut)]
        return sorted(found, key=lambda each: cause(each.error) in self._known)

    def _must_fail(self) -> bool:
        """Whether a source has failed with an error that was not told yet, while others go on."""
        return any(not each.again and cause(each.error) not in self._known for each in self.troubles)

    def _is_another_over(self) -> bool:
        """Whether another process of this live run has ended before its time; a request to Airflow, so it is seldom."""
        is_alone = len(self._operator.sources) == len(self._work.task.sources)
        if is_alone or time.monotonic() - self._looked < TELL_SECONDS:
            return False
        self._looked = time.monotonic()
        instance = self._context["ti"]
        return any(instance.xcom_pull(task_ids=[instance.task_id], key=OVER) or ())


LATE = ".late"
"""Suffix of the run that executes a lock whose shards have come after its wait had failed."""


class Report(WindowOperator):
    """Summarises the live run, updates the locks, and returns the open ones (the XCom value, a list).

    The asset of each target that the live run has changed gets an event.
    """

    def __init__(self, *, groups: Sequence[Sequence[str]], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.groups = [list(group) for group in groups]

    def unit(self, work: "Work", context: "Context") -> Any:
        from unshard.units.ddl.coordinate import observe
        from unshard.units.task.opendifferences import open_differences
        from unshard.units.task.optimistic import follow_each
        from unshard.units.window.sync import may_release
        from unshard_airflow.connections import airflow_connections

        work.meta.pauses.refuse()
        indexes = range(len(self.groups))
        progress = context["ti"].xcom_pull(task_ids="follow", key=PROGRESS, map_indexes=indexes)
        left = context["ti"].xcom_pull(task_ids="follow", key=LEFT, map_indexes=indexes)
        self._emit(work, context, context["ti"].xcom_pull(task_ids="follow", key=CHANGED, map_indexes=indexes))
        errors = follow_each(work).errors
        raise_transient(errors)
        for target, error in errors.items():
            self.log.error("%s does not follow its shards: %s", target, error)
        # A change that another process is executing ends soon; one that no process can execute needs a person.
        differences = open_differences(work.task, work.meta, airflow_connections)
        shown = [view for view in differences if not view.is_change or view.target in errors]
        context["ti"].xcom_push(key=DIFFERENCES, value=[view.id for view in shown])
        scene = observe(work.meta)
        locks = [view for lock in scene.locks if (view := scene.view(lock)).is_open]
        # A process may have ended before another one, or this task, has resolved what its rows wait for.
        has_work = [
            ", ".join(group)
            for group, told, is_left in zip(self.groups, progress, left, strict=True)
            if is_left or (told and not told["errors"] and any(may_release(work, source) for source in group))
        ]
        waiting = {view.target for view in shown} | {view.target for view in locks}
        summary = {
            "sources": dict(zip(map(", ".join, self.groups), progress, strict=True)),
            "locks": [as_json(view) for view in locks],
            "errors": [str(error) for error in errors.values()],
            "untold": [str(error) for target, error in errors.items() if target not in waiting],
            "left": has_work,
        }
        self.log.info("live run done summary=%s", summary)
        context["ti"].xcom_push(key="summary", value=summary)
        return [view.id for view in locks]

    def _emit(self, work: "Work", context: "Context", changed: Sequence[Mapping[str, int] | None]) -> None:
        """Add an event with rows and lag to the asset of each changed target."""
        from unshard.units.task.status import lag_of_task, status_in
        from unshard_airflow.connections import airflow_connections

        rows = sum((Counter(each or {}) for each in changed), Counter[str]())
        targets = sorted({target for each in changed for target in each or {}})
        if not targets:
            return
        lag = lag_of_task(status_in(work.meta, work.task, airflow_connections))
        for target in targets:
            extra: dict[str, Any] = {"rows": rows[target], "lag_seconds": lag.seconds, "lag_is_least": lag.is_least}
            asset = table_asset(work.target, TableId(*target.split(".", 1)))
            context["outlet_events"][self.outlets[0]].add(asset, extra=extra)


class Again(BaseOperator):
    """Triggers the next live run if there is work left; success emits the asset event."""

    def execute(self, context: "Context") -> Any:
        left = context["ti"].xcom_pull(task_ids="report", key="summary")["left"]
        if not left:
            raise AirflowSkipException("every source is caught up")
        return left


class TargetsFollow(ToldOnce, BaseOperator):
    """Fails if a target does not follow its shards and no lock and no difference has a run that shows it."""

    ui_color = "#fbeeee"

    def execute(self, context: "Context") -> Any:
        untold = context["ti"].xcom_pull(task_ids="report", key="summary")["untold"]
        with self.told_once(context):
            if untold:
                raise AirflowFailException("; ".join(map(refusal, untold)))
        return "every target follows its shards, or a lock or a difference shows why it does not"


class StartLock(TaskOperator):
    """Starts the DAG run of one lock. There is only one such run, however often it is requested.

    If that run has failed and the lock can be executed now, one further run executes it.
    """

    template_fields: Sequence[str] = ("lock",)
    operator_extra_links = (LockRunLink(),)

    def __init__(self, *, dag_of_locks: str, lock: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dag_of_locks = dag_of_locks
        self.lock = lock

    def execute(self, context: "Context") -> Any:
        failed = context["ti"].get_dr_count(self.dag_of_locks, run_ids=[self.lock], states=["failed"])
        is_late = bool(failed) and self._is_executable()
        run = self.lock + LATE if is_late else self.lock
        raise only_run(self.dag_of_locks, run, {"lock": self.lock})

    def _is_executable(self) -> bool:
        from unshard.units.ddl import coordinate

        with opened_task(self.task_file) as work:
            return coordinate.facts_of(work.meta, self.lock).is_executable


class SomethingFailed(BaseOperator):
    """Fails the run if a source has failed, after the other sources have completed."""

    ui_color = "#fbeeee"

    def execute(self, context: "Context") -> Any:
        raise AirflowFailException("a source has failed in this run: see its failed task; the others continued")
