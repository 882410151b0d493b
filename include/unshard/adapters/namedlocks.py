"""Named locks of a server (GET_LOCK). The server releases them when the session ends."""

from collections.abc import Sequence

from pymysql.connections import Connection

from unshard.adapters.mysql import query

AT_ONCE = 500
"""Locks that one statement asks for."""


def take(connection: Connection, name: str, seconds: float) -> bool:
    """Take a lock; return False if another session holds it for that long."""
    ((taken,),) = query(connection, "SELECT GET_LOCK(%s, %s)", (name, seconds))
    return bool(taken)


def release(connection: Connection, name: str) -> None:
    """Release a lock that the session holds."""
    query(connection, "SELECT RELEASE_LOCK(%s)", (name,))


def are_held(connection: Connection, names: Sequence[str]) -> list[bool]:
    """Return for each lock whether any session holds it, without waiting."""
    held: list[bool] = []
    for start in range(0, len(names), AT_ONCE):
        some = names[start : start + AT_ONCE]
        ((*holders,),) = query(connection, f"SELECT {', '.join(['IS_USED_LOCK(%s)'] * len(some))}", some)
        held += (holder is not None for holder in holders)
    return held
