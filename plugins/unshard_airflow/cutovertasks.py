"""The cutover of a task: `plan >> cut_over`, triggered by a person who chooses the action in the form.

| event | effect |
|---|---|
| something is in the way | `plan` fails and lists it; clear it when it is removed |
| an error, a time-out, or `cut_over` is stopped | it fails, and the sources are as before; clear it to go on |
| its process is killed | the sources may stay read-only: clear it to go on, or trigger the DAG with the action abort |
| it is done | the certificate is its XCom; the task of unshard is paused, and further runs show it |
"""

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import Param

from unshard_airflow.operators import TaskOperator, opened_task

if TYPE_CHECKING:
    from airflow.sdk import Context

    from unshard.core.ddl.issuedcommands import IssuedCommand

RUN, ABORT = "run", "abort"
TIMES = r"^\d+(\.\d+)?[smhd]$"
FIELDS = {
    "action": Param(RUN, enum=[RUN, ABORT], description="Abort gives the sources back what a cutover has changed."),
    "read_only": Param(False, type="boolean", description="Set the sources to read-only, and back if anything fails."),
    "within": Param("5m", type="string", pattern=TIMES, description="The longest time with read-only sources."),
    "wait": Param("1h", type="string", pattern=TIMES, description="The longest wait until others make them read-only."),
    "reason": Param("", type="string"),
}


class PlanCutover(TaskOperator):
    """Lists what is in the way of a cutover; fails if a person must remove some of it."""

    def execute(self, context: "Context") -> list[str]:
        from unshard.core.validate.cutoverstate import Who
        from unshard.units.task.cutover import obstacles

        if context["params"]["action"] == ABORT:
            return []
        with opened_task(self.task_file) as work:
            stored = work.meta.cutovers.get()
            found = () if stored and stored.is_done else obstacles(work)
        lines = [str(each) for each in found]
        for line in lines:
            self.log.info("cutover %s", line)
        if yours := [str(each) for each in found if each.who is Who.YOU]:
            raise AirflowFailException("\n".join(["these must be removed before the cutover:", *yours]))
        return lines


class CutOver(TaskOperator):
    """Cuts the task over, or aborts a cutover; its XCom is the certificate."""

    def execute(self, context: "Context") -> dict[str, Any]:
        from unshard.config.kinds import seconds_in
        from unshard.units.task.cutover import CutoverOptions, abort_cutover, cutover_document, run_cutover

        params = context["params"]
        with opened_task(self.task_file) as work:
            if params["action"] == ABORT:
                return {"restored": abort_cutover(work, _command("abort cutover", context)) or []}
            times = [seconds_in(params[name]) or 0.0 for name in ("within", "wait")]
            options = CutoverOptions(params["read_only"], *times)
            done = run_cutover(work, _command("cutover", context), options, self._tell)
        return cutover_document(done)

    def _tell(self, line: str) -> None:
        self.log.info("cutover %s", line)


def _command(action: str, context: "Context") -> "IssuedCommand":
    from unshard.core.ddl.issuedcommands import IssuedCommand

    who = getattr(context["dag_run"], "triggering_user_name", None) or "airflow"
    return IssuedCommand(action, who, "DAG run", context["params"]["reason"])
