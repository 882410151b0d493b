"""The way in which rows are written into the target, with the reason."""

from dataclasses import dataclass
from enum import StrEnum

MOST_SESSIONS = 4
"""More sessions of one InnoDB table wait for each other (ADR 0016)."""


class WritePath(StrEnum):
    """The way in which rows are written into the target."""

    BULK = "bulk"
    LOAD_DATA = "load-data"
    STATEMENTS = "statements"


class LoadData(StrEnum):
    """The behaviour of LOAD DATA LOCAL on the target (see `adapters.target.trial`)."""

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
    """Whether the target has accepted COM_STMT_BULK_EXECUTE."""

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
