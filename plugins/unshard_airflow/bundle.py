"""A DAG bundle of task files: it needs no DAG file in Airflow's folders.

    [dag_processor]
    dag_bundle_config_list = [{"name": "unshard", "classpath": "airflow.provider.unshard.UnshardTasksBundle",
        "kwargs": {}}]

The version is a digest of the task files, for people. No run is bound to a version (disable_bundle_versioning): unshard
works with the present task file, and the meta tables say what has begun. Airflow would also remove the folders of old
versions, which do not exist here, and its scheduler would end.
"""

import hashlib
from pathlib import Path
from typing import Any

from airflow.dag_processing.bundles.base import BaseDagBundle

from unshard_airflow.options import tasks_folder

REFRESH_SECONDS = 30
INSTALLED, CHECKED_OUT = Path(__file__).parent / "dags", Path(__file__).parents[2] / "dags"


class UnshardTasksBundle(BaseDagBundle):
    """The DAGs of all task files of the folder `[unshard] tasks_folder`."""

    supports_versioning = True

    def __init__(self, *, refresh_interval: int = REFRESH_SECONDS, **kwargs: Any) -> None:
        super().__init__(refresh_interval=refresh_interval, **kwargs)

    @property
    def path(self) -> Path:
        """The folder of the DAG files of this package, which build the DAGs of all task files."""
        return INSTALLED if INSTALLED.is_dir() else CHECKED_OUT

    def get_current_version(self) -> str:
        """Return 12 hexadecimal digits that identify the content of the task files and of their source files."""
        digest, folder = hashlib.sha256(), tasks_folder()
        for path in sorted((*folder.glob("*.yaml"), *folder.glob("*/**/*.yaml"))):
            # Kubernetes keeps the files of a config map in `..<time>`, with links to them in the folder.
            if not (name := str(path.relative_to(folder))).startswith(".."):
                digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
        return digest.hexdigest()[:12]

    def refresh(self) -> None:
        """Nothing to do: the DAG files read the task files."""
