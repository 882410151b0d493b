"""The MySQL that the tests of this folder share."""

import pytest

from unshard_demo.servers import MariaDb


@pytest.fixture(scope="session")
def mysql(mysql_target: MariaDb) -> MariaDb:
    """Return a MySQL with a binlog, which may also be a target."""
    return mysql_target
