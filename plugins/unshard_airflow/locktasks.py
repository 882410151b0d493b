"""One DAG run per DDL lock: `[unlock, replace] >> wait_for_shards >> execute_ddl[source]`.

| event | effect |
|---|---|
| the lock opens | `unlock` and `replace` are skipped, because there is no command yet |
| `unlock` cleared | the lock is forced without the missing shards; `page.audit` finds the person |
| `unlock` died in its first try | the retry is skipped, too: only a clear raises `max_tries` |
| `replace` cleared | it asks for other statements; `unshard_airflow.replace` lists the cases |
| `unlock` or `replace` failed | they fail; the wait continues |
| `wait_for_shards` cleared or died | it waits again, or ends at once if the lock is resolved |
| the triggerer is down | the wait continues when it is back |
| `execute_ddl` cleared or died | the unit finds the intent row and the structure; nothing runs twice |
| the lock was resolved elsewhere | `wait_for_shards` ends, all of `execute_ddl` is skipped, the run succeeds |
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException

from unshard.core.shown import as_json
from unshard_airflow.links import TaskPageLink
from unshard_airflow.operators import TaskOperator, opened_task
from unshard_airflow.outcome import remedies
from unshard_airflow.watch import LockTrigger, look, published

if TYPE_CHECKING:
    from airflow.sdk import Context

    from unshard.units.ddl.scene import LockView
    from unshard.units.work import Work

RESOLVED = "the lock is resolved already"


def lock_of(context: "Context") -> str:
    """Return the lock of a run: the run's id, or `lock` in its configuration if it was started by hand."""
    run = context["dag_run"]
    return str((run.conf or {}).get("lock") or run.run_id)


class Unlock(TaskOperator):
    """Is skipped at first. Clearing it forces the lock without the missing shards."""

    operator_extra_links = (TaskPageLink(),)

    def execute(self, context: "Context") -> Any:
        if not was_cleared(context):
            raise AirflowSkipException("clear this task to force the lock without the missing shards")
        with opened_task(self.task_file) as work:
            run = context["dag_run"].run_id
            return force(work, lock_of(context), context, "clear", f"task unlock of run {run} was cleared")


def force(work: "Work", lock: str, context: "Context", via: str, reason: str) -> Any:
    """Continue a lock without its missing shards, as the person who has started this run; return its state."""
    from unshard.core.ddl.issuedcommands import Cleared
    from unshard.operate import issuing
    from unshard.operate.command import Force
    from unshard.units.ddl import coordinate

    if not work.meta.locks.get(lock).is_open:
        raise AirflowSkipException(RESOLVED)
    by = Cleared(context["dag_run"].run_id, str(context["ti"].id))
    scene = issuing.give(work.meta, Force(lock), by=by, via=via, reason=reason)
    return as_json(coordinate.view(work.meta, lock, scene))


def was_cleared(context: "Context") -> bool:
    """Return whether the task was cleared, not retried: only clearing a finished task raises `max_tries`.

    `try_number` also grows when a scheduler restarts a task of its dead predecessor.
    """
    return int(context["ti"].max_tries) > int(context["task"].retries or 0)


class LockOperator(TaskOperator):
    """Tells what helps with the lock that it has seen, if it fails."""

    operator_extra_links = (TaskPageLink(),)

    seen: "LockView | None" = None

    def remedies(self) -> Sequence[str]:
        return remedies(self.seen, self.task_file) if self.seen else ()


class WaitForShards(LockOperator):
    """Waits until every shard of the group has reached the DDL, the lock is forced, or `lock-timeout` is over.

    Airflow's triggerer waits, so no process runs meanwhile, and Airflow may clear the task at any time. The end of the
    wait ends the task: Airflow starts no process only for that.
    """

    def execute(self, context: "Context") -> None:
        self._wait(context)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: "Context") -> None:
        """Look at the lock after `lock-timeout`, or after a failure of the trigger."""
        self._wait(context)

    def _wait(self, context: "Context") -> None:
        from unshard.units.ddl import coordinate

        with opened_task(self.task_file) as work:
            seen = look(work, lock_of(context))
            self.seen = view = coordinate.view(work.meta, seen.lock.id, seen.scene)
            patience = work.task.options.lock_timeout
        for key, value in published(view).items():
            context["ti"].xcom_push(key=key, value=value)
        self.log.info("%s", seen)
        if seen.is_over:
            return
        until = context["ti"].start_date + patience
        if datetime.now(UTC) >= until:
            raise AirflowFailException(f"lock {view.id} is {view.state}, and lock-timeout ({patience}) is over")
        trigger = LockTrigger(task_file=self.task_file, lock=view.id, until=until.isoformat())
        self.defer(trigger=trigger, method_name="execute")


class ExecuteDdl(LockOperator):
    """Executes the DDL on the target if `source` is the lock's owner; the tasks of the other sources are skipped."""

    template_fields: Sequence[str] = ("source",)

    def __init__(self, *, source: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.source = source

    def execute(self, context: "Context") -> Any:
        from unshard.units.ddl import coordinate

        lock = lock_of(context)
        with opened_task(self.task_file) as work:
            if not (found := work.meta.locks.get(lock)).is_open:
                raise AirflowSkipException(f"lock {lock} is resolved already")
            sources = list(work.task.sources)
            owner = found.owner if found.owner in sources else sources[0]
            if self.source != owner:
                raise AirflowSkipException(f"{owner} is the owner and executes the DDL for all")
            self.seen = done = coordinate.execute(work.meta, work.target, lock)
        if done.is_open:
            raise AirflowFailException(done.error or f"lock {lock} is {done.state} again: clear wait_for_shards")
        self.log.info("lock is resolved lock=%s ddl=%s", lock, done.ddl)
        return as_json(done)
