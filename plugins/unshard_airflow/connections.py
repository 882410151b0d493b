"""Adapt Airflow Connections to unshard's `Connections` function."""

from collections.abc import Mapping
from typing import Any

from unshard.config.secrets import variable_of
from unshard.errors.config import ConnectionUnknown


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


def _get(conn_id: str) -> Any:
    from airflow.providers.common.compat.sdk import AirflowNotFoundException
    from airflow.sdk import Connection

    try:
        return Connection.get(conn_id)
    except AirflowNotFoundException as error:
        raise ConnectionUnknown(conn_id, variable_of(conn_id)) from error
