"""The way in which rows are written into the target, with the reason: LOAD DATA LOCAL or multi-row statements."""

from enum import StrEnum


class WritePath(StrEnum):
    """The way in which rows are written into the target."""

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

    @property
    def told(self) -> str:
        """The path and the reason in one sentence, for people."""
        how = "LOAD DATA LOCAL" if self.path is WritePath.LOAD_DATA else "multi-row INSERT and REPLACE statements"
        because = "which" if self.path is WritePath.LOAD_DATA else "because LOAD DATA LOCAL"
        return f"rows are written by {how}, {because} {self.value}"
