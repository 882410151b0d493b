"""Task and source files in DM's format: checked strictly, and fast to import.

`load_task(path)` returns a `Task`; `resolve(endpoint, connections)` returns a server with its password. Every
key is declared once (`taskkeys`, `unitkeys`, `sourcekeys`). `python -m unshard.config.reference` generates
docs/config.md from the declarations.
"""

from unshard.config.checks import is_spark_master
from unshard.config.model import (
    Consistency,
    DumpOptions,
    Endpoint,
    Flavor,
    Instance,
    LoadOptions,
    OnDuplicate,
    Options,
    PrimaryKey,
    ShardMode,
    Source,
    SyncOptions,
    Task,
    TaskMode,
    UnsupportedIndexes,
)
from unshard.config.reading import has_changed, load_task
from unshard.config.secrets import Connections, environment_connections, resolve, storage_access

__all__ = [
    "Connections",
    "Consistency",
    "DumpOptions",
    "Endpoint",
    "Flavor",
    "Instance",
    "LoadOptions",
    "OnDuplicate",
    "Options",
    "PrimaryKey",
    "ShardMode",
    "Source",
    "SyncOptions",
    "Task",
    "TaskMode",
    "UnsupportedIndexes",
    "environment_connections",
    "has_changed",
    "is_spark_master",
    "load_task",
    "resolve",
    "storage_access",
]
