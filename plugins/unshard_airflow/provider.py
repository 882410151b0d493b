"""What Airflow asks an installed provider: names of classes, and the options of section [unshard].

It imports nothing of Airflow, which reads it while it reads its configuration.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import unshard
from unshard.core.variables import (
    DEFAULTS,
    SECRET_FOLDERS,
    SECRET_PREFIXES,
    SOURCE_FOLDERS,
    SPARK_MASTERS,
    STORAGE_PATHS,
)

PUBLIC = "airflow.provider.unshard"
SECTION, NOTIFIER, TASKS_FOLDER = "unshard", "notifier", "tasks_folder"
VERSION = unshard.__version__
"""Also the version in both files pyproject.toml."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option, with the environment variable that replaces it."""

    variable: str
    about: str
    default: str = ""


OPTIONS: Mapping[str, Option] = {
    TASKS_FOLDER: Option("UNSHARD_TASKS", "The folder of the task files. Empty: the folder unshard of AIRFLOW_HOME."),
    NOTIFIER: Option(
        "UNSHARD_NOTIFIER", "A class, package.module.Class, that is called when a task has failed and works again."
    ),
    "secret_folders": Option(
        SECRET_FOLDERS,
        "Folders in which a task file may name files with passwords, certificates or keys.",
        DEFAULTS[SECRET_FOLDERS],
    ),
    "secret_prefixes": Option(
        SECRET_PREFIXES,
        "Beginnings of the environment variables with passwords that a task file may name.",
        DEFAULTS[SECRET_PREFIXES],
    ),
    "source_folders": Option(
        SOURCE_FOLDERS, "Folders in which a task file may name source files, beside its own folder."
    ),
    "storage_paths": Option(STORAGE_PATHS, "The beginnings of allowed storage paths. Empty: all."),
    "spark_masters": Option(
        SPARK_MASTERS,
        "Addresses of Spark that a task file may name; Spark gets the passwords of the task.",
        DEFAULTS[SPARK_MASTERS],
    ),
}


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata (entry point `apache_airflow_provider`)."""
    options = {
        name: {
            "description": f"{each.about}\nThe environment variable {each.variable} replaces it.\n",
            "version_added": VERSION,
            "type": "string",
            "example": None,
            "default": each.default,
        }
        for name, each in OPTIONS.items()
    }
    integration = {"integration-name": "unshard", "external-doc-url": "", "tags": ["software"]}
    modules = {"integration-name": "unshard"}
    return {
        "package-name": "apache-airflow-provider-unshard",
        "name": "unshard",
        "description": "Merges sharded MySQL/MariaDB tables into one table of a TiDB, MySQL or MariaDB target.",
        "versions": [VERSION],
        "integrations": [integration],
        "operators": [modules | {"python-modules": [PUBLIC]}],
        "hooks": [modules | {"python-modules": [PUBLIC]}],
        "triggers": [modules | {"python-modules": ["unshard_airflow.watch"]}],
        "bundles": [modules | {"python-modules": [PUBLIC]}],
        "connection-types": [
            {"connection-type": "unshard", "hook-class-name": f"{PUBLIC}.UnshardHook"},
        ],
        "notifications": [f"{PUBLIC}.FailureNotifier"],
        "extra-links": [f"{PUBLIC}.LockRunLink", f"{PUBLIC}.DifferenceRunLink", f"{PUBLIC}.TaskPageLink"],
        "cli": [f"{PUBLIC}.get_cli_commands"],
        "config": {
            SECTION: {"description": "The folder of the task files, and limits of these files.", "options": options}
        },
    }
