"""What Airflow has written while the tests before these ran: nothing secret, and only its owner can read it."""

import contextlib

import pytest

from tests.e2e.merge import Merge
from unshard_demo.airflow import Airflow

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.integration]


def test_nothing_secret_in_logs_and_values(airflow: Airflow, impatient: Merge, merge: Merge) -> None:
    seen, found = set[str](), list[str]()
    for path in merge.folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # a live run removes files of the relay meanwhile
            if path.is_file() and path.stat().st_size < 50_000_000:
                found += [str(path)] if merge.password.encode() in path.read_bytes() else []
                seen.add(path.name)
    assert "airflow.db" in seen, "the test must look at the metadata database"
    assert not found


def test_files_are_private(airflow: Airflow) -> None:
    assert airflow.folder.stat().st_mode & 0o077 == 0
