"""The options of section [unshard] of Airflow's configuration.

The engine knows nothing of Airflow and reads environment variables. `task_with_options` sets missing ones from the
options, so that each process that opens a task, and a submitted Spark job, has them. A variable wins over its option.
"""

import os
from pathlib import Path

from airflow.configuration import AIRFLOW_HOME, conf

from unshard import config
from unshard.config import Task
from unshard_airflow.provider import OPTIONS, SECTION, TASKS_FOLDER


def option_value(name: str) -> str:
    """Return the value of the environment variable, else of the option."""
    found = OPTIONS[name]
    return os.environ.get(found.variable) or conf.get(SECTION, name, fallback=found.default)


def tasks_folder() -> Path:
    """Return the folder of the task files."""
    return Path(option_value(TASKS_FOLDER) or Path(AIRFLOW_HOME) / SECTION)


def task_with_options(path: Path) -> Task:
    """Read a task file with the limits that the options set."""
    for name, each in OPTIONS.items():
        os.environ.setdefault(each.variable, option_value(name))
    return config.load_task(path)
