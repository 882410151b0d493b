"""The public names of the provider, such as `from airflow.provider.unshard import migration`; docs/api.md lists them.

Of a package apache-airflow-provider-unshard, Airflow loads classes only from a module with this name. They are imported
when they are used, because Airflow imports this module for each command.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unshard_airflow.airflowcommand import get_cli_commands
    from unshard_airflow.api import (
        Alert,
        FailureNotifier,
        UnshardCheck,
        UnshardFollow,
        UnshardFullLoad,
        UnshardHook,
        UnshardTasksBundle,
        UnshardUnlock,
        migration,
    )
    from unshard_airflow.links import DifferenceRunLink, LockRunLink, TaskPageLink

MODULES = {
    "get_cli_commands": "airflowcommand",
    "DifferenceRunLink": "links",
    "LockRunLink": "links",
    "TaskPageLink": "links",
    "UnshardHook": "hook",
    "UnshardTasksBundle": "bundle",
}
"""The modules of names that Airflow asks for; the others are in `unshard_airflow.api`."""

__all__ = [
    "Alert",
    "DifferenceRunLink",
    "FailureNotifier",
    "LockRunLink",
    "TaskPageLink",
    "UnshardCheck",
    "UnshardFollow",
    "UnshardFullLoad",
    "UnshardHook",
    "UnshardTasksBundle",
    "UnshardUnlock",
    "get_cli_commands",
    "migration",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(name)
    return getattr(import_module(f"unshard_airflow.{MODULES.get(name, 'api')}"), name)
