"""Task and source files in DM's format: checked strictly, and fast to import.

`load_task(path)` returns a `Task`; `resolve(endpoint, connections)` returns a server with its password. Every
key is declared once, with the field that has its value (`taskkeys`, `unitkeys`, `rulekeys`, `sources`). `make docs`
writes the tables of docs/config.md from the declarations.
"""

from unshard.config.reading import has_changed, load_task
from unshard.config.secrets import Connections, environment_connections, resolve, storage_access
from unshard.config.sources import Endpoint, Flavor, Source
from unshard.config.task import Instance, Task
from unshard.config.taskkeys import Options, PrimaryKey, ShardMode, TaskMode, UnsupportedIndexes
from unshard.config.textchecks import is_spark_master
from unshard.config.unitkeys import Consistency, DumpOptions, LoadOptions, OnDuplicate, SyncOptions

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
