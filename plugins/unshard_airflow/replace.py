"""The task `replace` of a lock's run: it asks a person for statements that replace the DDL.

Airflow shows the question under *Required Actions* and on the task, to users who may answer it there. The task asks
when it is cleared, and automatically when the effect of the DDL is unknown. It is skipped if it gives no command.

| event while it asks                               | effect                                                    |
|---------------------------------------------------|-----------------------------------------------------------|
| somebody answers                                  | it issues the command in that person's name               |
| somebody answers *Try again*                      | it lets the target execute the refused DDL again          |
| somebody asks for the dry run                     | it writes the dry run into its log and XCom, asks again   |
| the lock is decided, forced or resolved elsewhere | it is skipped within `LOOK_AGAIN`                         |
| there is no answer within `lock-timeout`          | it fails; clearing it asks again                          |
| it is cleared                                     | it asks again                                             |
| its process dies before the command is recorded   | the retry asks again; nothing was done                    |
| … after                                           | the retry asks again if the lock still waits              |
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException
from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import Param
from airflow.sdk.definitions.param import ParamsDict

from unshard.core.masking import refusal, statement
from unshard.core.shown import as_json
from unshard.errors import UnshardError
from unshard_airflow.locktasks import RESOLVED, lock_of, was_cleared
from unshard_airflow.operators import opened_task
from unshard_airflow.outcome import advised, remedies, situation
from unshard_airflow.versions import AWAITING_INPUT

if TYPE_CHECKING:
    from airflow.sdk import Context

    from unshard.core.ddl.lock import DdlLock
    from unshard.core.model import Shard
    from unshard.operate.command import LockCommand
    from unshard.units.ddl.scene import LockView, Scene
    from unshard.units.work import Work

OPTIONS = ("Replace", "Skip", "Try again", "Show the effect", "Leave it as it is")
REPLACE, SKIP, RETRY, DRY_RUN, LEAVE = OPTIONS
LOOK_AGAIN = timedelta(minutes=2)
TIME_TO_ANSWER = timedelta(hours=1)
"""Minimum time to answer after the task was cleared, even if `lock-timeout` is shorter."""
VIA = "required action"
EVERY = ""
ASKED = """Lock `{lock}` is **{state}**. Its DDL:

```sql
{ddl}
```

{told}

