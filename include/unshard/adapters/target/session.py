"""Connections that write rows: one set of session variables, so that a value is stored as it came.

* STRICT_ALL_TABLES: what does not fit is an error or a warning, never a silent cut.
* NO_AUTO_VALUE_ON_ZERO: a 0 in an AUTO_INCREMENT column stays 0.
* No NO_ZERO_DATE, but ALLOW_INVALID_DATES: the source accepted these dates, so they are data.
* sql_notes: a shortened DECIMAL is only a note, and notes must be counted.
* READ COMMITTED: no gap locks, because writers of other sources work in the same tables.
"""

from dataclasses import dataclass
from enum import StrEnum

from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.core.model import Server

STRICT = "STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES"
LENIENT = "NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES"
LISTED_WARNINGS = 65535
"""How many warnings the server keeps for SHOW WARNINGS; no statement of ours sends more rows."""
OWN_SESSION = (
    f"{mysql.SAME_EVERYWHERE}, sql_mode = '{STRICT}', foreign_key_checks = 0, unique_checks = 1, sql_notes = 1,"
    f" max_error_count = {LISTED_WARNINGS}",
    # A statement of its own: the variable's name depends on the server's make and version.
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
)


TRANSACTIONS = "SET SESSION tidb_txn_mode = 'pessimistic', tidb_constraint_check_in_place_pessimistic = 1"
"""TiDB: a key that is taken is an error of its statement; else it would be one of the COMMIT, and name no statement."""


class LoadData(StrEnum):
    """What LOAD DATA LOCAL does on the target (see `trial`)."""

    TRANSACTIONAL = "takes part in the open transaction"
    COMMITS = "commits the open transaction"
    REFUSED = "is refused"
    UNKNOWN = "could not be tried"


@dataclass(frozen=True, slots=True)
class Writer:
    """The target, and how rows are written into it; travels with each job to the executors."""

    server: Server
    load_data: LoadData = LoadData.UNKNOWN
    packet_bytes: int = 1 << 20
    """The target's max_allowed_packet: no statement is larger."""
    sessions: int = 1
    """How many of them write ranges of one table at the same time, where rows go by statements."""
    settings: tuple[str, ...] = ()
    """Statements that the target accepts and that make a session as ours have to be."""
    version: str = ""
    """Version of the server that was tried; another one behind the same address gets statements."""

    def loads_into(self, connection: Connection) -> bool:
        """Return whether a session may use LOAD DATA LOCAL; else multi-row statements do the same."""
        return self.load_data is LoadData.TRANSACTIONAL and connection.get_server_info() == self.version


def open_session(writer: Writer) -> Connection:
    """Connect to the target for writing rows; raises coded errors."""
    connection = mysql.connect(writer.server, "target", local_infile=True, own=(*OWN_SESSION, *writer.settings))
    connection.uses_load_data, connection.packet_bytes = writer.loads_into(connection), writer.packet_bytes
    return connection
