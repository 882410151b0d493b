"""Imports what tasks need. `import unshard_airflow.preload` in airflow_local_settings.py saves 1 to 2 s per task.

The scheduler's LocalExecutor (and a Celery worker) forks the process of every task; what its parent has
imported is there already. Nothing here opens a connection or starts a thread, so forking stays safe.
"""

import importlib
import logging

MODULES = (
    "airflow.sdk.execution_time.task_runner",
    "pyarrow.parquet",
    "pyspark.sql.connect.session",
    "unshard.adapters.spark",
    "unshard.units.coordinate",
    "unshard.units.relay",
    "unshard.units.sync",
    "unshard_airflow.graph",
)

log = logging.getLogger(__name__)

for _module in MODULES:
    try:
        importlib.import_module(_module)
    except ImportError as error:
        # Tasks that do not need it must still run; the one that does will say so itself.
        log.warning("cannot preload module=%s error=%s", _module, error)
