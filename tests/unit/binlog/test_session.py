"""Session settings in QUERY events: status variables as servers have written them."""

import pytest

from unshard.binlog.events import fraction_of, session_of

MARIADB, OLD, MYSQL = "10.11.19-MariaDB-log", "5.5.5-10.6.12-MariaDB", "8.0.36"
CASES = [
    (
        MARIADB,
        {0: "00000001", 4: "2d002d002d00"},
        {"explicit_defaults_for_timestamp": 1, "collation_connection": 45, "collation_server": 45},
    ),
    (MARIADB, {0: "00000000"}, {"explicit_defaults_for_timestamp": 0}),
    (
        MARIADB,
        {0: "00800011", 7: "0400"},
        {"explicit_defaults_for_timestamp": 1, "check_constraint_checks": 0, "sql_if_exists": 1, "lc_time_names": 4},
    ),
    (
        MARIADB,
        {0: "00000001", 4: "08002f000009"},
        {"explicit_defaults_for_timestamp": 1, "collation_connection": 47, "collation_server": 2304},
    ),
    (OLD, {0: "00000000"}, {}),
    (MYSQL, {0: "00800011", 16: "01"}, {"explicit_defaults_for_timestamp": 1}),
    (MYSQL, {0: "00000000"}, {}),
    (MARIADB, {}, {"explicit_defaults_for_timestamp": 0}),
]


@pytest.mark.parametrize(("version", "variables", "want"), CASES)
def test_variables_that_the_meaning_of_ddl_depends_on(
    version: str, variables: dict[int, str], want: dict[str, int]
) -> None:
    found = session_of({code: bytes.fromhex(value) for code, value in variables.items()}, version)
    assert dict(found) == want


def test_microseconds_are_told_only_when_they_were_asked_for() -> None:
    assert fraction_of({128: bytes.fromhex("90d003")}) == 250_000
    assert fraction_of({}) == 0
