"""The check of the targets: `list_targets >> check[target]`.

| event | effect |
|---|---|
| all ranges are proven equal | the task succeeds; its asset and that of its proofs get an event with rows and age |
| a difference is proven or explained | the task fails and names keys; it is not retried |
| the time of a check is over, or changes are on their way | the task succeeds without an event |
| the check is cleared, or dies | it goes on with the ranges that are not proven |
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import Asset

from unshard.core.model import TableId
from unshard_airflow.operators import TaskOperator, opened_task, table_asset
from unshard_airflow.stats import send

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from unshard.config import Task
    from unshard.core.model import Server
    from unshard.core.validate.ledger import Proof
    from unshard.units.validate.validate import TableResult
    from unshard.units.work import Work

NAMED = 20
"""Keys that a failed check names."""
STILL_SECONDS = 30.0
"""Windows that have not moved for so long are not waited for: a live run starts in less."""


class ListTargets(TaskOperator):
    """Lists the target tables of the shards that are loaded."""

    def execute(self, context: "Context") -> list[str]:
        with opened_task(self.task_file) as work:
            states = work.meta.structures.shards()
            return sorted({str(state.target) for state in states if not (state.has_left or state.is_dropped)})


class ComparingOperator(TaskOperator):
    """Compares target tables with their shards, and sends what it finds as metrics and lineage."""

    compared: "Task"
    server: "Server"
    """That of the target."""
    verdicts: "Mapping[TableId, bool]" = MappingProxyType({})
    """Whether each target table is equal to its shards, as far as this is known."""

    def get_openlineage_facets_on_complete(self, _: Any) -> "OperatorLineage[Any, Any] | None":
        """Return the verdicts as assertions; OpenLineage's provider calls it, also after a failure."""
        from unshard_airflow.lineagefacets import asserted

        return asserted(self.verdicts, self.server) if self.verdicts else None

    def compare(self, tables: Sequence[TableId]) -> "list[tuple[TableResult, Proof | None]]":
        """Compare these target tables, or all, as the options of the task file say; fail if one differs."""
        from unshard.units.task.metrics import of_proof

        with opened_task(self.task_file) as work:
            results = _compared(work, tables)
            proofs = {each.target: each for each in work.meta.judged_ranges.proofs()}
        self.compared, self.server = work.task, work.target
        self.verdicts = {each.target: each.equal for each in results if each.equal or each.differs}
        for each in results:
            self.log.info("checked target=%s %s", each.target, proofs.get(each.target))
            if each.target in proofs:
                send(of_proof(work.task.name, proofs[each.target]))
        if wrong := "\n".join(filter(None, map(difference_text, results))):
            raise AirflowFailException(wrong)
        return [(each, proofs.get(each.target)) for each in results]


class CheckTarget(ComparingOperator):
    """Compares one target table with its shards, as far as it is not proven equal already."""

    template_fields: Sequence[str] = ("target",)

    def __init__(self, *, target: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.target = target

    def execute(self, context: "Context") -> Any:
        table = TableId(*self.target.split(".", 1))
        ((found, proof),) = self.compare([table])
        told: dict[str, Any] = {"equal": found.equal, "unfinished": found.is_cut}
        told |= {"pending": len(found.pending), "pending_columns": [*found.coming_columns]}
        if proof is not None:
            told |= {"rows": proof.rows, "age_seconds": round(proof.age.total_seconds())}
        if found.equal:
            for asset in (table_asset(self.server, table), proof_asset(self.compared, table)):
                context["outlet_events"][self.outlets[0]].add(asset, extra=told)
        return told


def _compared(work: "Work", tables: Sequence[TableId]) -> "tuple[TableResult, ...]":
    from unshard.units.validate.validate import Settings, validate

    options = work.task.options
    settings = Settings(
        limit=NAMED,
        still=STILL_SECONDS,
        older_than=options.check_older_than,
        until=datetime.now(UTC) + options.check_time,
    )
    return validate(work, tables, settings)


def difference_text(found: "TableResult") -> str:
    """Return the error of a check, or keys that differ with the kind of each difference, or an empty text."""
    if found.error or not found.differs:
        return str(found.error or "")
    lines = [f"{found.target} differs from its shards: unshard validate, then unshard repair"]
    for each in found.differences[:NAMED]:
        key = each.named(found.named_by)
        lines.append(f"{each.kind}: {key}{f' ({each.because})' if each.because else ''}")
    lines += [f"lost column: {column}" for column in found.lost_columns]
    lines += [f"perhaps because {each}" for each in found.reloads]
    return "\n".join(lines)


def proof_asset(task: "Task", table: TableId) -> Asset:
    """Return the asset of the proofs of a target table; that of the table itself gets events of changes, too."""
    return Asset(f"unshard://{task.plain_name}/proven/{table.schema}/{table.name}")
