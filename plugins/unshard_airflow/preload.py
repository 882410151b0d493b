"""Preload the modules of tasks: `import unshard_airflow.preload` in airflow_local_settings.py saves 1 to 2 s per task.

The scheduler's LocalExecutor (and a Celery worker) forks the process of every task, and the child has the modules of
its parent. Nothing here opens a connection or starts a thread, so forking stays safe.
"""

import importlib
import logging

MODULES = (
    "airflow.sdk.execution_time.task_runner",
    "pyarrow.parquet",
    "pyspark.sql.connect.session",
    "unshard.adapters.spark",
    "unshard.units.ddl.coordinate",
    "unshard.units.relay.pull",
    "unshard.units.window.sync",
    "unshard_airflow.graph",
)

log = logging.getLogger(__name__)

for _module in MODULES:
    try:
        importlib.import_module(_module)
    except ImportError as error:
        # Tasks that do not need it must still run; a task that needs it fails with its own error.
        log.warning("cannot preload module=%s error=%s", _module, error)