*Replace* executes other statements on the target; they may name the target or any shard of the group. *Skip* executes
nothing. If you choose a shard, the answer applies to that shard alone. *Show the effect* writes a dry run into this
task's log.
"""
ASKED_AGAIN = (
    "\n*Try again* executes this DDL on the target again, for all shards. Correct the cause of the refusal first.\n"
)


class ReplaceDdl(HITLOperator):
    """Asks for the statements to execute instead, or for none, and issues that command."""

    def __init__(self, *, task_file: str, **kwargs: Any) -> None:
        super().__init__(
            subject="Which statements replace the DDL?",
            options=list(OPTIONS),
            defaults=LEAVE,
            params=fields(()),
            response_timeout=LOOK_AGAIN,
            **kwargs,
        )
        self.task_file = task_file
        self.seen: LockView | None = None

    def execute(self, context: "Context") -> Any:
        with opened_task(self.task_file) as work:
            lock, scene = self._look(work, context)
            found = scene.facts(lock)
            if not found.is_open:
                raise AirflowSkipException(RESOLVED)
            asked_for = was_cleared(context)
            if not asked_for and found.state != "undecided":
                raise AirflowSkipException("clear this task to enter other statements")
            view = self._shown(lock, scene)
            patience = work.task.options.lock_timeout
            self._ask(context, view, datetime.now(UTC) + (max(patience, TIME_TO_ANSWER) if asked_for else patience))

    def execute_complete(self, context: "Context", event: dict[str, Any], until: str = "") -> Any:
        with opened_task(self.task_file) as work:
            lock, scene = self._look(work, context)
            view = self._shown(lock, scene)
            if not view.is_open:
                raise AirflowSkipException(RESOLVED)
            answer = super().execute_complete(context, event)
            (choice,) = answer["chosen_options"]
            if event.get("timedout"):
                if view.is_executable or not (was_cleared(context) or view.state == "undecided"):
                    raise AirflowSkipException("the lock continues without an answer")
                self._ask(context, view, datetime.fromisoformat(until))
            if choice == LEAVE:
                raise AirflowSkipException("left as it is")
            command = command_of(view, choice, answer["params_input"])
            if choice == DRY_RUN:
                self._tell(work, context, command, scene)
                self._ask(context, view, datetime.fromisoformat(until))
            return self._give(work, context, command, answer, scene)

    def remedies(self) -> Sequence[str]:
        """Return the commands for the undecided lock."""
        return remedies(self.seen, self.task_file) if self.seen else ()

    def _look(self, work: "Work", context: "Context") -> "tuple[DdlLock, Scene]":
        from unshard.units.ddl.scene import find

        return find(work.meta, lock_of(context))

    def _shown(self, lock: "DdlLock", scene: "Scene") -> "LockView":
        """Return the lock with its ways out, also for the message of a failure."""
        self.seen = view = scene.view(lock)
        return view

    def _ask(self, context: "Context", view: "LockView", until: datetime) -> NoReturn:
        """Wait for an answer, and check the lock every LOOK_AGAIN; fail when the time is up."""
        if datetime.now(UTC) >= until:
            raise AirflowFailException(f"no decision on lock {view.id} in time")
        from unshard.operate.command import shards_of

        told = [
            *situation(view),
            *(advised(view, self.task_file) if view.state == "conflict" or view.lacks_place else ()),
        ]
        lines = "\n".join(f"* {line}" for line in told)
        self.body = ASKED.format(lock=view.id, state=view.state, ddl=statement(view.ddl), told=lines)
        self.body += ASKED_AGAIN if view.is_refused else ""
        self.options = options(view)
        self.params = ParamsDict(fields(shards_of(view)))
        try:
            super().execute(context)
        except AWAITING_INPUT as waiting:
            waiting.kwargs = {"until": until.isoformat()}  # type: ignore[attr-defined]
            raise
        raise AssertionError("the question was not asked")

    def _tell(self, work: "Work", context: "Context", command: "LockCommand", scene: "Scene") -> None:
        from unshard.operate import issuing

        try:
            lines = issuing.preview(work.meta, command, scene)
        except UnshardError as error:
            lines = (refusal(str(error)),)
        for line in lines:
            self.log.info("effect: %s", line)
        context["ti"].xcom_push(key="would_do", value=list(lines))

    def _give(
        self, work: "Work", context: "Context", command: "LockCommand", answer: Mapping[str, Any], scene: "Scene"
    ) -> Any:
        from unshard.operate import issuing
        from unshard.units.ddl import coordinate

        by = answer["responded_by_user"]["name"]
        reason = answer["params_input"].get("reason") or f"answered in task replace of run {context['dag_run'].run_id}"
        command = issuing.pinned(work.meta, command, scene)
        after = issuing.give(work.meta, command, by=by, via=VIA, reason=reason)
        return as_json(coordinate.view(work.meta, command.lock, after))


def options(view: "LockView") -> list[str]:
    """Return the possible answers: *Try again* only for a DDL that the target has refused, *Skip* in a conflict only if
    it leads the rows of all shards into the target.
    """
    from unshard.operate.advice import choices

    found = choices(view)
    left_out = {RETRY} if not view.is_refused else set()
    left_out |= set() if found.skip or found.skip_all else {SKIP}
    return [option for option in OPTIONS if option not in left_out]


def fields(shards: "Sequence[Shard]") -> dict[str, Param]:
    """Return the fields of the question."""
    choice: dict[str, Any] = {"enum": [EVERY, *map(str, shards)]} if shards else {}
    return {
        "statements": Param(
            "",
            type=["null", "string"],
            format="multiline",
            title="Statements",
            description="to execute instead; end each with ; at the end of its line",
        ),
        "shard": Param(EVERY, type=["null", "string"], title="Shard", description="empty: all shards", **choice),
        "reason": Param("", type=["null", "string"], title="Reason", description="is stored with the command"),
    }


def command_of(view: "LockView", choice: str, given: Mapping[str, Any]) -> "LockCommand":
    """Return the command of an answer; the dry run uses the fields."""
    from unshard.operate.command import Unfit, read_form

    statements = given.get("statements") or ""
    dry_run = "replace" if statements.strip() else "skip"
    action = {SKIP: "skip", RETRY: "retry", DRY_RUN: dry_run}.get(choice, "replace")
    try:
        return read_form(view, {"action": action, "statements": statements, "shard": given.get("shard") or EVERY})
    except Unfit as error:
        raise AirflowFailException(f"the answer is not valid: {error}; clear this task to answer again") from error
