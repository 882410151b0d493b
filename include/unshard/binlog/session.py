"""What a QUERY event says about the session that ran its statement, as far as the meaning of DDL depends on it.

Only what a server's replicas would set too is in the event. The names are those that SET takes; collations and
the language of dates come as numbers, which SET takes as well.
"""

import re
from collections.abc import Mapping

FLAGS, CHARSETS, LANGUAGE, TIMESTAMPS, FRACTION = 0, 4, 7, 16, 128
NO_CHECKS, EXPLICIT, IF_EXISTS = 1 << 15, 1 << 24, 1 << 28
FLAGGED_SINCE = (10, 8, 4)
"""MariaDB has explicit_defaults_for_timestamp in the flags since it can be set in a session."""


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
    """Whether a server that calls its version so is a MariaDB."""
    return "mariadb" in server_version.lower()


def fraction_of(variables: Mapping[int, bytes]) -> int:
    """Return the microseconds of the statement's time, 0 where the event tells none."""
    return int.from_bytes(variables.get(FRACTION, b""), "little")


def _numbers(data: bytes) -> tuple[int, ...]:
    return tuple(int.from_bytes(data[at : at + 2], "little") for at in range(0, len(data), 2))


def _version(text: str) -> tuple[int, ...]:
    # MariaDB may say 5.5.5-10.11.6-MariaDB, for the sake of old replicas.
    numbers = re.findall(r"(\d+)\.(\d+)\.(\d+)", text)
    return tuple(map(int, numbers[-1])) if numbers else ()
