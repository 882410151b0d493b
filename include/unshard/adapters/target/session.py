"""Sessions that write rows: one set of session variables, so that the server stores every value unchanged.

* STRICT_ALL_TABLES: a value that does not fit is an error or a warning, and is never cut silently.
* NO_AUTO_VALUE_ON_ZERO: a 0 in an AUTO_INCREMENT column stays 0.
* ALLOW_INVALID_DATES without NO_ZERO_DATE: the source accepted these dates, so they are data.
* sql_notes: a shortened DECIMAL is only a note, and notes must be counted.
* READ COMMITTED: no gap locks, because writers of other sources work in the same tables.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.connectionpool import ConnectionPool
from unshard.adapters.target.destination import Form
from unshard.core.model import Server
from unshard.core.rows.writepath import LoadData, Writing

STRICT = "STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES"
LENIENT = "NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES"
LISTED_WARNINGS = 65535
"""How many warnings the server keeps for SHOW WARNINGS; no statement of unshard sends more rows."""
OWN_SESSION = (
    f"{mysql.SAME_EVERYWHERE}, sql_mode = '{STRICT}', foreign_key_checks = 0, unique_checks = 1, sql_notes = 1,"
    f" max_error_count = {LISTED_WARNINGS}",
    # A separate statement, because the variable's name depends on the server's product and version.
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
)


TRANSACTIONS = "tidb_txn_mode = 'pessimistic', tidb_constraint_check_in_place_pessimistic = 1"
"""TiDB then reports a taken key at its statement. Otherwise it reports it at COMMIT, without the statement."""
NUMBERS = "allow_auto_random_explicit_insert = 1"
"""TiDB then lets a changed row keep its value of an AUTO_RANDOM column."""
KEPT_SECONDS = 60.0
"""A session is replaced at this age, so that changes of the target and its accounts take effect."""
KEPT_SESSIONS = 8
"""How many unused sessions a process keeps: its threads write windows of several sources."""


@dataclass(frozen=True, slots=True)
class Writer:
    """The target and how rows are written into it; part of each job that executors receive."""

    server: Server
    load_data: LoadData = LoadData.UNKNOWN
    packet_bytes: int = 1 << 20
    """The target's max_allowed_packet: no statement is larger."""
    sessions: int = 1
    """How many sessions may write one table at the same time."""
    processors: int = 1
    """The processors of the target, as far as it tells."""
    settings: tuple[str, ...] = ()
    """Additional SET statements that the target accepts and that our sessions need."""
    bulk: bool = False
    """Whether the target has accepted COM_STMT_BULK_EXECUTE (MariaDB)."""
    version: str = ""
    """Version of the probed server. A server of another version at the same address gets statements."""

    @property
    def writing(self) -> Writing:
        """The result of the trial."""
        return Writing(self.load_data, self.processors, self.bulk)

    @property
    def form(self) -> Form:
        """The form of lines that is written fastest."""
        return Form.PARAMETERS if self.bulk else Form.TEXT

    def is_of(self, connection: Connection) -> bool:
        """Return whether a session is connected to a server of the probed version; others get statements."""
        return bool(connection.get_server_info() == self.version)


def open_session(writer: Writer) -> Connection:
    """Connect to the target for writing rows; raises coded errors."""
    connection = mysql.connect(writer.server, "target", local_infile=True, own=(*OWN_SESSION, *writer.settings))
    is_same = writer.is_of(connection)
    connection.uses_load_data = is_same and writer.load_data is LoadData.TRANSACTIONAL
    connection.uses_bulk = is_same and writer.bulk and connection.executes_bulk
    connection.packet_bytes, connection.prepared = writer.packet_bytes, {}
    return connection


_KEPT: dict[Writer, ConnectionPool] = {}


@contextlib.contextmanager
def kept_session(writer: Writer) -> Iterator[Connection]:
    """Lend a session that this process keeps from one window to the next; an error in the block closes it.

    One statement tests the session and sets its variables again. The block may change no others.
    """
    pool = _KEPT.setdefault(writer, ConnectionPool(partial(open_session, writer), KEPT_SESSIONS, KEPT_SECONDS))
    with pool.lent(lambda connection: mysql.query(connection, OWN_SESSION[0])) as connection:
        uses_load_data = connection.uses_load_data
        yield connection
        connection.uses_load_data = uses_load_data
