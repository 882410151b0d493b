"""The pooled connection to the meta schema, which causes no round trips except those of its statements.

The session is in autocommit mode. COMMIT and ROLLBACK are sent only if the server's last answer said that a transaction
is open, because SQLAlchemy requests one of them after every use.

A connection may be lost while it is in the pool: the server was restarted or has closed it. The first statement after
the checkout detects that and runs again on a new session. That is safe, because this statement begins a transaction or
only reads, and no statement of a transaction comes before it.
"""

from typing import Any

import pymysql
from pymysql.constants import SERVER_STATUS

from unshard.adapters import mysql
from unshard.core.model import Server

WHERE = "target (meta tables)"
OWN_SESSION = (mysql.OWN_SESSION, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")


class PooledConnection(mysql.ServerConnection):
    """A connection whose first statement after `doubt` may open a new session."""

    server: Server | None = None
    is_doubted = False

    def doubt(self) -> None:
        """Let the next statement open a new session if the connection is lost."""
        self.is_doubted = True

    def query(self, sql: str | bytes, unbuffered: bool = False) -> int:
        """Run a statement; the first one after `doubt` runs again on a new session if the old one is lost."""
        is_first, self.is_doubted = self.is_doubted, False
        try:
            return int(super().query(sql, unbuffered))
        except pymysql.err.Error as error:
            if not is_first or self.server is None or not mysql.is_lost(error):
                raise
        self.connect()
        mysql.prepare(self, self.server, OWN_SESSION)
        return int(super().query(sql, unbuffered))

    def commit(self) -> None:
        """Commit the transaction, if one is open."""
        if self._is_in_transaction():
            super().commit()

    def rollback(self) -> None:
        """Roll the transaction back, if one is open."""
        if self._is_in_transaction():
            super().rollback()

    def _is_in_transaction(self) -> bool:
        return bool(self.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS)


def connect(server: Server, **options: Any) -> PooledConnection:
    """Connect; set the task's session variables, then ours."""
    connection = mysql.driver_connection(server, PooledConnection, autocommit=True, **options)
    connection.server, connection.where = server, WHERE
    mysql.prepare(connection, server, OWN_SESSION)
    return connection
