"""Adapt Airflow Connections to unshard's `Connections` function."""

import asyncio
from collections.abc import Mapping
from typing import Any

from unshard.config.secrets import variable_of
from unshard.errors.config import ConnectionUnknown
from unshard_airflow.versions import THREADS_MAY_ASK


def airflow_connections(conn_id: str) -> Mapping[str, Any]:
    """Read a connection from Airflow: secrets backend, environment or metadata database."""
    return _values(_get(conn_id))


def server_connections(conn_id: str) -> Mapping[str, Any]:
    """Read a connection as a process of Airflow that is no task may: `airflow unshard`."""
    from airflow.models import Connection
    from airflow.providers.common.compat.sdk import AirflowNotFoundException

    try:
        return _values(Connection.get_connection_from_secrets(conn_id))
    except AirflowNotFoundException as error:
        raise ConnectionUnknown(conn_id, variable_of(conn_id)) from error


def _values(connection: Any) -> Mapping[str, Any]:
    return {
        "conn_type": connection.conn_type,
        "host": connection.host,
        "port": connection.port,
        "login": connection.login,
        "password": connection.password,
        "schema": connection.schema,
        "extra": connection.extra or "",
    }


_loop: asyncio.AbstractEventLoop | None = None
"""The event loop that asks for connections; None: each thread asks."""


def ask_on_this_loop() -> None:
    """Let the event loop of the triggerer ask for the connections of its threads, if they must not do so themselves."""
    global _loop  # noqa: PLW0603
    _loop = None if THREADS_MAY_ASK else asyncio.get_running_loop()


def _get(conn_id: str) -> Any:
    from airflow.providers.common.compat.sdk import AirflowNotFoundException
    from airflow.sdk import Connection

    try:
        if _loop is None:
            return Connection.get(conn_id)
        return asyncio.run_coroutine_threadsafe(Connection.async_get(conn_id), _loop).result()
    except AirflowNotFoundException as error:
        raise ConnectionUnknown(conn_id, variable_of(conn_id)) from error
