"""The hook of connections to sources and targets; Airflow's form of connections offers its type."""

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from unshard_airflow.connections import airflow_connections

if TYPE_CHECKING:
    from pymysql.connections import Connection


class UnshardHook(BaseHook):
    """Connects to a MySQL, MariaDB or TiDB server with the checks of unshard: no file and no password in clear text."""

    conn_name_attr = "conn_id"
    default_conn_name = "unshard_default"
    conn_type = "unshard"
    hook_name = "MySQL, MariaDB or TiDB (unshard)"

    def __init__(self, conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id

    def get_conn(self) -> "Connection":
        """Open a connection; raises an error with a code."""
        from unshard.adapters.mysql import connect
        from unshard.config import resolve
        from unshard.config.sources import Endpoint

        return connect(resolve(Endpoint(conn_id=self.conn_id), airflow_connections))

    def test_connection(self) -> tuple[bool, str]:
        """Log in, and return the version of the server or the error."""
        from unshard.adapters.mysql import query
        from unshard.errors import UnshardError

        try:
            with self.get_conn() as connection:
                ((version,),) = query(connection, "SELECT VERSION()")
        except UnshardError as error:
            return False, str(error)
        return True, f"connected to {version}"

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Show host, login, password, port and extra."""
        return {
            "hidden_fields": ["schema"],
            "relabeling": {},
            "placeholders": {
                "port": "3306",
                "extra": '{"ssl_mode": "verify_identity", "ssl": {"ca": "/etc/ssl/certs/db.pem"}}',
            },
        }
