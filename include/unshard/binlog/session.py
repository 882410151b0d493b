"""Read the session settings from a QUERY event that the meaning of DDL depends on.

The event contains only the settings that the server's replicas would apply. The names are those of the SET statement.
Collations and the language of dates are numbers, which SET accepts too.
"""

import re
from collections.abc import Mapping

FLAGS, CHARSETS, LANGUAGE, MICROSECONDS, TIMESTAMPS, DEFAULT_UTF8MB4 = 0, 4, 7, 13, 16, 18
FRACTION, COLLATIONS = 128, 131
NO_CHECKS, EXPLICIT, IF_EXISTS = 1 << 15, 1 << 24, 1 << 28
FLAGGED_SINCE = (10, 8, 4)
"""Since this version a MariaDB session can set explicit_defaults_for_timestamp, and the flags contain it."""


def session_of(variables: Mapping[int, bytes], server_version: str) -> tuple[tuple[str, int], ...]:
    """Return names and values of the session's variables; `variables` are the event's by code."""
    found: dict[str, int] = {}
    if collations := variables.get(CHARSETS):
        _, found["collation_connection"], found["collation_server"] = _numbers(collations)
    if language := variables.get(LANGUAGE):
        (found["lc_time_names"],) = _numbers(language)
    of_mariadb = is_mariadb(server_version)
    flags = int.from_bytes(variables.get(FLAGS, b""), "little")
    if of_mariadb and _version(server_version) >= FLAGGED_SINCE:
        found["explicit_defaults_for_timestamp"] = int(bool(flags & EXPLICIT))
    elif TIMESTAMPS in variables:
        found["explicit_defaults_for_timestamp"] = variables[TIMESTAMPS][0]
    if of_mariadb and flags & NO_CHECKS:
        found["check_constraint_checks"] = 0
    if of_mariadb and flags & IF_EXISTS:
        found["sql_if_exists"] = 1
    return tuple(sorted(found.items()))


def is_mariadb(server_version: str) -> bool:
    """Whether a server with this version string is a MariaDB."""
    return "mariadb" in server_version.lower()


def fraction_of(variables: Mapping[int, bytes]) -> int:
    """Return the microseconds of the statement's time, 0 if the event has none."""
    return int.from_bytes(variables.get(FRACTION, variables.get(MICROSECONDS, b"")), "little")


def collations_of(variables: Mapping[int, bytes]) -> tuple[int, ...]:
    """Return the numbers of `character_set_collations` (MariaDB 11.3) and `default_collation_for_utf8mb4` (MySQL 8).

    A character set that a statement names without a collation has one of them. MariaDB's event contains pairs of
    numbers: the default collation that is compiled into the server, and the collation that the session uses instead.
    """
    pairs = _numbers(variables.get(COLLATIONS, b"\0")[1:])
    return (*pairs[1::2], *_numbers(variables.get(DEFAULT_UTF8MB4, b"")))


def _numbers(data: bytes) -> tuple[int, ...]:
    return tuple(int.from_bytes(data[at : at + 2], "little") for at in range(0, len(data), 2))


def _version(text: str) -> tuple[int, ...]:
    # MariaDB may report 5.5.5-10.11.6-MariaDB, for compatibility with old replicas.
    numbers = re.findall(r"(\d+)\.(\d+)\.(\d+)", text)
    return tuple(map(int, numbers[-1])) if numbers else ()
