"""The status of a task as JSON: for `unshard status --json`, the JSON API and the header of the page."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from unshard.config import Task
from unshard.core.ddl.online import OnlineTable
from unshard.core.rows.columnreload import Reload
from unshard.core.rows.writepath import Writing
from unshard.core.shown import as_document
from unshard.core.validate.ledger import PROOF_HOURS, Proof
from unshard.operate.advice import next_step
from unshard.operate.documents import (
    DifferenceDocument,
    ErrorDocument,
    PauseDocument,
    SuspendedDocument,
    difference_document,
    error_document,
    pause_document,
    suspended_document,
)

if TYPE_CHECKING:
    from unshard.units.ddl.differences import DifferenceView
    from unshard.units.task.status import Remarks, SourceStatus


@dataclass(frozen=True, slots=True)
class ProgressDocument:
    """The progress of a dump or load."""

    chunks: int
    done: int
    rows: int
    bytes: int
    percent: float
    rows_per_second: int | None
    bytes_per_second: int | None
    seconds_left: int | None
    rows_under_way: int


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """A source of a task."""

    source: str
    phase: str
    position: str | None
    upstream_position: str | None
    lag_seconds: int | None
    lag_is_least: bool
    lag_bytes: int | None
    last_event_at: str | None
    windows: int
    rows_applied: int
    rows_per_second: float
    rows_held: int
    bytes_held: int
    held_lag_seconds: int | None
    held_since: str | None
    shards: int
    shards_held: int
    dump: ProgressDocument
    load: ProgressDocument
    collisions: dict[str, int]
    error: ErrorDocument | None


@dataclass(frozen=True, slots=True)
class PlacedErrorDocument:
    """An error and the part of the task that it is about."""

    place: str
    code: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class OnlineDocument:
    """An online DDL that a tool runs on a shard."""

    source: str
    table: str
    shadow: str
    tool: str
    since: str | None
    statements: list[str]
    is_whole: bool


@dataclass(frozen=True, slots=True)
class IgnoredDocument:
    """A statement that was ignored because it could not be parsed and concerns no shard."""

    source: str
    location: str
    statement: str
    ignored_at: str


@dataclass(frozen=True, slots=True)
class RemovedTargetDocument:
    """A target that was truncated, dropped or renamed because its only shard was."""

    target: str
    lock: str
    ddl: str
    at: str


@dataclass(frozen=True, slots=True)
class DeletedShardDocument:
    """A shard whose rows were deleted from a merged target."""

    shard: str
    target: str
    location: str
    statement: str
    rows: int
    at: str


@dataclass(frozen=True, slots=True)
class ReloadDocument:
    """A reload of columns of a shard."""

    shard: str
    target: str
    columns: list[str]
    state: str
    chunks: int
    rows_read: int
    rows_changed: int
    began_at: str
    changed_at: str


@dataclass(frozen=True, slots=True)
class ProofDocument:
    """The rows of a target that the last validations have proven."""

    target: str
    rows: int
    rows_equal: int
    within_hours: int
    oldest_seconds: int
    ranges_different: int
    ranges_pending: int


@dataclass(frozen=True, slots=True)
class WarnedLockDocument:
    """A lock after whose DDL the target differs from the union of its shards."""

    lock: str
    warning: str


@dataclass(frozen=True, slots=True)
class StatusDocument:
    """The status of a task."""

    task: str
    state: str
    lag_seconds: int | None
    lag_is_least: bool
    rows_per_second: float
    rows_held: int
    next_step: str
    errors: list[PlacedErrorDocument]
    warnings: list[str]
    pause: PauseDocument | None
    sources: list[SourceDocument]
    write_path: str | None
    load_data: str | None
    write_sessions: dict[str, int] | None
    online_ddl: list[OnlineDocument]
    ignored_statements: list[IgnoredDocument]
    suspended_targets: list[SuspendedDocument]
    diverted_rows: dict[str, int]
    deferred_rows: dict[str, int]
    removed_targets: list[RemovedTargetDocument]
    deleted_shards: list[DeletedShardDocument]
    reloads: list[ReloadDocument]
    validated: list[ProofDocument]
    differences: list[DifferenceDocument]
    warned_locks: list[WarnedLockDocument]


def status_document(
    task: Task, sources: "Sequence[SourceStatus]", told: "Remarks", differences: "Sequence[DifferenceView]"
) -> dict[str, Any]:
    """Return the status of a task as JSON."""
    from unshard.units.task.status import condition_of_task, lag_of_task

    lag = lag_of_task(sources)
    return {
        "task": task.name,
        "state": condition_of_task(sources, told.pause),
        "lag_seconds": lag.seconds,
        "lag_is_least": lag.is_least,
        "rows_per_second": sum(each.rows_per_second for each in sources),
        "rows_held": sum(each.rows_held for each in sources),
        "next_step": str(next_step(sources, told)),
        "errors": [{"place": f"source {each.source}", **error_document(each.error)} for each in sources if each.error],
        "warnings": [*task.warnings],
        "pause": pause_document(told.pause),
        "sources": [source_document(each) for each in sources],
        **_writing_document(task, told.writing),
        "online_ddl": [_online_document(*each) for each in told.online],
        "ignored_statements": [
            as_document(each, IgnoredDocument, location="passed.location", statement="passed.text", ignored_at="at")
            for each in told.passed
        ],
        "suspended_targets": [suspended_document(stop) for stop in told.stops],
        "diverted_rows": dict(told.diverted),
        "deferred_rows": dict(told.deferred),
        "removed_targets": [
            as_document(lock, RemovedTargetDocument, lock="id", at="opened_at") for lock in told.removed
        ],
        "deleted_shards": [as_document(each, DeletedShardDocument) for each in told.deleted],
        "reloads": [reload_document(each) for each in told.reloads],
        "validated": [_proof_document(each) for each in told.proofs],
        "differences": [difference_document(each) for each in differences],
        "warned_locks": [as_document(lock, WarnedLockDocument, lock="id") for lock in told.warned],
    }


def source_document(each: "SourceStatus") -> dict[str, Any]:
    """Return the status of a source as JSON."""
    others = {
        "upstream_position": "upstream",
        "last_event_at": "last_event",
        "held_lag_seconds": "held_lag",
        "lag_is_least": "lag.is_least",
    }
    return {
        **as_document(each, SourceDocument, **others),
        "dump": asdict(each.dump),
        "load": asdict(each.load),
        "collisions": {str(state): number for state, number in each.collisions.items()},
        "error": error_document(each.error) if each.error else None,
    }


def reload_document(each: Reload) -> dict[str, Any]:
    """Return a reload as JSON."""
    return as_document(each, ReloadDocument)


def write_sessions(task: Task, writing: Writing) -> dict[str, int]:
    """Return for each source how many sessions may write one table."""
    return {each.source.id: writing.sessions(each.sync.workers) for each in task.instances}


def _writing_document(task: Task, writing: Writing | None) -> dict[str, Any]:
    if writing is None:
        return {"write_path": None, "load_data": None, "write_sessions": None}
    sessions = write_sessions(task, writing)
    return {"write_path": writing.path, "load_data": writing.load_data, "write_sessions": sessions}


def _proof_document(each: Proof) -> dict[str, Any]:
    return {
        "target": str(each.target),
        "rows": each.rows,
        "rows_equal": each.fresh_rows,
        "within_hours": PROOF_HOURS,
        "oldest_seconds": round(each.age.total_seconds()),
        "ranges_different": each.different,
        "ranges_pending": each.pending,
    }


def _online_document(source: str, online_table: OnlineTable) -> dict[str, Any]:
    shown = as_document(online_table, OnlineDocument, table="real", shadow="table", tool="seen", since="made_at")
    return {"source": source, **shown, "statements": [statement.text for statement in online_table.statements]}
