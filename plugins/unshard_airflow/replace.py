"""The task `replace` of a lock's run: it asks a person for the statements that take the place of the DDL.

Airflow shows the question under *Required Actions* and on the task, to whoever may answer it there. The task asks
when it is cleared, and by itself when unshard cannot tell what the DDL means. Otherwise it ends at once.

| what happens while it asks                        | what the task does                                        |
|---------------------------------------------------|-----------------------------------------------------------|
| somebody answers                                  | gives the order in that person's name                     |
| somebody asks for the dry run                     | writes it into its log and XCom, asks again               |
| the lock is decided, forced or resolved elsewhere | sees it within `LOOK_AGAIN`, ends                         |
| nobody answers within `lock-timeout`              | fails, red; clearing it asks again                        |
| it is cleared                                     | asks anew                                                 |
| its process dies before the order is recorded     | the retry asks again; nothing was done                    |
| … after                                           | the retry asks again if the lock still waits              |
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import Param
from airflow.sdk.definitions.param import ParamsDict
from airflow.sdk.exceptions import AirflowFailException, TaskAwaitingInput

from unshard.errors import UnshardError
from unshard_airflow import forms
from unshard_airflow.locks import lock_of, was_cleared
from unshard_airflow.masking import refusal, statement
from unshard_airflow.operators import opened
from unshard_airflow.outcome import as_json
from unshard_airflow.remedies import remedies, standing

if TYPE_CHECKING:
    from airflow.sdk import Context

    from unshard.core.model import Shard
    from unshard.core.orders import Order
    from unshard.units.coordinate import LockView
    from unshard.units.work import Work

REPLACE, SKIP, DRY_RUN, LEAVE = OPTIONS = ("Replace", "Skip", "Show what would be done", "Leave it as it is")
LOOK_AGAIN = timedelta(minutes=2)
TIME_TO_ANSWER = timedelta(hours=1)
"""For whoever has cleared the task, however short the task's `lock-timeout` is."""
VIA = "required action"
EVERY = ""
RESOLVED = "the lock is resolved already"
ASKED = """Lock `{lock}` is **{state}**. Its DDL:

```sql
{ddl}
```

{told}

*Replace* executes other statements on the target; they may name the target or any shard of the group. *Skip* executes
nothing. With a shard chosen, the order is for that shard alone. What would be done goes into this task's log.
"""


class Replace(HITLOperator):
    """Asks for the statements to execute instead, or for none, and gives that order."""

    def __init__(self, *, task_file: str, **kwargs: Any) -> None:
        super().__init__(subject="What is to be executed instead of the DDL?", options=list(OPTIONS), defaults=LEAVE,
                         params=fields(()), response_timeout=LOOK_AGAIN, **kwargs)  # fmt: skip
        self.task_file = task_file
        self.seen: LockView | None = None

    def execute(self, context: "Context") -> Any:
        with opened(self.task_file) as work:
            view = self._look(work, context)
            if not view.is_open:
                return RESOLVED
            asked_for = was_cleared(context)
            if not asked_for and view.state != "undecided":
                return "clear this task to be asked for other statements"
            patience = work.task.options.lock_timeout
            self._ask(context, view, datetime.now(UTC) + (max(patience, TIME_TO_ANSWER) if asked_for else patience))

    def execute_complete(self, context: "Context", event: dict[str, Any], until: str = "") -> Any:
        with opened(self.task_file) as work:
            view = self._look(work, context)
            if not view.is_open:
                return RESOLVED
            answer = super().execute_complete(context, event)
            (choice,) = answer["chosen_options"]
            if event.get("timedout"):
                if view.is_executable or not (was_cleared(context) or view.state == "undecided"):
                    return "the lock goes on without an answer"
                self._ask(context, view, datetime.fromisoformat(until))
            if choice == LEAVE:
                return "left as it is"
            order = order_of(view, choice, answer["params_input"])
            if choice == DRY_RUN:
                self._tell(work, context, order)
                self._ask(context, view, datetime.fromisoformat(until))
            return self._give(work, context, order, answer)

    def remedies(self) -> Sequence[str]:
        """Say what a person can do about the lock on which nobody has decided."""
        return remedies(self.seen, self.task_file) if self.seen else ()

    def _look(self, work: "Work", context: "Context") -> "LockView":
        from unshard.units import coordinate

        self.seen = view = coordinate.view(work.meta, lock_of(context))
        return view

    def _ask(self, context: "Context", view: "LockView", until: datetime) -> NoReturn:
        """Wait for an answer, looking at the lock again from time to time; fail when the time is up."""
        if datetime.now(UTC) >= until:
            raise AirflowFailException(f"nobody has decided on lock {view.id} in time")
        told = "\n".join(f"* {line}" for line in standing(view))
        self.body = ASKED.format(lock=view.id, state=view.state, ddl=statement(view.ddl), told=told)
        self.params = ParamsDict(fields(forms.shards_of(view)))
        try:
            super().execute(context)
        except TaskAwaitingInput as waiting:
            waiting.kwargs = {"until": until.isoformat()}
            raise
        raise AssertionError("the question has not been asked")

    def _tell(self, work: "Work", context: "Context", order: "Order") -> None:
        from unshard.units import orders

        try:
            lines = orders.preview(work.meta, order)
        except UnshardError as error:
            lines = (refusal(str(error)),)
        for line in lines:
            self.log.info("would do: %s", line)
        context["ti"].xcom_push(key="would_do", value=list(lines))

    def _give(self, work: "Work", context: "Context", order: "Order", answer: Mapping[str, Any]) -> Any:
        from unshard.units import orders

        by = answer["responded_by_user"]["name"]
        reason = answer["params_input"].get("reason") or f"answered in task replace of run {context['dag_run'].run_id}"
        return as_json(orders.give(work.meta, orders.pinned(work.meta, order), by=by, via=VIA, reason=reason))


def fields(shards: "Sequence[Shard]") -> dict[str, Param]:
    """Return the fields of the question."""
    choice: dict[str, Any] = {"enum": [EVERY, *map(str, shards)]} if shards else {}
    return {
        "statements": Param("", type=["null", "string"], format="multiline", title="Statements",
                            description="to execute instead; end each with ; at the end of its line"),
        "shard": Param(EVERY, type=["null", "string"], title="Shard", description="empty: all shards", **choice),
        "reason": Param("", type=["null", "string"], title="Reason", description="is kept with the order"),
    }  # fmt: skip


def order_of(view: "LockView", choice: str, given: Mapping[str, Any]) -> "Order":
    """Return the order that an answer asks for; the dry run is about what the fields say."""
    statements = given.get("statements") or ""
    action = "skip" if choice == SKIP or (choice == DRY_RUN and not statements.strip()) else "replace"
    try:
        return forms.order(view, {"action": action, "statements": statements, "shard": given.get("shard") or EVERY})
    except forms.Unfit as error:
        raise AirflowFailException(f"the answer cannot be taken: {error}; clear this task to answer again") from error
