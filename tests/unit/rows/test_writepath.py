"""Which servers get rows as parameters."""

import pytest

from unshard.core.rows.writepath import LoadData, WritePath, Writing, has_bulk


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("10.11.19-MariaDB-0+deb12u1", True),
        ("10.11.8-MariaDB", True),
        ("10.11.7-MariaDB-log", False),
        ("5.5.5-10.6.18-MariaDB", True),
        ("5.5.5-10.6.17-MariaDB", False),
        ("10.5.24-MariaDB", False),
        ("10.4.34-MariaDB", False),
        ("11.3.2-MariaDB", False),
        ("11.8.2-MariaDB", True),
        ("12.3.1-MariaDB", True),
        ("8.0.40", False),
        ("8.0.11-TiDB-v7.5.5", False),
    ],
)
def test_a_server_with_the_command_and_without_its_error(version: str, expected: bool) -> None:
    assert has_bulk(version) is expected


@pytest.mark.parametrize("load_data", LoadData)
def test_the_path_is_told_with_that_of_the_rest(load_data: LoadData) -> None:
    writing = Writing(load_data, bulk=True)
    assert writing.path is WritePath.BULK
    assert "COM_STMT_BULK_EXECUTE" in writing.told and load_data.value in writing.told
    assert Writing(load_data).path is load_data.path
    assert "COM_STMT_BULK_EXECUTE" not in Writing(load_data).told
