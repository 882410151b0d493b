"""Sizes and times that the driver works with. They are measured, not configured; tests make them small."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one process."""

    late_rows: int = 100_000
    """A load of fewer rows keeps its indexes: below this, two ALTERs take longer than they save."""
    pause_seconds: float = 1.0
    """The pause before the first retry of a source or a lock; it doubles with each retry."""
    small_bytes: int = 4 << 20
    """A window up to this size is one Spark task: the cost of the job itself is nearly all."""
    alone_bytes: int = 128 << 20
    """The same for a window of one target: a shuffle costs more than parallel reading gains (ADR 0006)."""
    worker_bytes: int = 4 << 20
    """Bytes for each Spark task of a larger window."""
    most_workers: int = 32
    deleted_rows: int | None = None
    """Rows of a dropped shard that one transaction deletes; None: as many as the target's transactions may have."""

    reload_rows: int = 5_000
    """Rows of a chunk of a reload at most: windows of the source wait while it is read and written."""


LIMITS = Limits()
