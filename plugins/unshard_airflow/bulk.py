"""Dump and load on Spark, submitted as a separate application or run in a live session.

The type of the connection decides when the task runs, not when the DAG file is parsed. `spark` (or a plain master)
uses spark-submit, which separates bulk work from windows. `spark_connect` (or an `sc://` address) uses the session
of a Connect server. Both run the code of `spark_jobs/*.py`.
"""

import contextlib
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

import unshard
from unshard.config import Connections, Task, is_spark_master
from unshard.config.allowed import allowed_spark_connection
from unshard.config.secrets import variable_of
from unshard.core.shown import as_json
from unshard_airflow.connections import airflow_connections
from unshard_airflow.operators import UnitOperator, is_past, opened_task
from unshard_airflow.stats import send

if TYPE_CHECKING:
    from airflow.sdk import Context

    from unshard.units.work import Work

PLAIN_MASTER = "unshard_plain_master"
"""Connection id for the Spark provider if the task file names a master directly."""
TELL_SECONDS = 10.0
LOCAL_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


class BulkOperator(UnitOperator):
    """Runs the job of one source on the bulk connection."""

    job: ClassVar[str] = ""
    done: ClassVar[str] = ""
    """The phase at the end of the job."""

    def execute(self, context: "Context") -> Any:
        from unshard.core.task.state import Phase
        from unshard.units.task.tablelineage import loaded_rows

        with opened_task(self.task_file) as work:
            if is_past(work, self.source, Phase(self.done)):
                return f"source {self.source} is {self.done} already"
            with telling(self.log, lambda: told(work, self.source, self.done)):
                if is_submitted(work.task.options.bulk_connection):
                    self._submit(work.task)
                else:
                    self.run_here(work)
            if self.done == Load.done:
                self.observe(work, [self.source], lambda: loaded_rows(work, [self.source]))
            return as_json(progress(work, self.source))

    def run_here(self, work: "Work") -> None:
        """Run the unit in this process, on the session that it opens."""
        raise NotImplementedError

    def on_kill(self) -> None:
        """End the submitted application when the task is stopped."""
        if (hook := getattr(self, "_hook", None)) is not None:
            hook.on_kill()

    def _submit(self, task: Task) -> None:
        from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

        from unshard.adapters.spark import spark_job

        connection = task.options.bulk_connection
        if is_spark_master(connection):
            os.environ[variable_of(PLAIN_MASTER)] = json.dumps({"conn_type": "spark", "host": connection})
            connection = PLAIN_MASTER
        self._hook = SparkSubmitHook(
            conn_id=connection,
            name=f"{self.task_id} {task.name} {self.source}",
            conf=settings(connection),
            application_args=["--task", self.task_file, "--source", self.source],
        )
        # Secrets are passed in the environment: the hook's env_vars would be visible on YARN's command line.
        try:
            self._hook.submit(str(spark_job(self.job)), env=submit_environment(task))
        except AirflowException as error:
            if (told := permanent_error(str(error))) is not None:
                raise AirflowFailException(told) from error
            raise


class Dump(BulkOperator):
    """Reads the rows of a source's shards into Parquet files, chunk by chunk."""

    job = "dump_table.py"
    done = "dumped"

    def run_here(self, work: "Work") -> None:
        from unshard.units.full.dump import dump

        dump(work, self.source)


class Load(BulkOperator):
    """Writes the dumped chunks of a source into the target tables."""

    job = "load_table.py"
    done = "loaded"

    def run_here(self, work: "Work") -> None:
        from unshard.units.full.load import load

        load(work, self.source)


@contextlib.contextmanager
def telling(log: Any, text: Callable[[], str]) -> Iterator[None]:
    """Log the progress while the block runs and at its end, if it has changed; an empty text is not logged."""
    from unshard.errors import UnshardError

    ended = threading.Event()

    def tell() -> None:
        logged, is_over = "", False
        while not is_over:
            is_over = ended.wait(TELL_SECONDS)
            try:
                now = text()
            except UnshardError as error:
                now = f"progress cannot be read: {error}"
            if now and now != logged:
                log.info("%s", now)
            logged = now

    teller = threading.Thread(target=tell, name="progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join(TELL_SECONDS)


def is_submitted(connection: str) -> bool:
    """Whether bulk work uses spark-submit; the address must be one that task files may name."""
    from unshard.adapters.spark import address

    return not address(allowed_spark_connection(connection), airflow_connections).startswith("sc://")


def settings(connection: str) -> dict[str, str]:
    """Return the Spark settings of a submitted job; a local driver uses the loopback address."""
    host = str(airflow_connections(connection)["host"] or "")
    return dict(LOCAL_SETTINGS) if host.startswith("local") else {}


def submit_environment(task: Task) -> dict[str, str]:
    """Return the environment of spark-submit, with the package path and the connections that the job resolves."""
    path = [str(Path(unshard.__file__).parents[1]), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        **os.environ,
        **secrets_of(task),
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(path)),
        "PYSPARK_PYTHON": sys.executable,
        "PATH": os.pathsep.join((os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent))),
    }


def permanent_error(output: str) -> str | None:
    """Return the coded error of a failed job, or None if its exit code means a transient error."""
    code = re.search(r"Error code is: (\d+)", output)
    told = re.findall(r"^\[US-\d{4}\] .*$", output, re.MULTILINE)
    if not told or (code and int(code.group(1)) == os.EX_TEMPFAIL):
        return None
    return str(told[-1])


def progress(work: "Work", source: str) -> Mapping[str, Any]:
    """Return the progress of dump and load of a source, and send it as metrics."""
    from unshard.units.task.metrics import of_load
    from unshard.units.task.status import full_progress

    dump, load = full_progress(work.meta, [source])[source]
    send(of_load(work.task.name, source, dump, load))
    return {"source": source, "dump": dump, "load": load}


def told(work: "Work", source: str, done: str) -> str:
    """`source s1: dumped 3/8 chunks, 37.5 %, …`; empty before there are chunks."""
    part = progress(work, source)["dump" if done == Dump.done else "load"]
    return f"source {source}: {done} {part.done}/{part.chunks} chunks, {part}" if part.chunks else ""


def secrets_of(task: Task, connections: Connections = airflow_connections) -> dict[str, str]:
    """Return the connections that a task names as environment variables, of which the engine reads them."""
    endpoints = [task.target, *(instance.source.endpoint for instance in task.instances)]
    named = {endpoint.conn_id for endpoint in endpoints} | {task.options.storage_conn_id}
    return {variable_of(each): json.dumps(dict(connections(each))) for each in filter(None, named)}
