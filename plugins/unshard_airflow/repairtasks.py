"""The repair of a target table: a person sees the values of up to MOST_ROWS rows, and decides.

| event                                   | effect                                                       |
|-----------------------------------------|--------------------------------------------------------------|
| no row can be repaired                  | the task is skipped                                          |
| somebody chooses *Repair*               | the rows of the question are proven again and repaired       |
| somebody chooses *Leave them*           | the task is skipped; nothing was done                        |
| there is no answer within TIME_TO_ANSWER | the same                                                    |
| a row has changed since the question    | it is left to the windows; the task fails and names it       |
| the process dies                        | the retry asks again, for the rows that differ still         |
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException
from airflow.providers.standard.operators.hitl import HITLOperator

from unshard.core.masking import HIDDEN
from unshard.core.model import TableId
from unshard.core.shown import amount, one_line, visible
from unshard_airflow.checktasks import STILL_SECONDS
from unshard_airflow.operators import opened_task
from unshard_airflow.versions import AWAITING_INPUT

if TYPE_CHECKING:
    from airflow.sdk import Context

    from unshard.core.validate.rowdifferences import RowDifference
    from unshard.units.validate.repairing import PlannedRow, TableRepair
    from unshard.units.validate.validate import Settings
    from unshard.units.work import Work

OPTIONS = ("Repair", "Leave them")
REPAIR, LEAVE = OPTIONS
MOST_ROWS = 100
"""Rows of one question; another run asks for the next ones."""
MOST_CHARACTERS = 60
TIME_TO_ANSWER = timedelta(days=1)
VIA = "required action"


class RepairTarget(HITLOperator):
    """Asks whether to make rows of a target table those of their shards, and does so."""

    template_fields: Sequence[str] = ("target", "subject", "body")

    def __init__(self, *, task_file: str, target: str = "", **kwargs: Any) -> None:
        super().__init__(
            subject="Repair these rows?",
            options=list(OPTIONS),
            defaults=LEAVE,
            response_timeout=TIME_TO_ANSWER,
            **kwargs,
        )
        self.task_file = task_file
        self.target = target

    def execute(self, context: "Context") -> Any:
        from unshard.units.validate.repairing import plan_repair, row_changes

        with opened_task(self.task_file) as work:
            (plan,) = plan_repair(work, [self._table], _settings(work))
            if plan.result.error:
                raise AirflowFailException(str(plan.result.error))
            if not plan.planned:
                left = left_rows(plan, work.task.options.masked_columns)
                raise AirflowSkipException("\n".join(("nothing to repair", *left)))
            changes = row_changes(work, plan, MOST_ROWS)
            masked = work.task.options.masked_columns
        self.body = question(plan, changes, masked)
        try:
            super().execute(context)
        except AWAITING_INPUT as waiting:
            waiting.kwargs = {"keys": [list(each.difference.key) for each in changes]}  # type: ignore[attr-defined]
            raise

    def execute_complete(self, context: "Context", event: dict[str, Any], keys: Sequence[Sequence[Any]] = ()) -> Any:
        from unshard.core.ddl.issuedcommands import IssuedCommand
        from unshard.core.validate.rowdifferences import folded_key
        from unshard.units.validate import repairing

        answer = super().execute_complete(context, event)
        if answer["chosen_options"] != [REPAIR]:
            raise AirflowSkipException("nothing was done")
        approved = {folded_key(tuple(key)) for key in keys}
        by, run = answer["responded_by_user"]["name"], context["dag_run"].run_id
        command = IssuedCommand(repairing.REPAIR, by, VIA, f"answered in task {self.task_id} of run {run}")
        with opened_task(self.task_file) as work:
            settings = _settings(work)
            plans = repairing.plan_repair(work, [self._table], settings, chosen=lambda _, key: key in approved)
            (done,) = repairing.repair(work, plans, command, settings)
            left = left_rows(done, work.task.options.masked_columns)
        self.log.info("repaired target=%s rows=%s", self.target, len(done.repaired))
        if done.result.error or done.left:
            raise AirflowFailException("\n".join(("not all rows are repaired", *left)))
        return {"target": self.target, "repaired": len(done.repaired), "pending": len(done.result.pending)}

    @property
    def _table(self) -> TableId:
        return TableId(*self.target.split(".", 1))


def _settings(work: "Work") -> "Settings":
    """Return the settings of a comparison that leaves out the ranges that the check has found equal."""
    from unshard.units.validate.validate import Settings

    return Settings(still=STILL_SECONDS, older_than=work.task.options.check_older_than)


def question(plan: "TableRepair", changes: "Sequence[PlannedRow]", masked: Collection[str]) -> str:
    """Return the rows with the values of target and shards, as a table of Markdown."""
    rest = len(plan.planned) - len(changes)
    lines = [
        f"**{plan.target}** differs from its shards in {amount(len(plan.planned))} rows.",
        "",
        "| key | difference | in the target | in the shard |",
        "|---|---|---|---|",
        *(row for each in changes for row in _rows(plan, each, masked)),
        "",
        f"*{REPAIR}* compares them again, and writes only those that still differ and that no change touches.",
    ]
    more = [f"{amount(rest)} more rows differ: trigger another run for them."] if rest else []
    return "\n".join([*lines, *more, *(f"* {each}" for each in left_rows(plan, masked))])


def left_rows(plan: "TableRepair", masked: Collection[str]) -> list[str]:
    """Return the differences that a repair leaves, and why."""
    lines = [f"left: {visible(_named(plan, each.difference, masked))}: {each.why}" for each in plan.left[:MOST_ROWS]]
    more = len(plan.left) - len(lines)
    return [*lines, f"left: {amount(more)} more"] if more else lines


def _named(plan: "TableRepair", difference: "RowDifference", masked: Collection[str]) -> str:
    names = plan.result.named_by
    key = (HIDDEN if _is_masked(name, masked) else value for name, value in zip(names, difference.key, strict=True))
    return replace(difference, key=tuple(key)).named(names)


def _is_masked(column: str, masked: Collection[str]) -> bool:
    return "*" in masked or column.lower() in map(str.lower, masked)


def _rows(plan: "TableRepair", change: "PlannedRow", masked: Collection[str]) -> Iterator[str]:
    """Yield the columns that a repair changes; the first line names the key and its shard."""
    shards = f" of {', '.join(change.difference.shards)}" if change.difference.shards else ""
    first = f"{_cell(_named(plan, change.difference, masked) + shards)} | {change.difference.kind}"
    sides = change.before, change.after
    for column in {**change.before, **change.after}:
        if _has(change.before, column) != _has(change.after, column):
            before, after = (_value(side, column, masked) for side in sides)
            yield f"| {first} | {before} | {after} |"
            first = " | "


def _has(row: Mapping[str, str | None], column: str) -> tuple[bool, str | None]:
    return column in row, row.get(column)


def _value(row: Mapping[str, str | None], column: str, masked: Collection[str]) -> str:
    if column not in row:
        return ""
    value = HIDDEN if _is_masked(column, masked) else row[column]
    return f"{_cell(column)} = {'NULL' if value is None else _cell(value)}"


def _cell(text: str) -> str:
    """Return a text that Markdown shows as it is."""
    short = text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"
    return "`" + one_line(visible(short)).replace("`", "'").replace("|", "\\|") + "`" if short else "''"
