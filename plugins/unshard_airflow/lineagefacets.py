"""OpenLineage facets of a task: shards as inputs, changed targets as outputs, with columns and row counts; verdicts.

They are collected only if the provider is installed and has a transport. The provider asks for them in a process that
must not use Airflow's connections, so the operators collect them while they run.
"""

import importlib.util
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

    from unshard.core.model import Server, TableId, TableSchema
    from unshard.units.task.tablelineage import ShardLineage, TargetLineage

EQUAL = "equal to the union of its shards"
MAPPED = "changed by a column mapping of the task file"


def is_observed() -> bool:
    """Whether OpenLineage is installed and has a transport."""
    if importlib.util.find_spec("airflow.providers.openlineage") is None:
        return False
    from airflow.providers.openlineage.conf import is_disabled

    return not is_disabled()


def operator_lineage(lineage: "Sequence[TargetLineage]") -> "OperatorLineage[Any, Any]":
    """Return the lineage of an operator; the shards of several targets once."""
    from airflow.providers.openlineage.extractors import OperatorLineage

    shards = {shard.shard: shard for target in lineage for shard in target.shards}
    return OperatorLineage(inputs=[*map(_input, shards.values())], outputs=[*map(_output, lineage)])


def asserted(verdicts: "Mapping[TableId, bool]", server: "Server") -> "OperatorLineage[Any, Any]":
    """Return which target tables a check has proven to be equal to their shards, and which to differ."""
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import InputDataset
    from openlineage.client.facet_v2 import data_quality_assertions_dataset as quality

    def dataset(target: "TableId", is_equal: bool) -> InputDataset:
        facet = quality.DataQualityAssertionsDatasetFacet([quality.Assertion(EQUAL, success=is_equal)])
        return InputDataset(*_place(server, target), {"dataQualityAssertions": facet})

    return OperatorLineage(inputs=[dataset(*verdict) for verdict in verdicts.items()])


def _input(each: "ShardLineage") -> Any:
    from openlineage.client.event_v2 import InputDataset

    return InputDataset(*_place(each.server, each.shard.table), facets={"schema": _schema(each.schema)})


def _output(each: "TargetLineage") -> Any:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import column_lineage_dataset, output_statistics_output_dataset

    columns = {column.name: [*_origins(column.name, each.shards)] for column in each.schema.columns}
    fields = {name: column_lineage_dataset.Fields(inputFields=found) for name, found in columns.items() if found}
    return OutputDataset(
        *_place(each.server, each.target),
        facets={
            "schema": _schema(each.schema),
            "columnLineage": column_lineage_dataset.ColumnLineageDatasetFacet(fields=fields),
        },
        outputFacets={
            "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=each.rows)
        },
    )


def _origins(column: str, shards: "Iterable[ShardLineage]") -> Iterator[Any]:
    from openlineage.client.facet_v2 import column_lineage_dataset

    for shard in shards:
        if column in shard.origins:
            is_mapped = column.lower() in shard.mapped
            change = column_lineage_dataset.Transformation(
                type="DIRECT", subtype="TRANSFORMATION" if is_mapped else "IDENTITY", description=MAPPED * is_mapped
            )
            place = _place(shard.server, shard.shard.table)
            yield column_lineage_dataset.InputField(*place, shard.origins[column], transformations=[change])


def _schema(schema: "TableSchema") -> Any:
    from openlineage.client.facet_v2 import schema_dataset

    fields = [
        schema_dataset.SchemaDatasetFacetFields(name=each.own_name or each.name, type=each.column_type)
        for each in schema.columns
    ]
    return schema_dataset.SchemaDatasetFacet(fields=fields)


def _place(server: "Server", table: "TableId") -> tuple[str, str]:
    """Return namespace and name, as OpenLineage names tables of MySQL."""
    return f"mysql://{server.host}:{server.port}", f"{table.schema}.{table.name}"
