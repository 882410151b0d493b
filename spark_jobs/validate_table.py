"""Compare the target with the union of its shards in Spark executors: for a cluster near the servers.

    spark-submit spark_jobs/validate_table.py TASK.yaml [--parallelism N] [--table schema.table]

Prints one line per table; exit code 2 if one differs, 1 if none differs but one cannot be compared.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from unshard.adapters.spark import map_items, session
from unshard.config import environment_connections, load_task
from unshard.config.allowed import allowed_spark_connection
from unshard.core.model import TableId
from unshard.core.sql.keyrange import KeyRange
from unshard.units.validate.ranges import (
    ComparedRange,
    RangeSums,
    Sessions,
    TableCheck,
    ranges,
    read_sums,
    write_range,
)
from unshard.units.validate.validate import Settings, TableResult, chunk_rows, validate
from unshard.units.work import Work, open_work

DEFAULTS = Settings()


def run_validation(
    spark: Any, work: Work, parallelism: int, tables: Sequence[TableId] = (), settings: Settings = DEFAULTS
) -> tuple[TableResult, ...]:
    """Validate in a live session, `parallelism` ranges at a time."""

    def on_spark(check: TableCheck, due: Sequence[KeyRange]) -> Iterator[ComparedRange]:
        with Sessions() as sessions:
            rows = chunk_rows(check, settings)
            spans = [write_range(span) for span in ranges(sessions, check, lambda: rows, due)]
        for text in map_items(spark, RangeSums(check), spans, parallelism):
            yield read_sums(text)

    return validate(work, tables, settings, comparer=on_spark)


def main(arguments: Sequence[str] | None = None) -> int:
    """Validate from spark-submit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task")
    parser.add_argument("--parallelism", type=int, default=8)
    parser.add_argument("--table", action="append", default=[])
    options = parser.parse_args(arguments)
    task = load_task(Path(options.task))
    tables = [TableId(*name.split(".", 1)) for name in options.table]
    address = allowed_spark_connection(task.options.bulk_connection)
    with session(address, environment_connections) as spark, open_work(task) as work:
        verdicts = run_validation(spark, work, options.parallelism, tables)
    for verdict in verdicts:
        result = f"{'equal' if verdict.equal else 'DIFFERS'}, {verdict.rows_target} rows"
        result = f"NO VERDICT, {verdict.error}" if verdict.error else result
        sys.stdout.write("\n".join((f"{verdict.target}: {result}", *verdict.through.told, "")))
    if any(verdict.differs for verdict in verdicts):
        return 2
    return 0 if all(verdict.equal for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
