"""Folders and files that only unshard's user can read, whatever the process creates by default.

A folder with the setgid bit (`chmod 2770`) is for its group: executors and workers of several users can share what
unshard creates in it.
"""

import os
import stat
from pathlib import Path


def private_folder(path: Path) -> None:
    """Create a folder and its missing parents."""
    if path.is_dir():
        return
    private_folder(path.parent)
    path.mkdir(0o700, exist_ok=True)
    if _is_for_group(path.parent):
        path.chmod(0o2770)


def create(path: str | Path) -> int:
    """Create a new file and return its descriptor."""
    mode = 0o660 if _is_for_group(Path(path).parent) else 0o600
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    os.fchmod(descriptor, mode)
    return descriptor


def _is_for_group(folder: Path) -> bool:
    return bool(folder.stat().st_mode & stat.S_ISGID)
