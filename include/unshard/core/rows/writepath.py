"""The way in which rows are written into the target, with the reason."""

import re
from dataclasses import dataclass
from enum import StrEnum

MOST_SESSIONS = 4
"""More sessions of one InnoDB table wait for each other (ADR 0016)."""

FIRST_BULK = {(10, 5): 25, (10, 6): 18, (10, 11): 8, (11, 0): 6, (11, 1): 5, (11, 2): 4, (11, 4): 2}
"""Releases of MariaDB since which the INSERT of a trigger takes no values from COM_STMT_BULK_EXECUTE (MDEV-24411)."""
MARIADB = re.compile(r"(?:5\.5\.5-)?(\d+)\.(\d+)\.(\d+)-MariaDB", re.IGNORECASE)


def has_bulk(version: str) -> bool:
    """Whether a server of this version has COM_STMT_BULK_EXECUTE, without a known error."""
    found = MARIADB.match(version)
    if not found:
        return False
    series, release = (int(found[1]), int(found[2])), int(found[3])
    return release >= FIRST_BULK[series] if series in FIRST_BULK else series > max(FIRST_BULK)


class WritePath(StrEnum):
    """The way in which rows are written into the target."""

    BULK = "bulk"
    LOAD_DATA = "load-data"
    STATEMENTS = "statements"


class LoadData(StrEnum):
    """The behaviour of LOAD DATA LOCAL on the target (see `adapters.target.writetrial`)."""

    TRANSACTIONAL = "takes part in the open transaction"
    COMMITS = "commits the open transaction"
    REFUSED = "is refused"
    UNKNOWN = "could not be tried"

    @property
    def path(self) -> WritePath:
        """The write path that keeps rows and fence in one transaction."""
        return WritePath.LOAD_DATA if self is LoadData.TRANSACTIONAL else WritePath.STATEMENTS


@dataclass(frozen=True, slots=True)
class Writing:
    """The result of the trial on the target."""

    load_data: LoadData
    processors: int = 1
    """The processors of the target, as far as it tells."""
    bulk: bool = False

    @property
    def path(self) -> WritePath:
        """The fastest path of the target; values that it does not take are written by the path of LOAD DATA."""
        return WritePath.BULK if self.bulk else self.load_data.path

    @property
    def told(self) -> str:
        """The paths and the reason in one sentence, for people."""
        is_loading = self.load_data.path is WritePath.LOAD_DATA
        how = "LOAD DATA LOCAL" if is_loading else "multi-row INSERT and REPLACE statements"
        because = "which" if is_loading else "because LOAD DATA LOCAL"
        first = "MariaDB's COM_STMT_BULK_EXECUTE, and the rest by " if self.bulk else ""
        return f"rows are written by {first}{how}, {because} {self.load_data.value}"

    def sessions(self, worker_count: int) -> int:
        """Return how many sessions write one table at the same time, if the window is large and its keys allow it."""
        if self.load_data is not LoadData.TRANSACTIONAL:
            return worker_count
        return min(worker_count, self.processors, MOST_SESSIONS)
