"""The clock, account, settings, session limits and named locks of a server.

The server releases named locks (GET_LOCK) when the session ends.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from pymysql.connections import Connection

from unshard.adapters.mysql import Row, query
from unshard.errors.source import StatementRefused


def clock(connection: Connection) -> int:
    """Return the server's time in seconds since 1970."""
    ((now,),) = query(connection, "SELECT UNIX_TIMESTAMP()")
    return int(now)


def zone_offsets(connection: Connection) -> dict[datetime, timedelta]:
    """Return the offset of the server's time zone from UTC, now and in half a year.

    Two moments, because clocks may change twice a year.
    """
    ((now, later, *minutes),) = query(
        connection,
        "SELECT t, u, TIMESTAMPDIFF(MINUTE, t, CONVERT_TZ(t, '+00:00', @@GLOBAL.time_zone)),"
        " TIMESTAMPDIFF(MINUTE, u, CONVERT_TZ(u, '+00:00', @@GLOBAL.time_zone))"
        " FROM (SELECT UTC_TIMESTAMP() t, UTC_TIMESTAMP() + INTERVAL 6 MONTH u) moments",
    )
    pairs = zip((now, later), minutes, strict=True)
    return {moment: timedelta(minutes=ahead) for moment, ahead in pairs}


def account(connection: Connection) -> str:
    """Return the account of the connection, as GRANT names it."""
    ((name,),) = query(connection, "SELECT CURRENT_USER()")
    return str(name)


def shown_grants(connection: Connection) -> list[str]:
    """Return the lines of SHOW GRANTS for the account."""
    return [line for (line,) in query(connection, "SHOW GRANTS")]


def global_variables(connection: Connection, names: Sequence[str]) -> dict[str, str]:
    """Return the global variables of those names that the server has."""
    return _variables(connection, "GLOBAL", names)


def session_variables(connection: Connection, names: Sequence[str]) -> dict[str, str]:
    """Return the session variables of those names that the server has."""
    return _variables(connection, "SESSION", names)


def _variables(connection: Connection, scope: str, names: Sequence[str]) -> dict[str, str]:
    marks = ", ".join(["%s"] * len(names))
    rows = query(connection, f"SHOW {scope} VARIABLES WHERE Variable_name IN ({marks})", list(names))
    return {name: str(value) for name, value in rows}


def open_connections(connection: Connection) -> int:
    """Return how many connections the server has."""
    found = query(connection, "SHOW GLOBAL STATUS LIKE 'Threads_connected'")
    return int(found[0][1]) if found else len(query(connection, "SHOW PROCESSLIST"))  # TiDB has no such status


def has_collation(connection: Connection, charset: str, collation: str) -> bool:
    """Use a collation to find out whether the server has it: lists of collations differ between servers."""
    if not (charset + collation).replace("_", "").isalnum():
        return False
    try:
        query(connection, f"SELECT CONVERT('' USING {charset}) COLLATE {collation}")
    except StatementRefused:
        return False
    return True


def warnings(connection: Connection) -> list[Row]:
    """Return level, code and text of the warnings of the last statement."""
    return query(connection, "SHOW WARNINGS")


def packet_bytes(connection: Connection) -> int:
    """Return the size of the largest packet."""
    ((packet,),) = query(connection, "SELECT @@max_allowed_packet")
    return int(packet)


def allow_all_values(connection: Connection) -> None:
    """Clear the session's sql_mode: a strict mode rejects casts of zero dates and other values."""
    query(connection, "SET SESSION sql_mode = ''")


def list_warnings(connection: Connection, count: int) -> None:
    """Let the session list so many warnings of a statement; MySQL 8 requires a privilege for that."""
    query(connection, f"SET SESSION max_error_count = {count}")


def limit_ddl_wait(connection: Connection, seconds: int) -> None:
    """Limit how long a DDL of the session waits for transactions that use its table."""
    query(connection, "SET SESSION lock_wait_timeout = %s", (seconds,))


def limit_row_wait(connection: Connection, seconds: int) -> None:
    """Limit how long a statement of the session waits for rows that other transactions have locked."""
    query(connection, "SET SESSION innodb_lock_wait_timeout = %s", (seconds,))


def lock_what_is_read(connection: Connection) -> None:
    """Let each SELECT in a transaction of the session lock its rows for reading, also in a derived table."""
    query(connection, "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE")


def read_committed(connection: Connection) -> None:
    """Let each statement of the session see what is committed when it runs."""
    query(connection, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")


# --- whether a server takes changes ---

READ_ONLY = "super_read_only", "read_only"
"""The variables that keep all accounts, or those without a privilege, from writing; MariaDB has only the second."""


def read_only_variables(connection: Connection) -> dict[str, str]:
    """Return the variables with which the server refuses changes."""
    return global_variables(connection, READ_ONLY)


def is_read_only(variables: Mapping[str, str]) -> bool:
    """Whether applications cannot write: accounts with a privilege for it still may."""
    return variables.get("read_only") not in ("OFF", "0")


def set_read_only(connection: Connection, values: Mapping[str, str]) -> None:
    """Give the server these values of READ_ONLY; waits for transactions that are being committed."""
    for name in READ_ONLY:
        if name in values:
            query(connection, f"SET GLOBAL {name} = %s", (values[name],))


# --- named locks ---

AT_ONCE = 500
"""Locks that one statement asks for."""


def take_lock(connection: Connection, name: str, seconds: float) -> bool:
    """Take a lock; return False if another session holds it for that long."""
    ((taken,),) = query(connection, "SELECT GET_LOCK(%s, %s)", (name, seconds))
    return bool(taken)


def release_lock(connection: Connection, name: str) -> None:
    """Release a lock that the session holds."""
    query(connection, "SELECT RELEASE_LOCK(%s)", (name,))


def are_locks_held(connection: Connection, names: Sequence[str]) -> list[bool]:
    """Return for each lock whether any session holds it, without waiting."""
    held: list[bool] = []
    for start in range(0, len(names), AT_ONCE):
        some = names[start : start + AT_ONCE]
        ((*holders,),) = query(connection, f"SELECT {', '.join(['IS_USED_LOCK(%s)'] * len(some))}", some)
        held += (holder is not None for holder in holders)
    return held
